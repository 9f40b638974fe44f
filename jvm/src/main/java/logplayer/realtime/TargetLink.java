package logplayer.realtime;

import java.io.IOException;

/** One stream to one target: messages go out in order, answers come back on a thread of the link. */
interface TargetLink extends AutoCloseable {
  /** What the link reports, on its own thread. */
  interface Listener {
    /** An encoded {@code ToPlayer}. */
    void received(byte[] message);

    /** Nothing more will come. */
    void lost(String why);
  }

  /** Sends an encoded {@code ToTarget}. Only the thread of the task calls it. */
  void send(byte[] message) throws IOException;

  /** Ends the stream at once, from any thread: also while another one is in {@link #send}, which then fails. */
  @Override
  void close();

  /** Connects to {@code grpc://HOST:PORT} or {@code tcp://HOST:PORT}. */
  static TargetLink connect(String address, Plan plan, Listener listener) throws IOException {
    return address.startsWith("tcp://")
        ? new TcpLink(address.substring("tcp://".length()), plan, listener)
        : new GrpcLink(address.substring("grpc://".length()), plan, listener);
  }
}
