"""Tape: the recorded cycles of a store, and the inputs of the decision in each.

A decision may depend on earlier cycles: those of its run, and those whose calls were held back until people answered.
`History.inputs` derives that from the cycles that were added before.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from msgspec import Struct, ValidationError

from spar.data.bounded import BoundedDict
from spar.decoding import convert
from spar.errors import SparError
from spar.ports.any_part import has
from spar.ports.breakpoints import BY_HAND
from spar.ports.store import DurableStore, OptionalStore
from spar.protocols import RunContext
from spar.types import Action, CycleRecord, Perception, copy_with, least_trust, trust_of

#: Cycles that are read at once; cycles before one that are read for what it depends on.
PAGE: Final = 500
EARLIER: Final = 1_000
#: Runs and held calls that are remembered while a tape is read.
_MOST_RUNS, _MOST_HELD = 1_000, 10_000
_MESSAGE: Final = "message"
#: Kinds of faults of a record that is not whole.
DAMAGE: Final = ("truncated", "unreadable")


class Inputs(Struct, frozen=True):
    """Inputs of one recorded decision.

    `perceptions` are those that the planner was asked about. `decided` is the recorded plan without the calls that an
    earlier cycle had planned. `run` is the run as it was then. `gaps` are sentences about what the record does not
    have.
    """

    cycle: CycleRecord
    perceptions: tuple[Perception, ...] = ()
    decided: Action | None = None
    run: RunContext | None = None
    gaps: tuple[str, ...] = ()

    @property
    def at(self) -> datetime:
        """Return the time of the decision."""
        return self.cycle.started_at


class History:
    """Cycles so far, as far as the inputs of later ones depend on them: their runs, and calls that were held back."""

    def __init__(self) -> None:
        self._runs: BoundedDict[str, RunContext] = BoundedDict(_MOST_RUNS)
        self._held: BoundedDict[str, None] = BoundedDict(_MOST_HELD)

    def inputs(self, cycle: CycleRecord) -> Inputs:
        """Return the inputs of a cycle's decision, by the cycles that were added before."""
        decided, perceptions, gaps = planned(cycle), cycle.perceptions, list(_gaps(cycle))
        if decided is not None and not self._held.keys().isdisjoint(call.id for call in decided.calls):
            perceptions = tuple(perception for perception in perceptions if perception.id not in self._held)
            calls = tuple(call for call in decided.calls if call.id not in self._held)
            if not (calls or perceptions):
                gaps.append("nothing was planned in it: it made calls that people had answered")
            decided = copy_with(decided, calls=calls) if calls else None
        return Inputs(cycle, perceptions, decided, self._run_of(cycle), tuple(gaps))

    def add(self, cycle: CycleRecord) -> None:
        """Remember what later cycles depend on."""
        for result in () if cycle.result is None else cycle.result.results:
            if result.reason == "parked":
                self._held |= dict.fromkeys((result.call.id, *(perception.id for perception in cycle.perceptions)))
        if (run := self._run_of(cycle)) is None:
            return
        if cycle.result is not None:
            messages = (*run.messages, *cycle.result.messages)
            run = copy_with(run, results=(*run.results, cycle.result), messages=messages)
        self._runs[run.id] = copy_with(run, number=run.number + 1)

    def _run_of(self, cycle: CycleRecord) -> RunContext | None:
        """Return the run of a cycle at its beginning; None without one."""
        messages = tuple(perception for perception in cycle.perceptions if perception.kind == _MESSAGE)
        run_id = None if cycle.action is None else cycle.action.run_id
        if run_id is None and not messages:
            return None
        run_id = run_id or messages[0].id
        if (run := self._runs.get(run_id)) is None:
            message = next((one for one in messages if one.id == run_id), messages[0] if messages else None)
            goal = "" if message is None else message.text
            trust = least_trust(messages) if messages else trust_of(cycle.action or Action())
            schema = None if message is None else message.attributes.get("output_schema")
            later = tuple(one for one in messages if one is not message)
            return RunContext(run_id, goal, message=message, said=later, trust=trust,
                              output=schema if isinstance(schema, Mapping) else None)  # fmt: skip
        known = {one.id for one in (run.message, *run.said) if one is not None}
        new = tuple(one for one in messages if one.id not in known)
        trust = least_trust(new) if run.trust == "trusted" else run.trust
        return copy_with(run, said=(*run.said, *new), trust=trust) if new else run


