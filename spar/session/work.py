"""The work of one session: its state, the choice of the next work, and what a fact about it leads to here."""

from __future__ import annotations

import contextlib
from itertools import islice
from typing import Any

from msgspec.structs import asdict

from spar.clock import Timer, Wake
from spar.data.reply import End
from spar.decisions.finish import finish
from spar.decisions.next_step import Turn, first_piece, has_run_to_begin, may_begin_run, next_step, take
from spar.facts import CycleClosed, PerceptionAccepted, WorkHandedOut, WorkTaken
from spar.failpoints import armed, crashpoint
from spar.hooks import REWRITABLE, HookContext, Outcome
from spar.loop.cycle import LONGEST_DEFERRAL, STANDING, Cycle, Skip
from spar.loop.phase_runner import PhaseRunner
from spar.loop.setup import Module, pause_after, result_of
from spar.ports.phases import OptionalActor
from spar.runs.ends import EndedRun
from spar.runs.runs import Run
from spar.session.parts import SessionParts
from spar.types import Action, ActionResult, Perception, answering

#: The longest wait (seconds) after a cycle that a hook denied, while work waits.
LONGEST_REFUSAL = 60.0


class SessionWork:
    """Session as work is given to it. A run also needs a slot from `spar.session.sessions`.

    `state` is what its facts add up to; everything else here is known to this process alone. `modules` and `steps` are
    those of the current cycle, `rests_until` is when the next one begins (monotonic seconds). `arrived`
    says when each waiting perception came, `handed_out` the same of interrupted work (monotonic seconds), and
    `accepted` counts the perceptions that were accepted for each sensor, by source.
    """

    __slots__ = ("_messages", "_polled_at", "accepted", "arrived", "core", "cycle",
                 "ended", "handed_out", "has_journal", "has_slot", "is_in_iteration", "is_open", "is_poll_requested",
                 "is_polling", "is_resuming", "is_standing", "key", "last_completed", "modules", "monotonic",
                 "not_before", "parts", "planned_look", "quiet_until", "resting", "rests_until", "runner", "stands",
                 "stands_since", "state", "steps", "stop_reason", "wake")  # fmt: skip

    def __init__(self, parts: SessionParts, key: str) -> None:
        core = parts.core
        self.parts, self.core = parts, core
        self.key, self.is_standing = key, key == STANDING
        self.modules, self.steps, self.monotonic = parts.setup.modules, parts.setup.steps, core.clock.monotonic
        self.last_completed = self.monotonic()
        self.rests_until: float | None = None
        self.state = core.ledger.hold(key)
        self.runner = PhaseRunner(f"{core.name}/{key}", core.clock)
        self.wake = Wake(core.clock)
        self.arrived: dict[str, float] = {}
        self.handed_out: dict[str, float] = {}
        self.accepted: dict[str, int] = {}
        self.quiet_until = 0.0  # when collected messages become a run (monotonic seconds; 0 without any)
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
        self.stop_reason = ""
        self.has_journal = parts.agent_state.has_journal
        self._polled_at = self.stands_since = 0.0
        self.stands: tuple[str, ...] = ()  # a sentence for each place where it stands still by hand
        self.planned_look: float | None = None  # seconds until the next cycle, as the last plan proposed them
        self.is_in_iteration = False  # whether its loop is between the start of a cycle and the next wait
        #: The run that the last cycle ended, until its answer was sent; and its messages for the hooks at `after_run`.
        self.ended: tuple[Run, End] | None = None
        self._messages: tuple[dict[str, Any], ...] = ()

    @property
    def run(self) -> Run | None:
        """Return the current run; None without one."""
        return self.parts.runs.open_run(self.state.run)

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
        return Turn(self.has_slot or is_stepped or not self.is_standing, self.quiet if self.quiet_until else 0.0,
                    self.is_resuming, self.parts.recovery.may_try)  # fmt: skip

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
    def busy_with(self) -> str:
        """Return the cycle that has taken its work: one of no run, which others need not wait for; "" for none."""
        return "" if self.is_open or self.cycle is None else self.cycle.id

    @property
    def quiet(self) -> float:
        """Return the seconds until collected messages may begin a run, since their sender may add more; 0 for none."""
        state = self.state
        if not self.quiet_until or state.run or not state.waiting:
            return 0.0
        first = state.runs[next(iter(state.waiting))]
        return max(0.0, self.quiet_until - self.core.clock.monotonic()) if first.place == "collect" else 0.0

    def wait_for_turn(self, now: float) -> float:
        """Return the seconds for which its work must still wait: for the quiet time of messages, or for
        `not_before`."""
        has_more = not self.is_standing and (self.state.pushed or self.state.run or self.is_resuming)
        quiet = self.quiet if self.quiet_until and not has_more and may_begin_run(self.state) else 0.0
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

    # -- when the next cycle comes

    def _is_poll_due(self) -> bool:
        """Return whether a cycle that nobody requested polls. A current run does not advance the next poll."""
        return not self.state.run or (self.parts.setup.pace.interval != "off" and self._is_interval_over())

    def _is_interval_over(self) -> bool:
        """Return whether the fixed interval has passed since the last poll; True without a fixed interval."""
        interval = self.parts.setup.pace.interval
        return isinstance(interval, str) or self.core.clock.monotonic() >= self._polled_at + interval

    def _wait_after(self, cycle: Cycle) -> float | None:
        """Return the seconds until the next cycle; None to wait until something is pushed."""
        if cycle.is_refused:
            return self._wait_refused()
        parts, pace, turn = self.parts, self.parts.setup.pace, self._turn()
        step, is_at_work = next_step(self.state, turn), bool(self.state.run)
        if not cycle.faults:
            if step == "begin" or (turn.is_resuming and cycle.interrupted is not None):
                return 0.0  # interrupted work goes first; what people have decided meanwhile is next
            if is_at_work and cycle.deferred and cycle.planned_look is not None:
                least = pace.min_interval if pace.interval != 0 else 0.0
                return min(max(least, cycle.planned_look), LONGEST_DEFERRAL)  # the deferred call decides the time
        is_busy = step == "continue" or is_at_work or (bool(cycle.faults) and step == "begin")
        wait = self._wait_by_pace(cycle, is_busy=is_busy)
        if cycle.faults:
            wait = parts.health.judge.back_off(wait, cycle)
            if patience := cycle.retry_after:
                self.not_before = self.core.clock.monotonic() + patience
                wait = None if wait is None else max(wait, patience)
        if (quiet := turn.quiet) and turn.may_begin and may_begin_run(self.state):
            return quiet if wait is None or not self.is_standing else min(wait, quiet)
        return wait

    def _wait_by_pace(self, cycle: Cycle, *, is_busy: bool = False) -> float | None:
        """Return the seconds until the next cycle from the pace and the last plan; None to wait until something is
        pushed."""
        pace, action = self.parts.setup.pace, cycle.action
        planned_look = self.planned_look = None if is_busy or action is None else action.next_look
        next_look = cycle.next_look if pace.interval == "adaptive" else None  # other paces ignore it
        wait = pause_after(pace, len(cycle.perceptions), busy=is_busy, next_look=next_look, planned_look=planned_look)
        if not (self.is_polling or is_busy or wait is None or pace.interval == "adaptive"):
            wait = max(self._polled_at + wait - self.core.clock.monotonic(), 0.0)  # since the last poll
        return wait

    def _wait_refused(self) -> float | None:
        """Return the wait after a denied cycle. It is not zero, because the work of that cycle still waits."""
        pace = self.parts.setup.pace
        wait = pause_after(pace, 0)
        if self.is_empty():
            return wait
        return min(wait or pace.min_interval, LONGEST_REFUSAL)

    # -- new work

    def push(self, perception: Perception, accepted_for: str = "") -> None:
        """Queue a perception for the next cycle, unless it waits already. Args: accepted_for: the sensor that it was
        accepted for."""
        if perception.id in self.state.pushed:
            self.parts.recovery.repeated += 1
            return
        self.core.ledger.tell(PerceptionAccepted(session=self.key, perception=perception))
        self.arrived[perception.id] = self.core.clock.monotonic()
        if accepted_for:
            self.accepted[accepted_for] = self.accepted.get(accepted_for, 0) + 1
        self.wake.set()

    def resume_with(self, fact: WorkHandedOut) -> None:
        """Queue interrupted work for a cycle of its own."""
        self.handed_out[fact.work] = self.core.clock.monotonic()
        self.core.ledger.tell(fact)
        self.wake.set()

    # -- the work of a cycle

    def take_piece(self, cycle: Cycle, piece: WorkHandedOut) -> None:
        """Give a piece of interrupted work to a new cycle."""
        del self.handed_out[piece.work]
        cycle.items = piece.items
        self.core.ledger.tell(
            WorkTaken(session=self.key, cycle=cycle.id, run=piece.run, work=piece.work, items=piece.items)
        )

    def take(self, cycle: Cycle) -> list[Perception]:
        """Return the perceptions of a new cycle: those pushed, and the messages of its run that no plan has answered
        yet.

        Begin the next waiting run first, if it may begin.
        """
        state, turn = self.state, self._turn(cycle)
        pushed = list(state.pushed.values())
        self.core.ledger.tell(*take(state, cycle.id, turn, self.core.clock.new_id))
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

    def _put_back(self, cycle: Cycle, piece: WorkHandedOut, since: float) -> None:
        """Put interrupted work back before all other, unless its run has ended. Args: since: when it was handed out."""
        is_open = not piece.run or piece.run in self.state.runs
        if is_open:
            self.handed_out[piece.work] = since
        else:
            self.parts.recovery.restart.drop(piece)
        self.core.ledger.tell(CycleClosed(session=self.key, cycle=cycle.id, is_put_back=is_open))

    # -- its task

    def cancel_phase(self, reason: str) -> None:
        """Cancel the current phase. The cycle is recorded as interrupted."""
        self.stop_reason = reason
        self.runner.cancel()

    # -- the end of a run

    async def may_begin(self, run: Run, cycle: Cycle) -> bool:
        """Return whether the hooks at `before_run` allow a new run. A refused run is ended here."""
        await self.parts.conversations.hooks.run_begins(self.key)
        outcome = await self._consult("before_run", cycle, run.message)
        if outcome is not None and outcome.denied:
            await self._end_now(run, End("error", outcome.reason or "refused by a hook"))
            return False
        return True

    async def _end_now(self, run: Run, end: End) -> None:
        """End a run before its cycle has ended, and leave it."""
        self.leave(run, end)
        await self.parts.recovery.safe()
        self.parts.runs.end(run, end)

    def _end(self, run: Run, end: End, cycle: Cycle) -> None:
        """Leave a run that has ended. Send its answer now if no disk is to keep it first, or if a person stepped its
        cycle."""
        parts = self.parts
        self.ended = (run, end)
        self._messages = run.context().messages if "after_run" in self.core.hooks.used else ()
        self.leave(run, end)
        outbox = parts.conversations.outbox
        if cycle.is_stepped or (not self.has_journal and (cycle.is_cut or not outbox.is_guarded)):
            cycle.guarded(parts.reports.closing_failed, outbox.answer_at_once, run, end)
            parts.runs.end(run, end)

    def leave(self, run: Run, end: End) -> None:
        """Finish a run, drop its interrupted work, and let the next run begin. Its answer may still be on its way."""
        dropped = [piece for work in run.state.pieces if (piece := self.state.piece(work)) is not None]
        self.core.ledger.tell(*finish(self.state, run.id, end))
        for piece in dropped:
            if self.handed_out.pop(piece.work, None) is not None:
                self.parts.recovery.restart.drop(piece)
                self.parts.recovery.restart.suspects.wake_next()
        if self.core.hooks.used:
            self.parts.conversations.hooks.run_ended(self.key)

    async def publish_end(self, cycle: Cycle, run: Run, end: End) -> None:
        """Publish the end of a run, once its answer is on disk, and call the hooks at `after_run`."""
        if armed:
            crashpoint("run.before_answer")
        if run.ended is None:
            self.parts.runs.end(run, await self.parts.conversations.outbox.answer(run, end))
        self.ended = None
        if "after_run" in self.core.hooks.used:
            status = await self.parts.runs.wait(run.id, 0)
            await self._consult("after_run", cycle, EndedRun(**asdict(status), messages=self._messages), run.id)

    def is_pursuing(self, run: Run) -> bool:
        """Return whether the current cycle belongs to this run. The run may not have begun yet in this process."""
        cycle = self.cycle
        if cycle is None or cycle.run is None:
            return False
        return self.state.run == run.id or (cycle.interrupted is not None and cycle.interrupted.run == run.id)

    def is_answering(self, run: Run) -> bool:
        """Return whether a run, or the run that absorbed it, has ended and its answer is being sent."""
        return self.ended is not None and self.ended[0].id in (run.id, run.state.into)

    @property
    def is_asking(self) -> bool:
        """Return whether hooks are being asked about a cycle that has taken no work yet."""
        cycle = self.cycle
        return (
            not self.is_standing and not self.state.run and cycle is not None and cycle.phase == "sense"
            and not cycle.items and not self.stop_reason
        )  # fmt: skip

    # -- what hooks and the actor are asked

    async def _consult(self, point: str, cycle: Cycle, value: Any, run_id: str | None = None) -> Outcome | None:
        """Run the hooks at a point, report their errors, and return the outcome; None without hooks at that point."""
        hooks = self.core.hooks
        if point not in hooks.used:
            return None
        about = run_id or (cycle.run.id if cycle.run else None)
        outcome = await hooks.run(HookContext(point, self.core.name, value, self.key, about, cycle.id))
        self.parts.reports.hooks_failed(cycle.id, outcome, self.key)
        return outcome

    async def ask(self, point: str, cycle: Cycle, value: Any) -> Any:
        """Return a value after the hooks at a point have seen, and perhaps replaced, it.

        A hook may also end the run. Raises: Skip when a hook denies the value.
        """
        outcome = await self._consult(point, cycle, value)
        if outcome is None:
            return value
        if outcome.stop_run and cycle.run is not None:
            run = self.parts.runs.get(cycle.run.id)
            await self._end_now(run, End("error", outcome.reason or f"stopped by a hook at {point}"))
        if outcome.denied:
            cycle.is_skipped, cycle.is_refused = True, not cycle.has_sensed
            raise Skip
        if point == "before_plan":
            cycle.noticed, cycle.perceptions = tuple(cycle.perceptions), tuple(outcome.value)
            return cycle.perceptions
        if point == "after_plan" and isinstance(outcome.value, Action):
            return answering(outcome.value, cycle.perceptions)
        return outcome.value if point in REWRITABLE else value

    def salvage(self, action: Action) -> ActionResult | None:
        """Return the result of an interrupted action, as far as the actor has it; None if the actor cannot tell."""
        module = self.modules["act"]

        def read(known: Any) -> ActionResult | None:
            return None if known is None else result_of(known, module.name, action)

        result: ActionResult | None = self.core.ask(module, OptionalActor.interrupted, action.id, read=read)
        return result

    @property
    def actor(self) -> Module:
        """Return the actor of the current cycle, or of the next one between cycles."""
        return (self.modules if self.cycle is not None else self.parts.setup.modules)["act"]

    def resumed(self) -> Action | None:
        """Return an action with the calls that the actor can resume; None if there are none."""
        action: Action | None = self.core.ask(self.actor, OptionalActor.resumable, self.key)
        return action
