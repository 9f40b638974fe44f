package logplayer.realtime;

import com.dynatrace.hash4j.hashing.Hashing;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import logplayer.v1.LogOuterClass.Record;

/** The chain value: index and chain value together name an entry; see {@code logplayer.core.chain}. */
final class Chain {
  static final byte[] GENESIS = new byte[0];

  private Chain() {}

  /** The value at an entry, given the value at the entry before it. */
  static byte[] extend(byte[] before, Record record) {
    byte[] producer = record.getProducer().getBytes(StandardCharsets.UTF_8);
    ByteBuffer buffer = ByteBuffer.allocate(before.length + 17 + producer.length);
    buffer.put(before).putLong(hash(record.getPayload().toByteArray())).putLong(record.getSequence());
    buffer.put((byte) record.getKindValue()).put(producer);
    return ByteBuffer.allocate(8).putLong(hash(buffer.array())).array();
  }

  private static long hash(byte[] bytes) {
    return Hashing.xxh3_64().hashBytesToLong(bytes);
  }

  static String hex(byte[] value) {
    return value.length == 0 ? "none" : java.util.HexFormat.of().formatHex(value);
  }
}
