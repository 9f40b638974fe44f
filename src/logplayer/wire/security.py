"""TLS, mutual TLS and a bearer token, for log server, player and targets alike.

========== ============================================= =================================================
field      on a client                                   on a server
========== ============================================= =================================================
ca         trust servers with a certificate from here;   ask clients for a certificate from here (mutual
           the word ``system``: the system's roots       TLS)
cert, key  show this certificate (mutual TLS)            the server's certificate; without it: plain text
token      show it                                       demand it
insecure   allow plain text beyond loopback              the same
user,      show them to an etcd or NATS cluster          (not used)
password
nkey       sign in to a NATS cluster: a .creds file, or  (not used)
           the seed of an nkey
========== ============================================= =================================================

Plain text beyond loopback is refused unless ``insecure`` says that it is meant. Files are read again when they change:
a server for its next handshake, a client for its next connection. A session that is open goes on.

ca, cert and key are paths, or the PEM text itself. A Security that is pickled holds the text in place of the paths, and
so reaches machines that do not have the files. The price is that a process that got it this way, as the tasks of a
Spark job do, does not see when the files change: start the job again before the old certificates expire.
"""

from __future__ import annotations

import hmac
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from logplayer.errors import ConfigError
from logplayer.wire.addresses import is_loopback

SYSTEM = "system"
PEM = "-----BEGIN "
TLS_MIN = ssl.TLSVersion.TLSv1_2  # Of both sides over tcp:// and HTTP; gRPC has the same by itself.


@dataclass(frozen=True, slots=True)
class Security:
    """How a connection is protected. The default is plain text, which only loopback allows.

    Attributes:
        ca: Of a client: which servers to trust, ``system`` for those that the system trusts. Of a server: which
            clients to let in (mutual TLS). A path, or the PEM text itself; so are ``cert`` and ``key``.
        cert: The own certificate. A server without one speaks plain text.
        key: The key of ``cert``.
        token: What a client shows, and a server demands.
        insecure: Allow plain text beyond loopback.
        user: A client's user at an etcd or NATS cluster.
        password: The password of ``user``.
        nkey: How a client signs in to a NATS cluster: a .creds file, or the seed of an nkey.

    Raises:
        ConfigError: A file or a name is missing, or two of them contradict each other.

    Example:
        >>> Security(ca="system", token="let-me-in").insecure
        False
    """

    ca: str = ""
    cert: str = ""
    key: str = ""
    token: str = ""
    insecure: bool = False
    user: str = ""
    password: str = ""
    nkey: str = ""

    def __post_init__(self) -> None:
        if bool(self.cert) != bool(self.key):
            missing, given = ("key", "certificate") if self.cert else ("certificate", "key")
            raise ConfigError(f"TLS has a {given} but no {missing}; give both files or none")
        if bool(self.user) != bool(self.password):
            missing, given = ("password", "user") if self.user else ("user", "password")
            raise ConfigError(f"there is a {given} but no {missing}; give both or none")
        if self.insecure and (self.cert or self.ca):
            raise ConfigError("TLS files and --insecure contradict each other; leave one out")

    def __repr__(self) -> str:
        token = "set" if self.token else "none"
        ca, cert = shown(self.ca), shown(self.cert)
        who = f", user={self.user!r}" if self.user else ""
        return f"Security(ca={ca!r}, cert={cert!r}, token {token}, insecure={self.insecure}{who})"

    def __reduce__(self) -> tuple[type[Security], tuple[str | bool, ...]]:
        """Pickle the content of the files, because whoever unpickles it may be on another machine."""
        ca = self.ca if self.ca in ("", SYSTEM) else _text(self.ca, "CA")
        cert, key = _text(self.cert, "certificate"), _text(self.key, "key")
        return Security, (ca, cert, key, self.token, self.insecure, self.user, self.password, self._nkey_text())

    def _nkey_text(self) -> str:
        """The key itself: a file's path means nothing elsewhere."""
        if not self.nkey or not Path(self.nkey).is_file():
            return self.nkey
        return read_file(self.nkey, "nkey").decode().strip()

    @property
    def client_tls(self) -> bool:
        """Whether a client speaks TLS."""
        return bool(self.ca or self.cert)

    @property
    def server_tls(self) -> bool:
        """Whether a server speaks TLS."""
        return bool(self.cert)

    def permits(self, presented: str) -> bool:
        """Whether a peer may go on; takes the same time for every wrong token.

        Args:
            presented: The token that it showed.

        Example:
            >>> Security(token="let-me-in").permits("another")
            False
        """
        shown = presented.encode("utf-8", "surrogatepass")  # Also what is not text at all is just a wrong token.
        return not self.token or hmac.compare_digest(self.token.encode(), shown)


NONE = Security()


def read_token(path: str, what: str = "token") -> str:
    """The token, or password, in a file, without the newline at its end."""
    token = read_file(path, what).decode("utf-8", "replace").strip()
    if not token or not token.isprintable() or not token.isascii():
        raise ConfigError(f"the {what} file {path} holds no {what}; write one line of printable ASCII into it")
    return token


