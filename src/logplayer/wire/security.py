"""TLS, mutual TLS and a bearer token, for log server, player and targets alike.

========== ============================================= =================================================
field      on a client                                   on a server
========== ============================================= =================================================
ca         trust servers with a certificate from here;   ask clients for a certificate from here (mutual
           the word ``system``: the system's roots       TLS)
cert, key  show this certificate (mutual TLS)            the server's certificate; without it: plain text
token      show it                                       demand it
insecure   allow plain text beyond loopback              the same
========== ============================================= =================================================

Plain text beyond loopback is refused unless ``insecure`` says that it is meant. Files are read again when they change:
a server for its next handshake, a client for its next connection. A session that is open goes on.
"""

from __future__ import annotations

import hmac
import os
import ssl
from dataclasses import dataclass
from pathlib import Path

from logplayer.errors import ConfigError
from logplayer.wire.address import is_loopback

SYSTEM = "system"


@dataclass(frozen=True, slots=True)
class Security:
    """How a connection is protected. The default is plain text, which only loopback allows."""

    ca: str = ""
    cert: str = ""
    key: str = ""
    token: str = ""
    insecure: bool = False

    def __post_init__(self) -> None:
        if bool(self.cert) != bool(self.key):
            missing, given = ("key", "certificate") if self.cert else ("certificate", "key")
            raise ConfigError(f"TLS has a {given} but no {missing}; give both files or none")
        if self.insecure and (self.cert or self.ca):
            raise ConfigError("TLS files and --insecure contradict each other; leave one out")

    def __repr__(self) -> str:
        token = "set" if self.token else "none"
        return f"Security(ca={self.ca!r}, cert={self.cert!r}, token {token}, insecure={self.insecure})"

    @property
    def client_tls(self) -> bool:
        """Whether a client speaks TLS."""
        return bool(self.ca or self.cert)

    @property
    def server_tls(self) -> bool:
        """Whether a server speaks TLS."""
        return bool(self.cert)

    def permits(self, presented: str) -> bool:
        """Whether a peer that showed ``presented`` may go on; takes the same time for every wrong token."""
        return not self.token or hmac.compare_digest(self.token.encode(), presented.encode())


NONE = Security()


def from_environment() -> Security:
    """What LOGPLAYER_TLS_CA, _TLS_CERT, _TLS_KEY, _TOKEN_FILE and _INSECURE say, for processes without options."""

    def setting(name: str) -> str:
        return os.environ.get(f"LOGPLAYER_{name}", "")

    token = read_token(setting("TOKEN_FILE")) if setting("TOKEN_FILE") else ""
    insecure = setting("INSECURE") not in ("", "0")
    return Security(setting("TLS_CA"), setting("TLS_CERT"), setting("TLS_KEY"), token, insecure)


def read_token(path: str) -> str:
    """The token in a file, without the newline at its end."""
    token = read_file(path, "token").decode("utf-8", "replace").strip()
    if not token or not token.isprintable() or not token.isascii():
        raise ConfigError(f"the token file {path} holds no token; write one line of printable ASCII into it")
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
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if security.ca and security.ca != SYSTEM:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        _load_ca(context, security.ca)
    if security.cert:
        _load_cert(context, security)
    return context


def server_context(security: Security) -> ssl.SSLContext | None:
    """A context for one handshake of a tcp:// server; None for plain text."""
    if not security.server_tls:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load_cert(context, security)
    if security.ca:
        _load_ca(context, security.ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def call_metadata(security: Security) -> tuple[tuple[str, str], ...]:
    """The token as gRPC carries it."""
    return (("authorization", f"Bearer {security.token}"),) if security.token else ()


class Watch:
    """Tells whether the files of a Security have changed since it last said so."""

    def __init__(self, security: Security) -> None:
        self._paths = [Path(path) for path in (security.ca, security.cert, security.key) if path]
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
        self._watch = Watch(security)
        self._context = server_context(security)

    def current(self) -> ssl.SSLContext | None:
        if self._context is not None and self._watch.changed():
            try:
                self._context = server_context(self._security)
            except ConfigError:
                self._watch.forget()  # Half replaced: the old certificate serves until the files are whole.
        return self._context


def _load_cert(context: ssl.SSLContext, security: Security) -> None:
    read_file(security.key, "key")
    read_file(security.cert, "certificate")
    try:
        context.load_cert_chain(security.cert, security.key)
    except ssl.SSLError as error:
        raise ConfigError(f"the certificate {security.cert} and key {security.key} do not work: {error}") from None


def _load_ca(context: ssl.SSLContext, path: str) -> None:
    read_file(path, "CA")
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise ConfigError(f"the CA file {path} holds no usable certificate: {error}") from None


def read_file(path: str, what: str) -> bytes:
    """The file's bytes; ``what`` it is for stands in the error."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"the {what} file {path} cannot be read: {error.strerror}; check the path") from None
