"""Tool `http`: makes one request and returns the answer. `spar.net.addresses` checks the hosts.

An answer of 400 and more is a failure: 429 and 5xx are transient, the others permanent. The tool renders no page, runs
no script and keeps no cookies.
"""

from __future__ import annotations

import base64
import json as codec
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from annotated_types import Ge, Gt

from acting.tooling.context import ToolContext
from acting.tooling.tool_schema import object_schema
from spar.clock import Clock, SystemClock
from spar.errors import ConfigError
from spar.net.addresses import Guard
from spar.net.http_client import Exchange, HttpAnswer, HttpRequest, failure, read_headers
from spar.protocols import CALLED_FOR, Effect, Host

_EFFECTS: dict[str, Effect] = {
    "GET": "read",
    "HEAD": "read",
    "PUT": "idempotent",
    "DELETE": "idempotent",
    "POST": "once",
    "PATCH": "once",
}
_SHOWN = ("content-type", "content-length", "date", "etag", "last-modified", "link", "location", "retry-after")
_SECRET_WORDS = ("auth", "cookie", "key", "secret", "token")
_CHARSETS = re.compile(r"us-ascii|utf-?(8|16|32)(le|be)?|(iso-8859|windows|cp|koi8|euc)-?\w{1,4}|gb\w+|big5|shift_jis")
_MOST_BODY = 10 << 20


class HttpTool:
    """Requests to public hosts on ports 80 and 443, or to those that `allow` lists.

    An entry of `allow` is `host`, `host:port`, `*.domain`, an address, or `*` for any public host; one other than `*`
    also permits a host inside the own network, as `private` does for all. `timeout` (seconds) bounds the whole call,
    `max_bytes` the body. `headers` go with each request, but not across a redirect to another host.
    """

    name = "http"
    effect: Effect = "once"
    safe_with_untrusted = False  # a URL alone can carry data away
    brings_untrusted = True
    concurrency = 8
    schema = object_schema(
        name,
        "Make an HTTP request.",
        {
            "url": {"type": "string", "description": "An address with http:// or https://."},
            "method": {"enum": list(_EFFECTS), "description": "GET by default."},
            "headers": {
                "type": "object",
                "additionalProperties": {"type": "string"},
                "description": "Further headers.",
            },
            "body": {"type": "string", "description": "The body as text."},
            "json": {"description": "A value that is sent as JSON, in place of body."},
        },
        "url",
    )

    def __init__(
        self,
        *,
        allow: Sequence[str] = (),
        private: bool = False,
        timeout: Annotated[float, Gt(0)] = 30.0,
        max_bytes: Annotated[int, Gt(0)] = 1 << 20,
        redirects: Annotated[int, Ge(0)] = 5,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._guard = _guard(allow, private)
        self._max_bytes, self._redirects, self._limit = max_bytes, redirects, timeout
        try:
            self._headers = read_headers(headers or {})
        except ValueError as error:
            raise ConfigError(str(error), path=("headers",)) from None
        secret = next((name for name in self._headers if any(word in name for word in _SECRET_WORDS)), None)
        if secret and (not allow or any(entry.host == "*" for entry in self._guard.entries)):
            raise ConfigError(f"header {secret!r} would go to any host; list the hosts under allow", path=("headers",))
        self._traceparent: Callable[..., str] = lambda to, cycle_id, *names: ""
        self.timeout = timeout + 2.0  # the tool's own timeout ends first: its error says what it waited for
        self._use(SystemClock())

    def attach(self, host: Host) -> None:
        """Use the agent's clock, and its trace headers."""
        self._use(host.clock)
        self._traceparent = host.traceparent

    async def __aenter__(self) -> HttpTool:
        """Load the library at the start, so that no call waits for it."""
        await self._exchange.load()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close nothing: each call has connections of its own."""

    def _use(self, clock: Clock) -> None:
        self._clock = clock
        self._exchange = Exchange(self._guard, clock, max_bytes=self._max_bytes, redirects=self._redirects)

    def effect_of(self, params: Mapping[str, Any]) -> Effect:
        """Return the effect of a call with these parameters. Never raises."""
        method = params.get("method", "GET")
        return _EFFECTS.get(method, self.effect) if isinstance(method, str) else self.effect

    async def __call__(
        self,
        *,
        url: str,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: str | None = None,
        json: Any = None,
        context: ToolContext | None = None,
    ) -> dict[str, Any]:
        """Make the request.

        Returns `status`, `url` (the last one), `headers` (a few), `truncated`, and the body as `json`, `text` or
        `base64`.

        Raises: ValueError for parameters that make no sense; PermanentError for hosts that must not be reached and for
        answers of 4xx; TransientError for 408, 425, 429 and 5xx, with `retry_after` if told, and when the network
        fails; TimeoutError.
        """
        if not isinstance(method, str) or method not in _EFFECTS:
            raise ValueError(f"'method' must be one of {', '.join(_EFFECTS)}, found {method!r}")
        content, kind = _content(body, json)
        sent = {"accept": "*/*", "user-agent": "spar", **kind, **self._headers, **read_headers(headers or {})}
        if context is not None and (parent := self._traceparent("http", CALLED_FOR.get()[0], "call", context.call.id)):
            sent = {"traceparent": parent, **sent}
        with self._clock.working():
            answer = await self._exchange.send(HttpRequest(method, url, sent, content), self._limit)
        if answer.status >= 400:
            raise failure(method, answer, self._clock.now())
        shown = {name: answer.headers[name][:1000] for name in _SHOWN if name in answer.headers}
        result = {"status": answer.status, "url": answer.url, "headers": shown, "truncated": answer.is_cut}
        return {**result, **_readable(answer)}


def _guard(allow: Sequence[str], private: bool) -> Guard:
    try:
        return Guard.of(allow, private=private)
    except ValueError as error:
        raise ConfigError(f"allow: {error}", path=("allow",)) from None


def _content(body: object, value: Any) -> tuple[bytes, dict[str, str]]:
    if body is not None and value is not None:
        raise ValueError("give either 'body' or 'json', not both")
    if body is not None and not isinstance(body, str):
        raise ValueError(f"'body' must be text, found {type(body).__name__}; for a value use 'json'")
    try:
        if value is not None:
            content, kind = codec.dumps(value, allow_nan=False).encode(), "application/json"
        else:
            content, kind = (body or "").encode(), "text/plain; charset=utf-8"
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"the body cannot be sent: {error}") from None
    if len(content) > _MOST_BODY:
        raise ValueError(f"the body has {len(content)} bytes, more than {_MOST_BODY}")
    return content, {"content-type": kind} if content else {}


def _readable(answer: HttpAnswer) -> dict[str, Any]:
    """Return the body as JSON if it is declared and valid, else as text, else as base64."""
    kind, _, options = answer.headers.get("content-type", "").lower().partition(";")
    if "json" in kind and not answer.is_cut:
        try:
            return {"json": codec.loads(answer.body)}
        except (ValueError, RecursionError):
            pass
    charset = options.partition("charset=")[2].partition(";")[0].strip(" \"'")
    charset = charset if _CHARSETS.fullmatch(charset) else "utf-8"
    is_text = (
        not kind or kind.startswith("text/") or any(word in kind for word in ("json", "xml", "javascript", "form"))
    )
    try:
        return {"text": answer.body.decode(charset, "replace" if is_text else "strict")}
    except (LookupError, ValueError):
        is_text = is_text or not answer.body
        return (
            {"text": answer.body.decode("utf-8", "replace")}
            if is_text
            else {"base64": base64.b64encode(answer.body).decode()}
        )
