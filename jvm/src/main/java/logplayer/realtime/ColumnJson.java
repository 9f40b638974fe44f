package logplayer.realtime;

import com.google.protobuf.ByteString;
import java.io.IOException;
import java.math.BigDecimal;
import java.math.MathContext;
import java.math.RoundingMode;
import java.nio.ByteBuffer;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.util.HexFormat;
import java.util.List;
import java.util.UUID;
import logplayer.v1.Entry.Column;
import logplayer.v1.Entry.Value;

/**
 * The columns of a row as JSON: the same text as {@code logplayer.log.json_rows.columns_to_json} in Python, character by
 * character, so that the column {@code columns} is the same from both sources. Raises IOException for a value that Python
 * calls malformed.
 */
final class ColumnJson {
  private static final long SECOND_US = 1_000_000;
  private static final long DAY_US = 86_400 * SECOND_US;
  private static final int DIGITS_MAX = 17; // That many name every double.

  private ColumnJson() {}

  /** An object, or a list of pairs if a name is there twice. */
  static String of(List<Column> columns) throws IOException {
    boolean named = columns.stream().map(Column::getName).distinct().count() == columns.size();
    StringBuilder out = new StringBuilder(named ? "{" : "[");
    String between = "";
    for (Column column : columns) {
      out.append(between).append(named ? "" : "[");
      text(out, column.getName());
      out.append(named ? ": " : ", ");
      value(out, column.getValue());
      out.append(named ? "" : "]");
      between = ", ";
    }
    return out.append(named ? "}" : "]").toString();
  }

  private static void value(StringBuilder out, Value value) throws IOException {
    switch (value.getKindCase()) {
      case KIND_NOT_SET -> out.append("null");
      case BOOLEAN -> out.append(value.getBoolean());
      case INTEGER -> out.append(value.getInteger());
      case REAL -> real(out, value.getReal());
      case DECIMAL -> typed(out, "decimal", DecimalText.of(value.getDecimal()));
      case TEXT -> text(out, value.getText());
      case BINARY -> typed(out, "bytes", HexFormat.of().formatHex(value.getBinary().toByteArray()));
      case TIMESTAMP_US -> typed(out, "timestamp", timestamp(value.getTimestampUs()) + "Z");
      case LOCAL_TIMESTAMP_US -> typed(out, "local_timestamp", timestamp(value.getLocalTimestampUs()));
      case DATE_DAYS -> typed(out, "date", date(value.getDateDays()));
      case TIME_US -> typed(out, "time", time(value.getTimeUs()));
      case UUID -> typed(out, "uuid", uuid(value.getUuid()));
      case JSON -> typed(out, "json", value.getJson());
      case ARRAY -> {
        out.append("{\"array\": [");
        String between = "";
        for (Value item : value.getArray().getItemsList()) {
          out.append(between);
          value(out, item);
          between = ", ";
        }
        out.append("]}");
      }
    }
  }

  private static void typed(StringBuilder out, String kind, String content) {
    out.append("{\"").append(kind).append("\": ");
    text(out, content);
    out.append('}');
  }

  private static void text(StringBuilder out, String text) {
    out.append('"');
    for (int at = 0; at < text.length(); at++) {
      char one = text.charAt(at);
      switch (one) {
        case '"' -> out.append("\\\"");
        case '\\' -> out.append("\\\\");
        case '\n' -> out.append("\\n");
        case '\r' -> out.append("\\r");
        case '\t' -> out.append("\\t");
        case '\f' -> out.append("\\f");
        case '\b' -> out.append("\\b");
        default -> out.append(one < ' ' ? String.format("\\u%04x", (int) one) : one);
      }
    }
    out.append('"');
  }

  // --- Times and identifiers ---

  private static String timestamp(long us) throws IOException {
    LocalDateTime at = LocalDateTime.ofEpochSecond(Math.floorDiv(us, SECOND_US), 0, ZoneOffset.UTC);
    return date(at.toLocalDate().toEpochDay()) + "T" + time(Math.floorMod(us, DAY_US));
  }

  private static String date(long days) throws IOException {
    LocalDate date = LocalDate.ofEpochDay(days);
    if (date.getYear() < 1 || date.getYear() > 9999) {
      throw new IOException("a date or timestamp is outside of the years 1 to 9999");
    }
    return date.toString();
  }

  private static String time(long us) throws IOException {
    if (us < 0 || us >= DAY_US) {
      throw new IOException("no day has a time of " + us + " us");
    }
    long seconds = us / SECOND_US;
    String whole = String.format("%02d:%02d:%02d", seconds / 3600, seconds / 60 % 60, seconds % 60);
    return us % SECOND_US == 0 ? whole : whole + String.format(".%06d", us % SECOND_US);
  }

  private static String uuid(ByteString bytes) throws IOException {
    if (bytes.size() != 16) {
      throw new IOException("a UUID has 16 bytes, not " + bytes.size());
    }
    ByteBuffer in = bytes.asReadOnlyByteBuffer();
    return new UUID(in.getLong(), in.getLong()).toString();
  }

  // --- Numbers ---

  /** As Python writes it: the shortest digits that name it. Java's own text is longer for some, before version 19. */
  private static void real(StringBuilder out, double value) {
    if (Double.isNaN(value) || Double.isInfinite(value)) {
      typed(out, "double", Double.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf");
      return;
    }
    if (1 / value < 0 || value < 0) {
      out.append('-');
    }
    if (value == 0) {
      out.append("0.0");
      return;
    }
    BigDecimal shortest = shortest(Math.abs(value)).stripTrailingZeros();
    String digits = shortest.unscaledValue().toString();
    int point = digits.length() - shortest.scale(); // Where the point is among the digits.
    if (point > 16 || point < -3) {
      int exponent = point - 1;
      out.append(digits.charAt(0)).append(digits.length() > 1 ? "." : "").append(digits, 1, digits.length());
      out.append(exponent < 0 ? "e-" : "e+").append(String.format("%02d", Math.abs(exponent)));
    } else if (point <= 0) {
      out.append("0.").append("0".repeat(-point)).append(digits);
    } else if (point >= digits.length()) {
      out.append(digits).append("0".repeat(point - digits.length())).append(".0");
    } else {
      out.append(digits, 0, point).append('.').append(digits, point, digits.length());
    }
  }

  /** Of the shortest decimals that are read as this double, the one that is nearest to it. */
  private static BigDecimal shortest(double value) {
    BigDecimal exact = new BigDecimal(value);
    for (int digits = 1; digits < DIGITS_MAX; digits++) {
      BigDecimal low = exact.round(new MathContext(digits, RoundingMode.DOWN));
      BigDecimal high = exact.round(new MathContext(digits, RoundingMode.UP));
      boolean lowNames = low.doubleValue() == value;
      boolean highNames = high.doubleValue() == value;
      if (lowNames && highNames) {
        return exact.round(new MathContext(digits, RoundingMode.HALF_EVEN));
      }
      if (lowNames || highNames) {
        return lowNames ? low : high;
      }
    }
    return exact.round(new MathContext(DIGITS_MAX, RoundingMode.HALF_EVEN));
  }
}
