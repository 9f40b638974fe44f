"""Who may look, and who may act.

Whoever shows the token may look; without a token everybody may who reaches the port, which is on loopback then. Acting
needs the operator's token if there is one, else the token; without either, only commands on this machine may act. A
browser acts only with a token that it shows by itself: any page on the web can make a browser send requests to
loopback, but none can read or guess a token. For the same reason a server without a token answers only to a name that
cannot be pointed at it from elsewhere: a number, or ``localhost``.
"""

from __future__ import annotations

import hmac
import ipaddress
from dataclasses import dataclass

from starlette.requests import Request

from logplayer.errors import UserError
from logplayer.wire.addresses import is_loopback
from logplayer.wire.security import NONE, Security


class AccessRefused(UserError):
    """The token is missing or wrong (HTTP 401), or a browser must not do this at all (403)."""

    def __init__(self, message: str, status: int = 401) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Access:
    """The tokens of one server."""

    security: Security = NONE
    operator: str = ""  # The operator's token; empty: whoever may look may act.

    def may_look(self, request: Request) -> None:
        """Raise AccessRefused unless this request may read."""
        shown = _shown(request)
        if self.operator and _same(self.operator, shown):
            return
        if not self.security.permits(shown):
            raise AccessRefused("the token is missing or wrong")
        if not self.security.token and not _unforgeable(request.url.hostname or ""):
            raise AccessRefused(
                f"this server has no token, and {request.url.hostname} may be any name; use a number", 403
            )

    def may_act(self, request: Request) -> None:
        """Raise AccessRefused unless this request may change something."""
        self.may_look(request)
        wanted = self.operator or self.security.token
        if wanted and not _same(wanted, _shown(request)):
            raise AccessRefused("this needs the operator's token")
        if not wanted and not is_loopback(request.client.host if request.client else ""):
            raise AccessRefused("acting from another machine needs a token: give --operator-token-file here", 403)
        if not wanted and _from_browser(request):
            raise AccessRefused("a page may act only with a token: start this process with --operator-token-file", 403)


def _shown(request: Request) -> str:
    return request.headers.get("authorization", "").removeprefix("Bearer ")


def _same(wanted: str, shown: str) -> bool:
    return hmac.compare_digest(wanted.encode(), shown.encode("utf-8", "surrogatepass"))


def _from_browser(request: Request) -> bool:
    """Browsers set one of these for every POST, and no page can keep them from it."""
    return "origin" in request.headers or "sec-fetch-site" in request.headers


def _unforgeable(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
