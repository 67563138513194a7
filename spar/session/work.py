"""The work of one session: its state, the choice of the next work, and what a fact about it leads to here."""

from __future__ import annotations

import contextlib
from itertools import islice
from typing import Any

from spar.clock import Timer
from spar.decisions.next_step import Turn, first_piece, has_run_to_begin, may_begin_run, next_step, take
from spar.facts import Fact, MessagePlaced, PerceptionAccepted, WorkHandedOut, WorkTaken
from spar.loop.cycle import STANDING, Cycle
from spar.loop.phase_runner import PhaseRunner
from spar.loop.setup import Module
from spar.loop.tasks import Wake
from spar.observe.logs import get_logger
from spar.ports.any_part import offers
from spar.ports.phases import Abandonable
from spar.protocols import Resumable, Steerable
from spar.runs.run import Run
from spar.runs.runs import FOLLOWING
from spar.session.parts import SessionParts
from spar.state.work import InterruptedState
from spar.types import Action, Perception

log = get_logger("spar.lane")


class SessionWork:
    """Session as work is given to it. A run also needs a slot from `spar.session.sessions`.

    `state` is what its facts add up to; everything else here is known to this process alone. `arrived`
    says when each waiting perception came, `handed_out` the same of interrupted work (monotonic seconds), and
    `accepted` counts the perceptions that were accepted for each sensor, by source.
    """

    __slots__ = (
        "_quiet_until",
        "accepted",
        "arrived",
        "core",
        "cycle",
        "handed_out",
        "has_slot",
        "is_open",
        "is_poll_requested",
        "is_polling",
        "is_resuming",
        "is_standing",
        "key",
        "modules",
        "not_before",
        "parts",
        "resting",
        "runner",
        "state",
        "wake",
    )  # fmt: skip

    def __init__(self, parts: SessionParts, key: str) -> None:
        core = parts.core
        self.parts, self.core = parts, core
        self.key, self.is_standing = key, key == STANDING
        self.modules = parts.setup.modules  # those of the current cycle
        self.state = core.ledger.hold(key)
        self.runner = PhaseRunner(f"{core.name}/{key}", core.clock)
        self.wake = Wake(core.clock)
        self.arrived: dict[str, float] = {}
        self.handed_out: dict[str, float] = {}
        self.accepted: dict[str, int] = {}
        self._quiet_until = 0.0  # when collected messages become a run (monotonic seconds; 0 without any)
        self.cycle: Cycle | None = None
        self.is_resuming = False  # the actor can resume calls of earlier cycles
        self.not_before = 0.0  # the earliest next cycle after a failure with `retry_after` (monotonic seconds)
        self.is_polling = True
        self.is_poll_requested = False  # a polling cycle was requested and has not begun
        #: The slot among the running runs: whether it has one; whether it could use one at once (no cycle is between
        #: taking its work and its end); the timer that offers it a slot after a wait.
        self.has_slot = False
        self.is_open = True
        self.resting: Timer | None = None

    # -- the next work

    @property
    def run(self) -> Run | None:
        """Return the current run; None without one."""
        return self.parts.runs.open_run(self.state.run) if self.state.run else None

    @property
    def waiting(self) -> int:
        """Return the number of waiting perceptions and messages. May be called from any thread."""
        return len(self.state.pushed) + len(self.state.waiting) + len(self.state.steers)

    def is_empty(self) -> bool:
        """Return whether it has no run and no waiting work."""
        state = self.state
        return not (state.run or state.pushed or state.waiting or state.steers or self.is_resuming
                    or state.interrupted or state.suspects)  # fmt: skip

    def _turn(self, cycle: Cycle | None = None) -> Turn:
        """Return the circumstances of its next step. Args: cycle: that which takes work now."""
        cycle = cycle or self.cycle
        is_stepped = cycle is not None and cycle.is_stepped
        return Turn(self.has_slot or is_stepped or not self.is_standing, self.quiet if self._quiet_until else 0.0,
                    is_stepped, self.is_resuming, self.parts.recovery.may_try)  # fmt: skip

    @property
    def has_work(self) -> bool:
        """Return whether a cycle would have work, perhaps only after a wait."""
        turn = self._turn()
        step = next_step(self.state, turn)
        return step in ("begin", "continue") or (step == "quiet" and turn.may_begin)

    @property
    def has_run_to_begin(self) -> bool:
        """Return whether a run may begin, or an interrupted one may continue, as soon as the session has a slot."""
        return has_run_to_begin(self.state, self._turn())

    @property
    def wants_slot(self) -> bool:
        """Return whether it has a run to begin or to continue, and no slot for it."""
        if self.has_slot:
            return False
        return bool(self.state.run) or self.has_run_to_begin if self.is_standing else self.has_work

    @property
    def quiet(self) -> float:
        """Return the seconds until collected messages may begin a run, since their sender may add more; 0 for none."""
        state = self.state
        if not self._quiet_until or state.run or not state.waiting:
            return 0.0
        first = state.runs[next(iter(state.waiting))]
        return max(0.0, self._quiet_until - self.core.clock.monotonic()) if first.place == "collect" else 0.0

    def wait_for_turn(self, now: float) -> float:
        """Return the seconds for which its work must still wait: for the quiet time of messages, or for
        `not_before`."""
        has_more = not self.is_standing and (self.state.pushed or self.state.run or self.is_resuming)
        quiet = self.quiet if self._quiet_until and not has_more and may_begin_run(self.state) else 0.0
        return max(self.not_before - now, quiet, 0.0)

    @property
    def has_suspects_to_try(self) -> bool:
        """Return whether it has work that may have killed the process and does not wait for other work of this
        session."""
        return bool(self.state.suspects) and first_piece(self.state, self.parts.recovery.may_try) is not None

    @property
    def since(self) -> float:
        """Return when its oldest waiting work came (monotonic seconds); 0 for resumable calls, which go first."""
        if self.is_resuming:
            return 0.0
        oldest = self.oldest
        piece = first_piece(self.state, self.parts.recovery.may_try) if self.handed_out else None
        if piece is None:
            return oldest or 0.0
        since = self.handed_out[piece.work]
        return since if oldest is None else min(oldest, since)

    @property
    def oldest(self) -> float | None:
        """Return when the oldest waiting perception or message came (monotonic seconds); None without any. May be
        called from any thread."""
        state, runs = self.state, self.parts.runs
        times: list[float] = []
        with contextlib.suppress(RuntimeError, LookupError):  # the session may take some meanwhile
            times += islice(self.arrived.values(), 1)
            # An interrupting message is first, though it came later than the second.
            for run_id in (*islice(state.steers, 1), *islice(state.waiting, 2)):
                times.append(runs.get(run_id).queued_at)
        return min(times, default=None)

    # -- new work

    def tell(self, *following: Fact) -> None:
        """Add facts about its work to the state, and do what each leads to."""
        additions, state, runs = self.core.ledger.additions, self.state, self.parts.runs
        for fact in following:
            kind = type(fact)
            additions[kind](state, fact)
            if kind in FOLLOWING:
                if kind is MessagePlaced:
                    self._placed(fact)
                FOLLOWING[kind](runs, fact)

    def _placed(self, fact: Any) -> None:
        """Note when a message was queued, and tell the actor about one for the current run."""
        run, now = self.parts.runs.get(fact.run), self.core.clock.monotonic()
        run.queued_at = run.queued_at or now
        if fact.place == "collect":
            self._quiet_until = now + self.core.settings.runs.quiet
        elif fact.place == "steer" and self.state.run and self.cycle is not None and self.cycle.phase == "act":
            self.steer(self.state.run)
        self.wake.set()

    def push(self, perception: Perception, accepted_for: str = "") -> None:
        """Queue a perception for the next cycle, unless it waits already. Args: accepted_for: the sensor that it was
        accepted for."""
        if perception.id in self.state.pushed:
            self.parts.recovery.repeated += 1
            return
        self.tell(PerceptionAccepted(session=self.key, perception=perception))
        self.arrived[perception.id] = self.core.clock.monotonic()
        if accepted_for:
            self.accepted[accepted_for] = self.accepted.get(accepted_for, 0) + 1
        self.wake.set()

    def resume_with(self, fact: WorkHandedOut) -> None:
        """Queue interrupted work for a cycle of its own."""
        self.handed_out[fact.work] = self.core.clock.monotonic()
        self.tell(fact)
        self.wake.set()

    # -- the work of a cycle

    def take_piece(self, cycle: Cycle, piece: InterruptedState) -> None:
        """Give a piece of interrupted work to a new cycle."""
        del self.handed_out[piece.work]
        cycle.items = piece.items
        self.tell(WorkTaken(session=self.key, cycle=cycle.id, run=piece.run, work=piece.work, items=piece.items))

    def take(self, cycle: Cycle) -> list[Perception]:
        """Return the perceptions of a new cycle: those pushed, and the messages of its run that no plan has answered
        yet.

        Begin the next waiting run first, if it may begin.
        """
        state = self.state
        pushed = list(state.pushed.values())
        self.tell(*take(state, cycle.id, self._turn(cycle), self.core.clock.new_id))
        self.arrived.clear()
        self.accepted.clear()
        self.is_open = False
        if state.run:
            run = self.parts.runs.get(state.run)
            cycle.run, cycle.new_messages = run.context(), run.state.new
            pushed = [*run.state.new, *pushed]
        if state.cycle is not None and state.cycle.id == cycle.id:
            cycle.items = state.cycle.items
        return pushed

    # -- what the actor is asked about its waiting calls

    @property
    def _actor(self) -> Module:
        """Return the actor of the current cycle, or of the next one between cycles."""
        return (self.modules if self.cycle is not None else self.parts.setup.modules)["act"]

    def resumed(self) -> Action | None:
        """Return an action with the calls that the actor can resume; None if there are none, or if the actor raises."""
        module = self._actor
        try:
            return module.part.resumable(self.key) if offers(module.part, Resumable) else None
        except Exception as error:
            log.warning("actor cannot tell", agent=self.core.name, part=module.name, reason=repr(error))
            return None

    def steer(self, run_id: str) -> None:
        """Have the actor start no further call of a run's plan, because a new message came after that plan."""
        module = self._actor
        try:
            if offers(module.part, Steerable):
                module.part.steer(run_id)
        except Exception as error:
            log.warning("actor cannot be steered", agent=self.core.name, part=module.name, reason=repr(error))

    async def abandon(self, run_id: str) -> None:
        """Have the actor drop the waiting calls of a run."""
        module = self.parts.setup.modules["act"]
        try:
            if offers(module.part, Abandonable):
                await module.part.abandon(run_id)
        except Exception as error:
            log.warning("actor cannot forget", agent=self.core.name, part=module.name, reason=repr(error))
