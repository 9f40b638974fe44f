package logplayer.realtime;

import com.google.protobuf.ByteString;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.protobuf.UnsafeByteOperations;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import logplayer.v1.TargetOuterClass.Batch;
import logplayer.v1.TargetOuterClass.Delivery;
import logplayer.v1.TargetOuterClass.Open;
import logplayer.v1.TargetOuterClass.Opened;
import logplayer.v1.TargetOuterClass.Probe;
import logplayer.v1.TargetOuterClass.Refused;
import logplayer.v1.TargetOuterClass.ToPlayer;
import logplayer.v1.TargetOuterClass.ToTarget;
import logplayer.v1.TargetOuterClass.Versions;

/**
 * One target of one task: its session, what waits to be sent, and what is sent and not acked.
 *
 * <p>Only the thread of the task collects and sends. Answers come on the link's thread, and change what {@code lock}
 * guards.
 */
final class TargetFeed implements TargetLink.Listener, AutoCloseable {
  // What a message may have (logplayer.wire.codec), less what stands around the deliveries of a batch.
  static final int DELIVERIES_BYTES_MAX = (64 << 20) - (64 << 10);
  private static final byte[] PROBE = ToTarget.newBuilder().setProbe(Probe.getDefaultInstance()).build().toByteArray();

  private static final int FIELD_BYTES_MAX = 6; // A tag, and the length of what is smaller than a message.

  /** A batch on its way. */
  private record Flight(long to, int bytes) {}

  final String name;
  private final String address;
  private final Plan.Limits limits;
  private final Object lock = new Object();

  // Of the task's thread.
  private volatile TargetLink link;
  private volatile long sent; // Invariant: opened <= sent. Every batch so far is within (opened, sent].
  private byte[] sentChain = Chain.GENESIS;
  private long sentAt;
  private boolean verified; // Whether the log has confirmed the chain value of Opened.
  private final List<Delivery> pending = new ArrayList<>();
  private int pendingBytes;
  private final ByteArrayOutputStream entry = new ByteArrayOutputStream(); // Of the entry under way.

  // Guarded by lock.
  private Opened opened;
  private Ending ending;
  private long acked;
  private final Deque<Flight> flights = new ArrayDeque<>();
  private long flightBytes;
  private long askedAt; // When the oldest question without an answer was sent; 0: there is none.

  TargetFeed(Plan.Target target, Plan.Limits limits) {
    this.name = target.name();
    this.address = target.address();
    this.limits = limits;
  }

  // --- The session ---

  /** Connects and asks for the session. */
  void open(Plan plan, long term) {
    Versions ours = Versions.newBuilder().setOldest(1).setNewest(1).build();
    Open message =
        Open.newBuilder().setTarget(name).setLogId(plan.logId()).setEpoch(plan.epoch()).setTerm(term).setVersions(ours).build();
    try {
      link = TargetLink.connect(address, plan, this);
      link.send(ToTarget.newBuilder().setOpen(message).build().toByteArray());
    } catch (IOException | IllegalArgumentException error) {
      throw lostAs("no connection to " + address + ": " + error.getMessage());
    }
  }

  /** Waits for the answer, and begins at the index that it names. */
  void awaitOpened(long deadline) throws InterruptedException {
    synchronized (lock) {
      while (opened == null) {
        raise();
        long left = (deadline - System.nanoTime()) / 1_000_000;
        if (left <= 0) {
          throw lostAs("no answer to Open within " + limits.openMs() + " ms");
        }
        lock.wait(left);
      }
      acked = opened.getIndex();
    }
    sent = opened.getIndex();
    sentChain = opened.getChain().toByteArray();
    sentAt = System.nanoTime();
  }

  /** The index that the target had when this session began: what it had is never sent again. */
  long openedAt() {
    return opened.getIndex();
  }

  byte[] openedChain() {
    return opened.getChain().toByteArray();
  }

  long acked() {
    synchronized (lock) {
      return acked;
    }
  }

  long sent() {
    return sent;
  }