def require_protection(security: Security, host: str, *, server: bool) -> None:
    """Refuse plain text beyond loopback, unless it is meant."""
    protected = security.server_tls if server else security.client_tls
    if protected or security.insecure or is_loopback(host):
        return
    what = "a certificate and key" if server else "the server's CA"
    raise ConfigError(f"{host} is not loopback: give {what} for TLS, or --insecure if plain text is meant")


def client_context(security: Security) -> ssl.SSLContext | None:
    """A context for one connection of a tcp:// client; None for plain text."""
    if not security.client_tls:
        return None
    if security.ca and security.ca != SYSTEM:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        _load_ca(context, security.ca)
    else:
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
    context.minimum_version = TLS_MIN
    if security.cert:
        _load_cert(context, security)
    return context


def server_context(security: Security) -> ssl.SSLContext | None:
    """A context for one handshake of a tcp:// server; None for plain text."""
    if not security.server_tls:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = TLS_MIN
    _load_cert(context, security)
    if security.ca:
        _load_ca(context, security.ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def call_metadata(security: Security) -> tuple[tuple[str, str], ...]:
    """The token as gRPC carries it."""
    return (("authorization", f"Bearer {security.token}"),) if security.token else ()


class SecurityWatch:
    """Tells whether the files of a Security have changed since it last said so."""

    def __init__(self, security: Security) -> None:
        given = (security.ca, security.cert, security.key)
        self._paths = [Path(path) for path in given if path and not path.startswith(PEM)]
        self._seen = self._stamps()

    def changed(self) -> bool:
        stamps = self._stamps()
        if stamps == self._seen:
            return False
        self._seen = stamps
        return True

    def forget(self) -> None:
        """Say "changed" once more: what was read could not be used."""
        self._seen = []

    def _stamps(self) -> list[tuple[int, int, int]]:
        stamps = []
        for path in self._paths:
            try:
                stat = path.stat()
                stamps.append((stat.st_mtime_ns, stat.st_ino, stat.st_size))
            except OSError:
                stamps.append((0, 0, 0))
        return stamps


class ServerContexts:
    """The context for the next handshake of a tcp:// server: a new one whenever the files have changed."""

    def __init__(self, security: Security) -> None:
        self._security = security
        self._watch = SecurityWatch(security)
        self._context = server_context(security)

    def current(self) -> ssl.SSLContext | None:
        if self._context is not None and self._watch.changed():
            try:
                self._context = server_context(self._security)
            except ConfigError:
                self._watch.forget()  # Half replaced: the old certificate serves until the files are whole.
        return self._context


def _load_cert(context: ssl.SSLContext, security: Security) -> None:
    pair = (read_file(security.cert, "certificate"), read_file(security.key, "key"))
    try:
        with _as_files(security, pair) as (cert, key):
            context.load_cert_chain(cert, key)
    except ssl.SSLError as error:
        names = f"certificate {shown(security.cert)} and key {shown(security.key)}"
        raise ConfigError(f"the {names} do not work: {error}") from None


@contextmanager
def _as_files(security: Security, pair: tuple[bytes, bytes]) -> Iterator[tuple[str, str]]:
    """The certificate and key as files, which is all that ssl reads; text is in a private file meanwhile."""
    if not security.cert.startswith(PEM) and not security.key.startswith(PEM):
        yield security.cert, security.key
        return
    with tempfile.TemporaryDirectory(prefix="logplayer-tls-") as folder:  # Made with mode 0700.
        paths = [Path(folder) / name for name in ("cert.pem", "key.pem")]
        for path, content in zip(paths, pair, strict=True):
            path.touch(mode=0o600)
            path.write_bytes(content)
        yield str(paths[0]), str(paths[1])


def _load_ca(context: ssl.SSLContext, ca: str) -> None:
    content = read_file(ca, "CA")
    try:
        context.load_verify_locations(cadata=content.decode("ascii", "ignore"))
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"the CA {shown(ca)} holds no usable certificate: {error}") from None


def shown(place: str) -> str:
    """A path as it is; of a PEM text only that it is one, as it may be a key."""
    return "given as text" if place.startswith(PEM) else place


def read_file(place: str, what: str) -> bytes:
    """The bytes of the file at ``place``, or of the PEM text that it is; ``what`` it is for is named in the error."""
    if place.startswith(PEM):
        return place.encode()
    try:
        return Path(place).read_bytes()
    except OSError as error:
        raise ConfigError(f"the {what} file {place} cannot be read: {error.strerror}; check the path") from None


def _text(place: str, what: str) -> str:
    """The PEM text of a file, without what may come before its first block."""
    if not place:
        return ""
    text = read_file(place, what).decode("utf-8", "replace")
    _, found, rest = text.partition(PEM)
    if not found:
        raise ConfigError(f"the {what} file {place} is not PEM; convert it, for example with openssl")
    return PEM + rest
