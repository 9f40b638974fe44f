package logplayer.realtime;

import com.google.protobuf.CodedInputStream;
import com.google.protobuf.InvalidProtocolBufferException;
import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientInterceptors;
import io.grpc.Context;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.MethodDescriptor.MethodType;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.ClientCalls;
import java.io.IOException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.Iterator;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.zip.CRC32;
import logplayer.v1.LogOuterClass.InfoReply;
import logplayer.v1.LogOuterClass.InfoRequest;
import logplayer.v1.LogOuterClass.ReadRequest;
import logplayer.v1.LogOuterClass.Record;

/**
 * Reads the log server on a thread of its own, and goes on by itself where a connection broke.
 *
 * <p>Every record's checksum is looked at here; that each continues the chain is looked at by {@link LogReader}.
 */
final class LogClient implements AutoCloseable {
  private static final int MESSAGE_BYTES_MAX = 24 << 20;
  private static final int CRC_BYTES = 5; // A tag and four bytes, at the end of each record.
  private static final int REPLIES_MAX = 4; // What is read ahead. More costs memory, each may have megabytes.
  private static final long[] RETRY_MS = {20, 50, 100, 200, 500, 1000};
  private static final MethodDescriptor<byte[], byte[]> INFO = Grpc.method("logplayer.v1.Log/Info", MethodType.UNARY);
  private static final MethodDescriptor<byte[], byte[]> READ =
      Grpc.method("logplayer.v1.Log/Read", MethodType.SERVER_STREAMING);
  private static final Metadata.Key<String> ERROR =
      Metadata.Key.of("logplayer-error", Metadata.ASCII_STRING_MARSHALLER);
  private static final Set<String> PASSING = Set.of("LogUnavailable", "Superseded", "Locked");

  private final Plan plan;
  private final List<ManagedChannel> channels = new ArrayList<>();
  private final BlockingQueue<List<Record>> read = new ArrayBlockingQueue<>(REPLIES_MAX);
  private final Deque<Record> at = new ArrayDeque<>();
  private int nth; // The server that is asked now.
  private Thread thread;
  private Context.CancellableContext reading;
  private volatile boolean closed;
  private volatile Ending failure;
  private volatile String away = "";

  LogClient(Plan plan) {
    this.plan = plan;
    try {
      for (String host : plan.hosts()) {
        channels.add(Grpc.channel(host, plan.secrets(), MESSAGE_BYTES_MAX));
      }
    } catch (IOException | IllegalArgumentException error) {
      close();
      throw new Ending(Ending.Kind.LOG, "", 0, "the TLS files for the log server cannot be used: " + error.getMessage());
    }
  }

  /** Why the log cannot be read now; empty while it can. */
  String away() {
    return away;
  }

  /** Where the log begins and ends. Waits {@code ms} for a server that is away. */
  InfoReply info(long ms) throws InterruptedException {
    long deadline = System.nanoTime() + ms * 1_000_000;
    for (int attempt = 0; ; attempt++) {
      try {
        CallOptions options = CallOptions.DEFAULT.withDeadlineAfter(5, TimeUnit.SECONDS);
        byte[] reply =
            ClientCalls.blockingUnaryCall(channel(), INFO, options, InfoRequest.getDefaultInstance().toByteArray());
        away = "";
        return InfoReply.parseFrom(reply);
      } catch (StatusRuntimeException error) {
        retryOrRaise(error);
        if (System.nanoTime() > deadline) {
          throw new Ending(Ending.Kind.LOG, "", 0, away + "; is it running?");
        }
        pause(attempt);
      } catch (InvalidProtocolBufferException error) {
        throw new Ending(Ending.Kind.LOG, "", 0, "the log server's answer cannot be read: " + error.getMessage());
      }
    }
  }

  /** Begins to read the entries from {@code first} on. */
  void read(long first) {
    reading = Context.current().withCancellation();
    thread = new Thread(() -> follow(first), "logplayer-log");
    thread.setDaemon(true);
    thread.start();
  }

  /** The next record, or null if there is none in {@code ms}. Raises Ending once nothing more can be read. */
  Record poll(long ms) throws InterruptedException {
    if (at.isEmpty()) {
      List<Record> some = ms > 0 ? read.poll(ms, TimeUnit.MILLISECONDS) : read.poll();
      if (some == null) {
        if (failure != null && read.isEmpty()) {
          throw failure;
        }
        return null;
      }
      at.addAll(some);
    }
    return at.poll();
  }

