"""Access by tokens: admits a request to the API at the port by its head, before its body is read.

A refusal costs one digest and one look-up. Refusals are counted by reason only, so that memory does not grow with the
number of clients, and logged at most once a minute.

A token may make so many requests in a minute, and so many at once (`service.token_rate`, `service.token_requests`); of
a peer that sent too many unknown tokens further ones are refused for a while. A valid token is accepted whatever its
peer did before, so that one program behind a proxy locks out no other one.

A session of a browser is what a token was exchanged for when a person signed in to the console. Its id is 256 random
bits in a cookie that scripts cannot read; here only its digest is known. A session ends when nobody used it for `IDLE`
seconds, `LONGEST` seconds after it began, with its token, and with the process.

Any web page can make a browser send requests to this machine. A page of another origin is recognized by the headers
that the browser adds (`Origin`, `Sec-Fetch-Site`, https://www.w3.org/TR/fetch-metadata/). A page whose own host name
resolves to this machine (DNS rebinding) is recognized by that name in `Host`.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from starlette.datastructures import Headers
from starlette.requests import Request, cookie_parser
from starlette.responses import Response

from spar.errors import NotReadyError, SparError
from spar.observe.logs import get_logger
from spar.operations.operation import PATIENCE
from spar.server.agent_loop import on_loop
from spar.server.problems import problem
from spar.service.token_rows import Scope, TokenRow
from spar.service.tokens import Tokens

if TYPE_CHECKING:
    from starlette.types import Scope as RequestScope

    from spar.service.app import Service


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


#: Unknown tokens of one peer within so many seconds; further ones are answered 429.
MOST_GUESSES: Final = 10
GUESSES_WITHIN: Final = 60.0
#: Seconds in which a token may make the requests of its rate.
RATE_WITHIN: Final = 60.0
#: Peers whose guesses are counted, and tokens whose rate is; the one that began first is forgotten.
MOST_PEERS: Final = 1_000


class Guesses:
    """The guesses of each peer; `len` is the number of peers. Args: monotonic: the clock, in seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        #: When the first of them was made, and their number, by the address of the peer; the oldest first.
        self._by_peer: dict[str, tuple[float, int]] = {}

    def __len__(self) -> int:
        return len(self._by_peer)

    def wait(self, peer: str) -> float:
        """Count a guess of a peer; return the seconds until it may guess again, 0 if it may now."""
        now = self._monotonic()
        began, number = self._by_peer.get(peer, (now, 0))
        if now - began >= GUESSES_WITHIN:
            del self._by_peer[peer]
            began, number = now, 0
        if number >= MOST_GUESSES:
            return began + GUESSES_WITHIN - now
        self._by_peer[peer] = began, number + 1
        if len(self._by_peer) > MOST_PEERS:
            del self._by_peer[next(iter(self._by_peer))]
        return 0.0


class TokenLimits:
    """The limits of each token. Args: rate: requests in a minute; at_once: requests at once; 0: any; monotonic: the
    clock, in seconds.

    The rate is the generic cell rate algorithm (ITU-T I.371, A.1): one time for each token, until which its requests
    have used up their share.
    """

    def __init__(self, rate: int, at_once: int, monotonic: Callable[[], float]) -> None:
        self._rate, self._at_once, self._monotonic = rate, at_once, monotonic
        self._used_until: dict[str, float] = {}
        self._running = Counter[str]()

    def pass_rate(self, name: str) -> None:
        """Count a request of a token. Raises: AccessRefusedError if it has made too many."""
        if not self._rate:
            return
        now = self._monotonic()
        used_until = max(self._used_until.get(name, now), now) + RATE_WITHIN / self._rate
        if (wait := used_until - now - RATE_WITHIN) > 1e-6:
            sentence = f"the token {name!r} has made {self._rate} requests within a minute (service.token_rate)"
            raise AccessRefusedError(429, "rate", sentence, retry_after=wait)
        self._used_until[name] = used_until
        if len(self._used_until) > MOST_PEERS:
            self._used_until = {name: until for name, until in self._used_until.items() if until > now}

    @contextmanager
    def running(self, name: str) -> Iterator[None]:
        """Count a request of a token while it is answered. Raises: AccessRefusedError if too many are."""
        if self._at_once and self._running[name] >= self._at_once:
            sentence = f"{self._at_once} requests of the token {name!r} wait for their answers (service.token_requests)"
            raise AccessRefusedError(429, "busy", sentence, retry_after=1.0)
        self._running[name] += 1
        try:
            yield
        finally:
            self._running -= Counter((name,))  # without those at zero


