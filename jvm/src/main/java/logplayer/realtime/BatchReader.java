package logplayer.realtime;

import com.google.protobuf.InvalidProtocolBufferException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Deque;
import java.util.Set;
import java.util.stream.Collectors;
import logplayer.v1.Entry.Control;
import logplayer.v1.Entry.Snapshot;
import logplayer.v1.LogOuterClass.Kind;
import logplayer.v1.LogOuterClass.Record;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.PartitionReader;

/**
 * The rows of one group of targets between two offsets of Spark: what a micro-batch reads.
 *
 * <p>The rows are those of {@link LogReader}. All else is different: Spark's offsets say what is read, no target is asked, and
 * no sink of ours takes them.
 */
final class BatchReader implements PartitionReader<InternalRow> {
  private static final long POLL_MS = 100;

  private final Plan plan;
  private final long end;
  private final Set<String> targets;
  private final LogClient log;
  private final Router router;
  private final Deque<InternalRow> rows = new ArrayDeque<>();
  private boolean begun;
  private boolean unfenced; // Its log has chain values that do not continue each other.
  private long read; // The newest entry that was taken.
  private byte[] chain; // The log's value there; null: none was read.
  private InternalRow current;

  /** Reads the entries after {@code start}, up to and including {@code end}. */
  BatchReader(Plan plan, int partition, long start, long end) {
    this.plan = plan;
    this.end = end;
    targets = plan.partitions().get(partition).stream().map(Plan.Target::name).collect(Collectors.toSet());
    try {
      router = new Router(Snapshot.parseFrom(plan.snapshot()), plan.through());
    } catch (InvalidProtocolBufferException error) {
      throw new IllegalStateException("the log's decisions cannot be read: " + error.getMessage());
    }
    read = start;
    log = new LogClient(plan);
  }

  @Override
  public boolean next() throws IOException {
    try {
      if (!begun && read < end) {
        unfenced = log.info(LogReader.LOG_AWAY_MS).getUnfenced();
        log.read(read + 1);
        begun = true;
      }
      while (rows.isEmpty() && read < end) {
        Record record = log.poll(POLL_MS);
        if (record != null) {
          take(record);
        }
      }
    } catch (Ending ending) {
      throw new IllegalStateException(ending.getMessage()); // Of a class that the driver knows.
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
      throw new InterruptedIOException("the task was stopped");
    }
    current = rows.poll();
    return current != null;
  }

  @Override
  public InternalRow get() {
    return current;
  }

  @Override
  public void close() {
    log.close();
  }

  private void take(Record record) {
    read = record.getIndex();
    if (read > end) {
      return; // Indexes have gaps.
    }
    byte[] found = record.getChain().toByteArray();
    if (chain != null && !unfenced && !Arrays.equals(Chain.extend(chain, record), found)) {
      throw new Ending(
          Ending.Kind.DIVERGED, "", read, "entry " + read + " does not continue the one before it: read the log again");
    }
    chain = found;
    if (record.getKind() == Kind.CONTROL) {
      obey(record);
    } else {
      split(record);
    }
  }

  /** Ends the batch at a decision that the plan does not have: from there on, its map may be another one. */
  private void obey(Record record) {
    Control.RecordCase decided;
    try {
      decided = Control.parseFrom(record.getPayload()).getRecordCase();
    } catch (InvalidProtocolBufferException error) {
      throw new Ending(Ending.Kind.LOG, "", read, "a control entry cannot be read: " + error.getMessage());
    }
    boolean changes = decided != Control.RecordCase.TAKEOVER && decided != Control.RecordCase.CHECKPOINT;
    if (changes && read > plan.through()) {
      throw new Ending(
          Ending.Kind.CHANGED, "", read, "entry " + read + " decides " + decided + ", after this stream was made: start it "
              + "again from rows() of the query in real time, with the same checkpoint");
    }
  }

  private void split(Record record) {
    Entries.Cut cut;
    try {
      cut = Entries.cut(record.getPayload());
    } catch (IOException error) {
      return; // No transaction: it is for no target.
    }
    EntryRows made = new EntryRows(record, cut, router.ownerAt(read));
    for (EntryRows.Row row : made.rows) {
      if (targets.contains(row.target())) {
        rows.add(made.columns(row));
      }
    }
  }
}
