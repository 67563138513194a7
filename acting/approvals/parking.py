"""Finds out during a run which calls it leaves behind: those that wait for an answer, and those that need them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial, reduce
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct, field

from acting.calls import fault
from spar.data.blackboard import Board
from spar.data.dataflow import PathIndex
from spar.data.paths import MARK, Expression, Path, escape, marked, parse_write, references, resolve
from spar.types import Call, CallResult, replace


class ParkedStep(Protocol):
    """A call of a run as approvals see it; `is_guest`: another call asked for the approval that it waits for."""

    call: Call
    params: dict[str, Any]
    approval_id: str
    is_guest: bool
    result: CallResult | None

    @property
    def has_started(self) -> bool: ...


S = TypeVar("S", bound=ParkedStep)


class _Producers(Struct, frozen=True):
    """Parked calls that others wait for, all in one: the id of the `first`, its place, and whether all are kept."""

    first: str
    place: int
    are_kept: bool


def _together(one: _Producers, other: _Producers) -> _Producers:
    are_kept = one.are_kept and other.are_kept
    earlier = one if one.place <= other.place else other
    return earlier if earlier.are_kept is are_kept else _Producers(earlier.first, earlier.place, are_kept)


def _either(one: bool, other: bool) -> bool:
    return one or other


class Parking(Struct, Generic[S], eq=False):
    """The calls that one batch leaves behind, collected while it runs."""

    steps: list[S] = field(default_factory=list)
    _kept: dict[S, bool] = field(default_factory=dict)
    _by_id: dict[str, _Producers] = field(default_factory=dict)
    _writers: dict[str | None, PathIndex[_Producers]] = field(default_factory=dict)  # by instance

    def add(self, step: S) -> None:
        """Its result is that it is parked: because it waits for an answer, or for another one that does."""
        call, found = step.call, self._producers(step.call)
        # What waits for the answer to a question that an earlier cycle asked goes on once, there.
        is_kept = bool(step.approval_id and not step.is_guest) if found is None else found.are_kept
        self._kept[step] = is_kept
        own = _Producers(call.id, len(self.steps), is_kept)
        self._by_id.setdefault(call.id, own)
        written = written_paths(call)
        if written:
            writers = self._writers.get(call.instance)
            if writers is None:
                writers = self._writers[call.instance] = PathIndex(_together)
            for path in written:
                writers.add(path, own)
        self.steps.append(step)

    def result(self, step: ParkedStep) -> CallResult | None:
        """The result of a call that cannot run, if that is because of one that is parked."""
        found = self._producers(step.call)
        if found is None:
            return None
        return parked(step.call, f"it waits for {found.first!r}, which waits for an approval")

    def take_asking(self, steps: Iterable[S], finish: Callable[[S, CallResult], None]) -> None:
        """The batch is cut off: what has an approval or waits for one is left behind, if it has not started."""
        for step in steps:
            if step.result is None and step.approval_id and not step.has_started:
                finish(step, parked(step.call, f"it waits for approval {step.approval_id!r}"))

    def calls(self, board: Board, ended_well: Callable[[str], bool]) -> tuple[list[Call], dict[str, str]]:
        """The calls to keep, with what could be read by now filled in, and the approvals that they wait for by id."""
        kept = [step for step in self.steps if self._kept[step]]
        writes: PathIndex[bool] = PathIndex(_either)
        for step in kept:
            for path in written_paths(step.call):
                writes.add(path, True)
        calls, waits = [], {}
        for step in kept:
            call = step.call
            if step.approval_id:
                waits[call.id] = step.approval_id
                call = replace(call, params=escape(step.params, frozenset(marked(step.params))), after=())
            else:
                after = tuple(id for id in call.after if not ended_well(id))
                look = partial(board.look, instance=call.instance)
                call = replace(call, params=_filled(call.params, look, writes), after=after)
            calls.append(call)
        return calls, waits

    def _producers(self, call: Call) -> _Producers | None:
        """Return what is to be known of the parked calls that this one waits for; None if there are none."""
        if not self.steps:
            return None
        found = [self._by_id[id] for id in call.after if id in self._by_id]
        instances = {None, call.instance}
        indexes = [index for instance, index in self._writers.items() if instance in instances]
        if indexes:
            found += [each for path in read_paths(call.params) for index in indexes if (each := index.over(path))]
        return reduce(_together, found) if found else None


def parked(call: Call, why: str) -> CallResult:
    """The result of a call that its cycle goes on without."""
    return CallResult(call, "skipped", "parked", fault=fault("parked", why, call.tool))


def _filled(value: Any, look: Callable[[Expression], Any], awaited: PathIndex[bool]) -> Any:
    """Parameters with each reference replaced that has its value by now and that nothing parked is still to write."""
    if isinstance(value, str):
        if value[:1] != MARK or value[:2] == MARK * 2 or any(awaited.over(path) for path in read_paths({"it": value})):
            return value
        try:
            found = resolve(value, look)
        except ValueError:
            return value
        return escape(found, frozenset(marked(found)))
    if isinstance(value, Mapping):
        return {key: _filled(item, look, awaited) for key, item in value.items()}
    return [_filled(item, look, awaited) for item in value] if isinstance(value, (list, tuple)) else value


def read_paths(params: Mapping[str, Any]) -> list[Path]:
    """Every path that one of the references in there names."""
    return [path for found in references(params).values() for each in found for path in _paths(each)]


def written_paths(call: Call) -> list[Path]:
    """Every path that the call may write to."""
    return [] if call.output_path is None else _paths(parse_write(call.output_path))


def _paths(expression: Expression) -> list[Path]:
    return [path for paths in expression.alternatives for path in paths]
