package logplayer.realtime;

import com.google.protobuf.InvalidProtocolBufferException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Deque;
import logplayer.v1.Entry.Control;
import logplayer.v1.Entry.Snapshot;
import logplayer.v1.LogOuterClass.InfoReply;
import logplayer.v1.LogOuterClass.Kind;
import logplayer.v1.LogOuterClass.Record;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeRead;

/**
 * The rows of one group of targets, from the index that the targets themselves have.
 *
 * <p>Where to begin is not Spark's decision: a checkpoint says what was read, the targets say what is durable. Each target
 * gets rows of the entries after its own index only, and the log is read from the smallest of them.
 */
final class LogReader implements SupportsRealTimeRead<InternalRow> {
  static final long ENDLESS = Long.MAX_VALUE;
  static final long LOG_AWAY_MS = 30_000;
  private static final long TURN_MS = 20; // How long the reader waits before it looks after its targets again.

  /** A row with what Spark gets of it. */
  private record Row(TaskFeed.GivenRow given, InternalRow columns) {}

  private final Plan plan;
  private final int partition;
  private final long start; // Where the batch before ended, as Spark has it.
  private final TaskFeed feed = TaskFeed.here();
  private final Deque<Row> rows = new ArrayDeque<>(); // Of the entry under way, those not given yet.
  private LogClient log;
  private Router router;
  private boolean unfenced;
  private byte[] chain; // The log's value at the newest entry read.
  private Record entry; // The entry under way; null: none.
  private byte[] headers = Chain.GENESIS;
  private InternalRow current;

  LogReader(Plan plan, int partition, long start) {
    this.plan = plan;
    this.partition = partition;
    this.start = start;
  }

  // --- What Spark asks for ---

  @Override
  public RecordStatus nextWithTimeout(Long timeoutMs) throws IOException {
    return RecordStatus.newStatusWithoutArrivalTime(advance(timeoutMs));
  }

  @Override
  public boolean next() throws IOException {
    return advance(ENDLESS);
  }

  @Override
  public InternalRow get() {
    return current;
  }

  /** An offset never falls, also if no session opened in this batch, or a target began again at a smaller index. */
  @Override
  public PartitionOffset getOffset() {
    return LogOffset.ofPartition(partition, Math.max(start, feed.through()));
  }

  @Override
  public void close() {
    if (log != null) {
      log.close();
    }
  }

  // --- Inside ---

  private boolean advance(long ms) throws IOException {
    try {
      return move(ms == ENDLESS ? ENDLESS : System.nanoTime() + ms * 1_000_000);
    } catch (Ending ending) {
      throw feed.failed(ending);
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
      throw new InterruptedIOException("the task was stopped");
    }
  }

  /**
   * The next row. That it is asked for means that all rows given so far have passed: see {@link TaskFeed}. So a session that
   * is lost in here can be begun again, with all of this group, from what the targets have then: no row is under way.
   */
  private boolean move(long deadline) throws InterruptedException {
    feed.give(null);
    while (true) {
      try {
        if (log == null) {
          begin();
        }
        return step(deadline);
      } catch (Ending ending) {
        if (ending.kind != Ending.Kind.LOST) {
          throw ending;
        }
        log.close();
        log = null;
        rows.clear();
        entry = null;
        if (!feed.lose(ending, deadline)) {
          return false;
        }
      }
    }
  }

  private boolean step(long deadline) throws InterruptedException {
    while (true) {
      Row row = rows.poll();
      if (row != null) {
        current = row.columns();
        feed.give(row.given());
        return true;
      }
      if (entry != null) {
        feed.endEntry(entry.getIndex(), chain, headers);
        entry = null;
      }
      Record record = log.poll(0);
      if (record == null) {
        feed.flush();
        long left = deadline == ENDLESS ? TURN_MS : (deadline - System.nanoTime()) / 1_000_000;
        if (left <= 0) {
          return false;
        }
        record = log.poll(Math.min(left, TURN_MS));
      }
      if (record != null) {
        take(record);
      } else if (deadline != ENDLESS && System.nanoTime() >= deadline) {
        return false;
      }
    }
  }

