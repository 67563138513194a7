"""Calls that nobody answered in time: their cycle goes on without them, and they go on in the cycle after the answer.

A tick leaves behind the calls that wait for a person together with all that depends on them, as a durable record of
wire calls: what they read and stood there by then is filled in, the rest they read from one another. Once one of the
approvals has an answer, the session's next cycle is given them again, before anything new. An approval is used by
compare-and-set before its call starts, and everything in a record depends on such a call, so a record that is executed
twice runs nothing twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial, reduce
from typing import Any

from msgspec import Struct

from acting.approvals.policy import trust_in
from acting.approvals.queue import Desk
from acting.approvals.records import Rows
from acting.approvals.taint import Taint
from acting.run.call.call_state import Step
from acting.run.runtime import Scope, Stage, fault
from spar.data.blackboard import Board
from spar.data.dataflow import PathIndex, dependants
from spar.data.paths import MARK, Expression, Path, escape, marked, parse_write, references, resolve
from spar.errors import SparError
from spar.failpoints import crashpoint
from spar.protocols import Host
from spar.records.approvals import Approval
from spar.records.journal import CallJournal
from spar.types import Action, Call, CallResult, Perception, Trust, replace

_GOES_ON = ("cancelled", "skipped")  # with what a call has not come to its end


class ParkedCalls(Struct, frozen=True):
    """What one tick left behind: wire calls in order, and which approval (by call id) each waits for, if one itself."""

    id: str
    agent: str
    session: str
    cycle_id: str
    at: datetime
    calls: list[dict[str, Any]]
    waits: dict[str, str]
    trust: Trust = "trusted"
    run_id: str | None = None
    goal: str = ""


class Resumed(Struct, frozen=True):
    """A call that goes on: of which record, with which approval ("" for what depends on one), its trust and its run.

    `is_unclear`: it depends on a call whose approval was used before, so it may have run then.
    """

    call: Call
    record: str
    approval: str
    trust: Trust
    is_unclear: bool = False
    run_id: str | None = None


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


class Parking:
    """What one tick leaves behind, found out while it runs."""

    __slots__ = ("_by_id", "_kept", "_writers", "steps")

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._kept: dict[Step, bool] = {}
        self._by_id: dict[str, _Producers] = {}
        self._writers: dict[str | None, PathIndex[_Producers]] = {}  # by instance

    def add(self, step: Step) -> None:
        """Its result is that it is parked: because it waits for an answer, or for another one that does."""
        call, found = step.call, self._producers(step.call)
        # What waits for the answer to a question that an earlier cycle asked goes on once, there.
        is_kept = bool(step.ticket and not step.is_guest) if found is None else found.are_kept
        self._kept[step] = is_kept
        own = _Producers(call.id, len(self.steps), is_kept)
        self._by_id.setdefault(call.id, own)
        written = _written(call)
        if written:
            writers = self._writers.get(call.instance)
            if writers is None:
                writers = self._writers[call.instance] = PathIndex(_together)
            for path in written:
                writers.add(path, own)
        self.steps.append(step)

    def result(self, step: Step) -> CallResult | None:
        """The result of a call that cannot run, if that is because of one that is parked."""
        found = self._producers(step.call)
        if found is None:
            return None
        return parked(step.call, f"it waits for {found.first!r}, which waits for an approval")

    def take_asking(self, steps: Iterable[Step], finish: Callable[[Step, CallResult], None]) -> None:
        """The tick is cut off: what has an approval or waits for one is left behind, if it has not started."""
        for step in steps:
            if step.result is None and step.ticket and step.launch is None:
                finish(step, parked(step.call, f"it waits for approval {step.ticket!r}"))

    def calls(self, board: Board, ended_well: Callable[[str], bool]) -> tuple[list[Call], dict[str, str]]:
        """The calls to keep, with what could be read by now filled in, and the approvals that they wait for by id."""
        kept = [step for step in self.steps if self._kept[step]]
        writes: PathIndex[bool] = PathIndex(_either)
        for step in kept:
            for path in _written(step.call):
                writes.add(path, True)
        calls, waits = [], {}
        for step in kept:
            call = step.call
            if step.ticket:
                waits[call.id] = step.ticket
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
            found += [each for path in _read(call.params) for index in indexes if (each := index.over(path))]
        return reduce(_together, found) if found else None


class Parked:
    """The records of one executor. `known` holds the calls that were handed out to go on, by id."""

    def __init__(self, desk: Desk, taint: Taint) -> None:
        self._desk, self._taint = desk, taint
        self._rows = Rows("parked", ParkedCalls, lambda row: row.agent == desk.agent)
        self._actions: dict[str, Action] = {}
        self._ready: set[str] = set()  # sessions that have something to go on with
        self.known: dict[str, Resumed] = {}
        self.resume: Callable[[str], None] = lambda session: None
        self._journal: CallJournal | None = None
        self._is_in_hand: Callable[[str], bool] = lambda cycle_id: False
        desk.on_answer = self._answered

    def attach(self, host: Host) -> None:
        """Wake the agent's sessions when there are answers; know which cycles go on by themselves."""
        self.resume, self._journal, self._is_in_hand = host.resume, host.journal, host.is_in_hand

    async def open(self) -> None:
        """Read what is kept; questions whose calls nobody holds any more are void. Raises: TransientError."""
        await self._desk.open()
        await self._rows.open(self._desk.store)
        self._actions, self._ready, self.known = {}, set(), {}
        awaited = {id for row in self._rows.values.values() for id in row.waits.values()}
        for approval in self._desk.unsettled:
            is_gone_on_with = self._journal is not None and self._journal.is_open(approval.cycle_id)
            # A cycle in hand still asks, by the executor that this one follows.
            if approval.id not in awaited and not is_gone_on_with and not self._is_in_hand(approval.cycle_id):
                await self._desk.void(approval.id, "the cycle that asked broke off")
        for row in self._rows.values.values():
            if self._has_answer(row):
                self._action([row])  # a cycle that was cut off with these calls in hand goes on with them by itself
                self._go_on(row.session)

    async def take_over(self) -> None:
        """Take up what the executor before this one has left behind or settled meanwhile. Raises: TransientError."""
        await self._desk.refresh()
        known = set(self._rows.values)
        await self._rows.refresh()
        changed = known.symmetric_difference(self._rows.values)
        for call_id in [call_id for call_id, found in self.known.items() if found.record not in self._rows.values]:
            del self.known[call_id]
        if changed:
            self._actions.clear()
        for id in changed:
            row = self._rows.values.get(id)
            if row is not None and self._has_answer(row):
                self._go_on(row.session)

    def resumable(self, session: str) -> Action | None:
        """What this session's next cycle is to execute first; the same again until something of it has changed."""
        if session not in self._ready:
            return None
        action = self._actions.get(session)
        if action is None:
            rows = [row for row in self._rows.values.values() if row.session == session and self._has_answer(row)]
            if not rows:
                self._ready.discard(session)
                return None
            action = self._actions[session] = self._action(rows)
        return action

    def of(self, call: Call) -> Resumed | None:
        """What is known of a call that goes on; None for any other, also if it goes by the same id.

        Its tool may prescribe other things than when it was left behind.
        """
        found = self.known.get(call.id)
        is_it = found is not None and (found.call.tool, found.call.params) == (call.tool, call.params)
        return found if is_it else None

    async def leave(self, parking: Parking, scope: Scope, board: Board, ended_well: Callable[[str], bool],
                    tell: Callable[[], object]) -> None:  # fmt: skip
        """Keep what a tick leaves behind; `tell` is called right before, what it writes down is kept with it.

        Raises: ValueError when it is too large; TransientError.
        """
        untrusted = {step.call.id for step in parking.steps if self._is_untrusted(step.call, scope)}
        calls, waits = parking.calls(board, ended_well)
        if not waits:
            tell()
            return
        resumed = (self.known.get(step.call.id) for step in parking.steps)
        run_id = scope.run_id or next((found.run_id for found in resumed if found is not None), None)
        for approval in waits.values():
            await self._desk.park(approval)
        crashpoint("approval.parking")
        id = self._rows.new_id("p")
        names = {call.id: _name(call, id) for call in calls}
        wires = [_renamed(call, names, scope.cycle_id, is_untrusted=call.id in untrusted).to_wire() for call in calls]
        tell()
        await self._rows.add(ParkedCalls(
            id, self._desk.agent, scope.session, scope.cycle_id, self._desk.clock.now(), wires,
            {names[call_id]: approval for call_id, approval in waits.items()}, scope.trust, run_id,
        ))  # fmt: skip
        crashpoint("approval.parked")
        if self._has_answer(self._rows.values[id]):  # it came while this was written
            self._go_on(scope.session)

    async def settle(self, steps: list[Step]) -> None:
        """Forget the records whose calls have come to their end, or were left behind anew. Raises: TransientError."""
        records = set()
        for step in steps:
            if (found := self.known.get(step.call.id)) is None:
                continue
            records.add(found.record)
            is_it = step.ticket == found.approval or self.of(step.call) is found
            if found.approval and is_it and step.result is not None and step.result.status not in _GOES_ON:
                # Its tool is gone, or a hook or a rule is against it: it would end like this in every cycle to come.
                await self._desk.void(found.approval, "its call ended without it")
        again = {step.ticket for step in steps if step.result and step.result.reason == "parked" and not step.is_guest}
        for id in records:
            row = self._rows.values.get(id)
            if row is None or not all(each in again or self._is_over(each) for each in row.waits.values()):
                continue
            await self._forget(row)

    def own_ticket(self, step: Step) -> str:
        """The approval of which nothing is to come if this call does not start; "" if that is another one's."""
        resumed = self.of(step.call)
        if resumed is not None:
            return resumed.approval
        return "" if step.is_guest else step.ticket

    async def refuse(self, approval: str, why: str) -> None:
        """Nothing comes of this approval. Never raises for a store that fails: at the next start it is void."""
        try:
            await self._desk.void(approval, why)
        except Exception:
            pass

    async def abandon(self, run_id: str) -> None:
        """Nothing of this run is to go on. Raises: TransientError."""
        for row in [row for row in self._rows.values.values() if row.run_id == run_id]:
            await self._forget(row)
        for approval in self._desk.unsettled:
            if approval.run_id == run_id:
                await self._desk.void(approval.id, "its run was ended")

    # -- inside

    async def _forget(self, row: ParkedCalls) -> None:
        await self._rows.drop(row.id)
        for wire in row.calls:
            found = self.known.get(wire.get("_id", ""))
            if found is not None and found.record == row.id:
                del self.known[found.call.id]
        self._actions.pop(row.session, None)

    def _is_untrusted(self, call: Call, scope: Scope) -> bool:
        resumed = self.of(call)
        trust = trust_in(call, scope.trust if resumed is None else resumed.trust)
        return trust == "untrusted" or self._taint.reads(call, scope)

    def _answered(self, approval: Approval) -> None:
        for row in self._rows.values.values():
            if approval.id in row.waits.values():
                self._go_on(row.session)

    def _go_on(self, session: str) -> None:
        self._ready.add(session)
        self._actions.pop(session, None)
        self.resume(session)

    def _has_answer(self, row: ParkedCalls) -> bool:
        return any(found is None or found.status != "pending" for found in map(self._desk.known, row.waits.values()))

    def _is_over(self, approval: str) -> bool:
        found = self._desk.known(approval)
        return found is None or found.status not in ("pending", "approved")

    def _was_used(self, approval: str) -> bool:
        found = self._desk.known(approval)
        return found is None or found.status == "used"

    def _action(self, rows: list[ParkedCalls]) -> Action:
        calls, perceptions = [], []
        for row in rows:
            mine = [Call.from_wire(wire) for wire in row.calls]
            # What had begun of them, the journal knows: the cycle that they were in hand of goes on.
            is_known = self._journal is not None
            begun = set() if is_known else {id for id, approval in row.waits.items() if self._was_used(approval)}
            unclear = _depending(mine, begun) if begun else begun
            for call in mine:
                is_unclear = call.id in unclear
                self.known[call.id] = Resumed(call, row.id, row.waits.get(call.id, ""), row.trust, is_unclear,
                                              row.run_id)  # fmt: skip
            calls += mine
            answered = [found for found in map(self._desk.known, row.waits.values()) if found]
            perceptions += [_perception(found) for found in answered if found.status != "pending"]
        tools = ", ".join(dict.fromkeys(call.tool for call in calls))
        return Action(tuple(calls), f"go on with {tools}", perceptions=tuple(perceptions), trust="trusted")


