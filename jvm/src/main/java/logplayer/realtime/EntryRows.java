package logplayer.realtime;

import com.google.protobuf.ByteString;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Function;
import logplayer.v1.Entry.Column;
import logplayer.v1.Entry.Header;
import logplayer.v1.Entry.Mutation;
import logplayer.v1.Entry.Op;
import logplayer.v1.LogOuterClass.Record;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * The rows of an entry: those of {@code format("logplayer")} in Python ({@code logplayer.spark.source.batches}), with the same
 * columns and the same content.
 *
 * <p>A row stands for a mutation. What a target refuses for good, because it cannot be understood, is one row with the op
 * {@code malformed} that stands for all that this target gets of the entry: it reaches the target, which says so.
 */
final class EntryRows {
  static final StructType COLUMNS =
      new StructType()
          .add("log_index", DataTypes.LongType)
          .add("producer", DataTypes.StringType)
          .add("sequence", DataTypes.LongType)
          .add("committed_at", DataTypes.TimestampType)
          .add("target", DataTypes.StringType)
          .add("key", DataTypes.BinaryType)
          .add("value", DataTypes.BinaryType)
          .add("op", DataTypes.StringType)
          .add("table", DataTypes.StringType)
          .add("key_columns", new ArrayType(DataTypes.StringType, true))
          .add("columns", DataTypes.StringType)
          .add("headers", new ArrayType(new StructType().add("name", DataTypes.StringType).add("value", DataTypes.BinaryType), true));
  private static final String MALFORMED = "malformed";

  /** A row, and the mutations in the log that it stands for. */
  record Row(String target, Change change, byte[] encoded) {}

  /** What a mutation does, as columns show it. {@code plain}: to a key, and not to a row of a table. */
  record Change(byte[] key, byte[] value, String op, String table, List<String> keyColumns, String columns, boolean plain) {
    private static final Change NOT_UNDERSTOOD = new Change(null, null, MALFORMED, null, null, null, false);
  }

  private final Record record;
  private final GenericArrayData headers;
  final List<Row> rows = new ArrayList<>();

  /** The rows of a record whose payload was cut, routed by {@code owner}. */
  EntryRows(Record record, Entries.Cut cut, Function<byte[], String> owner) {
    this.record = record;
    headers = headers(cut.headers());
    List<Entries.Part> parts = cut.parts();
    List<String> names = new ArrayList<>();
    for (Entries.Part part : parts) {
      Mutation mutation = part.mutation();
      names.add(mutation.getTarget().isEmpty() ? owner.apply(mutation.getKey().toByteArray()) : mutation.getTarget());
    }
    List<Change> whole = changes(parts);
    if (whole != null) { // Then no target refuses its share either.
      for (int nth = 0; nth < parts.size(); nth++) {
        rows.add(new Row(names.get(nth), whole.get(nth), parts.get(nth).encoded()));
      }
    } else {
      splitByTarget(names, parts);
    }
  }

  private void splitByTarget(List<String> names, List<Entries.Part> parts) {
    Map<String, List<Entries.Part>> shares = new HashMap<>();
    for (int nth = 0; nth < parts.size(); nth++) {
      shares.computeIfAbsent(names.get(nth), any -> new ArrayList<>()).add(parts.get(nth));
    }
    Map<String, List<Change>> understood = new HashMap<>();
    shares.forEach((name, share) -> understood.put(name, changes(share)));
    Map<String, Integer> given = new HashMap<>();
    Set<String> refused = new HashSet<>();
    for (int nth = 0; nth < parts.size(); nth++) {
      String name = names.get(nth);
      List<Change> changes = understood.get(name);
      if (changes != null) {
        rows.add(new Row(name, changes.get(given.merge(name, 1, Integer::sum) - 1), parts.get(nth).encoded()));
      } else if (refused.add(name)) {
        ByteArrayOutputStream all = new ByteArrayOutputStream();
        shares.get(name).forEach(part -> all.writeBytes(part.encoded()));
        rows.add(new Row(name, Change.NOT_UNDERSTOOD, all.toByteArray()));
      }
    }
  }

  /** The row as Spark gets it. */
  InternalRow columns(Row row) {
    Change change = row.change();
    return new GenericInternalRow(
        new Object[] {
          record.getIndex(),
          UTF8String.fromString(record.getProducer()),
          record.getSequence(),
          record.getCommittedAtUs(),
          row.target().isEmpty() ? null : UTF8String.fromString(row.target()),
          change.key(),
          change.value(),
          UTF8String.fromString(change.op()),
          UTF8String.fromString(change.table()),
          change.keyColumns() == null ? null : texts(change.keyColumns()),
          UTF8String.fromString(change.columns()),
          headers
        });
  }

  private static GenericArrayData texts(List<String> texts) {
    return new GenericArrayData(texts.stream().map(UTF8String::fromString).toArray());
  }

  private static GenericArrayData headers(List<Header> headers) {
    return new GenericArrayData(
        headers.stream()
            .map(one -> new Object[] {UTF8String.fromString(one.getName()), one.getValue().toByteArray()})
            .map(GenericInternalRow::new)
            .toArray());
  }

  // --- What a target makes of mutations ---

  /** What a store makes of them, one of keys and values or one of tables; null if neither takes them. */
  private static List<Change> changes(List<Entries.Part> parts) {
    List<Change> made = new ArrayList<>();
    if (parts.stream().allMatch(part -> isPlain(part.mutation()))) {
      for (Entries.Part part : parts) {
        Mutation mutation = part.mutation();
        boolean delete = mutation.getOp() == Op.DELETE;
        byte[] value = delete ? null : mutation.getValue().toByteArray();
        made.add(new Change(mutation.getKey().toByteArray(), value, delete ? "delete" : "put", null, null, null, true));
      }
      return made;
    }
    long statements = parts.stream().filter(part -> part.mutation().getOp() == Op.DDL).count();
    if (statements > 0 && statements < parts.size()) {
      return null; // A statement and rows are in one entry.
    }
    try {
      for (Entries.Part part : parts) {
        made.add(tableChange(part.mutation()));
      }
    } catch (IOException malformed) {
      return null;
    }
    return made;
  }

  private static boolean isPlain(Mutation mutation) {
    boolean row = !mutation.getTable().isEmpty() || mutation.getColumnsCount() > 0;
    return !row && (mutation.getOp() == Op.PUT || mutation.getOp() == Op.DELETE);
  }

  private static Change tableChange(Mutation mutation) throws IOException {
    String op =
        switch (mutation.getOp()) {
          case PUT -> "put";
          case DELETE -> "delete";
          case PATCH -> "patch";
          case DDL -> "ddl";
          case UNRECOGNIZED -> throw new IOException("an operation that this version does not know");
        };
    if (mutation.getOp() == Op.DDL) {
      ByteString statement = mutation.getValue();
      if (!statement.isValidUtf8()) {
        throw new IOException("a statement is not text in UTF-8");
      }
      return new Change(null, statement.toByteArray(), op, null, null, null, false);
    }
    List<String> names = mutation.getColumnsList().stream().filter(Column::getKey).map(Column::getName).toList();
    if (mutation.getTable().isEmpty() || names.isEmpty()) {
      throw new IOException("a row without a table, or without a key by which a store finds it");
    }
    String columns = ColumnJson.of(mutation.getColumnsList());
    return new Change(mutation.getKey().toByteArray(), null, op, mutation.getTable(), names, columns, false);
  }
}
