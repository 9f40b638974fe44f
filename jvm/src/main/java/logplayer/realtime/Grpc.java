package logplayer.realtime;

import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.stub.MetadataUtils;
import io.grpc.ClientInterceptor;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.util.concurrent.TimeUnit;

/** What the connections to log servers and to targets have in common: messages are bytes, and headers are ours. */
final class Grpc {
  static final String VERSIONS = "1-1";

  private Grpc() {}

  static ManagedChannel channel(String where, Plan.Secrets secrets, int messageBytesMax) throws IOException {
    return NettyChannelBuilder.forTarget("dns:///" + where, Tls.forGrpc(secrets))
        .maxInboundMessageSize(messageBytesMax)
        .keepAliveTime(10, TimeUnit.SECONDS)
        .keepAliveTimeout(5, TimeUnit.SECONDS)
        .keepAliveWithoutCalls(true)
        .disableRetry()
        .build();
  }

  static MethodDescriptor<byte[], byte[]> method(String name, MethodDescriptor.MethodType type) {
    return MethodDescriptor.<byte[], byte[]>newBuilder()
        .setType(type)
        .setFullMethodName(name)
        .setRequestMarshaller(BYTES)
        .setResponseMarshaller(BYTES)
        .build();
  }

  /** The headers of every call; an empty log id is not sent. */
  static ClientInterceptor headers(Plan.Secrets secrets, String logId) {
    Metadata headers = new Metadata();
    put(headers, "logplayer-versions", VERSIONS);
    if (!secrets.token().isEmpty()) {
      put(headers, "authorization", "Bearer " + secrets.token());
    }
    if (!logId.isEmpty()) {
      put(headers, "logplayer-log-id", logId);
    }
    return MetadataUtils.newAttachHeadersInterceptor(headers);
  }

  private static void put(Metadata headers, String name, String value) {
    headers.put(Metadata.Key.of(name, Metadata.ASCII_STRING_MARSHALLER), value);
  }

  private static final MethodDescriptor.Marshaller<byte[]> BYTES =
      new MethodDescriptor.Marshaller<>() {
        @Override
        public InputStream stream(byte[] value) {
          return new ByteArrayInputStream(value);
        }

        @Override
        public byte[] parse(InputStream stream) {
          try {
            return stream.readAllBytes();
          } catch (IOException error) {
            throw new IllegalStateException(error); // gRPC has the whole message in memory.
          }
        }
      };
}
