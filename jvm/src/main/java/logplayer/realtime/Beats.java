package logplayer.realtime;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;

/** What a task tells the driver about itself, a few times a second; and the eye on targets that do not answer. */
final class Beats implements AutoCloseable {
  private static final long EVERY_NS = 250_000_000L;
  private static final Duration PATIENCE = Duration.ofSeconds(2);
  private static final long[] AGAIN_MS = {50, 200, 500, 1000};
  private final Plan plan;
  private final int partition;
  private final long attempt;
  private final TaskFeed feed;
  private final HttpClient http;
  private final ObjectMapper json = new ObjectMapper();
  private final Thread thread;
  private volatile boolean closed;

  Beats(Plan plan, int partition, long attempt, TaskFeed feed) {
    this.plan = plan;
    this.partition = partition;
    this.attempt = attempt;
    this.feed = feed;
    this.http = plan.driver().url().isEmpty() ? null : client(plan.driver());
    thread = new Thread(this::run, "logplayer-beats");
    thread.setDaemon(true);
    thread.start();
  }

  private static HttpClient client(Plan.Driver driver) {
    HttpClient.Builder made = HttpClient.newBuilder().connectTimeout(PATIENCE).version(HttpClient.Version.HTTP_1_1);
    try {
      if (driver.url().startsWith("https:")) {
        made.sslContext(Tls.context(driver.ca(), "", ""));
      }
    } catch (IOException error) {
      throw new Ending(Ending.Kind.LOG, "", 0, "the CA for the driver cannot be used: " + error.getMessage());
    }
    return made.build();
  }

  private void run() {
    while (!closed) {
      feed.watch();
      say(null); // If it is lost, the next one tells it all again.
      LockSupport.parkNanos(EVERY_NS);
    }
  }

  /**
   * Tells why the task ends, on the thread that ends it. No other beat does, so it is told again if the driver did not take
   * it: without the reason, the driver would start what cannot be delivered again and again.
   */
  void ended(Ending ending) {
    try {
      for (int nth = 0; !say(ending) && nth < AGAIN_MS.length; nth++) {
        Thread.sleep(AGAIN_MS[nth]);
      }
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
    }
  }

  /** Whether the driver has taken it, or does not want any. */
  private synchronized boolean say(Ending ending) {
    if (http == null || (closed && ending == null)) {
      return true;
    }
    Map<String, Object> beat = new LinkedHashMap<>(feed.status());
    beat.put("partition", partition);
    beat.put("attempt", attempt);
    if (ending != null) {
      String said = ending.getMessage();
      beat.put("ended", Map.of("kind", ending.kind.name(), "target", ending.target, "index", ending.index, "detail", said));
    }
    try {
      HttpRequest request =
          HttpRequest.newBuilder(URI.create(plan.driver().url()))
              .timeout(PATIENCE)
              .header("content-type", "application/json")
              .header("authorization", "Bearer " + plan.driver().token())
              .POST(HttpRequest.BodyPublishers.ofByteArray(json.writeValueAsBytes(beat)))
              .build();
      return http.send(request, HttpResponse.BodyHandlers.discarding()).statusCode() / 100 == 2;
    } catch (IOException error) {
      return false; // The driver is away or busy.
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
      return true; // Whoever ends this task knows why.
    }
  }

  @Override
  public void close() {
    closed = true;
    LockSupport.unpark(thread);
  }
}
