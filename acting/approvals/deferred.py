"""Deferred calls: their cycle ended without an answer, and they run in the cycle after the answer.

A batch stores the calls that wait for a person, together with all calls that depend on them, as one durable record of
wire calls. References whose values are known by then are filled in; the others are read from one another. When one of
the approvals has an answer, the session's next cycle executes these calls first. An approval is used by compare-and-set
before its call starts, and every other call in a record depends on such a call, so a record that is executed twice runs
nothing twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from acting.approvals.parking import ParkedStep, Parking, read_paths, written_paths
from acting.approvals.policy import trust_in
from acting.approvals.queue import ApprovalQueue
from acting.approvals.records import Rows
from acting.approvals.taint import Taint
from acting.calls import Scope
from spar.data.blackboard import Board
from spar.data.dataflow import dependants
from spar.failpoints import crashpoint
from spar.protocols import CallJournal, Host
from spar.records.approvals import Approval
from spar.threads import in_slices
from spar.types import Action, Call, Perception, Trust, replace

_GOES_ON = ("cancelled", "skipped")  # the statuses after which a call may still run


class ParkedCalls(Struct, frozen=True):
    """The calls that a batch parked, as wire calls in order, and by call id the approval that each waits for."""

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
    """A parked call that runs now: its record, its approval ("" if it only depends on an approved call), trust and run.

    `is_unclear` says that it depends on a call whose approval was used before, so it may have run then.
    """

    call: Call
    record: str
    approval: str
    trust: Trust
    is_unclear: bool = False
    run_id: str | None = None


class Parked:
    """The records of one executor. `known` has the calls that were given to a cycle to run, by id."""

    def __init__(self, queue: ApprovalQueue, taint: Taint) -> None:
        self._queue, self._taint = queue, taint
        self._rows = Rows("parked", ParkedCalls, lambda row: row.agent == queue.agent)
        self._actions: dict[str, Action] = {}
        self._ready: set[str] = set()  # sessions with parked calls that can run
        self.known: dict[str, Resumed] = {}
        self.resume: Callable[[str], None] = lambda session: None
        self._journal: CallJournal | None = None
        self._is_in_hand: Callable[[str], bool] = lambda cycle_id: False
        queue.on_answer = self._on_answer

    def attach(self, host: Host) -> None:
        """Take the host's functions to wake a session and to ask which cycles still run, and its journal."""
        self.resume, self._journal, self._is_in_hand = host.resume, host.journal, host.is_in_hand

    async def open(self) -> None:
        """Read the records, and close the questions whose calls are over. Raises: TransientError."""
        await self._queue.open()
        await self._rows.open(self._queue.store)
        self._actions, self._ready, self.known = {}, set(), {}
        await self.close_orphans()
        for row in self._rows.values.values():
            if self._has_answer(row):
                self._action([row])  # a cycle that was cut off with these calls in hand goes on with them by itself
                self._go_on(row.session)

    async def close_orphans(self) -> None:
        """Make the questions of an earlier process void whose calls are in no record and in no cycle that goes on."""
        awaited = self._awaited()
        for approval in self._queue.unsettled:
            # A cycle in hand still asks, by the executor that this one follows.
            if not (
                approval.id in awaited
                or self._queue.was_asked_here(approval.id)
                or (self._journal is not None and self._journal.is_open(approval.cycle_id))
                or self._is_in_hand(approval.cycle_id)
            ):
                await self._queue.withdraw(approval.id, "the cycle that asked broke off")

    async def close_questions(self, scope: Scope, steps: Sequence[ParkedStep]) -> None:
        """Make the questions void that calls of a batch, perhaps in an earlier process, have asked and left open."""
        over = [
            step.call.id
            for step in steps
            if step.result is not None and (step.result.status not in _GOES_ON or step.result.reason == "steered")
        ]
        own, awaited = {(scope.cycle_id, id) for id in over}, self._awaited()
        for approval in self._queue.unsettled:
            if (approval.cycle_id, approval.call.id) in own and approval.id not in awaited:
                await self._queue.withdraw(approval.id, "its call has ended")

    async def take_over(self) -> None:
        """Read the changes by the executor before this one. Raises: TransientError."""
        await self._queue.refresh()
        known = set(self._rows.values)
        await self._rows.refresh()
        changed = known.symmetric_difference(self._rows.values)
        for call_id in [call_id for call_id, resumed in self.known.items() if resumed.record not in self._rows.values]:
            del self.known[call_id]
        if changed:
            self._actions.clear()
        for id in changed:
            row = self._rows.values.get(id)
            if row is not None and self._has_answer(row):
                self._go_on(row.session)

    def resumable(self, session: str) -> Action | None:
        """Return the action that this session's next cycle executes first; the same until something changes."""
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
        """Return the record of a parked call that runs now; None for any other call, even with the same id.

        Its tool may prescribe other things than when it was left behind.
        """
        resumed = self.known.get(call.id)
        is_it = resumed is not None and (resumed.call.tool, resumed.call.params) == (call.tool, call.params)
        return resumed if is_it else None

    async def leave(self, parking: Parking[Any], scope: Scope, board: Board, ended_well: Callable[[str], bool],
                    tell: Callable[[], object]) -> None:  # fmt: skip
        """Store the calls that a batch leaves. `tell` is called just before; its writes are stored together with them.

        Raises: ValueError when it is too large; TransientError.
        """
        untrusted = {step.call.id async for step in in_slices(parking.steps) if self._is_untrusted(step.call, scope)}
        calls, waits = await parking.calls(board, ended_well)
        if not waits:
            tell()
            return
        resumed = (self.known.get(step.call.id) for step in parking.steps)
        run_id = scope.run_id or next((earlier.run_id for earlier in resumed if earlier is not None), None)
        for approval in waits.values():
            await self._queue.park(approval)
        crashpoint("approval.parking")
        id = self._rows.new_id("p")
        names = {call.id: _name(call, id) for call in calls}
        wires = [
            _renamed(call, names, scope.cycle_id, is_untrusted=call.id in untrusted).to_wire()
            async for call in in_slices(calls)
        ]
        tell()
        await self._rows.add(ParkedCalls(
            id, self._queue.agent, scope.session, scope.cycle_id, self._queue.clock.now(), wires,
            {names[call_id]: approval for call_id, approval in waits.items()}, scope.trust, run_id,
        ))  # fmt: skip
        crashpoint("approval.parked")
        if self._has_answer(self._rows.values[id]):  # it came while this was written
            self._go_on(scope.session)

    async def settle(self, steps: Sequence[ParkedStep]) -> None:
        """Drop the records whose calls have all ended or were parked again. Raises: TransientError."""
        records = set()
        for step in steps:
            if (resumed := self.known.get(step.call.id)) is None:
                continue
            records.add(resumed.record)
            is_it = step.question.approval_id == resumed.approval or self.of(step.call) is resumed
            if resumed.approval and is_it and step.result is not None and step.result.status not in _GOES_ON:
                # Its tool is gone, or a hook or a rule refuses it: it would end like this in every later cycle.
                await self._queue.void(resumed.approval, "its call ended without it")
        again = {step.question.own_id for step in steps if step.result and step.result.reason == "parked"}
        for id in records:
            row = self._rows.values.get(id)
            if row is None or not all(approval in again or self._is_over(approval) for approval in row.waits.values()):
                continue
            await self._forget(row)

    def own_approval(self, step: ParkedStep) -> str:
        """Return the approval that becomes void if this call does not start; "" if another call asked for it."""
        resumed = self.of(step.call)
        if resumed is not None:
            return resumed.approval
        return step.question.own_id

    def runs(self) -> Collection[str]:
        """Return the ids of the runs with parked calls or open questions."""
        rows = {row.run_id for row in self._rows.values.values()}
        return {
            run_id for run_id in rows.union(approval.run_id for approval in self._queue.unsettled) if run_id is not None
        }

    async def abandon(self, run_id: str) -> None:
        """Drop the parked calls and questions of a run. Raises: TransientError."""
        for row in [row for row in self._rows.values.values() if row.run_id == run_id]:
            await self._forget(row)
        for approval in self._queue.unsettled:
            if approval.run_id == run_id:
                await self._queue.void(approval.id, "its run was ended")

    async def end_conversation(self, session: str) -> None:
        """Drop the parked calls and questions of a session's runs. Raises: TransientError."""
        rows = self._rows.values.values()
        for run_id in {row.run_id for row in rows if row.session == session and row.run_id is not None}:
            await self.abandon(run_id)

    # -- inside

    def _awaited(self) -> set[str]:
        """Return the ids of the approvals that recorded calls wait for."""
        return {id for row in self._rows.values.values() for id in row.waits.values()}

    async def _forget(self, row: ParkedCalls) -> None:
        await self._rows.drop(row.id)
        for wire in row.calls:
            resumed = self.known.get(wire.get("_id", ""))
            if resumed is not None and resumed.record == row.id:
                del self.known[resumed.call.id]
        self._actions.pop(row.session, None)

    def _is_untrusted(self, call: Call, scope: Scope) -> bool:
        resumed = self.of(call)
        trust = trust_in(call, scope.trust if resumed is None else resumed.trust)
        return trust == "untrusted" or self._taint.reads(call, scope)

    def _on_answer(self, approval: Approval) -> None:
        for row in self._rows.values.values():
            if approval.id in row.waits.values():
                self._go_on(row.session)

    def _go_on(self, session: str) -> None:
        self._ready.add(session)
        self._actions.pop(session, None)
        self.resume(session)

    def _has_answer(self, row: ParkedCalls) -> bool:
        return any(
            approval is None or approval.status != "pending" for approval in map(self._queue.known, row.waits.values())
        )

    def _is_over(self, approval: str) -> bool:
        row = self._queue.known(approval)
        return row is None or row.status not in ("pending", "approved")

    def _was_used(self, approval: str) -> bool:
        row = self._queue.known(approval)
        return row is None or row.status == "used"

    def _action(self, rows: list[ParkedCalls]) -> Action:
        calls, perceptions = [], []
        for row in rows:
            mine = [Call.from_wire(wire) for wire in row.calls]
            # A journal knows which of them had begun: it goes on with their cycle.
            is_known = self._journal is not None
            begun = set() if is_known else {id for id, approval in row.waits.items() if self._was_used(approval)}
            unclear = _depending(mine, begun) if begun else begun
            for call in mine:
                is_unclear = call.id in unclear
                self.known[call.id] = Resumed(call, row.id, row.waits.get(call.id, ""), row.trust, is_unclear,
                                              row.run_id)  # fmt: skip
            calls += mine
            answered = [approval for approval in map(self._queue.known, row.waits.values()) if approval]
            perceptions += [_perception(approval) for approval in answered if approval.status != "pending"]
        tools = ", ".join(dict.fromkeys(call.tool for call in calls))
        return Action(tuple(calls), f"go on with {tools}", perceptions=tuple(perceptions), trust="trusted")


def _name(call: Call, record: str) -> str:
    """Return an id that no call of a later plan has."""
    before = call.meta.get("_parked")
    first = before.get("id") if isinstance(before, Mapping) else None
    return f"{first if isinstance(first, str) else call.id}~{record}"


def _depending(calls: list[Call], on: set[str]) -> set[str]:
    """Return the ids of the calls that depend on one of these, directly or through others."""
    return dependants(on, ((call.id, call.after, read_paths(call.params), written_paths(call)) for call in calls))


def _renamed(call: Call, names: Mapping[str, str], cycle_id: str, *, is_untrusted: bool) -> Call:
    meta = {"_parked": {"id": call.id, "cycle": cycle_id}, **call.meta}
    if is_untrusted:
        meta["_trust"] = "untrusted"  # a cycle that it is left behind in anew has a trust of its own
    return replace(call, id=names[call.id], after=tuple(names.get(id, id) for id in call.after), meta=meta)


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
