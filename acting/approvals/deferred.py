"""Calls that nobody answered in time: their cycle goes on without them, and they go on in the cycle after the answer.

A batch leaves behind the calls that wait for a person together with all that depends on them, as a durable record of
wire calls: what they read and stood there by then is filled in, the rest they read from one another. Once one of the
approvals has an answer, the session's next cycle is given them again, before anything new. An approval is used by
compare-and-set before its call starts, and everything in a record depends on such a call, so a record that is executed
twice runs nothing twice.
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
from spar.protocols import Host
from spar.records.approvals import Approval
from spar.records.journal import CallJournal
from spar.types import Action, Call, Perception, Trust, replace

_GOES_ON = ("cancelled", "skipped")  # with what a call has not come to its end


class ParkedCalls(Struct, frozen=True):
    """The calls that a batch left behind, as wire calls in order, and by call id the approval that each waits for."""

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


class Parked:
    """The records of one executor. `known` holds the calls that were handed out to go on, by id."""

    def __init__(self, queue: ApprovalQueue, taint: Taint) -> None:
        self._queue, self._taint = queue, taint
        self._rows = Rows("parked", ParkedCalls, lambda row: row.agent == queue.agent)
        self._actions: dict[str, Action] = {}
        self._ready: set[str] = set()  # sessions that have something to go on with
        self.known: dict[str, Resumed] = {}
        self.resume: Callable[[str], None] = lambda session: None
        self._journal: CallJournal | None = None
        self._is_in_hand: Callable[[str], bool] = lambda cycle_id: False
        queue.on_answer = self._answered

    def attach(self, host: Host) -> None:
        """Wake the agent's sessions when there are answers; know which cycles go on by themselves."""
        self.resume, self._journal, self._is_in_hand = host.resume, host.journal, host.is_in_hand

    async def open(self) -> None:
        """Read what is kept; questions whose calls nobody holds any more are void. Raises: TransientError."""
        await self._queue.open()
        await self._rows.open(self._queue.store)
        self._actions, self._ready, self.known = {}, set(), {}
        awaited = {id for row in self._rows.values.values() for id in row.waits.values()}
        for approval in self._queue.unsettled:
            is_gone_on_with = self._journal is not None and self._journal.is_open(approval.cycle_id)
            # A cycle in hand still asks, by the executor that this one follows.
            if approval.id not in awaited and not is_gone_on_with and not self._is_in_hand(approval.cycle_id):
                await self._queue.void(approval.id, "the cycle that asked broke off")
        for row in self._rows.values.values():
            if self._has_answer(row):
                self._action([row])  # a cycle that was cut off with these calls in hand goes on with them by itself
                self._go_on(row.session)

    async def take_over(self) -> None:
        """Take up what the executor before this one has left behind or settled meanwhile. Raises: TransientError."""
        await self._queue.refresh()
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
        """Return the record of a call that goes on; None for any other, also if it goes by the same id.

        Its tool may prescribe other things than when it was left behind.
        """
        found = self.known.get(call.id)
        is_it = found is not None and (found.call.tool, found.call.params) == (call.tool, call.params)
        return found if is_it else None

    async def leave(self, parking: Parking[Any], scope: Scope, board: Board, ended_well: Callable[[str], bool],
                    tell: Callable[[], object]) -> None:  # fmt: skip
        """Keep what a batch leaves behind; `tell` is called right before, what it writes down is kept with it.

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
            await self._queue.park(approval)
        crashpoint("approval.parking")
        id = self._rows.new_id("p")
        names = {call.id: _name(call, id) for call in calls}
        wires = [_renamed(call, names, scope.cycle_id, is_untrusted=call.id in untrusted).to_wire() for call in calls]
        tell()
        await self._rows.add(ParkedCalls(
            id, self._queue.agent, scope.session, scope.cycle_id, self._queue.clock.now(), wires,
            {names[call_id]: approval for call_id, approval in waits.items()}, scope.trust, run_id,
        ))  # fmt: skip
        crashpoint("approval.parked")
        if self._has_answer(self._rows.values[id]):  # it came while this was written
            self._go_on(scope.session)

    async def settle(self, steps: Sequence[ParkedStep]) -> None:
        """Forget the records whose calls have come to their end, or were left behind anew. Raises: TransientError."""
        records = set()
        for step in steps:
            if (found := self.known.get(step.call.id)) is None:
                continue
            records.add(found.record)
            is_it = step.approval_id == found.approval or self.of(step.call) is found
            if found.approval and is_it and step.result is not None and step.result.status not in _GOES_ON:
                # Its tool is gone, or a hook or a rule is against it: it would end like this in every cycle to come.
                await self._queue.void(found.approval, "its call ended without it")
        again = {
            step.approval_id for step in steps if step.result and step.result.reason == "parked" and not step.is_guest
        }
        for id in records:
            row = self._rows.values.get(id)
            if row is None or not all(each in again or self._is_over(each) for each in row.waits.values()):
                continue
            await self._forget(row)

    def own_approval(self, step: ParkedStep) -> str:
        """The approval of which nothing is to come if this call does not start; "" if that is another one's."""
        resumed = self.of(step.call)
        if resumed is not None:
            return resumed.approval
        return "" if step.is_guest else step.approval_id

    async def refuse(self, approval: str, why: str) -> None:
        """Nothing comes of this approval. Never raises for a store that fails: at the next start it is void."""
        try:
            await self._queue.void(approval, why)
        except Exception:
            pass

    def runs(self) -> Collection[str]:
        """Return the ids of the runs that left calls behind, or whose questions nobody has settled."""
        rows = {row.run_id for row in self._rows.values.values()}
        return {run_id for run_id in rows.union(each.run_id for each in self._queue.unsettled) if run_id is not None}

    async def abandon(self, run_id: str) -> None:
        """Nothing of this run is to go on. Raises: TransientError."""
        for row in [row for row in self._rows.values.values() if row.run_id == run_id]:
            await self._forget(row)
        for approval in self._queue.unsettled:
            if approval.run_id == run_id:
                await self._queue.void(approval.id, "its run was ended")

    async def end_conversation(self, session: str) -> None:
        """Nothing of this session's runs is to go on. Raises: TransientError."""
        rows = self._rows.values.values()
        for run_id in {row.run_id for row in rows if row.session == session and row.run_id is not None}:
            await self.abandon(run_id)

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
        return any(found is None or found.status != "pending" for found in map(self._queue.known, row.waits.values()))

    def _is_over(self, approval: str) -> bool:
        found = self._queue.known(approval)
        return found is None or found.status not in ("pending", "approved")

    def _was_used(self, approval: str) -> bool:
        found = self._queue.known(approval)
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
            answered = [found for found in map(self._queue.known, row.waits.values()) if found]
            perceptions += [_perception(found) for found in answered if found.status != "pending"]
        tools = ", ".join(dict.fromkeys(call.tool for call in calls))
        return Action(tuple(calls), f"go on with {tools}", perceptions=tuple(perceptions), trust="trusted")


def _name(call: Call, record: str) -> str:
    """An id that no call of a later plan has."""
    before = call.meta.get("_parked")
    first = before.get("id") if isinstance(before, Mapping) else None
    return f"{first if isinstance(first, str) else call.id}~{record}"


def _depending(calls: list[Call], on: set[str]) -> set[str]:
    """The ids of the calls that depend on one of these, directly or through others."""
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
