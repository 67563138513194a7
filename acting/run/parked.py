"""Calls that wait for people after their batch: their cycle ended without an answer, and they run in the one after it.

A batch stores the calls that wait for a person, together with all calls that depend on them, as one durable record of
wire calls. References whose values are known by then are filled in; the others are read from one another. When one of
the approvals has an answer, the session's next cycle executes these calls first. An approval is used by compare-and-set
before its call starts, and every other call in a record depends on such a call, so a record that is executed twice runs
nothing twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from itertools import chain
from operator import or_
from typing import Annotated, Any

from msgspec import Meta, Struct, field

from acting.approvals.decisions import Check, Fingerprinter
from acting.approvals.policy import Policy, Taint, trust_in
from acting.approvals.queue import ApprovalQueue
from acting.run.call_state import Step
from acting.run.order import CallJournalWriter
from acting.tooling.context import Question, Scope
from acting.tooling.parameters import settings_of
from spar.checks import LONGEST
from spar.clock import Clock
from spar.data.blackboard import Board
from spar.data.paths import Path, PathIndex, escape, is_reference, parse_write, references, resolve
from spar.errors import SparError
from spar.facts import CallEnded
from spar.failpoints import crashpoint
from spar.ports.rows import KeptRows
from spar.protocols import CallJournal, Host
from spar.protocols.tools import Approval as Setting
from spar.records.approvals import Approval
from spar.threads import slices_of
from spar.types import Action, Call, CallResult, Perception, Trust, replace
from spar.types.values import GRANTABLE


class ParkedCalls(Struct, frozen=True):
    """The calls that a batch parked, as wire calls in order, and by call id the approval that each waits for.

    `needs` has all approvals of the calls that it depends on, by the id of a call without an approval of its own. A
    record of an earlier version has none.
    """

    id: str
    agent: str
    session: str
    cycle_id: str
    at: datetime
    calls: list[dict[str, Any]]
    waits: dict[str, str]
    trust: Trust = "trusted"
    run_id: str | None = None
    needs: dict[str, list[str]] = {}


class Resumed(Struct, frozen=True):
    """A parked call that runs now, its record, and its question: no approval if it only depends on an approved call."""

    call: Call
    row: ParkedCalls
    question: Question


class Parking(Struct, eq=False):
    """The calls that one batch leaves without an answer, collected while it runs, in the order in which they ended.

    `all_steps` are all calls of the batch; `ended_well` returns whether the call with an id has ended well; `replayed`
    are the ids of those that the journal has as parked; `storing` is the task that stores the calls.
    """

    scope: Scope
    board: Board
    ended_well: Callable[[str], bool]
    all_steps: Sequence[Step]
    writer: CallJournalWriter | None
    steps: dict[str, Step] = field(default_factory=dict)
    replayed: set[str] = field(default_factory=set)
    storing: asyncio.Task[None] | None = None
    _needs: dict[str, frozenset[str]] = field(default_factory=dict)  # the approvals that each of them waits for
    _writers: PathIndex[frozenset[str]] = field(
        default_factory=partial(PathIndex, or_)
    )  # the same by the paths written

    def add(self, step: Step) -> None:
        """Add a call that ended as parked: it waits for an answer, or for another call that does."""
        own = step.question.approval_id
        needs = self._needs[step.id] = frozenset({own}) if own else self._awaited(step.call)
        for path in _written(step.call):
            self._writers.add(path, needs)
        self.steps[step.id] = step

    def result(self, step: Step) -> CallResult | None:
        """Return the result of a call that cannot run because it waits for a parked one; None for any other."""
        if not self.steps or not (needs := self._awaited(step.call)):
            return None
        return step.skipped(f"it waits for approval {', '.join(map(repr, sorted(needs)))}", "parked")

    def _awaited(self, call: Call) -> frozenset[str]:
        """Return the approvals that the parked calls wait for on which a call depends."""
        needs = [self._needs[id] for id in call.after if id in self._needs]
        return frozenset().union(*needs, *filter(None, map(self._writers.over, _read(call.params, call.instance))))

    def tell(self, steps: Iterable[Step]) -> None:
        """Write the ends of parked calls to the journal: they are stored elsewhere, and this batch is over."""
        if self.writer is not None:
            for step in steps:
                self.writer.tell(CallEnded, result=step.result)

    async def record(self, id: str, agent: str, at: datetime, taint: Taint) -> ParkedCalls:
        """Return the record of the calls to store, with the values known by now.

        A call that waits for the answer to an earlier cycle's question is stored there, and goes on only once.
        """
        guests = {step.question.approval_id for step in self.steps.values() if step.question.is_guest}
        stored = [step for step in self.steps.values() if guests.isdisjoint(self._needs[step.id])]
        names = _names([step.call for step in stored], id)
        run_id = self.scope.run_id or next((step.run_id for step in stored if step.run_id), None)
        scope = self.scope
        row = ParkedCalls(id, agent, scope.session, scope.cycle_id, at, [], {}, scope.trust, run_id, {})
        async for steps in slices_of(stored):
            for step in steps:
                call, name = step.call, names[step.id]
                meta = {"_parked": {"id": call.id, "cycle": scope.cycle_id}, **call.meta}
                if trust_in(call, step.scope.trust) == "untrusted" or taint.reads(call, scope):
                    meta["_trust"] = "untrusted"  # a cycle that it is left behind in anew has a trust of its own
                after = tuple(names.get(id, id) for id in call.after if not self.ended_well(id))
                if step.question.approval_id:
                    row.waits[name], params = step.question.approval_id, escape(step.params)
                else:
                    row.needs[name], params = sorted(self._needs[step.id]), self._fill_in(call.params, call.instance)
                row.calls.append(replace(call, id=name, params=params, after=after, meta=meta).to_wire())
        return row

    def _fill_in(self, value: Any, instance: str | None) -> Any:
        """Return parameters with the values of all references that no parked call is still to write."""
        if isinstance(value, str):
            if not is_reference(value) or any(map(self._writers.over, _read({"": value}, instance))):
                return value
            with suppress(ValueError):
                return escape(resolve(value, partial(self.board.look, instance=instance)))
            return value
        if isinstance(value, Mapping):
            return {key: self._fill_in(item, instance) for key, item in value.items()}
        return [self._fill_in(item, instance) for item in value] if isinstance(value, (list, tuple)) else value


_Program = Annotated[str, Meta(min_length=1)]


class ApprovalSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of an executor's approvals.

    `hold` is the seconds that a call waits for its answer before its cycle goes on without it.
    """

    hold: Annotated[float, Meta(ge=0, le=LONGEST)] = 0.0
    expires: Annotated[float, Meta(gt=0, le=LONGEST)] = 900.0
    untrusted: Setting = "ask"
    max_pending: Annotated[int, Meta(ge=1)] = 10
    grantable: Annotated[tuple[_Program, ...], Meta(description="a list of names of programs")] = GRANTABLE
    rules: Annotated[tuple[Any, ...], Meta(description="a list of tables")] = ()


