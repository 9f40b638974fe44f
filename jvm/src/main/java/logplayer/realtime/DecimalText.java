package logplayer.realtime;

import java.io.IOException;
import java.util.Locale;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** What Python's {@code str(Decimal(text))} is. Raises IOException for a text that is no decimal there. */
final class DecimalText {
  private static final Pattern NUMBER = Pattern.compile("(?:(\\d+)\\.?(\\d*)|\\.(\\d+))(?:e([+-]?\\d+))?");
  private static final Pattern NOT_A_NUMBER = Pattern.compile("(s?)nan(\\d*)");
  private static final long EXPONENT_MAX = 999_999_999_999_999_999L;

  private DecimalText() {}

  static String of(String given) throws IOException {
    String text = plain(given).toLowerCase(Locale.ROOT);
    String sign = text.startsWith("-") ? "-" : "";
    String body = text.startsWith("-") || text.startsWith("+") ? text.substring(1) : text;
    if (body.equals("inf") || body.equals("infinity")) {
      return sign + "Infinity";
    }
    Matcher none = NOT_A_NUMBER.matcher(body);
    if (none.matches()) {
      return sign + (none.group(1).isEmpty() ? "NaN" : "sNaN") + none.group(2).replaceFirst("^0+", "");
    }
    Matcher number = NUMBER.matcher(body);
    if (!number.matches()) {
      throw new IOException("'" + given + "' is not a decimal");
    }
    String fraction = number.group(3) != null ? number.group(3) : number.group(2);
    String digits = ((number.group(1) == null ? "" : number.group(1)) + fraction).replaceFirst("^0+(?=.)", "");
    return sign + scientific(digits, exponent(number.group(4), given) - fraction.length(), given);
  }

  private static long exponent(String text, String given) throws IOException {
    try {
      return text == null ? 0 : Long.parseLong(text);
    } catch (NumberFormatException error) {
      throw tooLarge(given);
    }
  }

  private static IOException tooLarge(String given) {
    return new IOException("'" + given + "' has an exponent that no decimal has");
  }

  /** Without spaces around it and underscores, and with the digits of ASCII. */
  private static String plain(String given) {
    StringBuilder out = new StringBuilder();
    given.strip().codePoints().filter(one -> one != '_').forEach(one -> {
      if (Character.isDigit(one)) {
        out.append(Character.digit(one, 10));
      } else {
        out.appendCodePoint(one);
      }
    });
    return out.toString();
  }

  /** With an exponent if it is above zero, or if there would be more than five zeros after the point. */
  private static String scientific(String digits, long exponent, String given) throws IOException {
    int count = digits.length();
    long left = exponent + count; // How many digits stand before the point.
    if (left - 1 > EXPONENT_MAX || exponent < -2 * EXPONENT_MAX) {
      throw tooLarge(given);
    }
    if (exponent > 0 || left <= -6) {
      String mantissa = count == 1 ? digits : digits.charAt(0) + "." + digits.substring(1);
      return left == 1 ? mantissa : mantissa + "E" + (left > 1 ? "+" : "") + (left - 1);
    }
    if (left <= 0) {
      return "0." + "0".repeat((int) -left) + digits;
    }
    return left == count ? digits : digits.substring(0, (int) left) + "." + digits.substring((int) left);
  }
}
