package logplayer.realtime;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;

/**
 * What a query delivers, and to whom: decided by the driver before it starts, and carried by each task.
 *
 * <p>The driver registers it here and names it by a number in the options of the source. So a token is in no option, which
 * Spark would show in its plans.
 */
public record Plan(
    List<String> hosts,
    String logId,
    String group,
    long epoch,
    long through,
    byte[] snapshot,
    List<List<Target>> partitions,
    Secrets secrets,
    Driver driver,
    Limits limits)
    implements Serializable {

  /** A target, where it is, and the index that it must have at least. */
  record Target(String name, String address, long floor) implements Serializable {}

  /** PEM texts and a token, empty where there is none. {@code ca} may be the word "system". */
  record Secrets(String ca, String cert, String key, String token) implements Serializable {
    boolean tls() {
      return !ca.isEmpty() || !cert.isEmpty();
    }

    @Override
    public String toString() {
      return "secrets"; // Spark prints what it carries.
    }
  }

  /** Where tasks report to; no url, no reports. */
  record Driver(String url, String token, String ca) implements Serializable {
    @Override
    public String toString() {
      return url;
    }
  }

  /** As in {@code logplayer.core.limits}. */
  record Limits(
      int batchCount, int batchBytes, int flightBatches, int flightBytes, int openMs, int progressMs, int heartbeatMs, int idleMs)
      implements Serializable {}

  private static final Map<Long, Plan> REGISTERED = new ConcurrentHashMap<>();
  private static final AtomicLong NUMBERS = new AtomicLong();

  /** Keeps the plan that the text, a JSON object, describes. Returns its number. */
  public static long register(String json) throws IOException {
    Plan plan = read(new ObjectMapper().readTree(json));
    long number = NUMBERS.incrementAndGet();
    REGISTERED.put(number, plan);
    return number;
  }

  /** Forgets a plan whose query has ended. */
  public static void forget(long number) {
    REGISTERED.remove(number);
  }

  static Plan registered(long number) {
    Plan plan = REGISTERED.get(number);
    if (plan == null) {
      throw new IllegalArgumentException(
          "logplayer.realtime has no plan " + number + ": start the query with lp.spark.realtime, not by its format");
    }
    return plan;
  }

  private static Plan read(JsonNode json) {
    List<String> hosts = new ArrayList<>();
    json.get("hosts").forEach(host -> hosts.add(host.asText()));
    List<List<Target>> partitions = new ArrayList<>();
    for (JsonNode group : json.get("partitions")) {
      List<Target> targets = new ArrayList<>();
      group.forEach(
          one -> targets.add(new Target(one.get("name").asText(), one.get("address").asText(), one.get("floor").asLong())));
      partitions.add(List.copyOf(targets));
    }
    JsonNode security = json.get("security");
    JsonNode driver = json.get("driver");
    JsonNode limits = json.get("limits");
    return new Plan(
        List.copyOf(hosts),
        json.get("log_id").asText(),
        json.get("group").asText(),
        json.get("epoch").asLong(),
        json.get("through").asLong(),
        Base64.getDecoder().decode(json.get("snapshot").asText()),
        List.copyOf(partitions),
        new Secrets(text(security, "ca"), text(security, "cert"), text(security, "key"), text(security, "token")),
        new Driver(text(driver, "url"), text(driver, "token"), text(driver, "ca")),
        new Limits(
            limits.get("batch_count_max").asInt(),
            limits.get("batch_bytes_max").asInt(),
            limits.get("flight_batches_max").asInt(),
            limits.get("flight_bytes_max").asInt(),
            limits.get("open_ms_max").asInt(),
            limits.get("progress_ms_max").asInt(),
            limits.get("heartbeat_ms").asInt(),
            limits.get("idle_ms").asInt()));
  }

  private static String text(JsonNode object, String name) {
    return object.get(name).asText();
  }
}
