"""HTTP exchange with a host that is judged before the connection; for tools, sensors and notifiers.

A name is resolved once, all its addresses are judged (`addresses`), and the connection goes to exactly the judged
address, while the `Host` header and the TLS name stay. Redirects are followed here, because each leads to another
place: it is judged like the first, and headers meant for one host are not sent to another. The body is unpacked here
and within bounds, because a kilobyte may unpack to a gigabyte. No proxy of the environment, no cookies; each exchange
has its own connection (a pool keyed by address would share one between two names).
"""

from __future__ import annotations

import math
import re
import socket
import ssl
import sys
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from importlib import import_module
from typing import TYPE_CHECKING, Any

import anyio
from msgspec import Struct, field
from msgspec.structs import replace

from spar.clock import Clock
from spar.data.text import disarmed
from spar.errors import PermanentError, TransientError
from spar.net.addresses import Guard
from spar.net.resolve import CONNECT, permitted
from spar.threads import Threads

if TYPE_CHECKING:
    import httpx

_REDIRECTS = (301, 302, 303, 307, 308)
_CARRIED = ("accept", "accept-language", "content-type", "user-agent")  # headers that another host may get too
_OURS = ("accept-encoding", "connection", "content-length", "expect", "host", "te", "transfer-encoding", "upgrade")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_UNFIT = re.compile(r"[\x00-\x20\x7f-\x9f\\]")
_LONGEST_URL = 8000
_PASSING = (408, 425, 429)  # 4xx statuses after which a later attempt may succeed
_LONGEST_WAIT = 3600.0  # seconds


