"""Parking: collects the calls of a batch that wait for an answer, and the calls that depend on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial, reduce
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct, field

from acting.calls import Question, fault
from spar.data.blackboard import Board
from spar.data.dataflow import PathIndex
from spar.data.paths import MARK, Expression, Path, escape, marked, parse_write, references, resolve
from spar.threads import in_slices
from spar.types import Call, CallResult, replace


class ParkedStep(Protocol):
    """A call of a batch, such as `Step`."""

    call: Call
    params: dict[str, Any]
    question: Question
    result: CallResult | None
    number: int


S = TypeVar("S", bound=ParkedStep)


class _Producers(Struct, frozen=True):
    """Summary of parked calls that another one waits for: id and place of the `first`, and whether all are stored."""

    first: str
    place: int
    are_stored: bool


def _merge(one: _Producers, other: _Producers) -> _Producers:
    are_stored = one.are_stored and other.are_stored
    earlier = one if one.place <= other.place else other
    return earlier if earlier.are_stored is are_stored else _Producers(earlier.first, earlier.place, are_stored)


def _either(one: bool, other: bool) -> bool:
    return one or other


class Parking(Struct, Generic[S], eq=False):
    """Collector of the calls that one batch leaves without an answer, while it runs."""

    steps: list[S] = field(default_factory=list)
    _is_stored: dict[S, bool] = field(default_factory=dict)
    _by_id: dict[str, _Producers] = field(default_factory=dict)
    _writers: dict[str | None, PathIndex[_Producers]] = field(default_factory=dict)  # by instance

    def add(self, step: S) -> None:
        """Add a call that ended as parked: it waits for an answer, or for another call that does."""
        call, producers = step.call, self._producers(step.call)
        # A call that waits for the answer to an earlier cycle's question is stored there, and goes on only once.
        is_stored = step.question.own_id != "" if producers is None else producers.are_stored
        self._is_stored[step] = is_stored
        summary = _Producers(call.id, len(self.steps), is_stored)
        self._by_id.setdefault(call.id, summary)
        written = written_paths(call)
        if written:
            writers = self._writers.get(call.instance)
            if writers is None:
                writers = self._writers[call.instance] = PathIndex(_merge)
            for path in written:
                writers.add(path, summary)
        self.steps.append(step)

    def result(self, step: ParkedStep) -> CallResult | None:
        """Return the result of a call that cannot run because it waits for a parked one; None for any other."""
        producers = self._producers(step.call)
        if producers is None:
            return None
        return parked(step.call, f"it waits for {producers.first!r}, which waits for an approval")

    def take_asking(self, steps: Iterable[S], finish: Callable[[S, CallResult], None]) -> None:
        """Park the calls of a cancelled batch that have an approval or wait for one, and have not started."""
        for step in steps:
            if step.result is None and step.question.approval_id and not step.number:
                finish(step, parked(step.call, f"it waits for approval {step.question.approval_id!r}"))

    async def calls(self, board: Board, ended_well: Callable[[str], bool]) -> tuple[list[Call], dict[str, str]]:
        """Return the calls to store, with the values known by now, and by call id the approvals that they need."""
        stored = [step for step in self.steps if self._is_stored[step]]
        writes: PathIndex[bool] = PathIndex(_either)
        async for step in in_slices(stored):
            for path in written_paths(step.call):
                writes.add(path, True)
        calls, waits = [], {}
        async for step in in_slices(stored):
            call = step.call
            if step.question.approval_id:
                waits[call.id] = step.question.approval_id
                call = replace(call, params=escape(step.params, frozenset(marked(step.params))), after=())
            else:
                after = tuple(id for id in call.after if not ended_well(id))
                look = partial(board.look, instance=call.instance)
                call = replace(call, params=_fill_in(call.params, look, writes), after=after)
            calls.append(call)
        return calls, waits

    def _producers(self, call: Call) -> _Producers | None:
        """Return the summary of the parked calls that this one waits for; None if there are none."""
        if not self.steps:
            return None
        summaries = [self._by_id[id] for id in call.after if id in self._by_id]
        instances = {None, call.instance}
        indexes = [index for instance, index in self._writers.items() if instance in instances]
        if indexes:
            summaries += [
                summary for path in read_paths(call.params) for index in indexes if (summary := index.over(path))
            ]
        return reduce(_merge, summaries) if summaries else None


def parked(call: Call, why: str) -> CallResult:
    """Return the result of a call that waits for an answer after its cycle."""
    return CallResult(call, "skipped", "parked", fault=fault("parked", why, call.tool))


def _fill_in(value: Any, look: Callable[[Expression], Any], awaited: PathIndex[bool]) -> Any:
    """Return parameters with the values of all references that no parked call is still to write."""
    if isinstance(value, str):
        if value[:1] != MARK or value[:2] == MARK * 2 or any(awaited.over(path) for path in read_paths({"it": value})):
            return value
        try:
            resolved = resolve(value, look)
        except ValueError:
            return value
        return escape(resolved, frozenset(marked(resolved)))
    if isinstance(value, Mapping):
        return {key: _fill_in(item, look, awaited) for key, item in value.items()}
    return [_fill_in(item, look, awaited) for item in value] if isinstance(value, (list, tuple)) else value


def read_paths(params: Mapping[str, Any]) -> list[Path]:
    """Return every path that a reference in the parameters names."""
    return [
        path for expressions in references(params).values() for expression in expressions for path in _paths(expression)
    ]


def written_paths(call: Call) -> list[Path]:
    """Return every path that the call may write to."""
    return [] if call.output_path is None else _paths(parse_write(call.output_path))


def _paths(expression: Expression) -> list[Path]:
    return [path for paths in expression.alternatives for path in paths]
