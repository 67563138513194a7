"""Breakpoints of one agent: what stops its sessions, for how long, and what people change there.

A session that stands waits in a hook, so no other session waits for it. A breakpoint has hooks only while it is set.
It ends with its lease, which whoever is attached renews; a condition that fails ends it, too. In both cases the session
goes on, and it is said. An agent that stops or pauses lets all sessions go on at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from itertools import count
from math import inf
from typing import Any, Final

from msgspec import Struct

from spar.attaching import Attaching
from spar.breakpoints.changes import corrections
from spar.breakpoints.condition import Condition
from spar.breakpoints.stops import Standing, candidates, held
from spar.checks import shorten
from spar.clock import Timer
from spar.data.json_safe import shortened
from spar.data.scrub import masked
from spar.decoding import decode, encode
from spar.errors import ConflictError, SparError
from spar.events import BreakpointEnded, BreakpointLeft, BreakpointReached, StateChanged
from spar.hooks import Decision, Hook, HookContext
from spar.loop.cycle import Cycle
from spar.ports.breakpoints import BY_HAND, Breakpoint, ChangeByHand, Point, State, Stop, Until
from spar.types import Action, ActionResult, copy_with

#: The hooks of each point. That before reflect only looks.
HOOKS: Final[dict[Point, str]] = {
    "sense": "before_plan", "plan": "after_plan", "call": "before_call", "result": "result_persist",
    "reflect": "before_reflect",
}  # fmt: skip
#: Breakpoints that are set at once; ended ones that are still listed; changes of one cycle.
MOST, MOST_ENDED, MOST_CHANGES = 50, 20, 1_000
#: Bytes of a value that the note about a change has.
LARGEST_NOTED: Final = 20_000
#: Before all other hooks: these judge what was changed.
_FIRST: Final = 1_000_000


class _Set(Struct, eq=False):
    """Breakpoint. `condition` is None without one; `ends_at` is the end of its lease (monotonic seconds)."""

    name: str
    point: Point
    session: str
    condition: Condition | None
    lease: float
    by: str
    ends_at: float
    state: State = "set"
    why: str = ""
    hits: int = 0


class _Step(Struct):
    """Session that goes on by a phase, or to the cycle after this one; forgotten at `ends_at`."""

    session: str
    until: Until
    cycle_id: str
    lease: float
    ends_at: float


class _Note:
    """Note about the changes by hand of a cycle, which is made when the cycle is recorded."""

    def __init__(self, changes: tuple[ChangeByHand, ...]) -> None:
        self._changes = changes

    def __call__(self) -> dict[str, Any]:
        return {"kind": BY_HAND, "changes": [noted(change) for change in self._changes]}


class Breakpoints:
    """Attachment with the breakpoints of an agent, and the sessions that stand at them."""

    def __init__(self) -> None:
        self._set: dict[str, _Set] = {}
        self._ended: tuple[_Set, ...] = ()
        self._steps: dict[str, _Step] = {}
        self._standing: dict[str, Standing] = {}  # by id, the longest first
        self._changes: dict[str, tuple[ChangeByHand, ...]] = {}  # by cycle
        self._hooks: dict[str, Callable[[], object]] = {}  # the registered ones, by the point of the hook
        self._numbers = count(1)
        self._arrived: asyncio.Event | None = None
        self._timer: Timer | None = None

    def attach(self, agent: Attaching) -> None:
        """Attach it to an agent; its hooks come with the first breakpoint."""
        self._agent, self._core, self._services = agent, agent.core, agent.services
        agent.on(StateChanged, self._state_changed)
        agent.close(self._close)

    # -- breakpoints

    def add(self, point: Point, session: str, when: str, name: str, lease: float, by: str) -> Breakpoint:
        """Set a breakpoint and return it.

        Args: session: "" for all; when: its condition, "" for none; name: "" for one that is made; lease: in seconds.
        Raises: ValueError for a condition that cannot be read; ConflictError for a known name, or too many.
        """
        condition = Condition(when) if when.strip() else None
        name = name or next(one for number in count(1) if (one := f"{point}-{number}") not in self._set)
        if name in self._set:
            raise ConflictError(f"a breakpoint {name!r} is set already; spar break remove {name} removes it")
        if len(self._set) >= MOST:
            raise ConflictError(f"{MOST} breakpoints are set, there can be no more; spar break remove removes one")
        now = self._core.clock.monotonic()
        self._set[name] = _Set(name, point, session, condition, lease, by, now + lease)
        self._update()
        return self._shown(self._set[name], now)

    def rows(self) -> list[Breakpoint]:
        """Return the breakpoints that are set, then those that have ended lately."""
        now = self._core.clock.monotonic()
        return [self._shown(one, now) for one in (*self._set.values(), *reversed(self._ended))]

    def remove(self, name: str, by: str) -> Breakpoint:
        """Remove a breakpoint; sessions that stand at it go on. Raises: LookupError."""
        if (one := self._set.pop(name, None)) is None:
            raise LookupError(f"no breakpoint {name!r:.100} is set; set are: {', '.join(self._set) or 'none'}")
        self._let_go([stop for stop in self._standing.values() if stop.breakpoint == name], by)
        self._update()
        return self._shown(one, self._core.clock.monotonic())

    def _shown(self, one: _Set, now: float) -> Breakpoint:
        stands = tuple([stop.session for stop in self._standing.values() if stop.breakpoint == one.name])
        left = max(0.0, one.ends_at - now) if one.state == "set" else 0.0
        when = "" if one.condition is None else one.condition.text
        return Breakpoint(one.name, one.point, one.session, when, one.state, one.why, one.by, one.hits, one.lease, left,
                          stands)  # fmt: skip

    def _end(self, one: _Set, state: State, why: str) -> None:
        """End a breakpoint by itself, and say so; sessions that stand at it go on."""
        del self._set[one.name]
        one.state, one.why = state, why
        self._ended = (*self._ended, one)[-MOST_ENDED:]
        stops = [stop for stop in self._standing.values() if stop.breakpoint == one.name]
        sessions = tuple([stop.session for stop in stops])
        self._core.log.warning("breakpoint ended", agent=self._core.name, breakpoint=one.name, reason=why,
                               sessions=list(sessions))  # fmt: skip
        self._core.events.publish(BreakpointEnded(name=one.name, state=state, reason=why, sessions=sessions))
        self._let_go(stops)

    # -- whoever is attached

    def stops(self) -> list[Stop]:
        """Return where sessions stand, the longest first."""
        return [self._seen(stop) for stop in self._standing.values()]

    async def attach_to(self, session: str, wait: float) -> Stop | None:
        """Renew the leases that concern a session, and return where it stands; None if it stands nowhere.

        Args: session: "" for any; wait: the seconds to wait until it stands.
        """
        self._renew(session)
        if (stop := self._of(session)) is None and wait > 0:
            try:
                async with asyncio.timeout(wait):
                    while (stop := self._of(session)) is None:
                        self._arrived = self._arrived or asyncio.Event()
                        await self._arrived.wait()
            except TimeoutError:
                return None
        return None if stop is None else self._seen(stop)

    def change(self, id: str, part_id: str, patch: Any, by: str, reason: str) -> ChangeByHand:
        """Change what a session stands about. Raises: LookupError for an unknown stop or part, ValueError."""
        stop = self._find(id)
        changes = self._changes.get(stop.cycle.id, ())
        if len(changes) >= MOST_CHANGES:
            raise ConflictError(f"{MOST_CHANGES} changes were made in this cycle, there can be no more")
        change = stop.apply(part_id, patch, by, reason, self._core.clock.now())
        if not changes:
            stop.cycle.when_closed = (*stop.cycle.when_closed, partial(self._forget, stop.cycle.id))
        self._changes[stop.cycle.id] = (*changes, change)
        self._note(stop.cycle)
        self._core.log.info("changed by hand", agent=self._core.name, session=stop.session, cycle=stop.cycle.id,
                            at=stop.where, by=by, reason=reason)  # fmt: skip
        self._renew(stop.session)
        self._update()
        return change

    def go(self, id: str, until: Until, by: str) -> Stop:
        """Let a session go on; return where it stood. Raises: LookupError for an unknown stop."""
        stop = self._find(id)
        self._renew(stop.session)
        if until == "end":
            self._steps.pop(stop.session, None)
        else:
            now = self._core.clock.monotonic()
            self._steps[stop.session] = _Step(stop.session, until, stop.cycle.id, stop.lease, now + stop.lease)
        seen = self._seen(stop)
        self._let_go([stop], by)
        self._update()
        return seen

    def detach(self, session: str, by: str) -> list[Stop]:
        """Let a session ("": all) go on from wherever it stands; return where it stood."""
        stops = [stop for stop in self._standing.values() if session in ("", stop.session)]
        seen = [self._seen(stop) for stop in stops]
        self._steps = {key: step for key, step in self._steps.items() if session not in ("", key)}
        self._let_go(stops, by)
        self._update()
        return seen

    def _find(self, id: str) -> Standing:
        if (stop := self._standing.get(id)) is None or stop.gone.done():
            known = ", ".join(f"{one.id} (session {one.session})" for one in self._standing.values()) or "none"
            raise LookupError(f"no session stands at {id!r:.60} any more; where sessions stand: {known}")
        return stop

    def _of(self, session: str) -> Standing | None:
        stops = (stop for stop in self._standing.values() if not stop.gone.done() and session in ("", stop.session))
        return next(stops, None)

    def _seen(self, stop: Standing) -> Stop:
        return stop.shown(self._core.clock.monotonic(), self._changes.get(stop.cycle.id, ()))

    def _leased(self) -> list[_Set | _Step | Standing]:
        """Return all that has a lease."""
        return [*self._set.values(), *self._steps.values(), *self._standing.values()]

    def _renew(self, session: str) -> None:
        """Begin the leases anew that concern a session ("": all)."""
        now = self._core.clock.monotonic()
        for one in self._leased():
            if not session or one.session in ("", session):
                one.ends_at = now + one.lease

    # -- in a cycle

    def _at(self, point: Point, context: HookContext) -> Awaitable[Decision | None] | None:
        """Return what a session waits for at a point; None if nothing stops it there."""
        cycle = self._services.sessions.cycle(context.cycle_id or "")
        if cycle is None or cycle.is_stepped or self._core.state != "running":
            return None
        step = self._steps.get(context.session)
        if step is not None and (step.until == "phase" or step.cycle_id != cycle.id):
            del self._steps[context.session]
            self._update()
            return self._stand(point, context, cycle, "", step.lease)
        for one in tuple(self._set.values()):
            if one.point == point and one.session in ("", context.session) and self._stops(one, context.value, cycle):
                one.hits += 1
                return self._stand(point, context, cycle, one.name, one.lease)
        return None

    def _stops(self, one: _Set, value: Any, cycle: Cycle) -> bool:
        """Return whether the condition of a breakpoint holds; one that fails ends the breakpoint."""
        try:
            return one.condition is None or one.condition.holds(candidates(one.point, value, cycle))
        except Exception as error:
            self._end(one, "failed", f"its condition failed: {shorten(error)}")
            self._update()
            return False

    async def _stand(self, point: Point, context: HookContext, cycle: Cycle, name: str, lease: float,
                     ) -> Decision | None:  # fmt: skip
        """Let a session stand at a point until somebody lets it go on, or its lease ends."""
        core, session = self._core, context.session
        if self._changes.get(cycle.id):
            with suppress(SparError):  # the journal is being closed
                # What was changed before holds after a crash, once the session stands again.
                await core.ledger.journal.safe()
        stop = Standing(f"s{next(self._numbers)}", point, session, cycle, context.value, name, lease, core.clock.now())
        stop.ends_at = core.clock.monotonic() + lease
        if name in self._set:
            self._set[name].ends_at = stop.ends_at
        self._standing[stop.id] = stop
        self._update()
        core.log.info("breakpoint reached", agent=core.name, session=session, cycle=cycle.id, at=stop.where,
                      breakpoint=name)  # fmt: skip
        core.events.publish(BreakpointReached(name=name, stop=stop.id, where=stop.where, session=session,
                                              cycle_id=cycle.id, run_id=stop.run_id))  # fmt: skip
        if self._arrived is not None:
            self._arrived.set()
            self._arrived = None
        of = f"breakpoint {name!r}" if name else "a step"
        try:
            with held(self._services.sessions.of(session), f"{of}, {stop.where}: spar attach {session}"):
                await stop.gone
        finally:
            del self._standing[stop.id]
            self._update()
            core.log.info(
                "breakpoint left", agent=core.name, session=session, cycle=cycle.id, at=stop.where, by=stop.by
            )
            core.events.publish(BreakpointLeft(stop=stop.id, where=stop.where, session=session, cycle_id=cycle.id,
                                               by=stop.by, run_id=stop.run_id))  # fmt: skip
        return stop.decision()

    def _tell(self, context: HookContext) -> Decision | None:
        """Tell the next planner what was changed by hand, and keep the note about it."""
        changes, result = self._changes.get(context.cycle_id or "", ()), context.value
        cycle = self._services.sessions.cycle(context.cycle_id or "")
        if not changes or cycle is None or not isinstance(result, ActionResult):
            return None
        self._note(cycle)
        messages = (*result.messages, *corrections(changes))
        return Decision.rewrite(copy_with(result, messages=messages), by=changes[-1].by)

    def _note(self, cycle: Cycle) -> None:
        """Add the note about the changes to the record of a cycle, behind its other notes."""
        note = _Note(self._changes[cycle.id])
        others = [(phase, other) for phase, other in cycle.notes if not isinstance(other, _Note)]
        cycle.notes = (*others, (cycle.phase, note))

    def _forget(self, cycle_id: str) -> None:
        self._changes.pop(cycle_id, None)
        self._update()

    # -- times and hooks

    def _let_go(self, stops: Iterable[Standing], by: str = "") -> None:
        for stop in tuple(stops):
            stop.go_on(by)

    def _update(self) -> None:
        """Register the hooks that are needed now, and no others; set the timer to the end of the next lease."""
        points: set[Point] = {one.point for one in self._set.values()}
        if self._steps:
            points = set(HOOKS)
        wanted: dict[str, Hook] = {HOOKS[point]: self._hook_at(point) for point in points}
        if self._changes:
            wanted["after_act"] = self._tell
        for hook in [hook for hook in self._hooks if hook not in wanted]:
            self._hooks.pop(hook)()
        for hook, function in wanted.items():
            if hook not in self._hooks:
                self._hooks[hook] = self._core.hooks.add(hook, function, priority=_FIRST, timeout=inf)
        due = min((one.ends_at for one in self._leased()), default=inf)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._core.clock.call_at(due, self._look) if due < inf else None

    def _hook_at(self, point: Point) -> Hook:
        def breakpoint(context: HookContext) -> Awaitable[Decision | None] | None:
            return self._at(point, context)

        return breakpoint

    def _look(self) -> None:
        """End what has no lease any more."""
        now, self._timer = self._core.clock.monotonic(), None
        for one in [one for one in self._set.values() if one.ends_at <= now]:
            self._end(one, "ended", f"its lease of {one.lease:g} s is over")
        self._steps = {key: step for key, step in self._steps.items() if step.ends_at > now}
        for stop in [stop for stop in self._standing.values() if stop.ends_at <= now and not stop.gone.done()]:
            if not stop.breakpoint:  # of a breakpoint it was said
                why = f"the lease of a step, {stop.lease:g} s, is over"
                self._core.events.publish(BreakpointEnded(name="", state="ended", reason=why, sessions=(stop.session,)))
            stop.ends_at = inf
            stop.go_on()
        self._update()

    def _state_changed(self, event: StateChanged) -> None:
        """Let all sessions go on when the agent stops or pauses."""
        if event.new != "running":
            self._steps.clear()
            self._let_go(self._standing.values())

    def _close(self) -> None:
        """Remove all breakpoints, because the agent stops."""
        self._set.clear()
        self._changes.clear()
        self._state_changed(StateChanged(old="stopping", new="stopped"))
        self._update()


def noted(change: ChangeByHand) -> dict[str, Any]:
    """Return a change as the record of its cycle and the audit log have it: bounded, secrets masked."""
    values = {name: _plain(getattr(change, name)) for name in ("patch", "before", "after")}
    return {"at": change.at.isoformat(), "by": change.by, "cycle": change.cycle_id, "point": change.point,
            "part": change.part, "id": change.id, "reason": change.reason, **values}  # fmt: skip


def _plain(value: Any) -> Any:
    if isinstance(value, Action):
        value = copy_with(value, perceptions=())  # the record has them
    return shortened(masked(decode(encode(value), Any)), LARGEST_NOTED)[0]
