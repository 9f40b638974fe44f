package logplayer.realtime;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Whether a transformation is one through which exactly-once can be kept: an allow list over its analysed plan.
 *
 * <p>Allowed is what makes rows of one row at once, in the same task: see {@link TaskFeed} for why. Everything that is not
 * on the list is refused, so that an operator of a later Spark is not let through by accident. Parts of the plan that do
 * not read the log (the other side of a join, a subquery) may be anything that gives the same result each time: no chance,
 * and no clocks ({@link Determinism}).
 */
public final class PlanCheck {
  private static final String LOGICAL = "org.apache.spark.sql.catalyst.plans.logical.";
  private static final Set<String> OPERATORS =
      Set.of(
          "Project", "Filter", "Generate", "SubqueryAlias", "Join", "ResolvedHint", "View", "CollectMetrics");
  private static final Set<String> JOINS = Set.of("Inner", "LeftOuter", "LeftSemi", "LeftAnti", "Cross");

  private PlanCheck() {}

  /** Why the rows cannot be delivered, in one sentence with what to do; empty if they can. */
  public static String refusal(Dataset<?> rows) {
    LogicalPlan plan = org.apache.spark.sql.classic.Dataset.class.cast(rows).queryExecution().analyzed();
    int sources = 0;
    Deque<LogicalPlan> open = new ArrayDeque<>(List.of(plan));
    while (!open.isEmpty()) {
      LogicalPlan node = open.pop();
      if (node.isStreaming() && node.children().isEmpty()) {
        sources++;
        continue;
      }
      String reason = node.isStreaming() ? refusalOf(node) : refusalOfOneStatic(node);
      if (!reason.isEmpty()) {
        return reason;
      }
      open.addAll(CollectionConverters.asJava(node.children()));
    }
    if (sources != 1) {
      return "the transformation reads " + sources + " streams: give back the rows that it got, once and nothing else";
    }
    for (String name : List.of("log_index", "target")) {
      if (!passes(plan, name)) {
        return "the transformation changes the column " + name + ", by which entries are delivered: leave it as it is";
      }
    }
    return "";
  }

  private static String refusalOf(LogicalPlan node) {
    String kind = node.getClass().getName();
    String name = node.nodeName();
    if (!kind.startsWith(LOGICAL) || !OPERATORS.contains(kind.substring(LOGICAL.length()))) {
      if (name.contains("Python") || name.contains("Pandas") || name.contains("Arrow")) {
        return "the transformation calls Python (" + name + "), which gets rows in batches: they would wait for others, "
            + "and arrive when their entry counts as delivered; use SQL functions";
      }
      return "the transformation has the operator " + name + ", which holds rows back, moves them between tasks or keeps "
          + "state that no target has; use filters, projections, generators and joins with static tables";
    }
    if (node instanceof org.apache.spark.sql.catalyst.plans.logical.Join join) {
      boolean left = join.left().isStreaming();
      String type = join.joinType().toString();
      if (!JOINS.contains(type) || (!left && !type.equals("Inner") && !type.equals("Cross"))) {
        return "the transformation has a " + type + " join that would make rows out of none of the log; have the log on "
            + "the left, and join it inner, left outer, semi or anti";
      }
    }
    return refusalOfExpressions(node);
  }

  /** Of a node that reads the log, or of a static one, which may call Python. */
  private static String refusalOfExpressions(LogicalPlan node) {
    for (Expression one : CollectionConverters.asJava(node.expressions())) {
      String reason = refusalOf(one, node.isStreaming());
      if (!reason.isEmpty()) {
        return reason;
      }
    }
    return "";
  }

  private static String refusalOfOneStatic(LogicalPlan node) {
    String reason = Determinism.refusal(node);
    return reason.isEmpty() ? refusalOfExpressions(node) : reason;
  }

  /** Of a subquery, with all that is in it. */
  private static String refusalOfStatic(LogicalPlan node) {
    if (node.isStreaming()) {
      return "the transformation reads a stream in a subquery: join with a static table";
    }
    String reason = refusalOfOneStatic(node);
    for (LogicalPlan child : CollectionConverters.asJava(node.children())) {
      reason = reason.isEmpty() ? refusalOfStatic(child) : reason;
    }
    return reason;
  }

  private static String refusalOf(Expression expression, boolean streaming) {
    if (expression instanceof SubqueryExpression subquery) {
      String reason = refusalOfStatic((LogicalPlan) subquery.plan());
      if (!reason.isEmpty()) {
        return reason;
      }
    }
    for (Expression child : CollectionConverters.asJava(expression.children())) {
      String reason = refusalOf(child, streaming);
      if (!reason.isEmpty()) {
        return reason;
      }
    }
    String kind = expression.getClass().getSimpleName();
    if (streaming && kind.contains("Python")) {
      return "the transformation calls the Python function " + expression.prettyName() + ", which gets rows in batches: "
          + "they would wait for others, and arrive when their entry counts as delivered; use SQL functions";
    }
    String reason = Determinism.refusal(expression);
    Expression replaced = Determinism.replaced(expression);
    return reason.isEmpty() && replaced != expression ? refusalOf(replaced, streaming) : reason;
  }

  /** Whether the column is the source's own, and nothing computed. */
  private static boolean passes(LogicalPlan plan, String name) {
    List<Attribute> own = new ArrayList<>();
    for (Attribute one : CollectionConverters.asJava(plan.output())) {
      if (one.name().equals(name)) {
        own.add(one);
      }
    }
    return own.size() == 1 && comesFromSource(plan, own.get(0));
  }

  private static boolean comesFromSource(LogicalPlan plan, Attribute column) {
    if (plan.children().isEmpty()) {
      return plan.isStreaming() && plan.outputSet().contains(column);
    }
    if (plan instanceof Project project) {
      for (NamedExpression one : CollectionConverters.asJava(project.projectList())) {
        if (one.exprId().equals(column.exprId()) && one instanceof Alias alias) {
          return alias.child() instanceof Attribute inner && inner.name().equals(column.name()) && comesFromSource(project.child(), inner);
        }
      }
    }
    for (LogicalPlan child : CollectionConverters.asJava(plan.children())) {
      if (child.outputSet().contains(column)) {
        return comesFromSource(child, column);
      }
    }
    return false;
  }
}
