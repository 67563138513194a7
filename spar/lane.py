"""One session of an agent: a loop of its own, what was pushed to it, the run it pursues, and when it turns again.

`main` is the standing lane, whose sense polls the sensors. Every other lane is made when its first message comes
and ends when nothing is left to do. Lanes of one agent share its modules; their cycles never wait for one another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from spar.crash import crashpoint
from spar.cycle import STANDING, Cycle, Skip
from spar.events import LoopCompleted, LoopStarted
from spar.health import NEVER_SLOW
from spar.hooks import REWRITABLE, HookContext, Outcome
from spar.inbox import PLACES, Inbox, Mode, Place, collected, overflow
from spar.journal import Item, Unfinished
from spar.logs import get_logger
from spar.loop import Loop
from spar.modules import result_of
from spar.outside import answering
from spar.pacing import pause_after
from spar.plan_stream import OpenPlan
from spar.run import End, EndedRun, Run, verdict
from spar.strand import Strand
from spar.turns import Turns
from spar.types import Action, ActionResult, Fault, Perception
from spar.wake import Wake

if TYPE_CHECKING:
    from spar.agent import Agent

log = get_logger("spar.lane")

#: Seconds after which a run that waits for a provider is planned again at the latest.
LONGEST_DEFERRAL = 300.0
#: How a run ends about whose last cycle nothing can be said.
_UNJUDGED = End("error", "its cycle could not be judged; the log says why")


class _OthersTurn:
    """Awaited, lets every other task of the event loop run once; what `asyncio.sleep(0)` does, without its frames."""

    def __await__(self) -> Generator[None, None, None]:
        yield


_OTHERS_TURN = _OthersTurn()


class Lane:
    """The desk that a loop reports to."""

    __slots__ = ("_ended", "_told", "agent", "apart", "calls", "cycle", "inbox", "is_resuming", "is_turning",
                 "last_completed", "loop", "modules", "rests_until", "run", "session", "stop_reason", "strand", "turns",
                 "wake")  # fmt: skip

    def __init__(self, agent: Agent, session: str) -> None:
        self.agent, self.session = agent, session
        self.strand = Strand(f"{agent.name}/{session}", agent.clock)
        self.wake = Wake(agent.clock)
        self.inbox = Inbox()
        self.run: Run | None = None
        self._ended: tuple[Run, End] | None = None
        self._told: tuple[dict[str, Any], ...] = ()  # the messages of the run that has ended, for hooks
        self.apart: deque[Item | Unfinished] = deque()  # what gets a cycle of its own: it was in hand before
        self.cycle: Cycle | None = None
        self.last_completed = agent.clock.monotonic()
        self.rests_until: float | None = None
        self.stop_reason = ""
        self.is_resuming = False  # the actor said that it has calls of earlier cycles to go on with
        #: Those that its cycle in hand works with, and whether it is between the beginning of a cycle and its wait.
        self.modules, self.is_turning = agent.modules, False
        self.turns = Turns(self)
        self.calls = self.turns.calls
        self.loop = Loop(self, self.strand, agent.steps, agent.events, agent.hooks, agent.clock,
                         plan_when_idle=agent.plan_when_idle)  # fmt: skip

    # -- its life

    async def live(self) -> None:
        """Turn after turn, while the agent runs; a session's lane also ends when it has nothing left to do."""
        agent = self.agent
        while True:
            if agent.assembly.is_holding:
                await agent.assembly.hold(self)
                if agent.state != "running":
                    return
            self.is_turning = True
            cycle = await self.loop.cycle()
            if cycle.is_journalled and not await agent.recovery.books.kept(is_answered=self._ended is not None):
                self._ended = None  # who has taken the run over says how it ends
            if cycle.faults or (cycle.perceptions and agent.settled is not None):
                await agent.settle(cycle)
            if self._ended is not None:
                await self._say_ended(cycle, *self._ended)
            if agent.state != "running" or not (self.is_standing or self.has_work):
                return
            self.is_turning = False
            if agent.assembly.is_holding:
                agent.requests.notify()
            wait = agent.budgets.paced(self._wait_after(cycle), agent.pace.max_interval)
            if wait == 0.0:
                self.wake.clear()
                await _OTHERS_TURN
                if agent.state != "running":
                    return
            else:
                self.rests_until = None if wait is None else agent.clock.monotonic() + wait
                await self.wake.sleep(wait)
                if agent.state != "running":
                    return

    def _wait_after(self, cycle: Cycle) -> float | None:
        """Seconds until the next cycle, None for: until something is pushed."""
        agent, inbox = self.agent, self.inbox
        # Collected messages wait until nobody says more, which nothing else has to wait for.
        quiet = inbox.wait(agent.clock.monotonic()) if self.run is None else 0.0
        if not cycle.faults:
            if self.apart or inbox.has_pushed or (self.run is None and inbox.has_runs and not quiet):
                return 0.0
            if self.run is not None and cycle.deferred and cycle.next_look is not None:
                least = agent.pace.min_interval if agent.pace.interval != 0 else 0.0
                return min(max(least, cycle.next_look), LONGEST_DEFERRAL)  # somebody else sets the pace
        is_busy = self.has_work if not quiet else self.is_resuming
        wait = pause_after(agent.pace, len(cycle.perceptions), busy=is_busy, next_look=cycle.next_look)
        if cycle.faults:
            wait = agent.health.back_off(wait, cycle)
        if quiet:
            return quiet if wait is None or not self.is_standing else min(wait, quiet)
        return wait

    @property
    def is_standing(self) -> bool:
        return self.session == STANDING

    @property
    def is_amid(self) -> bool:
        """Whether it is in the middle of a cycle, or of what has its place right after one."""
        return self.is_turning and self.strand.task is not None

    @property
    def has_work(self) -> bool:
        return bool(self.inbox.waiting or self.run is not None or self.is_resuming or self.apart)

    @property
    def is_busy(self) -> bool:
        """Whether it has a run, under way or about to be."""
        return self.run is not None or self.inbox.has_runs

    @property
    def is_asking(self) -> bool:
        """Whether hooks are asked about a cycle of a session that has taken nothing yet."""
        cycle = self.cycle
        return (
            not self.is_standing and self.run is None and cycle is not None and cycle.phase == "sense"
            and not cycle.items and not self.stop_reason
        )  # fmt: skip

    # -- what comes in

    def push(self, perception: Perception) -> None:
        self.inbox.push(perception, self.agent.clock.monotonic())
        self.wake.set()

    def queue(self, run: Run, mode: Mode = "followup") -> Place:
        """Have a message wait for its turn, or for the run in hand; returns where it waits."""
        place = PLACES[mode, self.is_busy]
        self.inbox.add(run, place, self.agent.clock.monotonic(), self.agent.settings.runs.quiet)
        if place == "steer" and self.run is not None and self.cycle is not None and self.cycle.phase == "act":
            self.turns.steer(self.run.id)
        self.wake.set()
        return place

    def rehouse(self) -> None:
        """What was to be heard in a run that is gone becomes a run of its own."""
        if self.inbox.has_steers:
            self.inbox.put_back(self.inbox.take_steers())
            self.wake.set()

    @property
    def oldest(self) -> float | None:
        """Since when the oldest perception or run waits (monotonic seconds); None when none does. From any thread."""
        return self.inbox.since if self.inbox.waiting else None

    @property
    def waiting(self) -> int:
        """How many perceptions and runs wait for their cycle."""
        return self.inbox.waiting

    def take(self, cycle: Cycle) -> list[Perception]:
        """What was pushed since, and what was said in the run in hand, or in the one that begins, that no plan has
        been made for yet."""
        runs, inbox = self.agent.runs, self.inbox
        pushed = inbox.take_pushed()
        cycle.items = tuple([perception.id for perception in pushed])
        if self.run is None and inbox.has_runs:
            self._begin_run()
        run = self.run
        if run is not None:
            if inbox.has_steers:
                for other in inbox.take_steers():
                    runs.absorb(run, other, "steered")
                self._tell_dropped(run)
            cycle.run = run.context()
            cycle.said = run.new
            cycle.items = (run.id, *cycle.items)
            pushed = [*run.new, *pushed]
        return pushed

    def _begin_run(self) -> None:
        """The next run begins, unless people are still saying what it is about."""
        agent, inbox = self.agent, self.inbox
        if (found := inbox.next_run(agent.clock.monotonic())) is None:
            return
        run, others = found
        self.run = run
        agent.runs.start(run)
        for other in others:
            agent.runs.absorb(run, other, "collected")
        if others:
            run.message = collected(run.message, run.said)
            run.new = run.unwritten = (run.message,)
        self._tell_dropped(run)

    def _tell_dropped(self, run: Run) -> None:
        """The run hears in short what others said for whom there was no room."""
        if dropped := self.inbox.take_dropped():
            run.new = (overflow(dropped, self.session, self.agent.clock.new_id), *run.new)

    # -- what the loop reports

    def change_over(self) -> None:
        """Work with the modules and the terms that are in force now."""
        self.modules = self.agent.modules
        self.loop.steps, self.loop.plan_when_idle = self.agent.steps, self.agent.plan_when_idle

    def opened(self) -> Cycle:
        agent = self.agent
        self.change_over()
        apart = self.apart[0] if self.apart else None
        resumed = apart if isinstance(apart, Unfinished) else None
        run = self.run
        if run is not None and apart is not None and (resumed is None or resumed.run_id != run.id):
            run = None  # it has a cycle of its own, which is no part of the run in hand
        cycle = Cycle(self.session, None if run is None else run.context(), agent.clock, resumed)
        self.cycle = cycle
        if agent.events.wanted[LoopStarted]:
            agent.events.publish(LoopStarted(cycle_id=cycle.id, started_at=cycle.started_at, session=self.session))
        return cycle

    async def may_begin(self, run: Run, cycle: Cycle) -> bool:
        """Whether no hook is against a run that begins; one that is ends it."""
        outcome = await self._consult("before_run", cycle, run.message)
        if outcome is not None and outcome.denied:
            self.agent.runs.end(run, End("error", outcome.reason or "refused by a hook"))
            return False
        return True

    async def _say_ended(self, cycle: Cycle, run: Run, end: End) -> None:
        """A run's answer is on disk before anybody is told."""
        crashpoint("run.before_answer")
        if run.status is None:
            self.agent.runs.end(run, await self.agent.deliveries.answer(run, end))
        self._ended = None
        status = await self.agent.runs.wait(run.id, 0)
        await self._consult("after_run", cycle, EndedRun(**asdict(status), messages=self._told), run.id)

    def let_go(self) -> None:
        """Its task has ended, perhaps while people were still being told an answer: it stands as it is on disk."""
        self.cycle = None
        if self.agent.assembly.is_awaiting:
            self.agent.assembly.left(self)
        if self._ended is not None:
            self.agent.runs.end(*self._ended)
            self._ended = None

    def is_answering(self, run: Run) -> bool:
        """Whether a run is over and people are just being told its answer."""
        return self._ended is not None and self._ended[0] is run

    async def _consult(self, point: str, cycle: Cycle, value: Any, run_id: str | None = None) -> Outcome | None:
        """What the hooks at a point say, their faults reported; None where nobody is asked."""
        hooks = self.agent.hooks
        if not hooks.at(point):
            return None
        about = run_id or (cycle.run.id if cycle.run else None)
        outcome = await hooks.run(HookContext(point, self.agent.name, value, self.session, about, cycle.id))
        self.agent.report_hook_faults(cycle.id, outcome, self.session)
        return outcome

    async def ask(self, point: str, cycle: Cycle, value: Any) -> Any:
        """What the hooks at a point make of a value. Raises: Skip when one of them is against it."""
        outcome = await self._consult(point, cycle, value)
        if outcome is None:
            return value
        if outcome.stop_run and self.run is not None and cycle.run is not None:
            self.agent.runs.end(self.run, End("error", outcome.reason or f"stopped by a hook at {point}"))
            self.run = None
            self.rehouse()
        if outcome.denied:
            cycle.is_skipped = True
            raise Skip
        if point == "before_plan":
            cycle.noticed, cycle.perceptions = tuple(cycle.perceptions), tuple(outcome.value)
            return cycle.perceptions
        if point == "after_plan" and isinstance(outcome.value, Action):
            return answering(outcome.value, cycle.perceptions)
        return outcome.value if point in REWRITABLE else value

    def failed(self, cycle: Cycle, fault: Fault, error: BaseException, policy: str) -> None:
        self.agent.report(cycle, fault, error, policy)

    def salvage(self, action: Action) -> ActionResult | None:
        """What the actor knows of an action that was cut off, if it can tell."""
        module = self.modules["act"]
        try:
            tell = getattr(module.part, "interrupted", None)
            known = tell(action.id) if callable(tell) else None
            return None if known is None else result_of(known, module.name, action)
        except Exception as error:
            log.warning("actor cannot tell", agent=self.agent.name, part=module.name, reason=repr(error))
            return None

    def closed(self, cycle: Cycle) -> None:
        """See to everything that follows from a cycle's end.

        Each consequence is guarded by itself: what one of them runs into is reported, and the others come all the same,
        the end of the run and `LoopCompleted` among them.
        """
        agent, guarded = self.agent, self.agent.reports.guarded
        if self.stop_reason:
            cycle.is_cut = True
        if cycle.is_cut or cycle.faults:
            guarded(cycle, self._broken_off, cycle)
        outcome = cycle.conclude()
        crashpoint("cycle.closing")
        self.last_completed = now = agent.clock.monotonic()
        self.rests_until = self.cycle = None
        duration = cycle.duration(now)
        agent.account.cycle(outcome, duration)
        if cycle.result is not None:
            guarded(cycle, agent.account.calls.add, cycle.result.results)
        own = guarded(cycle, agent.session_accounts.cycle, self.session, cycle, duration)
        if cycle.faults or duration > NEVER_SLOW or not agent.health.is_calm:
            guarded(cycle, agent.health.observe, cycle, duration)
            if own is not None:
                own.consecutive_failures = agent.health.streaks.worst_of(self.session)
        if self.is_resuming:
            self.is_resuming = guarded(cycle, self.turns.resumed) is not None
        run, end = self.run if cycle.run is not None else None, None
        if run is not None:
            end = guarded(cycle, partial(self._judge, run, cycle, now), otherwise=_UNJUDGED)
        if agent.recovery.journal is not None:
            guarded(cycle, agent.recovery.books.closed, cycle, duration, run, end, self._is_put_off(cycle))
        else:
            if outcome != "idle":
                guarded(cycle, agent.keeping.remember, cycle, duration)
            if run is not None:
                guarded(cycle, self._transcribe, run, cycle, end)
        if run is not None and end is not None:
            self.run, self._ended = None, (run, end)
            self._told = run.context().messages if agent.hooks.at("after_run") else ()
            self.rehouse()
            # Nothing to wait for, or nobody who would.
            if cycle.is_cut or cycle.is_stepped or not (cycle.is_journalled or agent.deliveries.is_guarded):
                guarded(cycle, agent.deliveries.answer_at_once, run, end)
                agent.runs.end(run, end)
        if agent.events.wanted[LoopCompleted]:
            agent.events.publish(LoopCompleted(cycle_id=cycle.id, completed_at=agent.clock.now(), duration=duration,
                                               outcome=outcome, session=self.session, calls=cycle.calls))  # fmt: skip
        if agent.assembly.is_awaiting:
            agent.assembly.left(self)

    def _transcribe(self, run: Run, cycle: Cycle, end: End | None) -> None:
        """Keep in memory what a cycle adds to its session's transcript, where no store does."""
        if entries := self.agent.transcripts.entries_of(run, cycle, end):
            self.agent.transcripts.keep(self.session, entries)

    def _is_put_off(self, cycle: Cycle) -> bool:
        """Whether a cycle was cut off by a stop, not called off: it goes on at the next start."""
        return cycle.is_cut and self.stop_reason in ("", "stop") and self.strand.is_cancelled

    def _broken_off(self, cycle: Cycle) -> None:
        """Nothing further comes of a plan that is still being written; what was done of the action is not forgotten."""
        if isinstance(cycle.action, OpenPlan):
            cycle.action.close()
        if cycle.is_cut and cycle.result is None and cycle.written_action is not None:
            cycle.result = self.salvage(cycle.written_action)

    def _judge(self, run: Run, cycle: Cycle, now: float) -> End | None:
        """Whether a run is over after this cycle."""
        runs = self.agent.runs
        if cycle.deferred and cycle.next_look:
            runs.wait_for_provider(run, min(cycle.next_look, LONGEST_DEFERRAL))
        run.touched = now
        end = verdict(run, cycle, elapsed=now - run.started_mono - run.waited, limits=runs.limits)
        if self.stop_reason and cycle.is_cut and self.stop_reason != "stop":
            end = End("error", self.stop_reason)
        return end

    def cut(self, reason: str) -> None:
        """Cancel the phase in hand; its cycle is recorded as interrupted."""
        self.stop_reason = reason
        self.strand.cancel()
