"""Notices that a run gets nowhere: first says so, then ends it.

A run turns in batches, one act phase each. What of a batch's calls is counted is a table (`_BY_KIND`): the same call
with the same result, calls that can never run whatever their parameters, a tool that does not exist, a call that was
denied before. Each detector counts a thing once a batch, however many calls of it were in one plan; at `told` times the
planner is told, and the run ends when it was told `warnings` times and it comes about once more. So missing tools and
calls that cannot run are told of at their second batch in a row and end the run at their sixth, whichever tools and
parameters it tries. Calls that belong to no run (rules at their times) are never judged, nor is a batch of which
something is still open: parked, steered, cancelled.

A call is the same as an earlier one when tool, resolved parameters and what came of it are the same (`sameness`). A
batch in which nothing is new is barren; news makes most counts begin anew, but not that of tools that are not there
(`outlives_news`) nor that of denials: a denial is final for its call, people are asked about it once more and then not
again (`is_refused`). A number that grows is news, and so is another message of the same error of a tool: better late
than stopped at work. What such a run costs is bounded by its limits.

Pure but for what it remembers: at most 1,000 runs, of each at most 1,000 digests; the oldest are forgotten. What it
does not remember of a run, because its process is a new one, it finds again in the results of that run's earlier
batches. Source: the tool-loop detection of OpenClaw, with its warning at three and ending one response later; that it
ends the run, and counts across tools, is what its users with runaway bills ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, Literal

from msgspec import Struct, field

from acting.sameness import asked_about, digest_of, digest_of_all
from spar.data.blackboard import Board, message_of
from spar.data.bounded import BoundedDict
from spar.data.json_safe import plain
from spar.data.paths import Expression, references, resolve
from spar.ids import new_id
from spar.types import ActionResult, CallResult, Fault, replace

MOST_RUNS: Final = 1_000
MOST_DIGESTS: Final = 1_000
_MOST_IN_BATCH: Final = 250  # of more, one digest is made of all: they would push out what they are to be compared with
_MOST_NAMED: Final = 5

_NO_RESULT: Final = frozenset({"parked", "steered"})


class Notice(Struct, frozen=True):
    """A notice of a barren batch: `told` the planner, or the run is `ended`. `times` is how often at most."""

    verdict: Literal["told", "ended"]
    message: str
    times: int
    tools: tuple[str, ...] = ()

    @property
    def data(self) -> dict[str, Any]:
        """Return the notice for the planner, as the data of a message of kind `guard`."""
        return {"kind": "no_progress", "message": self.message, "times": self.times, "tools": list(self.tools)}

    @property
    def fault(self) -> Fault | None:
        """Why the run ends, if it does; of the kind `no_progress`."""
        if self.verdict == "told":
            return None
        return Fault("no_progress", f"no_progress: {self.message}", phase="act", retryable=False)


class Detector(Struct, frozen=True, eq=False):
    """One way of getting nowhere. `key` makes of a call's parameters and result what is counted; `says` is what is told
    of `tools` at `times`, followed by one of the two `advice`s: at first, and from then on. `outlives_news`: something
    new in between does not make it count anew."""

    key: Callable[[Mapping[str, Any], CallResult], int]
    told: int
    warnings: int
    says: str
    advice: tuple[str, str]
    outlives_news: bool = False

    def sentence(self, tools: tuple[str, ...], times: int, told: int, verdict: str) -> str:
        """Return the sentence for a planner that was told of it so often before."""
        named = ", ".join(plain(tool, 100) for tool in tools[:_MOST_NAMED]) + (
            ", …" if len(tools) > _MOST_NAMED else ""
        )
        again = self.says.format(tools=named, times=times)
        if verdict == "ended":
            return f"{again}, also after the planner was told"
        return f"{again}: {self.advice[min(told, 1)]}"


def with_notice(result: ActionResult, notice: Notice | None) -> ActionResult:
    """The result of a batch with what was noticed: one message more, before those of errors, and the fault that ends
    the run, if it is over."""
    if notice is None:
        return result
    errors = len(result.messages) - len(result.errors)
    messages = (*result.messages[:errors], message_of("guard", notice.data), *result.messages[errors:])
    if notice.fault is None:
        return replace(result, messages=messages)
    status = "partial" if result.status == "ok" else result.status
    return replace(result, messages=messages, fault=result.fault or notice.fault, status=status)


class _Tally(Struct):
    """The counts of one detector in one run, and how often the planner was told of it."""

    times: dict[int, int] = field(default_factory=dict)
    told: int = 0


class _Run(Struct):
    """The state of one run: the digests seen, and what each detector has counted."""

    seen: dict[int, None] = field(default_factory=dict)
    tallies: dict[Detector, _Tally] = field(default_factory=dict)

    def is_barren(self, digests: Iterable[int]) -> bool:
        """Return whether all of these were seen before; they are from now on."""
        is_barren = True
        for digest in digests:
            is_barren = digest in self.seen and is_barren
            self.seen.pop(digest, None)  # so that the order is the order of being seen last
            self.seen[digest] = None
        while len(self.seen) > MOST_DIGESTS:
            del self.seen[next(iter(self.seen))]
        return is_barren


class _Late(Struct):
    """Resolves the parameters of calls afterwards, from the messages written when their batch was over."""

    messages: list[dict[str, Any]]
    _board: Board | None = None

    def given(self, result: CallResult) -> Mapping[str, Any]:
        """The parameters of a call as they were when it ran; like no others if that cannot be told."""
        call = result.call
        if not result.attempts and result.status != "denied":
            return call.params  # it was given nothing yet
        try:
            if any(references(call.params).values()) and self._board is None:
                self._board = Board(self.messages)
            return {name: resolve(value, partial(self._look, call.instance)) for name, value in call.params.items()}
        except Exception:  # what stood there is gone, or a message of another version
            return {"": new_id()}

    def _look(self, instance: str | None, expression: Expression) -> Any:
        assert self._board is not None
        return self._board.look(expression, instance)


class LoopGuard(Struct):
    """Remembers what the calls of each run came to; one for an executor."""

    _runs: BoundedDict[str, _Run] = field(default_factory=partial(BoundedDict, MOST_RUNS))

    def note(self, run_id: str | None, ended: Iterable[tuple[Mapping[str, Any], CallResult]]) -> Notice | None:
        """Count one batch, resolved parameters and result of each call; return the notice that it gives rise to.

        Never raises: a result that cannot be compared is new.
        """
        if run_id is None:
            return None
        found: dict[Detector, dict[int, str]] = {}
        for params, result in ended:
            if result.status == "cancelled" or result.reason in _NO_RESULT:
                return None
            why = result.fault
            for detector in _REPETITION if why is None else _BY_KIND.get(why.kind, _REPETITION):
                found.setdefault(detector, {})[detector.key(params, result)] = result.call.tool
        return self._judge(self._run(run_id), found) if found else None

    def is_refused(self, run_id: str | None, tool: str, params: Mapping[str, Any]) -> bool:
        """Return whether a call was denied in this run so often that people are not to be asked about it again."""
        run = self._runs.get(run_id) if run_id is not None else None
        tally = run.tallies.get(DENIED) if run is not None else None
        return tally is not None and tally.times.get(asked_about(tool, params), 0) >= DENIED.told

    def knows(self, run_id: str) -> bool:
        """Return whether a batch of this run was seen, or recalled."""
        return run_id in self._runs

    def recall(self, run_id: str, earlier: Iterable[ActionResult]) -> None:
        """Know of a run what its earlier batches came to, unless it is known: they were made by an earlier process.

        What a call referred to is read from what these batches wrote; one that cannot be read any more is taken as
        news. Never raises.
        """
        if self.knows(run_id):
            return
        self._run(run_id)
        messages: list[dict[str, Any]] = []
        for batch in earlier:
            messages += batch.messages
            if batch.action is None or batch.action.output is None:  # one that answers is not judged
                board = _Late(messages)
                self.note(run_id, [(board.given(each), each) for each in batch.results])

    def forget(self, run_id: str) -> None:
        """Know nothing of a run any more."""
        self._runs.pop(run_id, None)

    def _run(self, run_id: str) -> _Run:
        run = self._runs[run_id] = self._runs.get(run_id) or _Run()
        return run

    def _judge(self, run: _Run, found: Mapping[Detector, Mapping[int, str]]) -> Notice | None:
        if (same := found.get(REPEATED)) and not run.is_barren(_bounded(same)):
            for detector in [each for each in run.tallies if not each.outlives_news]:
                del run.tallies[detector]
        notices = [self._counted(run, detector, keys) for detector, keys in found.items()]
        said = [notice for notice in notices if notice is not None]
        return min(said, key=lambda notice: notice.verdict, default=None)  # an end before what is told

    def _counted(self, run: _Run, detector: Detector, keys: Mapping[int, str]) -> Notice | None:
        tally = run.tallies.setdefault(detector, _Tally())
        times = 0
        for key in _bounded(keys):
            again = tally.times.pop(key, 0) + 1
            tally.times[key] = again
            times = max(times, again)
        while len(tally.times) > MOST_DIGESTS:
            del tally.times[next(iter(tally.times))]
        if times < detector.told and not (tally.told and detector is REPEATED):
            return None
        verdict: Literal["told", "ended"] = "ended" if tally.told >= detector.warnings else "told"
        tools = tuple(dict.fromkeys(keys.values()))
        sentence = detector.sentence(tools, times, tally.told, verdict)
        tally.told += 1
        return Notice(verdict, sentence, times, tools[:_MOST_NAMED])


def _bounded(digests: Iterable[int]) -> list[int]:
    digests = list(digests)
    return digests if len(digests) <= _MOST_IN_BATCH else [digest_of_all(digests)]


REPEATED: Final = Detector(
    digest_of, 3, 1, "{tools} gave the same for the same parameters {times} times, and nothing new came in between",
    ("do something else, or answer with what is known; the same once more ends the run",) * 2,
)  # fmt: skip
UNABLE: Final = Detector(
    lambda params, result: 0, 2, 4, "calls of {tools} could not run, {times} times, and nothing new came in between",
    ("read what was wrong with them, and call only tools that are there, as they are described",
     "do not retry; do something else, or answer with what is known"),
)  # fmt: skip
MISSING: Final = Detector(
    lambda params, result: 0, 2, 6, "tools that do not exist were called {times} times, at last {tools}",
    ("call only tools that are there", "do not retry; do something else, or answer with what is known"),
    outlives_news=True,
)  # fmt: skip
DENIED: Final = Detector(
    lambda params, result: asked_about(result.call.tool, params), 2, 1,
    "the same call of {tools} was denied {times} times",
    ("that is final in this run, do not retry: people are not asked about it again",) * 2, outlives_news=True,
)  # fmt: skip

_REPETITION: Final = (REPEATED,)
#: What a result counts as, by the kind of its fault; any other as one that may be a repetition.
_BY_KIND: Final[Mapping[str, tuple[Detector, ...]]] = {
    "unknown_tool": (UNABLE, MISSING),
    **dict.fromkeys(("bad_parameters", "bad_reference", "bad_call", "duplicate_id", "cycle"), (UNABLE,)),
    **dict.fromkeys(("denied", "expired"), (REPEATED, DENIED)),
}
