package logplayer.realtime;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentSkipListMap;
import logplayer.v1.Entry.Quarantined;
import logplayer.v1.Entry.Snapshot;
import org.apache.spark.TaskContext;

/**
 * What one task delivers: between its reader, which gives rows, and its sink, which gets what a query leaves of them.
 *
 * <p><b>Coverage.</b> A target's index says "everything up to here is applied". The query may drop rows, so that the rows
 * that arrive do not tell when an entry is through. The reader can tell: Spark pulls. The writer of a task asks its
 * iterator for a row, that one asks the iterator below it, and so on down to the reader, all on the thread of the task;
 * and before it asks for the next row, it has handed the row before over to {@link #take}. An operator that works row by
 * row (a filter, a projection, a generator, a join with a broadcast table) asks for its next input only when it has
 * handed over, or dropped, everything that it made of the input before. So at the moment in which the reader is asked for
 * the row after the last one of entry i, nothing of the entries up to i is on its way: all of it is here, or was dropped.
 * That moment is when {@link #endEntry} is called, and nothing else moves coverage. No row carries it, so no query can
 * lose it, repeat it or tear an entry in two.
 *
 * <p>What would break the argument is refused. A shuffle puts the sink into another task: then no sink has opened here,
 * and nothing is delivered. An operator that holds rows back is refused before the start ({@link PlanCheck}). If one got
 * through all the same, its row arrives when another row is the given one, and {@link #take} fails the task.
 */
final class TaskFeed implements AutoCloseable {
  private static final Map<Long, TaskFeed> BY_TASK = new ConcurrentHashMap<>();
  private static final long FLUSH_NS = 5_000_000; // Under load a delivery waits no longer than this for others.
  private static final long DRAIN_NS = 5_000_000_000L;
  private static final long[] RETRY_MS = {50, 100, 200, 500, 1000, 2000};
  private static final long STEADY_NS = 10_000_000_000L; // A group that was well for so long begins to count again.
  private static final int SESSIONS_BITS = 20; // Of a term: the sessions of one task; the bits above are the task's.

  private final long attempt;
  private boolean sinkOpened;
  private GivenRow given; // The row that the query works on; null: it has none.
  private final Map<String, TargetFeed> targets = new ConcurrentSkipListMap<>(); // Beats look at it, too.
  private final Map<String, Set<Long>> quarantined = new HashMap<>();
  private volatile long through;
  private byte[] throughChain = Chain.GENESIS;
  private long flushedAt;
  private Beats beats;
  private volatile long rowsIn;
  private volatile long rowsOut;
  private volatile Ending ended;
  private volatile Ending lost; // Why the group has no sessions now.
  private volatile LogClient log;
  private long sessions; // How often they were opened.
  private int losses; // In a row.
  private volatile long openedAt;

  private TaskFeed(long attempt) {
    this.attempt = attempt;
  }

  /** The one of the task whose thread calls. */
  static TaskFeed here() {
    TaskContext context = TaskContext.get();
    return BY_TASK.computeIfAbsent(
        context.taskAttemptId(),
        attempt -> {
          TaskFeed made = new TaskFeed(attempt);
          context.addTaskCompletionListener(
              done -> {
                BY_TASK.remove(attempt);
                made.close();
              });
          return made;
        });
  }

  // --- For the sink ---

  void openSink() {
    sinkOpened = true;
  }

  /** Takes a row that came through the query: what it made of the given row. */
  void take(long index, String target, byte[] key, byte[] value, String op) {
    GivenRow from = given;
    if (from == null || from.index() != index || !from.target().equals(target)) {
      String now = from == null ? "no row is under way" : "the row under way is of entry " + from.index() + " for " + from.target();
      throw failed(
          new Ending(
              Ending.Kind.UNSAFE,
              target == null ? "" : target,
              index,
              "a row of entry " + index + " arrives while " + now + ": the query holds rows back, or changes log_index or "
                  + "target; leave both as they are, and use filters, projections and generators only"));
    }
    try {
      targets.get(target).add(from.made(key, value, op), index);
    } catch (Ending ending) {
      throw failed(ending);
    }
    rowsOut++;
  }

  /** The writer has ended well: what is covered goes out, and is waited for. */
  void finish() throws InterruptedException {
    if (ended != null || lost != null || targets.isEmpty()) {
      return;
    }
    try {
      given = null;
      flush();
      drain();
    } catch (Ending ending) {
      if (ending.kind != Ending.Kind.LOST) { // Else the next task reads again what was not acked.
        throw failed(ending);
      }
    }
  }

  // --- For the reader ---

  /** Begins to report. The log that is read may be away. */
  void begin(Plan plan, int partition, LogClient reading) {
    log = reading;
    if (beats == null) {
      beats = new Beats(plan, partition, attempt, this);
    }
    if (!sinkOpened) {
      throw new Ending(
          Ending.Kind.UNSAFE,
          "",
          0,
          "the sink is not in the task that reads the log: the query moves rows between tasks (a shuffle); remove it");
    }
  }

  /** Opens a session with each target. Returns when all have answered. */
  void open(Plan plan, int partition) throws InterruptedException {
    for (Plan.Target one : plan.partitions().get(partition)) {
      targets.put(one.name(), new TargetFeed(one, plan.limits()));
    }
    // Attempts of tasks are numbered by the driver, and rise: a later one fences an earlier one.
    long term = (attempt + 1 << SESSIONS_BITS) + Math.min(sessions++, (1 << SESSIONS_BITS) - 1);
    targets.values().forEach(target -> target.open(plan, term));
    long deadline = System.nanoTime() + plan.limits().openMs() * 1_000_000L;
    for (TargetFeed target : targets.values()) {
      target.awaitOpened(deadline);
    }
    flushedAt = System.nanoTime();
    openedAt = flushedAt;
    lost = null;
  }

