"""Repeated requests to a server: with checked addresses, within bounds, and only for answers that have changed.

Each request is one exchange of `spar.net`. An answer of 304, or one with the digest of the last answer, is no news.
The server's names for the version of its answer (ETag, Last-Modified) are a part of the sensor's cursor.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import urlsplit, urlunsplit

from annotated_types import Ge, Gt, Le
from msgspec import Struct, to_builtins
from msgspec.structs import replace
from pydantic import BaseModel, ConfigDict

from spar.clock import Clock
from spar.data.scrub import MASK
from spar.decoding import converted
from spar.errors import ConfigError, PermanentError, TransientError
from spar.net.addresses import Guard, is_address
from spar.net.http_client import Exchange, HttpAnswer, HttpRequest, failure, read_headers


class Terms(BaseModel):
    """Terms of requests."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    allow: tuple[str, ...] = ()
    """Hosts that a redirect may lead to besides that of the address, as for the tool `http`; empty: any public one."""
    private: bool = False
    """Whether host names, also that of the address, may lead into the local network without being in `allow`."""
    headers: dict[str, str] = {}
    """Headers of each request; they are not sent to another host."""
    token: str = ""
    """A bearer token."""
    max_bytes: Annotated[int, Ge(1), Le(64 << 20)] = 4 << 20
    """Bytes of an answer, unpacked; a longer one is an error."""
    redirects: Annotated[int, Ge(0), Le(20)] = 3
    """Redirects that are followed; each target is checked."""
    within: Annotated[float, Gt(0), Le(3600)] = 20.0
    """Seconds for an answer."""


class Version(Struct, frozen=True):
    """Version of an answer: its address, the server's names for it, and a digest of its body."""

    url: str = ""
    etag: str = ""
    modified: str = ""
    digest: str = ""


class Question:
    """Request to one address; `shown` is the address without secrets, `mark` a digest of the address.

    Raises: ConfigError for an address or terms that cannot be used.
    """

    def __init__(self, url: str, terms: Terms, *, accept: str = "*/*") -> None:
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"{url!r:.200} must begin with http:// or https://", path=("url",))
        self.url, self.shown, self.mark, self._terms = url, shown(url), joined([url])[:16], terms
        try:
            headers = read_headers(terms.headers)
            self._guard = _guard(url, terms)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        if terms.token:
            headers["authorization"] = f"Bearer {terms.token}"
        self._headers = {"accept": accept, "user-agent": "spar", **headers}
        self._exchange: Exchange | None = None

    def open(self, clock: Clock) -> None:
        """Use this clock from now on."""
        self._clock = clock
        self._exchange = Exchange(self._guard, clock, max_bytes=self._terms.max_bytes, redirects=self._terms.redirects)

    async def ask(self, known: Version, *, path: str = "") -> tuple[HttpAnswer, Version] | None:
        """Return the answer and its version; None when the answer is the known version.

        Raises: the errors of the exchange; PermanentError or TransientError for an answer of 400 and more, or a too
        large one.
        """
        assert self._exchange is not None
        url = self.url + path
        headers = dict(self._headers)
        is_known = known.url == url
        if is_known and known.etag:
            headers["if-none-match"] = known.etag
        if is_known and known.modified:
            headers["if-modified-since"] = known.modified
        try:
            answer = await self._exchange.send(HttpRequest("GET", url, headers), self._terms.within)
        except (PermanentError, TransientError, TimeoutError) as error:
            if not (query := urlsplit(self.url).query):
                raise
            raise type(error)(str(error).replace(query, urlsplit(self.shown).query)) from None
        if self.url != self.shown:
            answer = replace(answer, url=shown(answer.url))
        if answer.status == 304 and is_known:
            return None
        if answer.status >= 300:
            raise failure("GET", answer, self._clock.now())
        if answer.is_cut:
            raise TransientError(f"GET {answer.url} answered more than {self._terms.max_bytes} bytes (max_bytes)")
        digest = hashlib.blake2b(answer.body, digest_size=16).hexdigest()
        etag, modified = answer.headers.get("etag", "")[:1000], answer.headers.get("last-modified", "")[:100]
        version = Version(url, _fit(etag), _fit(modified), digest)
        return None if is_known and known.digest == digest else (answer, version)


def _guard(url: str, terms: Terms) -> Guard:
    """Return the guard of the addresses that may be used. Raises: ValueError.

    An address of the local network in the configuration is allowed, because its author chose it. A host name is not,
    because its owner alone decides where it leads.
    """
    parts = urlsplit(url)
    if not parts.hostname:
        raise ValueError(f"{shown(url)!r:.200} has no host")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    host_port = f"{host}:{parts.port or (443 if parts.scheme == 'https' else 80)}"
    allow = terms.allow or ("*",)
    if is_address(parts.hostname) or parts.hostname == "localhost":
        return Guard.of([host_port, *allow], private=terms.private)
    return Guard.of(allow, private=terms.private, public=[host_port])


def shown(url: str) -> str:
    """Return an address without the values in its query, which may be secrets."""
    parts = urlsplit(url)
    if not parts.query:
        return url
    fields = (field.partition("=") for field in parts.query.split("&"))
    query = "&".join(f"{name}={MASK}" if sign else MASK for name, sign, _ in fields)
    return urlunsplit(parts._replace(query=query))


def version_of(cursor: Any) -> Version:
    """Return the version in a cursor, an empty one if there is none."""
    return converted(cursor.get("version"), Version) or Version() if isinstance(cursor, Mapping) else Version()


def cursor_of(version: Version, **more: Any) -> dict[str, Any]:
    """Return the cursor with a version."""
    return {"version": to_builtins(version), **more}


def _fit(value: str) -> str:
    """Return a header's value if it may be sent back, else ""."""
    return value if value.isascii() and value.isprintable() else ""


def joined(parts: Sequence[str]) -> str:
    """Return a digest of these texts, to recognise them."""
    return hashlib.blake2b("\0".join(parts).encode("utf-8", "replace"), digest_size=16).hexdigest()
