package logplayer.realtime;

import com.google.protobuf.ByteString;
import com.google.protobuf.CodedOutputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import logplayer.v1.Entry.Header;
import logplayer.v1.Entry.Mutation;
import logplayer.v1.Entry.Op;

/** Takes a transaction apart at its field boundaries, and makes mutations of rows. */
final class Entries {
  private static final int MUTATION = 1;
  private static final byte MUTATIONS_TAG = 0x0A; // Transaction.mutations: field 1, length-delimited.
  private static final byte HEADERS_TAG = 0x12; // Transaction.headers: field 2, length-delimited.
  private static final int LENGTH_BYTES_MAX = 5;

  private Entries() {}

  /** One mutation: decoded, and the tagged field that it is in the transaction. */
  record Part(Mutation mutation, byte[] encoded) {}

  /** A transaction: its mutations and its headers in order, these also as they are encoded. */
  record Cut(List<Part> parts, List<Header> headers, byte[] encodedHeaders) {}

  /**
   * The parts of a payload. Raises IOException for one that is not a transaction, by the rules of {@code
   * logplayer.wire.entries.split_transaction}: what one player refuses, no player delivers.
   */
  static Cut cut(ByteString payload) throws IOException {
    byte[] bytes = payload.toByteArray();
    List<Part> parts = new ArrayList<>();
    List<Header> headers = new ArrayList<>();
    ByteArrayOutputStream encodedHeaders = new ByteArrayOutputStream();
    int start = 0;
    while (start < bytes.length) {
      byte tag = bytes[start];
      if (tag != MUTATIONS_TAG && tag != HEADERS_TAG) {
        throw new IOException("byte " + start + " of a transaction starts neither a mutation nor a header");
      }
      int body = start + 1;
      long length = 0;
      boolean more = true;
      for (int shift = 0; more; body++, shift += 7) {
        if (body == bytes.length || body > start + LENGTH_BYTES_MAX) {
          throw new IOException("a length ends or is too long at byte " + (start + 1));
        }
        length |= (long) (bytes[body] & 0x7F) << shift;
        more = bytes[body] < 0;
      }
      if (length > bytes.length - body) {
        throw new IOException("a transaction ends inside the mutation or header at byte " + start);
      }
      int stop = body + (int) length;
      ByteString content = payload.substring(body, stop);
      if (tag == MUTATIONS_TAG) {
        parts.add(new Part(Mutation.parseFrom(content), Arrays.copyOfRange(bytes, start, stop)));
      } else {
        headers.add(Header.parseFrom(content));
        encodedHeaders.write(bytes, start, stop - start); // Delivered as it is.
      }
      start = stop;
    }
    return new Cut(parts, headers, encodedHeaders.toByteArray());
  }

  /** The tagged field of a put, or of a delete if there is no value. */
  static byte[] encode(byte[] key, byte[] value) {
    Mutation.Builder made = Mutation.newBuilder().setKey(ByteString.copyFrom(key));
    if (value == null) {
      made.setOp(Op.DELETE);
    } else {
      made.setValue(ByteString.copyFrom(value));
    }
    Mutation mutation = made.build();
    byte[] encoded = new byte[CodedOutputStream.computeMessageSize(MUTATION, mutation)];
    CodedOutputStream out = CodedOutputStream.newInstance(encoded);
    try {
      out.writeMessage(MUTATION, mutation);
      out.flush();
    } catch (IOException error) {
      throw new IllegalStateException(error); // It is written into memory of the right length.
    }
    return encoded;
  }
}