  /** Compares the chain value that the target has with the log's at the same index, once. */
  void verify(byte[] value) {
    if (!verified && !java.util.Arrays.equals(value, openedChain())) {
      throw new Ending(
          Ending.Kind.DIVERGED,
          name,
          openedAt(),
          "what it has up to index " + openedAt() + " is not what the log has up to there (chain value "
              + Chain.hex(openedChain()) + ", in the log " + Chain.hex(value) + "): the log lost entries or was restored; "
              + "restore the newer log, or fill the target again with a backfill");
    }
    verified = true;
  }

  boolean verified() {
    return verified;
  }

  // --- What goes out ---

  /** A mutation of the entry under way. */
  void add(byte[] mutation, long index) {
    checkRoom(mutation.length, index);
    entry.writeBytes(mutation);
  }

  /** Raises Ending if the entry under way, with so much more of it, fits into no message. */
  private void checkRoom(long more, long index) {
    if (entry.size() + more > DELIVERIES_BYTES_MAX) {
      throw new Ending(
          Ending.Kind.BAD_ROW,
          name,
          index,
          "entry " + index + " has " + (entry.size() + more) + " bytes or more after the transformation, and a target takes "
              + DELIVERIES_BYTES_MAX + " of one entry: start the query with a transformation that makes less of it, or "
              + "leaves it out (log_index <> " + index + ")");
    }
  }

  /** Whether the entry under way, with its headers, does not fit into one message with what waits to be sent. */
  boolean overflows(byte[] headers) {
    boolean more = entry.size() > 0 && !pending.isEmpty();
    return more && (long) pendingBytes + entry.size() + headers.length > DELIVERIES_BYTES_MAX;
  }

  /** The entry under way is whole: all of it that is left becomes a delivery. */
  void endEntry(long index, byte[] chain, byte[] headers, boolean quarantine) {
    if (entry.size() == 0) {
      return;
    }
    checkRoom(headers.length, index);
    entry.writeBytes(headers);
    ByteString payload = UnsafeByteOperations.unsafeWrap(entry.toByteArray());
    entry.reset();
    Delivery delivery =
        Delivery.newBuilder()
            .setIndex(index)
            .setPayload(payload)
            .setQuarantine(quarantine)
            .setChain(ByteString.copyFrom(chain))
            .build();
    pending.add(delivery);
    pendingBytes += delivery.getSerializedSize() + FIELD_BYTES_MAX;
  }

  boolean full() {
    return pending.size() >= limits.batchCount() || pendingBytes >= limits.batchBytes();
  }

  /** Whether {@code through} is news that the target should have by now: a delivery, or a range without one for long. */
  boolean due(long through, long now) {
    return through > sent && (!pending.isEmpty() || now - sentAt >= limits.idleMs() * 1_000_000L);
  }

  /** Sends what was collected as the batch (sent, through]. Waits while the window is full. */
  void send(long through, byte[] chain) throws InterruptedException {
    Batch.Builder batch = Batch.newBuilder().setPrev(sent).setTo(through).setToChain(ByteString.copyFrom(chain));
    batch.setPrevChain(ByteString.copyFrom(sentChain));
    for (Delivery delivery : pending) {
      // The one that ends the range has no chain value of its own on the wire.
      batch.addDeliveries(delivery.getIndex() == through ? delivery.toBuilder().clearChain().build() : delivery);
    }
    byte[] message = ToTarget.newBuilder().setBatch(batch).build().toByteArray();
    awaitRoom(message.length);
    synchronized (lock) {
      flights.add(new Flight(through, message.length));
      flightBytes += message.length;
      askedAt = askedAt == 0 ? System.nanoTime() : askedAt;
    }
    write(message);
    pending.clear();
    pendingBytes = 0;
    sent = through;
    sentChain = chain;
    sentAt = System.nanoTime();
  }

  private void awaitRoom(int bytes) throws InterruptedException {
    synchronized (lock) {
      while (true) {
        raise();
        boolean room = flights.size() < limits.flightBatches() && flightBytes + bytes <= limits.flightBytes();
        if (room || flights.isEmpty()) {
          return;
        }
        checkSilence();
        lock.wait(100);
      }
    }
  }

