package logplayer.realtime;

import io.grpc.ChannelCredentials;
import io.grpc.InsecureChannelCredentials;
import io.grpc.TlsChannelCredentials;
import io.grpc.netty.shaded.io.netty.handler.ssl.JdkSslContext;
import io.grpc.netty.shaded.io.netty.handler.ssl.SslContextBuilder;
import io.grpc.netty.shaded.io.netty.handler.ssl.SslProvider;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import javax.net.ssl.SSLContext;

/** TLS from the PEM texts that the driver read: the same security as everywhere else in the product. */
final class Tls {
  private static final String SYSTEM = "system";

  private Tls() {}

  static ChannelCredentials forGrpc(Plan.Secrets secrets) throws IOException {
    if (!secrets.tls()) {
      return InsecureChannelCredentials.create();
    }
    TlsChannelCredentials.Builder made = TlsChannelCredentials.newBuilder();
    if (!secrets.ca().isEmpty() && !secrets.ca().equals(SYSTEM)) {
      made.trustManager(stream(secrets.ca()));
    }
    if (!secrets.cert().isEmpty()) {
      made.keyManager(stream(secrets.cert()), stream(secrets.key()));
    }
    return made.build();
  }

  /** For tcp:// and for the driver. */
  static SSLContext context(String ca, String cert, String key) throws IOException {
    SslContextBuilder made = SslContextBuilder.forClient().sslProvider(SslProvider.JDK);
    if (!ca.isEmpty() && !ca.equals(SYSTEM)) {
      made.trustManager(stream(ca));
    }
    if (!cert.isEmpty()) {
      made.keyManager(stream(cert), stream(key));
    }
    return ((JdkSslContext) made.build()).context();
  }

  private static InputStream stream(String pem) {
    return new ByteArrayInputStream(pem.getBytes(StandardCharsets.US_ASCII));
  }
}
