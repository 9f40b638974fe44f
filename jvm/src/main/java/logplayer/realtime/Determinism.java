package logplayer.realtime;

import java.util.Locale;
import java.util.Set;
import java.util.regex.Pattern;
import org.apache.spark.sql.catalyst.expressions.AesEncrypt;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.RuntimeReplaceable;
import org.apache.spark.sql.catalyst.plans.logical.GlobalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LocalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Offset;
import org.apache.spark.sql.catalyst.plans.logical.OrderPreservingUnaryNode;
import org.apache.spark.sql.catalyst.plans.logical.Sample;
import org.apache.spark.sql.catalyst.plans.logical.Sort;
import org.apache.spark.sql.catalyst.plans.logical.Tail;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.jdk.javaapi.CollectionConverters;

/**
 * What gives another result from time to time: an entry that is computed again after a crash must be the same.
 *
 * <p>Spark's own word for it, {@code deterministic}, is about one run of a query, where clocks stand still; and it leaves
 * out a few things. What was a clock before Spark saw it cannot be told from any other value: a typed literal ({@code
 * timestamp'now'}, which the parser computes), a time that Python took.
 */
final class Determinism {
  private static final Set<String> CLOCKS =
      Set.of("CurrentTimestamp", "CurrentDate", "Now", "LocalTimestamp", "CurrentTime", "CurrentBatchTimestamp", "CurrentTimeZone");
  private static final Pattern SPECIAL = Pattern.compile("[\\s\\p{Cntrl}]*(now|today|tomorrow|yesterday)\\b.*", Pattern.DOTALL);
  private static final String AGAIN = "an entry that is delivered again after a crash would differ";

  private Determinism() {}

  /** Why an expression, without those in it, may give another result; empty if it cannot. */
  static String refusal(Expression expression) {
    if (!expression.deterministic() || CLOCKS.contains(expression.getClass().getSimpleName())) {
      return "the transformation calls " + expression.prettyName() + ", which gives another result each time: " + AGAIN
          + "; use what the row itself has, such as committed_at";
    }
    if (expression instanceof AesEncrypt made && !text(made.mode()).equalsIgnoreCase("ECB") && made.iv().foldable() && isEmpty(made.iv())) {
      return "the transformation calls aes_encrypt without an IV, which makes a random one each time: " + AGAIN
          + "; give an IV that is made of the row, such as unhex(substring(sha2(key, 256), 1, 24))";
    }
    if (expression instanceof Cast cast && isTime(cast) && cast.child().foldable() && cast.child().dataType() instanceof StringType) {
      String given = text(cast.child());
      if (SPECIAL.matcher(given.toLowerCase(Locale.ROOT)).matches()) {
        return "the transformation makes a time of the text '" + given + "', which Spark reads as its clock: " + AGAIN
            + "; write the time itself, or use what the row has, such as committed_at";
      }
    }
    return "";
  }

  /** What Spark puts in the expression's place before it runs; itself if nothing. */
  static Expression replaced(Expression expression) {
    return expression instanceof RuntimeReplaceable one ? one.replacement() : expression;
  }

  /** Why a node that does not read the log may give other rows; empty if it cannot, or if its expressions tell. */
  static String refusal(LogicalPlan node) {
    if (node instanceof Sample) {
      return "the transformation reads a sample, which has other rows each time: " + AGAIN
          + "; write the sample into a table, or choose by a filter on a hash of a column";
    }
    boolean cuts = node instanceof GlobalLimit || node instanceof LocalLimit || node instanceof Offset || node instanceof Tail;
    LogicalPlan below = node.children().isEmpty() ? node : node.children().head();
    if (cuts && !hasOnePlaceForEach(below)) {
      return "the transformation reads a limit without an order, which may have other rows each time: " + AGAIN
          + "; put an orderBy before it, by columns that are unique";
    }
    return "";
  }

  /** Whether the rows have an order, or are one row at most, as of an aggregate without groups. */
  private static boolean hasOnePlaceForEach(LogicalPlan node) {
    if (node.maxRows().isDefined() && ((Number) node.maxRows().get()).longValue() <= 1) {
      return true;
    }
    if (node instanceof Sort sort) {
      return sort.global();
    }
    boolean passes = node instanceof OrderPreservingUnaryNode || node instanceof GlobalLimit;
    return passes && hasOnePlaceForEach(node.children().head());
  }

  private static boolean isTime(Cast cast) {
    String name = cast.dataType().typeName();
    return name.equals("date") || name.startsWith("timestamp");
  }

  private static String text(Expression constant) {
    return constant.foldable() && constant.eval(null) instanceof UTF8String found ? found.toString() : "";
  }

  private static boolean isEmpty(Expression constant) {
    Object found = constant.eval(null);
    return found == null || (found instanceof byte[] bytes && bytes.length == 0)
        || (found instanceof UTF8String words && words.numBytes() == 0);
  }
}