  /** A session is lost: ends all of the group, and waits before they are opened again. False if the batch ends meanwhile. */
  boolean lose(Ending why, long deadline) throws InterruptedException {
    targets.values().forEach(TargetFeed::close);
    targets.clear();
    lost = why;
    long now = System.nanoTime();
    losses = openedAt != 0 && now - openedAt > STEADY_NS ? 0 : losses;
    long pause = RETRY_MS[Math.min(losses++, RETRY_MS.length - 1)];
    long left = deadline == LogReader.ENDLESS ? pause : (deadline - now) / 1_000_000;
    Thread.sleep(Math.max(0, Math.min(pause, left)));
    return left > pause || deadline == LogReader.ENDLESS;
  }

  /** From here on, whatever state the log had decided on. */
  void start(long at, byte[] chain, Snapshot state) {
    through = at;
    throughChain = chain;
    for (Quarantined one : state.getQuarantinedList()) {
      quarantined.computeIfAbsent(one.getTarget(), name -> new HashSet<>()).add(one.getIndex());
    }
  }

  List<TargetFeed> targets() {
    return new ArrayList<>(targets.values());
  }

  TargetFeed target(String name) {
    return targets.get(name);
  }

  /** This row is handed to the query now; with null the query has none. The row before has passed. */
  void give(GivenRow row) {
    given = row;
    if (row != null) {
      rowsIn++;
    }
  }

  /** Every row of the entry has passed. */
  void endEntry(long index, byte[] chain, byte[] headers) throws InterruptedException {
    for (TargetFeed target : targets.values()) {
      if (target.overflows(headers)) {
        target.send(through, throughChain); // Up to the entry before.
      }
    }
    through = index;
    throughChain = chain;
    for (TargetFeed target : targets.values()) {
      target.endEntry(index, chain, headers, isQuarantined(target.name, index));
      if (target.full()) {
        target.send(through, throughChain);
      }
    }
    if (System.nanoTime() - flushedAt > FLUSH_NS) {
      flush();
    }
  }

  private boolean isQuarantined(String target, long index) {
    return quarantined.getOrDefault(target, Set.of()).contains(index);
  }

  /** Sends what is due. Call only when no entry is under way. */
  void flush() throws InterruptedException {
    long now = System.nanoTime();
    flushedAt = now;
    for (TargetFeed target : targets.values()) {
      if (target.due(through, now)) {
        target.send(through, throughChain);
      } else {
        target.tick(now);
      }
    }
  }

  void drain() throws InterruptedException {
    long deadline = System.nanoTime() + DRAIN_NS;
    for (TargetFeed target : targets.values()) {
      target.drain(deadline);
    }
  }

  long through() {
    return through;
  }

  /**
   * Tells the driver why this task ends, and returns what to raise: of a class that the driver's JVM can decode wherever it
   * does that, with the same words.
   */
  RuntimeException failed(Ending ending) {
    if (ended == null) {
      ended = ending;
      if (beats != null) {
        beats.ended(ending);
      }
    }
    return new IllegalStateException(ending.getMessage());
  }

  // --- For the beats, on their thread ---

  Map<String, Object> status() {
    List<Map<String, Object>> rows = new ArrayList<>();
    for (TargetFeed target : targets.values()) {
      rows.add(Map.of("target", target.name, "index", target.acked(), "sent", target.sent()));
    }
    LogClient reading = log;
    Ending why = lost;
    Map<String, Object> said = new HashMap<>();
    said.put("current", through);
    said.put("open", openedAt != 0);
    said.put("rows_in", rowsIn);
    said.put("rows_out", rowsOut);
    said.put("targets", rows);
    said.put("log_error", reading == null ? "" : reading.away());
    said.put("lost", why == null ? "" : why.getMessage());
    return said;
  }

  void watch() {
    targets.values().forEach(TargetFeed::watch);
  }

  @Override
  public void close() {
    if (beats != null) {
      beats.close();
    }
    targets.values().forEach(TargetFeed::close);
  }

  /** A row as the reader gave it, and the mutation that it stands for. */
  record GivenRow(long index, String target, byte[] key, byte[] value, String op, boolean plain, byte[] encoded) {
    /** The mutation to deliver for what the query made of this row. */
    byte[] made(byte[] newKey, byte[] newValue, String newOp) {
      boolean same = Arrays.equals(key, newKey) && Arrays.equals(value, newValue) && op.equals(newOp == null ? op : newOp);
      if (same) {
        return encoded;
      }
      boolean put = newOp == null ? newValue != null : newOp.equals("put");
      boolean delete = newOp == null ? newValue == null : newOp.equals("delete");
      if (!plain || newKey == null || !(put || delete)) {
        String what = plain ? "key null or op " + newOp : "a row of a table, a patch or a statement, changed by the query";
        throw new Ending(
            Ending.Kind.BAD_ROW,
            target,
            index,
            "entry " + index + " has " + what + ", which is no mutation; give key, value and op put or delete, and let "
                + "rows of tables pass as they are");
      }
      return Entries.encode(newKey, delete ? null : newValue == null ? new byte[0] : newValue);
    }
  }
}
