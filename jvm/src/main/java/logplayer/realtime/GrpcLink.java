package logplayer.realtime;

import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.ClientInterceptors;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.MethodDescriptor.MethodType;
import io.grpc.Status;
import java.io.IOException;

/** The call {@code Play}. What it may buffer is bounded by the window of its target. */
final class GrpcLink implements TargetLink {
  private static final int MESSAGE_BYTES_MAX = 64 << 20;
  private static final MethodDescriptor<byte[], byte[]> PLAY =
      Grpc.method("logplayer.v1.Target/Play", MethodType.BIDI_STREAMING);
  private final ManagedChannel channel;
  private final ClientCall<byte[], byte[]> call;
  private volatile boolean closed;

  GrpcLink(String where, Plan plan, Listener listener) throws IOException {
    channel = Grpc.channel(where, plan.secrets(), MESSAGE_BYTES_MAX);
    Channel named = ClientInterceptors.intercept(channel, Grpc.headers(plan.secrets(), ""));
    call = named.newCall(PLAY, CallOptions.DEFAULT);
    call.start(
        new ClientCall.Listener<>() {
          @Override
          public void onMessage(byte[] message) {
            listener.received(message);
            call.request(1);
          }

          @Override
          public void onClose(Status status, Metadata trailers) {
            if (!closed) {
              String said = status.getDescription() == null ? "" : " " + status.getDescription();
              listener.lost("the stream ended: " + status.getCode() + said);
            }
          }
        },
        new Metadata());
    call.request(1);
  }

  @Override
  public void send(byte[] message) throws IOException {
    try {
      call.sendMessage(message);
    } catch (IllegalStateException error) { // It was cancelled meanwhile: see close().
      throw new IOException(error.getMessage(), error);
    }
  }

  @Override
  public void close() {
    closed = true;
    call.cancel("the session is over", null);
    channel.shutdownNow();
  }
}