  private void follow(long first) {
    long next = first;
    int attempt = 0;
    while (!closed) {
      Context before = reading.attach();
      try {
        byte[] request = ReadRequest.newBuilder().setFirst(next).build().toByteArray();
        Iterator<byte[]> replies =
            ClientCalls.blockingServerStreamingCall(channel(), READ, CallOptions.DEFAULT, request);
        while (replies.hasNext()) {
          List<Record> records = decode(replies.next(), next);
          next = records.isEmpty() ? next : records.get(records.size() - 1).getIndex() + 1;
          away = "";
          attempt = 0;
          read.put(records);
        }
        away = "the log server ended the stream";
        pause(attempt++);
      } catch (StatusRuntimeException error) {
        if (closed) {
          return;
        }
        try {
          retryOrRaise(error);
          pause(attempt++);
        } catch (Ending ending) {
          failure = ending;
          return;
        } catch (InterruptedException stopped) {
          return;
        }
      } catch (Ending ending) {
        failure = ending;
        return;
      } catch (InterruptedException stopped) {
        return;
      } catch (Throwable error) { // Else this thread ends, and the reader waits for records for ever.
        failure = new Ending(Ending.Kind.LOG, "", next, "the log cannot be read from entry " + next + " on: " + error);
        return;
      } finally {
        reading.detach(before);
      }
    }
  }

  /** The records of a reply, whose indexes rise from {@code first} on. */
  private static List<Record> decode(byte[] reply, long first) {
    List<Record> records = new ArrayList<>();
    long next = first;
    try {
      CodedInputStream in = CodedInputStream.newInstance(reply);
      while (!in.isAtEnd()) {
        in.readTag();
        byte[] body = in.readByteArray();
        CRC32 crc = new CRC32();
        crc.update(body, 0, Math.max(0, body.length - CRC_BYTES));
        Record record = Record.parseFrom(body);
        if (body.length < CRC_BYTES || (int) crc.getValue() != record.getCrc()) {
          throw damaged(next, "its checksum does not match");
        }
        if (record.getIndex() < next) {
          throw damaged(next, "entry " + record.getIndex() + " is in its place");
        }
        records.add(record);
        next = record.getIndex() + 1;
      }
    } catch (IOException error) {
      throw damaged(next, error.getMessage());
    }
    return records;
  }

  private static Ending damaged(long index, String why) {
    return new Ending(
        Ending.Kind.LOG, "", index, "entry " + index + " is damaged: " + why + "; restore it from a replica or a backup");
  }

  private Channel channel() {
    ManagedChannel channel = channels.get(nth % channels.size());
    channel.resetConnectBackoff(); // Or a server that was away is not tried for seconds.
    return ClientInterceptors.intercept(channel, Grpc.headers(plan.secrets(), plan.logId()));
  }

  /** Notes that the log is away, and turns to the next server; raises what another try cannot mend. */
  private void retryOrRaise(StatusRuntimeException error) {
    Status status = error.getStatus();
    String name = error.getTrailers() == null ? null : error.getTrailers().get(ERROR);
    String where = plan.hosts().get(nth % channels.size());
    boolean passing =
        name == null
            ? Set.of(Status.Code.UNAVAILABLE, Status.Code.CANCELLED, Status.Code.DEADLINE_EXCEEDED, Status.Code.INTERNAL)
                .contains(status.getCode())
            : PASSING.contains(name);
    if (!passing) {
      Ending.Kind kind = "Trimmed".equals(name) ? Ending.Kind.RESEED : Ending.Kind.LOG;
      String said = status.getDescription() == null ? status.getCode().name() : status.getDescription();
      throw new Ending(kind, "", 0, "the log server at " + where + " refused: " + said);
    }
    away = "the log server at " + where + " cannot be reached (" + status.getCode() + ")";
    nth++;
  }

  private static void pause(int attempt) throws InterruptedException {
    Thread.sleep(RETRY_MS[Math.min(attempt, RETRY_MS.length - 1)]);
  }

  @Override
  public void close() {
    closed = true;
    if (reading != null) {
      reading.cancel(null);
    }
    if (thread != null) {
      thread.interrupt();
    }
    channels.forEach(ManagedChannel::shutdownNow);
  }
}
