"""Sessions of browsers: what a token was exchanged for when a person signed in to the console.

The id of a session is 256 random bits in a cookie that scripts cannot read; here only its digest is known. A session
ends when nobody used it for `IDLE` seconds, `LONGEST` seconds after it began, with its token, and with the process.

Any web page can make a browser send requests to this machine. A page of another origin is recognized by the headers
that the browser adds (`Origin`, `Sec-Fetch-Site`, https://www.w3.org/TR/fetch-metadata/). A page whose own host name
resolves to this machine (DNS rebinding) is recognized by that name in `Host`.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable
from hashlib import sha256
from ipaddress import IPv6Address, ip_address
from typing import Final

from msgspec import Struct
from starlette.datastructures import Headers
from starlette.requests import cookie_parser

from spar.service.token_rows import TokenRow
from spar.service.tokens import Tokens

#: A `Host` header of this machine, with or without a port.
_LOCAL: Final = re.compile(r"(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d+)?", re.ASCII | re.IGNORECASE)
_PORT: Final = re.compile(r":\d{1,5}\Z", re.ASCII)
#: Values of `Sec-Fetch-Site` that name no other origin: a page of this origin, and an address that a person typed.
_OWN: Final = ("same-origin", "none")


class HostNames:
    """The host names under which the port is served.

    Args: listens_to: the address that the port listens on; names: more names, such as that of a reverse proxy.
    """

    def __init__(self, listens_to: str, names: Iterable[str] = ()) -> None:
        self._names = frozenset(name.casefold() for name in names)
        #: Whether other machines can reach the port.
        self.is_open = not is_local(url_host(listens_to))

    def is_known(self, host: str) -> bool:
        """Return whether a `Host` header names this machine or one of the names.

        If other machines can reach the port, any IP address is known, too: DNS rebinding needs a name.
        """
        name = _PORT.sub("", host).casefold()
        return is_local(host) or name in self._names or (self.is_open and _is_address(name))

    def is_foreign(self, headers: Headers) -> bool:
        """Return whether a browser sends the request for a page of another origin."""
        if headers.get("sec-fetch-site", _OWN[0]).casefold() not in _OWN:
            return True
        return any(not _is_same(origin, headers) for origin in headers.getlist("origin"))

    def is_own(self, headers: Headers) -> bool:
        """Return whether a browser says that it sends the request for a page of this origin."""
        is_told = headers.get("sec-fetch-site", "").casefold() == _OWN[0] or "origin" in headers
        return is_told and not self.is_foreign(headers)


def _is_same(origin: str, headers: Headers) -> bool:
    host = headers.get("host", "").casefold()
    return origin.casefold() in (f"http://{host}", f"https://{host}")


def is_local(host: str) -> bool:
    """Return whether a `Host` header is a loopback name or address."""
    if _LOCAL.fullmatch(host) is None:
        return False
    name = _PORT.sub("", host)
    return name.casefold() == "localhost" or _is_address(name)


def is_local_peer(address: str) -> bool:
    """Return whether the address of a peer is a loopback address."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    mapped = parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None
    return parsed.is_loopback or (mapped is not None and mapped.is_loopback)


def url_host(host: str) -> str:
    """Return an address in the form of a URL: IPv6, recognized by its colon, in brackets."""
    return f"[{host}]" if ":" in host else host


def _is_address(name: str) -> bool:
    """Return whether a name is an IP address, with or without brackets."""
    try:
        ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


#: Seconds without use, and in all, after which a session ends.
IDLE: Final = 8 * 3600.0
LONGEST: Final = 7 * 24 * 3600.0
#: Sessions of one token, and of all; of more the one that was used least recently ends.
MOST_OF_A_TOKEN: Final = 20
MOST_SESSIONS: Final = 500


class BrowserSession(Struct):
    """Session of a browser. Times are seconds of the monotonic clock."""

    digest: str
    token: TokenRow
    began: float
    used: float
    has_ended: bool = False


class BrowserSessions:
    """The sessions of one port. Args: monotonic: the clock, in seconds."""

    def __init__(self, tokens: Tokens, monotonic: Callable[[], float]) -> None:
        self._tokens, self._monotonic = tokens, monotonic
        #: By digest; the one that was used least recently first.
        self._sessions: dict[str, BrowserSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, token: TokenRow) -> str:
        """Begin a session with a token; return its id."""
        for session in [session for session in self._sessions.values() if not self.is_valid(session)]:
            self.end(session)
        same = [session for session in self._sessions.values() if session.token.digest == token.digest]
        if len(same) >= MOST_OF_A_TOKEN:
            self.end(same[0])
        elif len(self._sessions) >= MOST_SESSIONS:
            self.end(next(iter(self._sessions.values())))
        id, now = secrets.token_urlsafe(32), self._monotonic()
        session = BrowserSession(_digest(id), token, now, now)
        self._sessions[session.digest] = session
        return id

    def find(self, headers: Headers) -> BrowserSession | None:
        """Return the valid session that the cookie of a request names, and count it as used; None without one."""
        session = self._sessions.pop(_digest(cookie_of(headers)), None)
        if session is None or not self.is_valid(session):
            return None
        session.used = self._monotonic()
        self._sessions[session.digest] = session
        return session

    def is_valid(self, session: BrowserSession) -> bool:
        """Return whether a session has neither ended nor expired, and its token is valid."""
        now = self._monotonic()
        return (now - session.used < IDLE and now - session.began < LONGEST and self._tokens.is_valid(session.token)
                and not session.has_ended)  # fmt: skip

    def end(self, session: BrowserSession) -> None:
        """End a session. Idempotent."""
        session.has_ended = True
        self._sessions.pop(session.digest, None)


def cookie_name(headers: Headers, *, is_secure: bool) -> str:
    """Return the name of the cookie, by the port that the browser asked: cookies of one host are not kept apart by
    ports. Args: is_secure: whether it may be sent by https only."""
    port = headers.get("host", "").rpartition(":")[2]
    return f"{'__Host-' if is_secure else ''}spar-session{f'-{port}' if port.isdigit() else ''}"


def cookie_of(headers: Headers) -> str:
    """Return the id of a session in the cookies of a request, "" for none."""
    cookies = cookie_parser("; ".join(headers.getlist("cookie")))
    return next(filter(None, (cookies.get(cookie_name(headers, is_secure=secure)) for secure in (True, False))), "")


def _digest(id: str) -> str:
    return sha256(id.encode("utf-8", "replace")).hexdigest()