  private void begin() throws InterruptedException {
    log = new LogClient(plan);
    feed.begin(plan, partition, log);
    // The trim point is read before the sessions open: what is trimmed later, the targets had by then. The log's end is read
    // afterwards: what a target got meanwhile does not put it ahead of the log.
    InfoReply before = log.info(LOG_AWAY_MS);
    feed.open(plan, partition);
    InfoReply after = log.info(LOG_AWAY_MS);
    unfenced = after.getUnfenced();
    long start = ENDLESS;
    for (TargetFeed target : feed.targets()) {
      start = Math.min(start, target.openedAt());
      judge(target, before, after);
    }
    Snapshot state;
    try {
      state = Snapshot.parseFrom(plan.snapshot());
    } catch (InvalidProtocolBufferException error) {
      throw new Ending(Ending.Kind.LOG, "", plan.through(), "the log's decisions cannot be read: " + error.getMessage());
    }
    router = new Router(state, plan.through());
    for (TargetFeed target : feed.targets()) {
      if (target.openedAt() == start) {
        chain = target.openedChain();
      }
    }
    feed.start(start, chain, state);
    log.read(start + 1);
  }

  /** What the target says about the log, as far as the log's ends tell. */
  private void judge(TargetFeed target, InfoReply before, InfoReply after) {
    long at = target.openedAt();
    long floor = floorOf(target.name);
    if (at < before.getFirst() - 1 || at < floor) {
      long needed = Math.max(before.getFirst() - 1, floor);
      throw new Ending(
          Ending.Kind.RESEED, target.name, at, "it has index " + at + ", needs " + needed + " or more: backfill it");
    }
    if (at > after.getLast()) {
      throw new Ending(
          Ending.Kind.DIVERGED,
          target.name,
          at,
          "it has index " + at + ", the log ends at " + after.getLast() + ": the log lost entries or was restored; restore "
              + "the newer log, or fill the target again with a backfill");
    }
    if (at == after.getLast()) {
      target.verify(after.getChain().toByteArray());
    } else if (at == before.getFirst() - 1) {
      target.verify(before.getTrimmedChain().toByteArray());
    }
  }

  private long floorOf(String name) {
    return plan.partitions().get(partition).stream().filter(one -> one.name().equals(name)).findFirst().get().floor();
  }

  private void take(Record record) throws InterruptedException {
    for (TargetFeed target : feed.targets()) {
      if (!target.verified() && record.getIndex() > target.openedAt()) {
        target.verify(chain);
      }
    }
    byte[] expected = Chain.extend(chain, record);
    byte[] found = record.getChain().toByteArray();
    if (!unfenced && !Arrays.equals(expected, found)) {
      throw new Ending(
          Ending.Kind.DIVERGED,
          "",
          record.getIndex(),
          "entry " + record.getIndex() + " does not continue what was read and what the targets have up to "
              + feed.through() + ": the log lost entries or was restored; restore the newer log, or fill the targets again");
    }
    if (record.getKind() == Kind.CONTROL) {
      obey(record);
      headers = Chain.GENESIS;
    } else {
      split(record);
    }
    chain = found;
    entry = record;
  }

  /** Ends the query at a decision that it did not start with, once all entries before it are delivered. */
  private void obey(Record record) throws InterruptedException {
    Control control;
    try {
      control = Control.parseFrom(record.getPayload());
    } catch (InvalidProtocolBufferException error) {
      throw new Ending(Ending.Kind.LOG, "", record.getIndex(), "a control entry cannot be read: " + error.getMessage());
    }
    long index = record.getIndex();
    if (control.getRecordCase() == Control.RecordCase.TAKEOVER) {
      if (index > plan.epoch() && control.getTakeover().getGroup().equals(plan.group())) {
        throw new Ending(
            Ending.Kind.SUPERSEDED, "", index, control.getTakeover().getPlayer() + " has taken over at entry " + index);
      }
    } else if (control.getRecordCase() != Control.RecordCase.CHECKPOINT && index > plan.through()) {
      feed.flush();
      feed.drain();
      throw new Ending(
          Ending.Kind.CHANGED, "", index, "entry " + index + " decides " + control.getRecordCase() + "; the query starts again with it");
    }
  }

  /** Makes the rows of an entry: those for targets that do not have it yet. */
  private void split(Record record) {
    long index = record.getIndex();
    Entries.Cut cut;
    try {
      cut = Entries.cut(record.getPayload());
    } catch (IOException error) {
      headers = Chain.GENESIS;
      return; // No transaction: it reaches no target, as with every player.
    }
    headers = cut.encodedHeaders();
    EntryRows made = new EntryRows(record, cut, router.ownerAt(index));
    for (EntryRows.Row row : made.rows) {
      TargetFeed target = feed.target(row.target());
      if (target == null || index <= target.openedAt()) {
        continue; // For another group or for nobody, or the target has it.
      }
      EntryRows.Change change = row.change();
      TaskFeed.GivenRow given =
          new TaskFeed.GivenRow(index, row.target(), change.key(), change.value(), change.op(), change.plain(), row.encoded());
      rows.add(new Row(given, made.columns(row)));
    }
  }
}
