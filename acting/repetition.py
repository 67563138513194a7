"""Guard against runs without progress: warns the planner first, then ends the run.

A run consists of batches of calls, one for each act phase. The table `_BY_KIND` says which detectors count a call: the
same call with the same result, calls that cannot run whatever their parameters, a tool that does not exist, a call that
was denied before. Each detector counts a thing once per batch, however many calls of it are in one plan. From the count
`warn_at` on the planner is warned, and the run ends at the next count after `warnings` warnings. So the planner is
warned of missing tools and of calls that cannot run at their second batch in a row; calls that cannot run end the run
at their sixth, whichever tools and parameters it tries. Calls without a run (rules at their times) are never counted,
nor is a batch with calls that are still open: parked, steered, cancelled.

A call is the same as an earlier one when its tool, the values of its parameters and its result are the same
(`sameness`). A batch without a new call is *barren*. A new call resets most counts, but not that of missing tools
(`outlives_news`) and not that of denials: people are asked about a denied call once more and then not again
(`is_refused`). A result with a growing number is new, and so is another message of the same error: the guard rather
ends a run late than stops one that works. The limits of a run bound its costs.

Pure but for its memory: at most 1,000 runs, of each at most 1,000 digests; the oldest are dropped. After a restart it
reads the results of a run's earlier batches again. Source: the tool-loop detection of OpenClaw, which warns at three
and ends the turn one response later; its users with high bills ask for an end of the run and for counts across tools.
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
_MOST_IN_BATCH: Final = 250  # more digests become one, because they would push out those to compare them with
_MOST_NAMED: Final = 5

_NO_RESULT: Final = frozenset({"parked", "steered"})


class Notice(Struct, frozen=True):
    """A notice about a run without progress: the planner is told, or the run is ended. `times` is the highest count."""

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
        """Return the fault that ends the run, of kind `no_progress`; None for a warning."""
        if self.verdict == "told":
            return None
        return Fault("no_progress", f"no_progress: {self.message}", phase="act", retryable=False)


class Detector(Struct, frozen=True, eq=False):
    """Detector of one kind of repetition.

    `key` returns the digest that is counted for a call. `warn_at` is the count of the first warning, `warnings` how
    many precede the end of the run. `says` is the text about `tools` and `times`, followed by the first `advice` at the
    first warning, by the second one after that. `outlives_news` says that a new call does not reset the count.
    """

    key: Callable[[Mapping[str, Any], CallResult], int]
    warn_at: int
    warnings: int
    says: str
    advice: tuple[str, str]
    outlives_news: bool = False

    def sentence(self, tools: tuple[str, ...], times: int, warned: int, verdict: str) -> str:
        """Return the sentence for a planner that was warned `warned` times before."""
        named = ", ".join(plain(tool, 100) for tool in tools[:_MOST_NAMED]) + (
            ", …" if len(tools) > _MOST_NAMED else ""
        )
        again = self.says.format(tools=named, times=times)
        if verdict == "ended":
            return f"{again}, also after the planner was told"
        return f"{again}: {self.advice[min(warned, 1)]}"


def with_notice(result: ActionResult, notice: Notice | None) -> ActionResult:
    """Return the result of a batch with a notice: one more message, before those of errors, and the fault that ends the
    run, if there is one."""
    if notice is None:
        return result
    errors = len(result.messages) - len(result.errors)
    messages = (*result.messages[:errors], message_of("guard", notice.data), *result.messages[errors:])
    if notice.fault is None:
        return replace(result, messages=messages)
    status = "partial" if result.status == "ok" else result.status
    return replace(result, messages=messages, fault=result.fault or notice.fault, status=status)


class _Tally(Struct):
    """The counts of one detector in one run, and how often the planner was warned."""

    times: BoundedDict[int, int] = field(default_factory=partial(BoundedDict, MOST_DIGESTS))
    warned: int = 0


class _Run(Struct):
    """The state of one run: the digests seen, and what each detector has counted."""

    seen: BoundedDict[int, None] = field(default_factory=partial(BoundedDict, MOST_DIGESTS))
    tallies: dict[Detector, _Tally] = field(default_factory=dict)

    def is_barren(self, digests: Iterable[int]) -> bool:
        """Return whether all digests are known, and remember them."""
        is_barren = True
        for digest in digests:
            is_barren = digest in self.seen and is_barren
            self.seen[digest] = None
        return is_barren


class _Late(Struct):
    """Resolver of the parameters of ended calls, from the messages of their batch."""

    messages: list[dict[str, Any]]
    _board: Board | None = None

    def given(self, result: CallResult) -> Mapping[str, Any]:
        """Return the values of a call's parameters when it ran; a unique value if they are not known any more."""
        call = result.call
        if not result.attempts and result.status != "denied":
            return call.params  # it never ran
        try:
            if any(references(call.params).values()) and self._board is None:
                self._board = Board(self.messages)
            return {name: resolve(value, partial(self._look, call.instance)) for name, value in call.params.items()}
        except Exception:  # the value is gone, or the message is of another version
            return {"": new_id()}

    def _look(self, instance: str | None, expression: Expression) -> Any:
        assert self._board is not None
        return self._board.look(expression, instance)


