"""Recording parts that do nothing else: a tool, a store, an event bus, a notifier.

Their times are the running loop's, so under a `VirtualClock` they are those of `clock.monotonic()`.
"""

from __future__ import annotations

import copy
import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

import anyio
from msgspec import Struct

from spar.protocols import Effect
from spar.protocols.tools import ToolTerms
from spar.types import CycleRecord, Experience

T = TypeVar("T")
Urgency = Literal["low", "normal", "critical"]


class RecordedCall(Struct):
    """One call of a tool. `ended_at` is None while it runs; `error` is the exception that it raised, also a
    cancellation.

    `started_at` and `ended_at` are seconds of the loop's time.
    """

    params: dict[str, Any]
    started_at: float
    ended_at: float | None = None
    output: Any = None
    error: BaseException | None = None


class RecordingTool:
    """Tool that records its calls and returns `result`.

    Args:
        name: its name in calls.
        result: the output, or a function of the parameters (async, too) that returns it.
        effect, timeout: its terms; further `terms` (`retries`, `approval`, `detach`, `concurrency`) as in `@tool`.
        delay: seconds that each call takes.
        fails: an exception for every call, or a list with one item for each call, None for one that succeeds;
            after the list all succeed. Raised after the delay.
        params: the JSON schemas of its parameters by name, all of them required; None: takes anything.

    `calls` holds the calls in the order of their start, `running` the number of calls that run now, `most_at_once` the
    largest such number so far.
    """

    def __init__(
        self,
        name: str = "probe",
        result: Any = None,
        *,
        effect: Effect = "read",
        timeout: float = 60.0,
        delay: float = 0.0,
        fails: BaseException | type[BaseException] | Iterable[BaseException | type[BaseException] | None] | None = None,
        params: Mapping[str, Any] | None = None,
        description: str = "Records how it is called.",
        **terms: Any,
    ) -> None:
        self.name, self.effect, self.timeout, self.delay = name, effect, timeout, delay
        self.schema: Mapping[str, Any] = _tool_schema(name, description, params)
        self.__spar_tool__ = ToolTerms(name=name, effect=effect, timeout=timeout, **terms)
        self.calls: list[RecordedCall] = []
        self.running = self.most_at_once = 0
        self._result = result
        self._failures = _failures_of(fails)

    async def __call__(self, **params: Any) -> Any:
        call = RecordedCall(copy.deepcopy(params), anyio.current_time())
        self.calls.append(call)
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)
        failure = next(self._failures, None)
        try:
            await anyio.sleep(self.delay)
            if failure is not None:
                raise failure
            call.output = await self._answer(params)
            return call.output
        except BaseException as error:
            call.error = error
            raise
        finally:
            call.ended_at = anyio.current_time()
            self.running -= 1

    async def _answer(self, params: Mapping[str, Any]) -> Any:
        if not callable(self._result):
            return copy.deepcopy(self._result)
        output = self._result(**params)
        return await output if inspect.isawaitable(output) else output


def _tool_schema(name: str, description: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
    properties = {"_tool": {"const": name}, **(params or {})}
    return {
        "type": "object",
        "description": description,
        "properties": properties,
        "required": list(properties),
        "additionalProperties": params is None,
    }


def _failures_of(fails: Any) -> Iterator[Any]:
    if fails is None or isinstance(fails, (BaseException, type)):
        while True:
            yield fails
    yield from fails


class RecordingStore:
    """Store in memory: `experiences` by id, `cycles` in order, `values` by key; `is_open`, `flushes`.

    `recall` ranks experiences by the number of words that they share with the query, newer ones first; filters are
    fields of `Experience` that must be equal. An empty query recalls the newest.
    """

    def __init__(self) -> None:
        self.experiences: dict[str, Experience] = {}
        self.cycles: list[CycleRecord] = []
        self.values: dict[str, str] = {}
        self.flushes = 0
        self.is_open = False

    async def __aenter__(self) -> RecordingStore:
        self.is_open = True
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.is_open = False

    async def store(self, experience: Experience) -> None:
        self.experiences[experience.id] = experience

    async def record(self, cycle: CycleRecord) -> None:
        self.cycles.append(cycle)

    async def recall(self, query: str, k: int = 5, **filters: Any) -> Sequence[Experience]:
        wanted = _words(query)
        matches = [
            (len(wanted & _words(_text_of(item))), item)
            for item in reversed(self.experiences.values())
            if all(getattr(item, name, None) == value for name, value in filters.items())
        ]
        ranked = sorted((pair for pair in matches if pair[0] or not wanted), key=lambda pair: -pair[0])
        return [item for _, item in ranked[: max(k, 0)]]

    async def load(self, key: str) -> Any:
        return json.loads(self.values[key]) if key in self.values else None

    async def save(self, key: str, value: Any) -> None:
        self.values[key] = json.dumps(value)

    async def flush(self) -> None:
        self.flushes += 1


def _text_of(item: Experience) -> str:
    return " ".join(
        (item.situation, item.action, item.outcome, item.task, item.cause, item.lesson, item.said, item.answer)
    )


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


class RecordingEvents:
    """Event bus that records: `seen` holds the events in order, `of(Class)` returns those of a class."""

    def __init__(self, agent: str = "") -> None:
        self.agent = agent
        self.seen: list[Any] = []

    def publish(self, event: Any) -> None:
        self.seen.append(event)
        if hasattr(event, "seq"):
            event.seq, event.agent = len(self.seen), self.agent

    def listeners(self, kind: type[Any]) -> bool:
        return True

    def of(self, kind: type[T]) -> list[T]:
        return [event for event in self.seen if isinstance(event, kind)]


class SentNotice(Struct, frozen=True):
    title: str
    text: str
    urgency: Urgency


class RecordingNotifier:
    """Notifier that records its messages in `sent`; `fails` as in `RecordingTool`."""

    def __init__(self, *, fails: Any = None) -> None:
        self.sent: list[SentNotice] = []
        self._failures = _failures_of(fails)

    async def notify(self, title: str, text: str, *, urgency: Urgency = "normal") -> None:
        failure = next(self._failures, None)
        if failure is not None:
            raise failure
        self.sent.append(SentNotice(title, text, urgency))
