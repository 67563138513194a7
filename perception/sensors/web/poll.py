"""Sensor that requests an address repeatedly, and reports when its content has changed.

It watches the whole answer, a value in its JSON (a JSON pointer), or the text of elements of its HTML (a CSS
selector). The first answer is reported too, unless `first` is false. The cursor holds the last content, so a change
while the service was down is reported.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Final

import msgspec
from annotated_types import Ge, Gt, Le

from perception.sensors.web.asking import Question, Terms, cursor_of, version_of
from perception.sensors.web.html import check_selector, selected
from perception.sensors.web.pointer import MISSING, Pointer, at_pointer
from spar.data.text import bounded, decoded
from spar.errors import ConfigError, TransientError
from spar.net.http_client import HttpAnswer
from spar.protocols import SensorContext
from spar.threads import Threads
from spar.types import Perception

#: Characters of the former content in a perception.
_SHOWN: Final = 2000


class PollSensor:
    """Changes of the content at an address, as `web.changed`.

    Args: url: the address; every: seconds between two requests; pointer: a JSON pointer to the watched value;
    selector: a CSS selector of the watched elements (needs the extra `feeds`); first: whether the first answer is
    reported; longest: characters of a report; kind: of its perceptions; terms: hosts, headers, token and bounds.
    """

    def __init__(
        self,
        url: str,
        *,
        every: Annotated[float, Gt(0)] = 60.0,
        pointer: Pointer = "",
        selector: str = "",
        first: bool = True,
        longest: Annotated[int, Ge(1), Le(1 << 20)] = 64 * 1024,
        kind: str = "web.changed",
        terms: Terms | None = None,
    ) -> None:
        if pointer and selector:
            raise ConfigError("give either a pointer or a selector", path=("selector",))
        if selector:
            check_selector(selector)
        self.every = every
        self._question = Question(url, terms or Terms(), accept="application/json, */*" if pointer else "*/*")
        self._pointer, self._selector, self._first, self._longest, self._kind = pointer, selector, first, longest, kind

    async def open(self, ctx: SensorContext) -> None:
        """Load the last content."""
        self._ctx, self._threads = ctx, Threads(f"sensor {ctx.name}", ctx.clock, limit=2)
        self._question.open(ctx.clock)
        is_known = isinstance(ctx.cursor, dict) and ctx.cursor.get("what") == self._request_key()
        cursor = ctx.cursor if is_known else {}
        self._version, self._digest = version_of(cursor), str(cursor.get("seen", ""))
        self._shown = str(cursor.get("shown", ""))

    async def poll(self) -> list[Perception]:
        """Return a perception if the content has changed. Raises: the errors of the request; TransientError for an
        answer without the watched value."""
        news = await self._question.ask(self._version)
        if news is None:
            return []
        answer, version = news
        text, value = await self._threads.run(self._watched, answer)
        digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest()
        before, shown, is_first = self._digest, self._shown, not self._digest
        self._version, self._digest, self._shown = version, digest, text[:_SHOWN]
        self._ctx.checkpoint(cursor_of(version, what=self._request_key(), seen=digest, shown=self._shown))
        if digest == before or (is_first and not self._first):
            return []
        return [self._perception(text, value, None if is_first else shown, digest)]

    def _request_key(self) -> list[str]:
        return [self._question.url, self._pointer, self._selector]

    def _watched(self, answer: HttpAnswer) -> tuple[str, Any]:
        """Return the watched content, as text and as value. Blocks."""
        if self._selector:
            return selected(answer.body, self._selector, answer.url), None
        if not self._pointer:
            return decoded(answer.body)[0], None
        try:
            value = at_pointer(msgspec.json.decode(answer.body), self._pointer)
        except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
            raise TransientError(f"{answer.url} answered no JSON: {error or 'nested too deeply'}") from None
        if value is MISSING:
            raise TransientError(f"{answer.url} has nothing at {self._pointer!r}")
        return value if isinstance(value, str) else msgspec.json.encode(value).decode(), value

    def _perception(self, text: str, value: Any, before: str | None, digest: str) -> Perception:
        content, left_out = bounded(text, self._longest)
        shown = self._question.shown
        number = value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
        attributes = {"url": shown, "before": before, "left_out": left_out or None, "value": number}
        attributes = {name: member for name, member in attributes.items() if member is not None}
        key = f"{self._question.mark} {digest} {self._ctx.clock.now().isoformat()}"
        # The sensor's name separates addresses that differ only in their hidden query.
        subject = " ".join(filter(None, (shown, *self._request_key()[1:], self._ctx.name if "?" in shown else "")))
        return self._ctx.perception(content, self._kind, key=key, subject=subject, attributes=attributes)
