package logplayer.realtime;

import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;
import org.apache.spark.sql.execution.streaming.continuous.RateStreamPartitionOffset;

/** An index of the log, as Spark keeps it. It is shown, and decides nothing: see {@link LogReader}. */
final class LogOffset extends Offset {
  final long index;

  LogOffset(long index) {
    this.index = index;
  }

  @Override
  public String json() {
    return Long.toString(index);
  }

  /**
   * How far one task has come. It is a class of Spark's, because the driver decodes it where a session's own jars are not
   * known: with one of ours, each batch would fail at its end unless the jar is in {@code spark.jars}.
   */
  static PartitionOffset ofPartition(int partition, long index) {
    return new RateStreamPartitionOffset(partition, index, 0);
  }

  static long indexOf(PartitionOffset offset) {
    return ((RateStreamPartitionOffset) offset).currentValue();
  }
}