class Approvals:
    """The approvals of one executor: policy, queue, taint, and the records of calls that wait for people.

    `known` has the calls that were given to a cycle to run, by id.
    """

    def __init__(self, settings: Mapping[str, Any], parts: Iterable[Any], check: Check, clock: Clock,
                 tell: Callable[..., None]) -> None:  # fmt: skip
        """Read the settings. Raises: ConfigError that names the key, what was found and what is allowed."""
        values = settings_of(ApprovalSettings, settings, "approvals", ("approval",))
        self.policy = Policy(values.untrusted, values.rules)
        for part in parts:
            if callable(allow := getattr(part, "allow_grants", None)):
                allow(values.grantable)
        self.hold, self.taint, fingerprinter = values.hold, Taint(), Fingerprinter(check, self.policy.revision, clock)
        self.queue = queue = ApprovalQueue(fingerprinter, clock, tell, expires=values.expires, most=values.max_pending)
        queue.on_answer = self._on_answer
        self._rows = KeptRows("parked", ParkedCalls, lambda row: row.agent == queue.agent)
        self._ready: dict[str, Action] = {}  # by session, what its next cycle executes first
        self.known: dict[str, Resumed] = {}
        self.resume: Callable[[str], None] = lambda session: None
        #: Whether this executor runs the batch of a cycle now.
        self.is_at_work: Callable[[str], bool] = lambda cycle_id: False
        self._journal: CallJournal | None = None
        self._is_in_hand: Callable[[str], bool] = lambda cycle_id: False

    def attach(self, host: Host, clock: Clock) -> None:
        """Store questions in the agent's memory, wake its sessions when there are answers, ask which cycles run."""
        self.queue.attach(host, clock)
        self.resume, self._journal, self._is_in_hand = host.resume, host.journal, host.is_in_hand

    async def open(self) -> None:
        """Read the records, and close the questions whose calls are over. Raises: TransientError."""
        await self.queue.open()
        is_same = self._rows.store is self.queue.store  # then its records stay known while they are read again
        await (self._rows.refresh() if is_same else self._rows.open(self.queue.store))
        await self.close_questions()
        self._take_up(())

    async def close_questions(self) -> None:
        """Make the questions of an earlier process void whose calls are in no record and in no cycle that goes on."""
        awaited, journal = self._awaited(), self._journal

        def is_over(approval: Approval) -> bool:
            cycle = approval.cycle_id
            is_open = self.is_at_work(cycle) or (journal is not None and journal.is_open(cycle))
            # A cycle in hand still asks, by the executor that this one follows.
            return not (is_open or approval.id in awaited or self._is_in_hand(cycle))

        await self.queue.withdraw("the cycle that asked broke off", is_over)

    async def take_over(self) -> None:
        """Read the changes by the executor before this one. Raises: TransientError."""
        await self.queue.refresh()
        before = set(self._rows.values)
        await self._rows.refresh()
        self._take_up(before)

    def _take_up(self, before: Collection[str]) -> None:
        """Wake the sessions of records that were not there before and have an answer; forget calls of none."""
        rows = self._rows.values
        self.known = {id: resumed for id, resumed in self.known.items() if resumed.row.id in rows}
        self._ready.clear()
        for row in [row for id, row in rows.items() if id not in before and self._has_answer(row)]:
            self._go_on(row.session)

    def resumable(self, session: str) -> Action | None:
        """Return the action that this session's next cycle executes first; the same until something changes."""
        if session not in self._ready:
            rows = [row for row in filter(self._has_answer, self._rows.values.values()) if row.session == session]
            if not rows:
                return None
            self._ready[session] = self._action(rows)
        return self._ready[session]

    def recognize(self, step: Step) -> None:
        """Give a parked call that runs now its question, trust and run back; not another call with the same id."""
        call, resumed = step.call, self.known.get(step.id)
        if resumed is not None and (resumed.call.tool, resumed.call.params) == (call.tool, call.params):
            step.question, step.run_id = resumed.question, resumed.row.run_id or step.run_id
            step.scope = replace(step.scope, trust=resumed.row.trust)

    async def leave_behind(self, parking: Parking) -> None:
        """Store the calls that a batch leaves at its end, and drop the records and questions of those that have ended.

        That is done once, whether the batch is cancelled meanwhile or not: a store may take also what nobody waits for.
        """
        if parking.storing is None:
            parking.storing = self.queue.tasks.start(self._leave_behind(parking), "calls that wait for people")
        await asyncio.shield(parking.storing)

    async def _leave_behind(self, parking: Parking) -> None:
        """Store the calls; their ends are written to the journal together with that. Those that cannot be stored are
        denied, and their approvals become void."""
        if any(row.cycle_id == parking.scope.cycle_id for row in self._rows.values.values()):
            for id in parking.replayed:  # an earlier process has stored them
                del parking.steps[id]
        if parking.steps:
            try:
                row = await parking.record(self._rows.new_id("p"), self.queue.agent, self.queue.clock.now(), self.taint)
                for approval in row.waits.values():
                    await self.queue.park(approval)
                crashpoint("approval.parking")
                parking.tell(parking.steps.values())
                if row.waits:
                    await self._rows.add(row)
                    crashpoint("approval.parked")
                    if self._has_answer(row):  # it came while this was written
                        self._go_on(row.session)
            except (SparError, ValueError, TypeError, LookupError) as error:
                why = f"it could not be kept until its answer: {error}"
                async for steps in slices_of([*parking.steps.values()]):
                    for step in steps:
                        step.result = step.denied(why)
                    parking.tell(steps)
        await self._settle(parking.scope, parking.all_steps)

    def waiting_runs(self) -> Collection[str]:
        """Return the ids of the runs with parked calls or open questions."""
        runs = {row.run_id for row in self._rows.values.values()}
        return {run_id for run_id in runs.union(row.run_id for row in self.queue.unsettled) if run_id is not None}

    async def abandon(self, run_id: str) -> None:
        """Drop the parked calls and questions of a run. Raises: TransientError."""
        await self._end(lambda row: row.run_id == run_id)

    async def end_conversation(self, session: str) -> None:
        """Drop the parked calls and questions of a session's runs. Raises: TransientError."""
        await self._end(lambda row: row.session == session and row.run_id is not None)

    async def _end(self, is_ended: Callable[[ParkedCalls | Approval], bool]) -> None:
        for row in list(filter(is_ended, self._rows.values.values())):
            await self._forget(row)
        await self.queue.withdraw("its run was ended", is_ended)

    # -- the end of a batch

    async def _settle(self, scope: Scope, steps: Iterable[Step]) -> None:
        """Make the questions of a batch void whose calls have ended, also of those that an earlier process asked, and
        drop the records of which no call waits any more or whose calls were parked again."""
        resumed_steps = [(step, resumed) for step in steps if (resumed := self.known.get(step.id)) is not None]
        over, awaited = {step.id for step in steps if _is_over(step)}, self._awaited()
        # The tool of a resumed call is gone, or a hook or a rule refuses it: so it would end in every later cycle.
        lost = {
            resumed.question.approval_id
            for step, resumed in resumed_steps
            if step.id in over and resumed.question.approval_id in (step.question.approval_id, step.question.allowed)
        }

        def is_over(approval: Approval) -> bool:
            is_own = approval.cycle_id == scope.cycle_id and approval.call.id in over and approval.id not in awaited
            return is_own or approval.id in lost

        await self.queue.withdraw("its call ended without it", is_over)
        again = {step.question.own_id for step in steps if step.result and step.result.reason == "parked"}
        waiting = {approval.id for approval in self.queue.unsettled} - again
        with suppress(SparError):  # executed again it runs nothing twice
            for id in {resumed.row.id for _, resumed in resumed_steps}:
                row = self._rows.values.get(id)
                if row is not None and waiting.isdisjoint(row.waits.values()):
                    await self._forget(row)

    # -- inside

    def _awaited(self) -> set[str]:
        """Return the ids of the approvals that recorded calls wait for."""
        return {id for row in self._rows.values.values() for id in row.waits.values()}

    async def _forget(self, row: ParkedCalls) -> None:
        await self._rows.drop(row.id)
        self.known = {id: resumed for id, resumed in self.known.items() if resumed.row.id != row.id}
        self._ready.pop(row.session, None)

    def _on_answer(self, approval: Approval) -> None:
        if approval.is_parked:
            self._go_on(approval.session)

    def _go_on(self, session: str) -> None:
        self._ready.pop(session, None)
        self.resume(session)

    def _has_answer(self, row: ParkedCalls) -> bool:
        return any(self._status(approval) != "pending" for approval in row.waits.values())

    def _status(self, approval: str) -> str:
        """Return the status of an approval; "" for one whose row is gone."""
        row = self.queue.known(approval)
        return "" if row is None else row.status

    def _action(self, rows: list[ParkedCalls]) -> Action:
        calls, perceptions = list[Call](), []
        for row in rows:
            begun = set[str]()
            if self._journal is None:  # it knows which of them had begun, and goes on with their cycle
                begun = {approval for approval in row.waits.values() if self._status(approval) in ("", "used")}
            for call in map(Call.from_wire, row.calls):
                own = row.waits.get(call.id, "")
                is_unclear = not own and not begun.isdisjoint(row.needs.get(call.id, row.waits.values()))
                self.known[call.id] = Resumed(call, row, Question(own, is_unclear=is_unclear))
                calls.append(call)
            answered = [approval for approval in map(self.queue.known, row.waits.values()) if approval]
            perceptions += [_perception(approval) for approval in answered if approval.status != "pending"]
        tools = ", ".join(dict.fromkeys(call.tool for call in calls))
        return Action(tuple(calls), f"go on with {tools}", perceptions=tuple(perceptions), trust="trusted")


