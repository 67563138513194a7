"""Notices that a run does the same again and again and comes by nothing new: first says so, then ends it.

A run turns in ticks, one act phase each. A call is the same as an earlier one when tool, resolved parameters and what
came of it are the same. A tick in which nothing is new is barren; when some call of a barren tick has had its result
three times since anything new came, the planner is told, and if the next tick is barren as well, the run ends. It is
ticks that count: a thousand equal calls in one plan are one occurrence. Calls that belong to no run (rules at their
times) are never judged, nor is a tick of which something is still open: parked, steered, cancelled.

When a result was made is no part of what it says: times at which and for which are left out (`_VOLATILE`, and a date
with a time of day inside a text), unless nothing else is left, for a clock's answer is the time. Everything else
counts as news, a number that grows or another message of the same error included: better late than stopped at work.

Pure but for what it remembers: at most 1,000 runs, of each at most 1,000 digests; the oldest are forgotten. What it
does not remember of a run, because its process is a new one, it finds again in the results of that run's earlier ticks.
Source: the tool-loop detection of OpenClaw, with its warning at three and ending one response later.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from functools import partial
from hashlib import blake2b
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from acting.stage import fault
from spar.board import Board, message_of
from spar.ids import new_id
from spar.paths import Expression, references, resolve
from spar.plain import plain
from spar.types import ActionResult, CallResult, Fault, replace

TOLD_AFTER: Final = 3
MOST_RUNS: Final = 1_000
MOST_DIGESTS: Final = 1_000
_MOST_IN_TICK: Final = 250  # of more, one digest is made of all: they would push out what they are to be compared with
_MOST_NAMED: Final = 5

#: Keys under which a result says when it was made and how long that took, if a number or a time stands there.
_VOLATILE: Final = frozenset({"at", "created_at", "date", "duration", "duration_ms", "duration_s", "elapsed",
                              "elapsed_ms", "elapsed_s", "ended_at", "finished_at", "latency", "latency_ms", "now",
                              "request_id", "started_at", "time", "timestamp", "took", "took_ms", "trace_id",
                              "ts"})  # fmt: skip
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?")
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}\b")
_NO_RESULT: Final = frozenset({"parked", "steered"})

_encode = msgspec.msgpack.Encoder(order="deterministic").encode


class Notice(Struct, frozen=True):
    """What is said of a barren tick: `told` the planner, or the run is `ended`. `times` is how often at most."""

    verdict: Literal["told", "ended"]
    message: str
    times: int
    tools: tuple[str, ...] = ()

    @property
    def data(self) -> dict[str, Any]:
        """What the planner is told, as the data of a message of kind `guard`."""
        return {"kind": "no_progress", "message": self.message, "times": self.times, "tools": list(self.tools)}

    @property
    def fault(self) -> Fault | None:
        """Why the run ends, if it does; of the kind `no_progress`."""
        return fault("no_progress", f"no_progress: {self.message}") if self.verdict == "ended" else None


def said(result: ActionResult, notice: Notice | None) -> ActionResult:
    """The result of a tick with what was noticed: one message more, before those of errors, and the fault that ends
    the run, if it is over."""
    if notice is None:
        return result
    errors = len(result.messages) - len(result.errors)
    messages = (*result.messages[:errors], message_of("guard", notice.data), *result.messages[errors:])
    if notice.fault is None:
        return replace(result, messages=messages)
    status = "partial" if result.status == "ok" else result.status
    return replace(result, messages=messages, fault=result.fault or notice.fault, status=status)


class _Run:
    """What is known of one run: the digests seen, how often since anything new came, whether the planner was told."""

    __slots__ = ("is_told", "seen", "times")

    def __init__(self) -> None:
        self.seen: dict[int, None] = {}
        self.times: dict[int, int] = {}
        self.is_told = False


class _Late:
    """What calls were given, found out afterwards from what had been written when their tick was over."""

    __slots__ = ("_board", "_messages")

    def __init__(self, messages: list[dict[str, Any]]) -> None:
        self._messages = messages
        self._board: Board | None = None

    def given(self, result: CallResult) -> Mapping[str, Any]:
        """The parameters of a call as they were when it ran; like no others if that cannot be told."""
        call = result.call
        if not result.attempts and result.status != "denied":
            return call.params  # it was given nothing yet
        try:
            if any(references(call.params).values()) and self._board is None:
                self._board = Board(self._messages)
            return {name: resolve(value, partial(self._look, call.instance)) for name, value in call.params.items()}
        except Exception:  # what stood there is gone, or a message of another version
            return {"": new_id()}

    def _look(self, instance: str | None, expression: Expression) -> Any:
        assert self._board is not None
        return self._board.look(expression, instance)


class LoopGuard:
    """Remembers what the calls of each run came to; one for an executor."""

    __slots__ = ("_runs",)

    def __init__(self) -> None:
        self._runs: OrderedDict[str, _Run] = OrderedDict()

    def note(self, run_id: str | None, ended: Iterable[tuple[Mapping[str, Any], CallResult]]) -> Notice | None:
        """Take in one tick: the resolved parameters and the result of each call. What is to be said of it, if anything.

        Never raises: a result that cannot be compared is new.
        """
        if run_id is None:
            return None
        digests: dict[int, str] = {}
        for params, result in ended:
            if result.status == "cancelled" or result.reason in _NO_RESULT:
                return None
            digests[_digest(params, result)] = result.call.tool
        if not digests:
            return None
        tools = tuple(dict.fromkeys(digests.values()))
        if len(digests) > _MOST_IN_TICK:
            digests = {_hashed(_encode(sorted(digests))): ""}
        return self._judge(self._run(run_id), digests, tools)

    def recall(self, run_id: str, earlier: Iterable[ActionResult]) -> None:
        """Know of a run what its earlier ticks came to, unless it is known: they were made by an earlier process.

        What a call referred to is read from what these ticks wrote; one that cannot be read any more is taken as news.
        Never raises.
        """
        if run_id in self._runs:
            return
        self._run(run_id)
        messages: list[dict[str, Any]] = []
        for tick in earlier:
            messages += tick.messages
            if tick.action is None or tick.action.output is None:  # one that answers is not judged
                board = _Late(messages)
                self.note(run_id, [(board.given(each), each) for each in tick.results])

    def forget(self, run_id: str) -> None:
        """Know nothing of a run any more."""
        self._runs.pop(run_id, None)

    def _run(self, run_id: str) -> _Run:
        run = self._runs.get(run_id)
        if run is None:
            run = self._runs[run_id] = _Run()
            if len(self._runs) > MOST_RUNS:
                self._runs.popitem(last=False)
        else:
            self._runs.move_to_end(run_id)
        return run

    def _judge(self, run: _Run, digests: Iterable[int], tools: tuple[str, ...]) -> Notice | None:
        digests = list(digests)
        is_barren = all(digest in run.seen for digest in digests)
        if not is_barren:
            run.times.clear()
            run.is_told = False
        for digest in digests:
            run.seen.pop(digest, None)  # so that the order is the order of being seen last
            run.seen[digest] = None
            run.times[digest] = run.times.get(digest, 0) + 1
        while len(run.seen) > MOST_DIGESTS:
            oldest = next(iter(run.seen))
            del run.seen[oldest]
            run.times.pop(oldest, None)
        times = max(run.times[digest] for digest in digests)
        if not is_barren or (times < TOLD_AFTER and not run.is_told):
            return None
        verdict: Literal["told", "ended"] = "ended" if run.is_told else "told"
        run.is_told = True
        return Notice(verdict, _sentence(tools, times, verdict), times, tools[:_MOST_NAMED])


def _sentence(tools: tuple[str, ...], times: int, verdict: str) -> str:
    named = ", ".join(plain(tool, 100) for tool in tools[:_MOST_NAMED]) + (", …" if len(tools) > _MOST_NAMED else "")
    again = f"{named} gave the same for the same parameters {times} times, and nothing new came in between"
    if verdict == "ended":
        return f"{again}, also after the planner was told"
    return f"{again}: do something else, or answer with what is known; the same once more ends the run"


def _digest(params: Mapping[str, Any], result: CallResult) -> int:
    """The call and what came of it as a number; whatever cannot be encoded is made plain first."""
    why = result.fault
    # What a failing call had brought lies in its fault, but an error is recognised by what it says.
    came = _settled(result.output) if why is None else (why.kind, _text(why.message))
    told = (result.call.tool, result.status, params, came)
    try:
        return _hashed(_encode(told))
    except Exception:  # an object of Python's own, a lone surrogate, an integer beyond 64 bits, too deep
        try:
            return _hashed(msgspec.json.encode(plain(told), order="deterministic"))
        except Exception:
            return _hashed(new_id().encode())  # like no other one


def _hashed(encoded: bytes) -> int:
    return int.from_bytes(blake2b(encoded, digest_size=8).digest())


def _settled(output: Any) -> Any:
    """The output without what changes by itself; the whole if nothing else is left of it."""
    kind = type(output)
    if kind is str:
        found = _text(output)
        return found if found.strip() else output
    if kind is not dict and kind is not list:
        return output
    try:
        found = _without(output)
    except RecursionError:
        return output
    return found or output


def _without(value: Any) -> Any:
    kind = type(value)
    if kind is dict:
        return {
            key: _without(item)
            for key, item in value.items()
            if not (type(key) is str and key.lower() in _VOLATILE and _is_moment(item))
        }
    if kind is list:
        return [_without(item) for item in value]
    return _text(value) if kind is str else value


def _is_moment(value: Any) -> bool:
    """Whether a value can be a time, a duration or a mark: a number or a short text."""
    return (isinstance(value, (int, float)) and not isinstance(value, bool)) or (
        type(value) is str and len(value) <= 64
    )


def _text(text: str) -> str:
    """A text without dates that have a time of day, and without addresses of memory."""
    if ":" in text:
        text = _MOMENT.sub("", text)
    return _ADDRESS.sub("", text) if "0x" in text else text