async def leave_behind(
    stage: Stage, scope: Scope, parking: Parking, board: Board, ended_well: Callable[[str], bool], steps: list[Step],
    tell: Callable[[], object],
) -> None:  # fmt: skip
    """At the end of a tick: keep what it leaves behind, forget what it went on with.

    `tell` writes down what is parked, together with keeping it. What cannot be kept is not left behind: its calls are
    denied, and their approvals void.
    """
    if stage.office is None:
        return
    kept = stage.office.parked
    try:
        if parking.steps or kept.known:
            await _kept(kept, parking, scope, board, ended_well, steps, tell)
    finally:
        stage.office.taint.close(scope)


async def _kept(
    kept: Parked, parking: Parking, scope: Scope, board: Board, ended_well: Callable[[str], bool], steps: list[Step],
    tell: Callable[[], object],
) -> None:  # fmt: skip
    try:
        await kept.leave(parking, scope, board, ended_well, tell)
    except (SparError, ValueError, TypeError, LookupError) as error:
        for step in parking.steps:
            why = f"it could not be kept until its answer: {error}"
            step.result = CallResult(step.call, "denied", "denied", fault=fault("denied", why, step.call.tool))
            if step.ticket and not step.is_guest:
                await kept.refuse(step.ticket, why)
        tell()
    try:
        await kept.settle(steps)
    except SparError:  # executed again it runs nothing twice
        pass