def _is_over(step: Step) -> bool:
    """Return whether a call will not run any more: it was not cut off, and waits for nobody."""
    return step.result is not None and step.result.status != "cancelled" and step.result.reason != "parked"


def _first_id(call: Call) -> str:
    """Return the id of a call in the plan, also of one that was parked before."""
    return (call.id.rpartition("~")[0] if "_parked" in call.meta else "") or call.id


def _names(calls: Iterable[Call], id: str) -> dict[str, str]:
    """Return the ids of calls in a record by their ids in the batch: calls of several plans may have one first id."""
    names, taken = dict[str, str](), set[str]()
    for call in calls:
        name = f"{_first_id(call)}~{id}"
        while name in taken:
            name = f"{name}~{id}"
        names[call.id] = name
        taken.add(name)
    return names


def _perception(approval: Approval) -> Perception:
    by = f" by {approval.decided_by}" if approval.decided_by else ""
    text = f"approval {approval.id} of {approval.call.tool}: {approval.status}{by}"
    kind, key = f"approval.{approval.status}", f"approval:{approval.id}:{approval.status}"
    return Perception(text, "approval", kind, key=key, session=approval.session, priority=0.7, trust="trusted")


# -- which call reads what another one writes


def _read(params: Mapping[str, Any], instance: str | None = None) -> Iterator[Path]:
    """Yield every path that a reference in the parameters names; for an instance, the path of its own values too."""
    for expression in chain.from_iterable(references(params).values()):
        for path in expression.paths:
            yield path
            if instance is not None:
                yield (f"†{instance}", *path)  # no kind begins with this sign


def _written(call: Call) -> list[Path]:
    """Return every path that the call may write to, as `_read` yields them."""
    paths = [] if call.output_path is None else parse_write(call.output_path).paths
    return paths if call.instance is None else [(f"†{call.instance}", *path) for path in paths]