log = get_logger("spar.access")

#: Seconds between two log lines about refusals.
TELL_EVERY: Final = 60.0
_REALM: Final = 'Bearer realm="spar"'
_HINT: Final = "spar tokens create NAME --scopes read makes one"


class AccessRefusedError(Exception):
    """Refusal of a request; `reason` is the label under which it is counted."""

    def __init__(self, status: int, reason: str, detail: str, *, challenge: str = "", scope: str = "",
                 retry_after: float | None = None) -> None:  # fmt: skip
        super().__init__(detail)
        self.status, self.reason, self.detail, self.challenge, self.scope = status, reason, detail, challenge, scope
        self.retry_after = retry_after

    def answer(self) -> Response:
        """Return the HTTP response of the refusal."""
        answer = problem(self.status, self.detail, retry_after=self.retry_after, scope=self.scope)
        if self.challenge:
            answer.headers["www-authenticate"] = self.challenge
        return answer


class Access:
    """Access control of the port of one service.

    Args: hosts: the host names that are served; monotonic: the clock, in seconds.
    """

    def __init__(self, service: Service, hosts: HostNames, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._service, self._hosts, self._monotonic = service, hosts, monotonic
        self._guesses = Guesses(monotonic)
        #: The sessions of browsers that are signed in.
        self.sessions = BrowserSessions(service.tokens, monotonic)
        settings = service.loaded.settings.service
        self.limits = TokenLimits(settings.token_rate, settings.token_requests, monotonic)
        self._logged_at: float | None = None
        self._unlogged: Counter[str] = Counter()
        #: Handler of refusals for an application, which counts them.
        self.handlers: dict[Any, Any] = {AccessRefusedError: self._on_refusal}
        #: Digests of tokens whose use is being stored: at most one write of a token at a time.
        self._noting: set[str] = set()

    async def admit(self, scope: RequestScope) -> None:
        """Admit a request with a valid token, or with the cookie of a browser that signed in with one; its peer is then
        `token NAME`. The scopes of the token are not checked.

        Raises: AccessRefusedError also for another host, for a page of another origin, and for a token that has made
            too many; NotReadyError.
        """
        headers = self.check_place(scope)
        session = None if "authorization" in headers else self.sessions.find(headers)
        if session is not None:
            await self._read_tokens()
            session = self.sessions.find(headers)  # its token may have been revoked at another node
        if session is None:
            token = await self.token(headers, scope["client"][0])
            is_valid = partial(self._service.tokens.is_valid, token)
        else:
            token, is_valid = session.token, partial(self.sessions.is_valid, session)
            self._note_use(token)
            if scope["method"] not in ("GET", "HEAD"):
                self.demand_own_page(headers)
        self.limits.pass_rate(token.name)
        scope["token"], scope["client"], scope["is_valid"] = token, (f"token {token.name}", 0), is_valid

    def check_place(self, scope: RequestScope) -> Headers:
        """Return the headers of a request that names a host of this port and is from no page of another origin.

        Raises: AccessRefusedError.
        """
        headers = Headers(scope=scope)
        self.check_host(headers)
        if self._hosts.is_foreign(headers):
            raise AccessRefusedError(403, "origin", "web pages of other origins may not ask here")
        return headers

    def check_host(self, headers: Headers) -> None:
        """Check that a request names a host of this port. Raises: AccessRefusedError."""
        host = headers.get("host")
        if host is None:  # allowed by HTTP/1.0; without it a request of a web page cannot be recognized
            raise AccessRefusedError(400, "host", "a request must say which host it is for")
        if not self._hosts.is_known(host):
            raise AccessRefusedError(421, "host", f"host {host[:100]!r} is not served here; service.hosts names others")

    def demand_own_page(self, headers: Headers) -> None:
        """Check that a browser sends a request for a page of this port. Raises: AccessRefusedError."""
        if not self._hosts.is_own(headers):
            sentence = "a change that a cookie allows must come from a page of this port (Origin or Sec-Fetch-Site)"
            raise AccessRefusedError(403, "origin", sentence)

    async def token(self, headers: Headers, peer: str) -> TokenRow:
        """Return the token of a request; its scopes are not checked. Args: peer: the address that the request is from.

        Raises: AccessRefusedError, also for a missing token; NotReadyError.
        """
        values = headers.getlist("authorization")
        scheme, _, text = values[0].partition(" ") if len(values) == 1 else ("", "", "")
        if scheme.casefold() != "bearer":
            if cookie_of(headers):
                raise AccessRefusedError(401, "session", "this session has ended: sign in again", challenge=_REALM)
            raise AccessRefusedError(401, "missing", f"a token is needed; {_HINT}", challenge=_REALM)
        return await self.known(text, peer)

    async def known(self, text: str, peer: str) -> TokenRow:
        """Return the token of this text. Args: peer: the address that it is from.

        Raises: AccessRefusedError for an unknown token, and for another one of a peer that sent too many; NotReadyError
            while the tokens cannot be read.
        """
        await self._read_tokens()
        row = self._service.tokens.find(text.strip())
        if row is None:
            if wait := self._guesses.wait(peer):
                sentence = (f"{peer} has sent {MOST_GUESSES} unknown tokens within {GUESSES_WITHIN:g} s, and this is "
                            "another one; a valid token is accepted at any time")  # fmt: skip
                raise AccessRefusedError(429, "guesses", sentence, retry_after=wait)
            raise AccessRefusedError(401, "unknown", "this token is not known, was revoked or has expired",
                                     challenge=f'{_REALM}, error="invalid_token"')  # fmt: skip
        self._note_use(row)
        return row

    def demand(self, token: TokenRow, scope: Scope) -> None:
        """Check that a token has a scope. Raises: AccessRefusedError that names the scope."""
        if scope not in token.scopes and "admin" not in token.scopes:
            sentence = f"the token {token.name!r} has the scopes {', '.join(token.scopes)}; this needs {scope!r}"
            raise AccessRefusedError(403, "scope", sentence,
                                     challenge=f'{_REALM}, error="insufficient_scope", scope="{scope}"',
                                     scope=scope)  # fmt: skip

    def refuse(self, refusal: AccessRefusedError) -> Response:
        """Count a refusal and return its answer."""
        self._service.refused[refusal.reason] += 1
        self._unlogged[refusal.reason] += 1
        now = self._monotonic()
        if self._logged_at is None or now - self._logged_at >= TELL_EVERY:
            self._logged_at = now
            self.log_refusals(dict(self._unlogged))
            self._unlogged.clear()
        return refusal.answer()

    async def _on_refusal(self, request: Request, refusal: AccessRefusedError) -> Response:
        return self.refuse(refusal)

    def log_refusals(self, reasons: dict[str, int]) -> None:
        """Write a log line. Args: reasons: the number of refusals since the last line, by reason."""
        log.warning("requests refused at the port", reasons=reasons)

    async def _read_tokens(self) -> None:
        """Read the tokens from the store unless they are known. Raises: NotReadyError."""
        if self._service.tokens.is_open:
            return
        self._service.demand_open()
        try:
            await on_loop(self._service.agent, self._service.tokens.open(), PATIENCE)
        except (SparError, TimeoutError) as error:
            raise NotReadyError(f"the tokens cannot be read now: {error}") from error

    def _note_use(self, row: TokenRow) -> None:
        """Store the use of a token, if it is due, in the agent's event loop, without waiting for the disk."""
        loop, tokens = self._service.agent.requests.loop, self._service.tokens
        if not tokens.is_use_due(row) or loop is None or loop.is_closed() or row.digest in self._noting:
            return
        work = tokens.note_use(row)
        try:
            noting = asyncio.run_coroutine_threadsafe(work, loop)
        except RuntimeError:  # the loop was closed just now
            work.close()
            return
        self._noting.add(row.digest)
        noting.add_done_callback(lambda _: self._noting.discard(row.digest))