class LoopGuard(Struct):
    """Memory of the calls and results of each run; one for an executor."""

    _runs: BoundedDict[str, _Run] = field(default_factory=partial(BoundedDict, MOST_RUNS))

    def note(self, run_id: str | None, ended: Iterable[tuple[Mapping[str, Any], CallResult]]) -> Notice | None:
        """Count one batch: the parameters' values and the result of each call. Return a notice, or None.

        Never raises: a result that cannot be compared is new.
        """
        if run_id is None:
            return None
        keys: dict[Detector, dict[int, str]] = {}
        for params, result in ended:
            if result.status == "cancelled" or result.reason in _NO_RESULT:
                return None
            why = result.fault
            for detector in _REPETITION if why is None else _BY_KIND.get(why.kind, _REPETITION):
                keys.setdefault(detector, {})[detector.key(params, result)] = result.call.tool
        return self._judge(self._run(run_id), keys) if keys else None

    def is_refused(self, run_id: str | None, tool: str, params: Mapping[str, Any]) -> bool:
        """Return whether a call was denied in this run so often that people must not be asked about it again."""
        run = self._runs.get(run_id) if run_id is not None else None
        tally = run.tallies.get(DENIED) if run is not None else None
        return tally is not None and tally.times.get(asked_about(tool, params), 0) >= DENIED.warn_at

    def knows(self, run_id: str) -> bool:
        """Return whether a batch of this run was counted or recalled."""
        return run_id in self._runs

    def recall(self, run_id: str, earlier: Iterable[ActionResult]) -> None:
        """Count the earlier batches of an unknown run, which an earlier process has carried out.

        References are read from the messages of these batches; a call whose values cannot be read any more counts as
        new. Never raises.
        """
        if self.knows(run_id):
            return
        self._run(run_id)
        messages: list[dict[str, Any]] = []
        for batch in earlier:
            messages += batch.messages
            if batch.action is None or batch.action.output is None:  # a batch with the run's answer does not count
                board = _Late(messages)
                self.note(run_id, [(board.given(result), result) for result in batch.results])

    def _run(self, run_id: str) -> _Run:
        run = self._runs[run_id] = self._runs.get(run_id) or _Run()
        return run

    def _judge(self, run: _Run, keys: Mapping[Detector, Mapping[int, str]]) -> Notice | None:
        if (same := keys.get(REPEATED)) and not run.is_barren(_bounded(same)):
            for detector in [known for known in run.tallies if not known.outlives_news]:
                del run.tallies[detector]
        notices = [self._count(run, detector, keys) for detector, keys in keys.items()]
        given = [notice for notice in notices if notice is not None]
        return min(given, key=lambda notice: notice.verdict, default=None)  # "ended" goes before "told"

    def _count(self, run: _Run, detector: Detector, keys: Mapping[int, str]) -> Notice | None:
        tally = run.tallies.setdefault(detector, _Tally())
        times = 0
        for key in _bounded(keys):
            tally.times[key] = again = tally.times.get(key, 0) + 1
            times = max(times, again)
        if times < detector.warn_at and not (tally.warned and detector is REPEATED):
            return None
        verdict: Literal["told", "ended"] = "ended" if tally.warned >= detector.warnings else "told"
        tools = tuple(dict.fromkeys(keys.values()))
        sentence = detector.sentence(tools, times, tally.warned, verdict)
        tally.warned += 1
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
#: The detectors by the kind of a result's fault; other results may be repetitions.
_BY_KIND: Final[Mapping[str, tuple[Detector, ...]]] = {
    "unknown_tool": (UNABLE, MISSING),
    **dict.fromkeys(("bad_parameters", "bad_reference", "bad_call", "duplicate_id", "cycle"), (UNABLE,)),
    **dict.fromkeys(("denied", "expired"), (REPEATED, DENIED)),
}