class Tape:
    """Recorded cycles of an agent in a store that is only read. Attributes: history: of the cycles that were added.

    Raises: SparError for a store whose cycles cannot be read.
    """

    def __init__(self, memory: Any, agent: str) -> None:
        if not (has(memory, DurableStore.cycles, DurableStore.cycle) and has(memory, OptionalStore.cycle_records)):
            raise SparError("this store does not keep its cycles so that they can be read again")
        self.memory: Any = memory
        self.agent = agent
        self.history = History()

    async def cycle(self, cycle_id: str) -> CycleRecord:
        """Return a cycle by its id or the unique beginning of one; "last" is the newest. Raises: LookupError."""
        if cycle_id == "last" and (newest := await self.memory.cycles(limit=1)):
            cycle_id = str(newest[0]["cycle_id"])
        record: CycleRecord | None = await self.memory.cycle(cycle_id)
        if record is None:
            raise LookupError(
                f"no cycle {cycle_id!r} is recorded: it was idle, or is gone by retention; spar cycles list shows "
                "those that are"
            )
        return record

    async def before(self, cycle: CycleRecord) -> Sequence[CycleRecord]:
        """Return the agent's newest cycles before a cycle, the oldest first."""
        records: Sequence[CycleRecord] = await self.memory.cycle_records(EARLIER, before=cycle.cycle_id)
        return [record for record in records if record.agent == self.agent]

    async def newest(self) -> CycleRecord | None:
        """Return the newest cycle; None on an empty tape."""
        rows = await self.memory.cycles(limit=1)
        record: CycleRecord | None = await self.memory.cycle(rows[0]["cycle_id"]) if rows else None
        return record

    async def pages(self, since: datetime | None, after: str, until: CycleRecord) -> AsyncIterator[list[CycleRecord]]:
        """Yield the agent's cycles since a time, or after the one with an id, until another one, in pages.

        The oldest comes first. Cycles that are recorded meanwhile, or are deleted by retention, change nothing.
        """
        last = (until.started_at, until.cycle_id)
        while True:
            try:
                page = await self.memory.cycle_records(PAGE, after=after or None, since=None if after else since)
            except LookupError:  # retention has deleted it since
                page, after = await self.memory.cycle_records(PAGE, since=since), ""
            yield [record for record in page if record.agent == self.agent
                   and (record.started_at, record.cycle_id) <= last]  # fmt: skip
            if len(page) < PAGE or (page[-1].started_at, page[-1].cycle_id) >= last:
                return
            after, since = page[-1].cycle_id, page[-1].started_at


def by_hand(cycle: CycleRecord) -> list[Mapping[str, Any]]:
    """Return the changes by hand of a cycle (`spar.ports.breakpoints.Change`), in order."""
    return [change for note in cycle.notes if note.get("kind") == BY_HAND for change in note.get("changes", ())]


def planned(cycle: CycleRecord) -> Action | None:
    """Return the recorded plan as it was before people changed it by hand."""
    changes = (change for change in by_hand(cycle) if change.get("part") == "plan")
    if (first := next(changes, None)) is None:
        return cycle.action
    try:
        return convert(first.get("before"), Action | None)  # type: ignore[arg-type]
    except ValidationError:  # it was too large for a note
        return cycle.action


def _gaps(cycle: CycleRecord) -> Iterator[str]:
    """Yield the reasons why a cycle cannot be decided again from its record."""
    for fault in cycle.faults:
        cut = fault.detail.get("cut")
        is_of_inputs = not isinstance(cut, Mapping) or any(name.startswith(("perceptions", "action")) for name in cut)
        if fault.kind in DAMAGE and is_of_inputs:
            yield fault.message
    if not cycle.phases and cycle.outcome == "interrupted":
        yield "it was cut off before it decided"
    elif "plan" not in cycle.phases and cycle.action is None:
        yield "nothing was planned in it"
