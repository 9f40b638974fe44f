package logplayer.realtime;

import org.apache.spark.sql.ForeachWriter;
import org.apache.spark.sql.Row;

/**
 * The end of the query: rows with the columns log_index, target, key, value and op, in this order.
 *
 * <p>A {@code ForeachWriter} is among the sinks that Spark allows in real time, so its checks stay on.
 */
public final class TargetSink extends ForeachWriter<Row> {
  private static final long serialVersionUID = 1L;
  private transient TaskFeed feed;

  @Override
  public boolean open(long partition, long batch) {
    feed = TaskFeed.here();
    feed.openSink();
    return true;
  }

  @Override
  public void process(Row row) {
    String target = row.isNullAt(1) ? null : row.getString(1);
    byte[] key = row.isNullAt(2) ? null : (byte[]) row.get(2);
    byte[] value = row.isNullAt(3) ? null : (byte[]) row.get(3);
    String op = row.isNullAt(4) ? null : row.getString(4);
    feed.take(row.isNullAt(0) ? 0 : row.getLong(0), target, key, value, op);
  }

  @Override
  public void close(Throwable error) {
    if (error == null) {
      try {
        feed.finish();
      } catch (InterruptedException stopped) {
        Thread.currentThread().interrupt();
        throw new IllegalStateException("the task was stopped");
      }
    }
  }
}