  /** While nothing is to be sent: raises what the target has said, and asks for a sign of life. */
  void tick(long now) {
    boolean ask;
    synchronized (lock) {
      raise();
      checkSilence();
      ask = askedAt == 0 && now - sentAt >= limits.heartbeatMs() * 1_000_000L;
      if (ask) {
        askedAt = now;
      }
    }
    if (ask) {
      sentAt = now;
      write(PROBE);
    }
  }

  /** Waits until everything sent is durable, or until the deadline. */
  void drain(long deadline) throws InterruptedException {
    synchronized (lock) {
      while (!flights.isEmpty()) {
        raise();
        long left = (deadline - System.nanoTime()) / 1_000_000;
        if (left <= 0) {
          return; // What is not acked by then is read from the log again.
        }
        lock.wait(Math.min(left, 100));
      }
    }
  }

  private void write(byte[] message) {
    try {
      link.send(message);
    } catch (IOException error) {
      synchronized (lock) {
        raise(); // What the target said last says more.
      }
      throw lostAs("the connection broke: " + error.getMessage());
    }
  }

  /**
   * Ends the session of a target that has not answered for long, also while the task's thread waits in a write: closing the
   * link frees it. Not under the lock, which whoever brings an answer needs.
   */
  void watch() {
    boolean over;
    synchronized (lock) {
      if (ending == null && silent()) {
        lost("no answer for " + limits.progressMs() + " ms");
      }
      over = ending != null;
    }
    TargetLink used = link;
    if (over && used != null) {
      used.close();
    }
  }

  private boolean silent() {
    return askedAt != 0 && System.nanoTime() - askedAt > limits.progressMs() * 1_000_000L;
  }

  private void checkSilence() {
    if (silent()) {
      throw lostAs("no answer for " + limits.progressMs() + " ms");
    }
  }

  private void raise() {
    if (ending != null) {
      throw ending;
    }
  }

  private Ending lostAs(String why) {
    return new Ending(Ending.Kind.LOST, name, 0, why + "; is the target running at " + address + "?");
  }

  // --- What comes back, on the link's thread ---

  @Override
  public void received(byte[] data) {
    try {
      ToPlayer message = ToPlayer.parseFrom(data);
      synchronized (lock) {
        switch (message.getMessageCase()) {
          case OPENED -> opened = message.getOpened();
          case ACK -> acked(message.getAck().getIndex());
          case REFUSED -> end(refused(message.getRefused()));
          case FAILED -> end(lostAs("it failed: " + message.getFailed().getDetail()));
          default -> end(lostAs("it sent what this version cannot read"));
        }
        lock.notifyAll();
      }
    } catch (InvalidProtocolBufferException error) {
      lost("it sent what cannot be read: " + error.getMessage());
    }
  }

  private void acked(long index) {
    boolean progress = false;
    while (!flights.isEmpty() && flights.peek().to() <= index) {
      flightBytes -= flights.poll().bytes();
      progress = true;
    }
    acked = Math.max(acked, index);
    if (flights.isEmpty()) {
      askedAt = 0;
    } else if (progress) {
      askedAt = System.nanoTime();
    }
  }

  private Ending refused(Refused said) {
    Ending.Kind kind =
        switch (said.getReason()) {
          case FENCED -> Ending.Kind.FENCED;
          case POISON -> Ending.Kind.POISON;
          case DIVERGED -> Ending.Kind.DIVERGED;
          case STALE_SESSION, OUT_OF_SYNC -> Ending.Kind.LOST; // A later session of ours may open.
          default -> Ending.Kind.REFUSED;
        };
    long index = kind == Ending.Kind.FENCED ? said.getEpoch() : said.getIndex();
    return new Ending(kind, name, index, said.getReason() + ": " + said.getDetail());
  }

  @Override
  public void lost(String why) {
    synchronized (lock) {
      end(lostAs(why));
      lock.notifyAll();
    }
  }

  private void end(Ending why) {
    if (ending == null) { // The first reason is the reason.
      ending = why;
    }
  }

  @Override
  public void close() {
    if (link != null) {
      link.close();
    }
  }
}