def parked(call: Call, why: str) -> CallResult:
    """The result of a call that its cycle goes on without."""
    return CallResult(call, "skipped", "parked", fault=fault("parked", why, call.tool))


def _name(call: Call, record: str) -> str:
    """An id that no call of a later plan has."""
    before = call.meta.get("_parked")
    first = before.get("id") if isinstance(before, Mapping) else None
    return f"{first if isinstance(first, str) else call.id}~{record}"


def _depending(calls: list[Call], on: set[str]) -> set[str]:
    """The ids of the calls that depend on one of these, directly or through others."""
    return dependants(on, ((call.id, call.after, _read(call.params), _written(call)) for call in calls))


def _renamed(call: Call, names: Mapping[str, str], cycle_id: str, *, is_untrusted: bool) -> Call:
    meta = {"_parked": {"id": call.id, "cycle": cycle_id}, **call.meta}
    if is_untrusted:
        meta["_trust"] = "untrusted"  # a cycle that it is left behind in anew has a trust of its own
    return replace(call, id=names[call.id], after=tuple(names.get(id, id) for id in call.after), meta=meta)


def _filled(value: Any, look: Callable[[Expression], Any], awaited: PathIndex[bool]) -> Any:
    """Parameters with each reference replaced that has its value by now and that nothing parked is still to write."""
    if isinstance(value, str):
        if value[:1] != MARK or value[:2] == MARK * 2 or any(awaited.over(path) for path in _read({"it": value})):
            return value
        try:
            found = resolve(value, look)
        except ValueError:
            return value
        return escape(found, frozenset(marked(found)))
    if isinstance(value, Mapping):
        return {key: _filled(item, look, awaited) for key, item in value.items()}
    return [_filled(item, look, awaited) for item in value] if isinstance(value, (list, tuple)) else value


def _read(params: Mapping[str, Any]) -> list[Path]:
    """Every path that one of the references in there names."""
    return [path for found in references(params).values() for each in found for path in _paths(each)]


def _written(call: Call) -> list[Path]:
    """Every path that the call may write to."""
    return [] if call.output_path is None else _paths(parse_write(call.output_path))


def _paths(expression: Expression) -> list[Path]:
    return [path for paths in expression.alternatives for path in paths]


def _perception(approval: Approval) -> Perception:
    by = f" by {approval.decided_by}" if approval.decided_by else ""
    return Perception(
        f"approval {approval.id} of {approval.call.tool}: {approval.status}{by}",
        source="approval",
        kind=f"approval.{approval.status}",
        key=f"approval:{approval.id}:{approval.status}",
        session=approval.session,
        priority=0.7,
        trust="trusted",
    )
