"""Sessions that stand at a point of a cycle: what is seen there, what is changed, and when they go on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final

from spar.breakpoints.changes import PARTS, changed, named
from spar.hooks import Decision
from spar.loop.cycle import Cycle
from spar.ports.breakpoints import ChangeByHand, Point, Stop
from spar.types import Action, ActionResult, Call, CallResult, Perception

#: The words for each point.
WHERE: Final[dict[Point, str]] = {
    "sense": "after sense", "plan": "after plan", "call": "before the call of {}", "result": "after the result of {}",
    "reflect": "before reflect",
}  # fmt: skip


@contextmanager
def held(session: Any, where: str) -> Iterator[None]:
    """Let a session stand still in its cycle: others use its slot, and no deadline and no limit of its run goes on.

    Args: session: a `spar.session.sessions.Session`; where: where it stands, as a sentence for people.
    """
    monotonic, cycle, run, go_on = session.monotonic, session.cycle, session.run, session.runner.hold()
    if not session.stands:
        session.stands_since = monotonic()
        session.sessions.lend_slot(session)
        if run is not None:
            run.stop_timer()
    session.stands = (*session.stands, where)
    session.parts.requests.notify()
    try:
        yield
    finally:
        go_on()
        at = session.stands.index(where)
        session.stands = (*session.stands[:at], *session.stands[at + 1 :])
        if not session.stands:
            session.sessions.take_slot_back(session)
            seconds = monotonic() - session.stands_since
            if cycle is not None:
                cycle.held += seconds
                cycle.started += seconds
                cycle.phase_began += seconds
            if run is not None and session.run is run:
                session.parts.runs.timers.let_pass(run, seconds)


class Standing:
    """Session that stands at a point. `value` is what the point is about; changes by hand replace it.

    Attributes: breakpoint: the name of its breakpoint, "" after a step; by: who let it go on; ends_at: when it goes on
        by itself (monotonic seconds); gone: is done once it goes on.
    """

    __slots__ = ("breakpoint", "by", "change", "cycle", "ends_at", "gone", "id", "lease", "point", "run_id", "session",
                 "since", "value")  # fmt: skip

    def __init__(self, id: str, point: Point, session: str, cycle: Cycle, value: Any, breakpoint: str, lease: float,
                 since: datetime) -> None:  # fmt: skip
        self.id, self.point, self.session, self.cycle, self.value = id, point, session, cycle, value
        self.breakpoint, self.lease, self.since = breakpoint, lease, since
        self.run_id = None if cycle.run is None else cycle.run.id
        self.ends_at, self.by = float("inf"), ""
        self.change: ChangeByHand | None = None  # the latest
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def where(self) -> str:
        """Return where it stands, in words."""
        return WHERE[self.point].format(self.call.tool if self.call is not None else "")

    @property
    def call(self) -> Call | None:
        """Return the call that the point is about; None for none."""
        value = self.value
        return value if isinstance(value, Call) else value.call if isinstance(value, CallResult) else None

    def go_on(self, by: str = "") -> None:
        """Let it go on. Args: by: who does so; "" for nobody."""
        if not self.gone.done():
            self.by = by
            self.gone.set_result(None)

    def apply(self, id: str, patch: Any, by: str, reason: str, at: datetime) -> ChangeByHand:
        """Change what the point is about, and return the change. Raises: ValueError, LookupError."""
        part = PARTS.get(self.point)
        if part is None:
            raise ValueError(f"nothing can be changed {self.where}; it can at: {', '.join(PARTS)}")
        if self.call is not None:
            id = self.call.id
        elif id:
            id = named(part, self.value, id)
        before, after = self.value, changed(part, self.value, id, patch, by, self.session)
        self.value = after
        self.change = ChangeByHand(at, by, self.cycle.id, self.point, part, id, patch, before, after, reason)
        return self.change

    def decision(self) -> Decision | None:
        """Return what the hooks of the point are to do: to take the changed value, None if nothing was changed."""
        change = self.change
        return None if change is None else Decision.rewrite(self.value, change.reason, change.by)

    def shown(self, now: float, changes: Sequence[ChangeByHand]) -> Stop:
        """Return what is seen of it. Args: now: monotonic seconds; changes: those in its cycle."""
        cycle, value = self.cycle, self.value
        is_planned = self.point != "sense"
        results = value.results if isinstance(value, ActionResult) else ()
        return Stop(
            self.id, self.session, cycle.id, self.run_id, cycle.phase, self.point, self.where, self.breakpoint,
            self.since, max(0.0, self.ends_at - now),
            tuple(value if self.point == "sense" else cycle.perceptions),
            value if self.point == "plan" else cycle.written_action if is_planned else None,
            self.call, (value,) if isinstance(value, CallResult) else tuple(results), tuple(changes),
        )  # fmt: skip


def candidates(point: Point, value: Any, cycle: Cycle) -> Iterator[dict[str, Any]]:
    """Yield the tables of values of which one must meet the condition of a breakpoint: one for each perception, call
    or result that the point is about, at least one."""
    common = {"session": cycle.session, "run": None if cycle.run is None else cycle.run.id, "cycle": cycle.id}
    if point == "sense":
        yield from ({**common, **_of_perception(one)} for one in value or (Perception(),))
    elif point == "plan":
        plan = value if isinstance(value, Action) else Action()
        common |= {"goal": plan.goal, "output": plan.output, "reason": plan.reason}
        yield common
        yield from ({**common, **_of_call(call)} for call in plan.calls)
    elif point == "call":
        yield {**common, **_of_call(value)}
    else:
        results = value.results if isinstance(value, ActionResult) else (value,)
        yield common
        yield from ({**common, **_of_result(result)} for result in results)


def _of_perception(perception: Perception) -> dict[str, Any]:
    return {"kind": perception.kind, "source": perception.source, "subject": perception.subject,
            "intent": perception.intent, "text": perception.text, "priority": perception.priority,
            "trust": perception.trust, "attributes": perception.attributes}  # fmt: skip


def _of_call(call: Call) -> dict[str, Any]:
    return {"tool": call.tool, "params": call.params} | ({"reason": call.reason} if call.reason else {})


def _of_result(result: CallResult) -> dict[str, Any]:
    return {**_of_call(result.call), "status": result.status, "output": result.output, "attempts": result.attempts,
            "error": None if result.fault is None else result.fault.message}  # fmt: skip
