package logplayer.realtime;

import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;
import logplayer.v1.TargetOuterClass.Auth;
import logplayer.v1.TargetOuterClass.ToTarget;
import logplayer.v1.TargetOuterClass.Versions;

/** Frames on a socket: length and number of the stream, four bytes each, then the message. One stream, number 1. */
final class TcpLink implements TargetLink {
  private static final int MESSAGE_BYTES_MAX = 64 << 20;
  private static final int STREAM = 1;
  private static final int CONNECTION = 0;
  private final Socket plain; // What close() closes: closing TLS waits for a write that hangs.
  private final Socket socket;
  private final DataOutputStream out;
  private final Listener listener;
  private volatile boolean closed;

  TcpLink(String where, Plan plan, Listener listener) throws IOException {
    this.listener = listener;
    int colon = where.lastIndexOf(':');
    String host = where.substring(0, colon).replace("[", "").replace("]", "");
    int port = Integer.parseInt(where.substring(colon + 1));
    plain = new Socket();
    try {
      plain.connect(new InetSocketAddress(host, port), plan.limits().openMs());
      plain.setTcpNoDelay(true);
      plain.setKeepAlive(true);
      plain.setSoTimeout(plan.limits().openMs()); // A target that hangs answers no handshake.
      socket = plan.secrets().tls() ? secured(plain, host, port, plan.secrets()) : plain;
      plain.setSoTimeout(0); // From here on, the feed watches.
      out = new DataOutputStream(new BufferedOutputStream(socket.getOutputStream(), 64 << 10));
      if (!plan.secrets().token().isEmpty()) {
        Versions ours = Versions.newBuilder().setOldest(1).setNewest(1).build();
        Auth auth = Auth.newBuilder().setToken(plan.secrets().token()).setVersions(ours).build();
        frame(CONNECTION, ToTarget.newBuilder().setAuth(auth).build().toByteArray());
      }
    } catch (IOException error) {
      plain.close();
      throw error;
    }
    Thread thread = new Thread(this::listen, "logplayer-target");
    thread.setDaemon(true);
    thread.start();
  }

  private static Socket secured(Socket plain, String host, int port, Plan.Secrets secrets) throws IOException {
    SSLSocket socket =
        (SSLSocket)
            Tls.context(secrets.ca(), secrets.cert(), secrets.key())
                .getSocketFactory()
                .createSocket(plain, host, port, true);
    SSLParameters parameters = socket.getSSLParameters();
    parameters.setEndpointIdentificationAlgorithm("HTTPS");
    parameters.setProtocols(new String[] {"TLSv1.3", "TLSv1.2"});
    socket.setSSLParameters(parameters);
    socket.startHandshake();
    return socket;
  }

  @Override
  public void send(byte[] message) throws IOException {
    frame(STREAM, message);
  }

  private void frame(int stream, byte[] message) throws IOException {
    out.writeInt(message.length);
    out.writeInt(stream);
    out.write(message);
    out.flush();
  }

  private void listen() {
    try {
      DataInputStream in = new DataInputStream(new BufferedInputStream(socket.getInputStream()));
      while (true) {
        int length = in.readInt();
        in.readInt();
        if (length < 0 || length > MESSAGE_BYTES_MAX) {
          throw new IOException("the peer does not speak this protocol");
        }
        listener.received(in.readNBytes(length));
      }
    } catch (EOFException error) {
      report("the target ended the connection");
    } catch (IOException error) {
      report("the connection broke: " + error.getMessage());
    }
    drop();
  }

  private void report(String why) {
    if (!closed) {
      listener.lost(why);
    }
  }

  @Override
  public void close() {
    closed = true;
    drop();
  }

  /** Frees whoever is in a read or a write, at once. */
  private void drop() {
    try {
      plain.close();
    } catch (IOException error) {
      // It is gone, which is what was wanted.
    }
  }
}
