package logplayer.realtime;

import com.google.protobuf.ByteString;
import com.google.protobuf.CodedInputStream;
import com.google.protobuf.CodedOutputStream;
import com.google.protobuf.WireFormat;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import logplayer.v1.Entry.Mutation;
import logplayer.v1.Entry.Op;

/** Takes a transaction apart at its field boundaries, and makes mutations of rows. */
final class Entries {
  private static final int MUTATION = 1;
  private static final int HEADER = 2;

  private Entries() {}

  /** One mutation: decoded, and the tagged field that it is in the transaction. */
  record Part(Mutation mutation, byte[] encoded) {}

  /** A transaction: its mutations in order, and its headers as they are encoded. */
  record Cut(List<Part> parts, byte[] headers) {}

  /** The parts of a payload. Raises IOException for one that is not a transaction. */
  static Cut cut(ByteString payload) throws IOException {
    byte[] bytes = payload.toByteArray();
    CodedInputStream in = CodedInputStream.newInstance(bytes);
    List<Part> parts = new ArrayList<>();
    ByteArrayOutputStream headers = new ByteArrayOutputStream();
    while (!in.isAtEnd()) {
      int start = in.getTotalBytesRead();
      int tag = in.readTag();
      int field = WireFormat.getTagFieldNumber(tag);
      if (WireFormat.getTagWireType(tag) != WireFormat.WIRETYPE_LENGTH_DELIMITED) {
        throw new IOException("a transaction has no field " + field + " of this type");
      }
      byte[] content = in.readByteArray();
      byte[] encoded = Arrays.copyOfRange(bytes, start, in.getTotalBytesRead());
      if (field == MUTATION) {
        parts.add(new Part(Mutation.parseFrom(content), encoded));
      } else if (field == HEADER) {
        headers.writeBytes(encoded);
      }
    }
    return new Cut(parts, headers.toByteArray());
  }

  /** The column {@code op} of a mutation; null for an operation that this version does not know. */
  static String opOf(Mutation mutation) {
    return switch (mutation.getOp()) {
      case PUT -> "put";
      case DELETE -> "delete";
      case PATCH -> "patch";
      case DDL -> "ddl";
      case UNRECOGNIZED -> "malformed";
    };
  }

  /** The column {@code value}: none of a delete, and none of a row of a table, which has columns in its place. */
  static byte[] valueOf(Mutation mutation) {
    boolean none = mutation.getOp() == Op.DELETE || !mutation.getTable().isEmpty();
    return none ? null : mutation.getValue().toByteArray();
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
