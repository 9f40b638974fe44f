package logplayer.realtime;

import java.util.EnumSet;
import java.util.Map;
import java.util.Set;
import logplayer.v1.LogOuterClass.InfoReply;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeMode;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The log as a source of Spark: one partition for each group of targets.
 *
 * <p>In real time it is one end of the delivery ({@link LogReader}): targets say where it begins. By any other trigger it reads
 * in micro-batches ({@link BatchReader}): the same rows, by Spark's offsets and for any sink, and no target gets them of it.
 */
public final class LogSource implements TableProvider {
  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    return EntryRows.COLUMNS;
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
    return new LogTable();
  }

  private static final class LogTable implements SupportsRead {
    @Override
    public String name() {
      return "logplayer";
    }

    @Override
    public StructType schema() {
      return EntryRows.COLUMNS;
    }

    @Override
    public Set<TableCapability> capabilities() {
      return EnumSet.of(TableCapability.MICRO_BATCH_READ);
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      Plan plan = Plan.registered(options.getLong("plan", 0));
      return () -> new LogScan(plan);
    }
  }

  private record LogScan(Plan plan) implements Scan {
    @Override
    public StructType readSchema() {
      return EntryRows.COLUMNS;
    }

    @Override
    public String description() {
      return "logplayer " + String.join(",", plan.hosts());
    }

    @Override
    public String toString() {
      return description(); // The plan has a token.
    }

    @Override
    public MicroBatchStream toMicroBatchStream(String checkpoint) {
      return new LogStream(plan);
    }
  }

  private static final class LogStream implements MicroBatchStream, SupportsRealTimeMode {
    private final Plan plan;
    private volatile boolean realTime;

    LogStream(Plan plan) {
      this.plan = plan;
    }

    @Override
    public void prepareForRealTimeMode() {
      realTime = true;
    }

    /** In real time, the targets say where to begin. */
    @Override
    public Offset initialOffset() {
      return new LogOffset(realTime ? 0 : info().getFirst() - 1);
    }

    @Override
    public Offset deserializeOffset(String json) {
      return new LogOffset(Long.parseLong(json));
    }

    /** In real time nothing asks how far a batch will come: that is known at its end. */
    @Override
    public Offset latestOffset() {
      return new LogOffset(realTime ? 0 : info().getLast());
    }

    private InfoReply info() {
      try (LogClient log = new LogClient(plan)) {
        return log.info(LogReader.LOG_AWAY_MS);
      } catch (InterruptedException stopped) {
        Thread.currentThread().interrupt();
        throw new IllegalStateException("the query was stopped");
      }
    }

    @Override
    public InputPartition[] planInputPartitions(Offset start) {
      return partitions(start, LogReader.ENDLESS);
    }

    @Override
    public InputPartition[] planInputPartitions(Offset start, Offset end) {
      return partitions(start, ((LogOffset) end).index);
    }

    private InputPartition[] partitions(Offset start, long end) {
      InputPartition[] made = new InputPartition[plan.partitions().size()];
      for (int nth = 0; nth < made.length; nth++) {
        made[nth] = new Group(plan, nth, ((LogOffset) start).index, end);
      }
      return made;
    }

    @Override
    public Offset mergeOffsets(PartitionOffset[] offsets) {
      long least = LogReader.ENDLESS;
      for (PartitionOffset one : offsets) {
        least = Math.min(least, LogOffset.indexOf(one));
      }
      return new LogOffset(least);
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
      return new Readers();
    }

    @Override
    public void commit(Offset end) {}

    @Override
    public void stop() {}
  }

  /** A group of targets, which one task delivers to; with an end, it only reads for them. */
  private record Group(Plan plan, int number, long start, long end) implements InputPartition {
    @Override
    public String toString() {
      return "group " + number;
    }
  }

  private static final class Readers implements PartitionReaderFactory {
    private static final long serialVersionUID = 1L;

    @Override
    public PartitionReader<InternalRow> createReader(InputPartition partition) {
      Group group = (Group) partition;
      return group.end() == LogReader.ENDLESS
          ? new LogReader(group.plan(), group.number(), group.start())
          : new BatchReader(group.plan(), group.number(), group.start(), group.end());
    }
  }
}