class HttpRequest(Struct, frozen=True):
    """Request. Header names are lower case."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


class HttpAnswer(Struct, frozen=True):
    """Answer. `url` is its final URL after redirects; header names are lower case."""

    status: int
    url: str
    headers: Mapping[str, str]
    body: bytes
    is_cut: bool = False


def read_headers(headers: object) -> dict[str, str]:
    """Return headers in the form in which they may be sent, with names in lower case.

    Raises: ValueError for an invalid header, for line breaks, and for headers that the exchange sets itself.
    """
    if not isinstance(headers, Mapping):
        raise ValueError(f"'headers' must be an object of texts, found {headers!r:.80}")
    valid_headers = {}
    for name, value in headers.items():
        if not isinstance(name, str) or not _TOKEN.fullmatch(name):
            raise ValueError(f"{name!r:.80} is no header name")
        if (
            not isinstance(value, str)
            or not value.isascii()
            or not all(character == "\t" or character.isprintable() for character in value)
        ):
            raise ValueError(
                f"header {name!r} must be printable ASCII text, found a {type(value).__name__} that is not"
            )
        if name.lower() in _OURS or name.lower().startswith("proxy-"):
            raise ValueError(f"header {name!r} cannot be set: it is part of the exchange itself")
        valid_headers[name.lower()] = value.strip()
    return valid_headers


class Exchange:
    """Sender of requests that `guard` allows; follows at most `redirects`, returns at most `max_bytes` of a body."""

    __slots__ = ("_guard", "_is_loaded", "_max_bytes", "_redirects", "_ssl", "_threads")

    def __init__(self, guard: Guard, clock: Clock, *, max_bytes: int = 1 << 20, redirects: int = 0) -> None:
        self._guard, self._max_bytes, self._redirects = guard, max_bytes, redirects
        self._threads, self._is_loaded = Threads("http", clock), False
        self._ssl: ssl.SSLContext | None = None

    async def load(self) -> None:
        """Load the library in a thread, once: this takes 100 ms, and ten times that on a busy machine."""
        if not self._is_loaded:
            self._ssl = await self._threads.run(_load)
            self._is_loaded = True

    async def send(self, outgoing: HttpRequest, timeout: float) -> HttpAnswer:
        """Return the answer, whatever its status. `timeout` bounds everything together, in seconds.

        Raises: ValueError for an invalid URL; PermanentError for a forbidden connection, too many redirects and invalid
            certificates; TransientError when the network fails; TimeoutError.
        """
        try:
            with anyio.fail_after(timeout):
                await self.load()
                for _ in range(self._redirects + 1):
                    answer = await self._once(outgoing)
                    if answer.status not in _REDIRECTS or "location" not in answer.headers:
                        return answer
                    outgoing = _redirect(outgoing, answer)
        except TimeoutError:
            raise TimeoutError(f"{outgoing.method} {outgoing.url} was not over after {timeout:g} s") from None
        raise PermanentError(f"more than {self._redirects} redirects, the last one to {outgoing.url!r}")

    async def _once(self, outgoing: HttpRequest) -> HttpAnswer:
        import httpx  # already loaded; a service without HTTP saves the time

        url = _parse_url(outgoing.url)
        addresses = await self._resolve(url)
        if url.scheme == "https" and self._ssl is None:
            self._ssl = await self._threads.run(httpx.create_ssl_context)
        failure: httpx.TransportError | None = None
        for address in addresses:
            try:
                return await self._at(address, url, outgoing)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:  # nothing was sent yet: try the next address
                failure = error
            except (httpx.LocalProtocolError, httpx.UnsupportedProtocol) as error:
                raise ValueError(f"{outgoing.method} {outgoing.url}: {error}") from error
            except httpx.TransportError as error:
                raise TransientError(f"{url.host!r} broke off: {error or type(error).__name__}") from error
        reason = str(failure).lower() or "no connection"
        kind = PermanentError if _is_about_trust(failure) else TransientError
        raise kind(f"cannot connect to {url.host!r} ({', '.join(addresses)}): {reason}") from failure

    async def _resolve(self, url: httpx.URL) -> list[str]:
        host, port = url.raw_host.decode("ascii"), _port(url)
        try:
            return await permitted(self._guard, self._threads, host, port)
        except socket.gaierror as error:
            kind = PermanentError if error.errno == socket.EAI_NONAME else TransientError
            raise kind(f"host {host!r} cannot be resolved: {error.strerror}") from None
        except UnicodeError:
            raise ValueError(f"{host!r} is no host name") from None

    async def _at(self, address: str, url: httpx.URL, outgoing: HttpRequest) -> HttpAnswer:
        import httpx

        request = httpx.Request(
            outgoing.method,
            url.copy_with(host=address, fragment=None),
            headers={**outgoing.headers, "host": url.netloc.decode("ascii"), "accept-encoding": "gzip"},
            content=outgoing.body or None,
            extensions={"sni_hostname": url.raw_host.decode("ascii"), "timeout": {"connect": CONNECT}},
        )
        one = httpx.Limits(max_connections=1, max_keepalive_connections=0)
        async with httpx.AsyncHTTPTransport(verify=self._ssl or False, trust_env=False, limits=one) as transport:
            response = await transport.handle_async_request(request)
            try:
                body, is_cut = await self._body(response)
            finally:
                await response.aclose()
        headers = {name.lower(): value for name, value in response.headers.items()}
        return HttpAnswer(response.status_code, str(url), headers, body, is_cut)

    async def _body(self, response: httpx.Response) -> tuple[bytes, bool]:
        encoding = response.headers.get("content-encoding", "").strip().lower()
        if encoding not in ("", "identity", "gzip", "x-gzip", "deflate"):
            raise PermanentError(f"the body is packed as {encoding!r:.40}, which was not asked for")
        unpack = zlib.decompressobj(47) if encoding not in ("", "identity") else None
        body, most = bytearray(), self._max_bytes + 1
        async for chunk in response.aiter_raw():
            try:
                body += unpack.decompress(chunk, most - len(body)) if unpack else chunk[: most - len(body)]
            except zlib.error as error:
                raise TransientError(f"the body is not the {encoding} that it says it is: {error}") from None
            if len(body) >= most:
                break
        is_cut = len(body) >= most or (unpack is not None and bool(body) and not unpack.eof)
        return bytes(body[: self._max_bytes]), is_cut


def _load() -> ssl.SSLContext | None:
    """Import the library with the modules that it imports at its first request; return the trusted certificates.

    None if they cannot be read; the first exchange with TLS then raises the error.
    """
    for name in (
        "httpcore",
        "httpcore._async.http11",
        "httpcore._backends.anyio",
        "anyio._backends._asyncio",
        "encodings.idna",
    ):
        import_module(name)
    with _without("httpx._main"):  # its command line, which loads rich and pygments: 4 MB, 60 ms
        import httpx

    try:
        return httpx.create_ssl_context()
    except OSError:
        return None


@contextmanager
def _without(module: str) -> Iterator[None]:
    """Let imports of a module that was not imported yet fail meanwhile."""
    blocked: dict[str, Any] = sys.modules  # None lets an import fail, as the import system says
    if blocked.setdefault(module, None) is not None:
        yield
        return
    try:
        yield
    finally:
        del blocked[module]


def _parse_url(text: str) -> httpx.URL:
    import httpx

    if not isinstance(text, str) or not text or len(text) > _LONGEST_URL:
        raise ValueError(f"a URL must be text of at most {_LONGEST_URL} characters, found {text!r:.80}")
    if _UNFIT.search(text):
        raise ValueError(f"URL {text!r} holds spaces, control characters or backslashes; write them as %20")
    try:
        url = httpx.URL(text)
        text.encode()
    except (httpx.InvalidURL, ValueError) as error:
        raise ValueError(f"{text!r} is no URL: {error}") from None
    if url.scheme not in ("http", "https"):
        raise ValueError(f"URL {text!r} must begin with http:// or https://")
    if url.userinfo:
        raise ValueError("a URL must not carry a name or password before '@'; send an authorization header")
    if not url.host or "%" in url.host or not 0 < _port(url) < 65536:
        raise ValueError(f"URL {text!r} has no usable host or port")
    return url


def _port(url: httpx.URL) -> int:
    return (443 if url.scheme == "https" else 80) if url.port is None else url.port


def _redirect(outgoing: HttpRequest, answer: HttpAnswer) -> HttpRequest:
    """Return the request that a redirect asks for (RFC 9110, 15.4)."""
    import httpx

    location = answer.headers["location"]
    if _UNFIT.search(location):
        raise PermanentError(f"{answer.url} redirects to {location!r:.200}, which is no URL")
    old = _parse_url(answer.url)
    try:
        new = _parse_url(str(old.join(location)))
    except (httpx.InvalidURL, ValueError) as error:
        raise PermanentError(f"{answer.url} redirects to where nobody may follow: {error}") from None
    if old.scheme == "https" and new.scheme == "http":
        raise PermanentError(f"{answer.url} redirects to {str(new)!r}, which is not encrypted any more")
    if (old.scheme, old.host, _port(old)) != (new.scheme, new.host, _port(new)):
        outgoing = replace(outgoing, headers={k: v for k, v in outgoing.headers.items() if k in _CARRIED})
    if answer.status == 303 or (answer.status in (301, 302) and outgoing.method == "POST"):
        headers = {name: value for name, value in outgoing.headers.items() if name != "content-type"}
        method = "HEAD" if outgoing.method == "HEAD" else "GET"
        outgoing = replace(outgoing, method=method, headers=headers, body=b"")
    return replace(outgoing, url=str(new))


def _is_about_trust(error: BaseException | None) -> bool:
    """Return whether TLS failed because of the certificate, so that another attempt would fail too."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False


def failure(method: str, answer: HttpAnswer, now: datetime) -> PermanentError | TransientError:
    """Return the exception for an answer with a status of 400 and more, or with another unexpected status."""
    body_text = disarmed(answer.body[:300].decode("utf-8", "replace")).strip()
    try:
        phrase = f" {HTTPStatus(answer.status).phrase}"
    except ValueError:
        phrase = ""
    message = f"{method} {answer.url} answered {answer.status}{phrase}{f': {body_text}' if body_text else ''}"
    if answer.status in _PASSING or answer.status >= 500:
        return TransientError(message, retry_after=retry_after(answer.headers.get("retry-after"), now))
    return PermanentError(message)


def retry_after(value: str | None, now: datetime) -> float | None:
    """Return the seconds that a `Retry-After` header asks for, 0 to 3600; None if it is absent or invalid."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            at = parsedate_to_datetime(value)
            seconds = (at.replace(tzinfo=at.tzinfo or UTC) - now).total_seconds()
        except (ValueError, TypeError, IndexError, OverflowError):
            return None
    return None if math.isnan(seconds) else min(max(seconds, 0.0), _LONGEST_WAIT)
