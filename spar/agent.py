"""One agent: started, stopped, paused, resumed, stepped; what it knows of itself.

    agent = Agent(sense=sense, plan=plan, act=act, reflect=reflect, loop_interval=1.0)
    async with agent:
        ...

The agent owns the modules and opens and closes them; its lanes turn the cycles (`spar.lane`, `spar.loop`). What may
be asked of it in which state is a table.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import anyio
import msgspec

from spar import defaults
from spar.clock import Clock, SystemClock
from spar.cycle import RETRIES, Cycle, Skip, Step
from spar.errors import ConfigError, ContractError, InboxFullError, LifecycleError, PhaseTimeoutError, SparError
from spar.events import HANDLING, ErrorOccurred, Event, Events, RecoveryStep, StateChanged
from spar.health import Health, Limits, LoopWatcher, watcher
from spar.hooks import Hook, HookContext, Hooks, Outcome
from spar.keeper import Keeper
from spar.lane import STANDING, Lane
from spar.logs import get_logger
from spar.modules import PRODUCT_OF, Module
from spar.opening import Opening
from spar.pacing import Interval, Pace
from spar.policies import Backoff, Intensity
from spar.protocols import Home, Host, ability_key
from spar.runs import End, Receipt, Run, Runs, RunStatus, too_long
from spar.stats import Snapshot, Stats
from spar.strand import Strand
from spar.types import (
    PHASES,
    Ability,
    Action,
    ActionResult,
    Experience,
    Fault,
    Perception,
    Phase,
    Reflection,
    replace,
)
from spar.wake import Wake

if TYPE_CHECKING:
    from spar.settings import Settings

log = get_logger("spar.agent")
R = TypeVar("R")

State = Literal["created", "running", "pausing", "paused", "stopping", "stopped", "failed"]

#: What an agent may be asked in each state. What is not here raises `LifecycleError` with this row as its hint.
LEGAL: dict[State, tuple[str, ...]] = {
    "created": ("start", "stop", "step", "submit"),
    "running": ("start", "pause", "resume", "stop", "submit"),
    "pausing": ("pause", "resume", "stop", "submit"),
    "paused": ("pause", "resume", "stop", "step", "submit"),
    "stopping": ("start", "stop"),
    "stopped": ("start", "stop", "step"),
    "failed": ("start", "stop"),
}
#: Which state may follow which.
FOLLOWS: dict[State, tuple[State, ...]] = {
    "created": ("running",),
    "running": ("pausing", "stopping", "failed"),
    "pausing": ("paused", "running", "stopping", "failed"),
    "paused": ("running", "stopping"),
    "stopping": ("stopped",),
    "stopped": ("running",),
    "failed": ("running", "stopping"),
}
#: Perceptions that wait for a lane's cycle; more are refused with a clear error.
INBOX_LIMIT = 1000
#: Sessions that may have something to do; a message for one more is refused.
SESSIONS_LIMIT = 10_000
#: By how much the saved `seq` is ahead: what is published after saving, while the modules close, stays below it.
SEQ_AHEAD = 1000
#: Seconds that closing one module, the handlers' queues and the store may take when the agent stops.
CLOSE_WITHIN = 10.0

#: Under which name a cycle keeps what a phase brought.
PRODUCT: dict[Phase, str] = {"sense": "perceptions", "plan": "action", "act": "result", "reflect": "reflection"}
#: What a step works on that is given nothing: what the step before it brought.
INPUT: dict[Phase, str] = {"plan": "perceptions", "act": "action", "reflect": "result"}

_inside: contextvars.ContextVar[tuple[Agent, ...]] = contextvars.ContextVar("inside", default=())


class Agent:
    """A continuous loop over four modules, each an object with the phase's method or a bare function.

    Args:
        sense, plan, act, reflect: the modules; without them it senses nothing, plans nothing, executes calls of
            `tools`, and reflects by the built-in reflector.
        tools: functions or tools that the built-in executor may call.
        name: how it is called in events, logs and metrics.
        loop_interval: seconds between cycles, "adaptive", 0 (no pause) or "off" (only what is pushed).
        settings: a mapping shaped like config.toml, or `Settings`.
        memory: an object with `await store(experience)`; may also have `recall`, `record`, `load` and `save`.
        clock: where time comes from.
        home: the folders of the service, for parts that need them.
    Raises: ConfigError for a setting that cannot be used, ContractError for a module that is none.
    """

    settings: Settings
    pace: Pace
    steps: dict[Phase, Step]
    health: Health
    plan_when_idle: bool
    run_timeout: float

    def __init__(
        self,
        *,
        sense: Any = None,
        plan: Any = None,
        act: Any = None,
        reflect: Any = None,
        tools: Iterable[Any] = (),
        name: str | None = None,
        loop_interval: Interval | None = None,
        settings: Mapping[str, Any] | Settings | None = None,
        memory: Any = None,
        clock: Clock | None = None,
        home: Home | None = None,
    ) -> None:
        self.settings = _settings_of(settings)
        self.clock: Clock = clock or SystemClock()
        if name is not None and (not isinstance(name, str) or not name.strip()):
            raise ConfigError(f"name = {name!r}: must be text that is not empty", path=("agent", "name"))
        if memory is not None and not callable(getattr(memory, "store", None)):
            raise ContractError(f"memory= must be an object with a method 'store', found {memory!r}")
        self.name = name or self.settings.agent.name
        self.home, self.memory = home, memory
        self.events = Events(self.name, clock=self.clock)
        self.events.on_handler_error = self._handler_failed
        self.hooks = Hooks()
        self.account = Stats()
        self.runs = Runs(self.events, self.clock, self._run_is_late)
        self.lanes: dict[str, Lane] = {}
        self.abilities: dict[str, Ability] = {}
        self.event_loop: asyncio.AbstractEventLoop | None = None
        self.blocked_by = ""
        self.blocked_since: float | None = None
        self.last_completed_at = 0.0
        self.failure = ""
        self.state: State = "created"
        self.modules: dict[Phase, Module] = {}
        self._openings: list[Opening] = []
        self._take_modules(_with_defaults(sense, plan, act, reflect, tools))
        self._keeper = None if memory is None else Keeper(memory, self.events, self.clock)
        self._lane_restarts = Intensity(self.settings.health.max_restarts, self.settings.health.within)
        self._chain: Cycle | None = None
        self._stepping = self._has_stepped = False
        self._exclusive: asyncio.Task[Any] | None = None
        self._thread_id = 0
        self._changed: asyncio.Event | None = None
        self._stop_task: asyncio.Task[None] | None = None
        self._stop_by = float("inf")
        self._watch: LoopWatcher | None = None
        self._requests: set[asyncio.Task[Any]] = set()
        self.refused = 0
        self._has_loaded = False
        self.apply(self.settings)
        if loop_interval is not None:
            self.loop_interval = loop_interval

    @classmethod
    def from_config(cls, path: str, **overrides: Any) -> Agent:
        """The agent that a configuration file describes, through the composition root."""
        from spar.app import agent_from_config

        return agent_from_config(path, **overrides)

    # -- what it knows of itself

    @property
    def stats(self) -> Snapshot:
        """A snapshot of the statistics so far; safe from any thread."""
        return self.account.snapshot()

    @property
    def loop_interval(self) -> Interval:
        """Seconds between cycles, "adaptive", 0 or "off"; may be set at any time and counts from the next wait on."""
        return self.pace.interval

    @loop_interval.setter
    def loop_interval(self, interval: Interval) -> None:
        is_word = interval in ("adaptive", "off")
        is_number = isinstance(interval, (int, float)) and not isinstance(interval, bool)
        if not is_word and not (is_number and 0 <= float(interval) < float("inf")):
            raise ConfigError(
                f'loop_interval = {interval!r}: must be a number of seconds >= 0, "adaptive" or "off"',
                path=("agent", "loop_interval"),
            )
        self.pace = Pace(interval, self.pace.min_interval, self.pace.max_interval, self.pace.busy_count)
        self._in_loop(self._wake_lanes)

    @property
    def is_running(self) -> bool:
        return self.state == "running"

    @property
    def can_stream(self) -> bool:
        """Whether calls may run before the plan is finished: the actor can, nobody guards all of the plan, no step."""
        return (
            not self._stepping and hasattr(self.modules["act"].part, "act_stream") and not self.hooks.at("after_plan")
        )

    @property
    def left_behind(self) -> int:
        """How many phases and blocking calls ignored their cancellation and still run."""
        tasks = sum(len(lane.strand.left_behind) for lane in self.lanes.values())
        return tasks + sum(module.left_behind for module in self.modules.values())

    @property
    def kept(self) -> dict[str, int]:
        """What the background writer has stored, still holds and had to give up."""
        keeper = self._keeper
        if keeper is None:
            return {"stored": 0, "waiting": 0, "lost": 0}
        return {"stored": keeper.stored, "waiting": keeper.waiting, "lost": keeper.lost}

    def blocked_for(self) -> float:
        """Seconds for which the event loop has not answered, as far as the watcher has seen."""
        since = self.blocked_since
        return 0.0 if since is None else time.monotonic() - since

    def apply(self, settings: Settings) -> None:
        """Take the settings that a running agent can change: pace, phases, policies, limits of health, runs."""
        self.settings = settings
        agent, health = settings.agent, settings.health
        self.pace = Pace(agent.loop_interval, agent.min_interval, agent.max_interval, agent.busy_count)
        self.plan_when_idle = agent.plan_when_idle
        self.run_timeout = self.runs.timeout = settings.runs.timeout
        self.runs.verify_output = settings.runs.verify_output
        self.steps = {phase: self._step_of(phase) for phase in PHASES}
        limits = Limits(health.failing_after, health.slow_after, health.blocked_after, health.stalled_after,
                        health.backoff, health.max_restarts, health.within)  # fmt: skip
        if not hasattr(self, "health"):
            self.health = Health(self, limits)
        self.health.limits = limits
        for lane in self.lanes.values():
            lane.loop.steps, lane.loop.plan_when_idle = self.steps, self.plan_when_idle

    # -- control

    async def start(self) -> None:
        """Open the modules, start the loop in the background, return once it runs.

        Idempotent while running. Inside a cycle or a handler it is a request and returns at once.
        Raises: LifecycleError when paused, or when a `stop` called it off; what a module's opening raises, after
        closing what had been opened: it can be called again.
        """
        self._demand("start")
        self._bind()
        if self.state != "running":
            await self._unless_inside(self._exclusively(self._start, "start"), "start")

    async def _start(self) -> None:
        if self.state in ("running", "pausing", "paused"):
            self._demand("start")
            return
        try:
            await self.open()
            await self._ask("service_start", self)
        except BaseException:
            await self._close_all(self._openings)
            raise
        self.failure = ""
        self._lane_restarts.reset()
        self._enter("running")
        self._spawn_all()

    async def run(self) -> None:
        """Start, and return when the agent has been stopped. Cancelling it stops the agent.

        Raises: SparError when the agent failed: its loop had to be restarted more often than it may.
        """
        await self.start()
        try:
            while self.state not in ("stopped", "failed"):
                await self._change()
        except asyncio.CancelledError:
            await asyncio.shield(asyncio.ensure_future(self.stop(deadline=self.settings.service.drain)))
            raise
        if self.state == "failed":
            raise SparError(f"agent {self.name!r} gave up: {self.failure}")

    async def stop(self, deadline: float | None = None) -> None:
        """Let the cycle in hand finish, close the modules in reverse order, flush experiences, save state.

        Args: deadline: seconds until what still runs is cancelled, and a grace later left behind; its cycle is
            recorded as interrupted. None: as long as the phases' own deadlines allow.
        Idempotent. Awaited inside a cycle or a handler it is a request and returns at once.
        """
        if deadline is not None and not deadline >= 0:
            raise ValueError(f"deadline must be seconds >= 0, found {deadline!r}")
        self._bind()
        if deadline is not None:
            self._stop_by = min(self._stop_by, self.clock.monotonic() + deadline)
            self._notify()
        stopping = self._request_stop()
        if not self._is_inside():
            await asyncio.shield(stopping)

    async def pause(self) -> None:
        """Return when the cycles in hand have finished; no new one starts. Idempotent while paused.

        Raises: LifecycleError when the agent has not been started or is stopped. Inside a cycle it is a request.
        """
        self._demand("pause")
        self.request_pause()
        if not self._is_inside():
            while self.state == "pausing":
                await self._change()

    def request_pause(self) -> None:
        """Ask for a pause at the end of the cycles in hand, without waiting."""
        if self.state == "running":
            self._enter("pausing")
            self._wake_lanes()
            self._settle()

    async def resume(self) -> None:
        """Go on. Idempotent while running. Raises: LifecycleError when the agent has not been started or is stopped."""
        self._demand("resume")
        if self.state == "pausing":
            self._go_on()
        elif self.state == "paused":
            await self._unless_inside(self._exclusively(self._resume, "resume"), "resume")

    async def _resume(self) -> None:
        """Once a step that is being made has ended."""
        self._demand("resume")
        if self.state == "paused":
            self._close_chain()
            self._go_on()

    def _go_on(self) -> None:
        self._enter("running")
        self._spawn_all()

    async def __aenter__(self) -> Agent:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    # -- giving it work

    async def submit(
        self,
        message: str | Perception,
        *,
        session: str = STANDING,
        mode: str | None = None,
        idempotency_key: str | None = None,
    ) -> Receipt:
        """Accept a message as a run of its session and return at once.

        The same `idempotency_key` gives the same receipt again. A paused agent accepts and serves later.
        Raises: ValueError for an empty message, LifecycleError when stopped, InboxFullError when too much waits.
        """
        text = message.text if isinstance(message, Perception) else message
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"a message must be text that is not empty, found {text!r}")
        if not isinstance(session, str) or not session.strip():
            raise ValueError(f"a session's key must be text that is not empty, found {session!r}")
        if mode not in (None, "followup"):
            raise ValueError(f"mode {mode!r} is not known to this version; known: followup")
        self._demand("submit")
        if (receipt := self.runs.known(idempotency_key)) is not None:
            return receipt
        if isinstance(message, Perception):
            perception = message if message.session == session else replace(message, session=session)
        else:
            hear = getattr(self.modules["sense"].part, "hear", None) or defaults.hear
            perception = hear(text, session)
        perception = await self._received(perception)
        self._demand("submit")  # time has passed if hooks were asked
        if (receipt := self.runs.known(idempotency_key)) is not None:
            return receipt
        if (full := self._full(perception.session)) is not None:
            raise InboxFullError(f"{full}; try again later")
        lane = self._lane(perception.session)
        run = self.runs.accept(perception, idempotency_key)
        lane.queue(run)
        self._spawn(lane)
        return Receipt(run.id, run.accepted_at)

    async def _received(self, perception: Perception) -> Perception:
        """The message as the hooks leave it. Raises: PermissionError when one refuses it."""
        if not self.hooks.at("message_received"):
            return perception
        outcome = await self._asked(HookContext("message_received", self.name, perception, perception.session))
        if outcome.denied:
            raise PermissionError(f"the message was refused: {outcome.reason or 'by a hook'}")
        value = outcome.value
        received: Perception = replace(perception, content=value) if isinstance(value, str) else value
        return received

    async def wait(self, run_id: str, timeout: float | None = 30.0) -> RunStatus:
        """What became of a run, or status `timeout` after so many seconds; waiting never stops the run.

        Raises: LookupError for a run that is not known.
        """
        return await self.runs.wait(run_id, timeout)

    async def abort(self, run_id: str) -> None:
        """End a run: a queued one never starts, a running one's phase is cancelled; returns when that has settled.

        Raises: LookupError for a run that is not known. After the run's end it does nothing.
        """
        run = self.runs.get(run_id)
        if run.status is None:
            await self._call_off(run, "aborted")

    async def _call_off(self, run: Run, reason: str) -> None:
        """End a run with this error, wherever it is: in the queue, in a phase, between two cycles."""
        lane, end = self._lane(run.session), End("error", reason)
        if not lane.drop(run) and lane.run is run and lane.cycle is not None:
            if lane.stop_reason:
                lane.stop_reason = reason  # cut already, for another reason
            else:
                lane.cut(reason)
            grace = self.steps[lane.cycle.phase].grace
            if (await self.runs.wait(run.id, grace)).status == "timeout":
                lane.strand.abandon()
                await self.runs.wait(run.id, grace)
        if lane.run is run:
            lane.run = None
        self.runs.end(run, end)
        self._retire(lane)

    def _run_is_late(self, run: Run) -> None:
        """A run has taken as long as it may; one that does not go on now is judged after its next cycle."""
        if self.state in ("running", "pausing"):
            self._in_background(self._call_off(run, too_long(self.runs.timeout)), "ending of a run")

    def push(self, perception: Perception) -> bool:
        """Hand a perception to its session's lane, which wakes at once; False when its inbox is full.

        From any thread. What another thread pushed and there was no room for after all is counted in `refused`.
        """
        if not isinstance(perception, Perception):
            raise TypeError(f"push takes a Perception, found {perception!r}")
        if self._full(perception.session) is not None:
            self.refused += 1
            return False
        if self._is_foreign_thread():
            return self._in_loop(lambda: self.push(perception))
        lane = self._lane(perception.session)
        lane.push(perception)
        self._spawn(lane)
        return True

    def _full(self, session: str) -> str | None:
        """Why nothing more can wait for this session; None if there is room. From any thread."""
        lane = self.lanes.get(session)
        if lane is not None and lane.waiting >= INBOX_LIMIT:
            return f"session {session!r} already has {lane.waiting} messages waiting"
        if lane is None and len(self.lanes) >= SESSIONS_LIMIT:
            return f"{SESSIONS_LIMIT} sessions already wait for their turn"
        return None

    def wake(self) -> None:
        """Begin the next cycle of the standing lane at once; from any thread."""
        self._in_loop(self._wake_standing)

    def _is_foreign_thread(self) -> bool:
        return self.event_loop is not None and threading.get_ident() != self._thread_id

    def _in_loop(self, act: Callable[[], object]) -> bool:
        """Do something in the event loop's thread, at once if this is it; False when that loop is closed."""
        if not self._is_foreign_thread():
            act()
            return True
        assert self.event_loop is not None
        try:
            self.event_loop.call_soon_threadsafe(act)
        except RuntimeError:
            return False
        return True

    def on(self, kind: type[Event]) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
        """Decorator: call the function for each event of this class."""

        def connect(handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
            self.events.subscribe(kind, handler)
            return handler

        return connect

    def hook(self, point: str, *, priority: int = 0, timeout: float | None = None) -> Callable[[Hook], Hook]:
        """Decorator: ask the function at this point; see `spar.hooks.POINTS`."""

        def register(function: Hook) -> Hook:
            self.hooks.add(point, function, priority=priority, timeout=timeout)
            return function

        return register

    # -- stepping

    async def step_sense(self) -> list[Perception]:
        """Run just the sense phase and return what it noticed. Begins a new chain of steps, which share a cycle.

        Steps work when the agent is created, paused or stopped. Raises: LifecycleError otherwise; what sense raised.
        """
        return list(await self._step("sense", None))

    async def step_plan(self, perceptions: Perception | Sequence[Perception] | None = None) -> Action | None:
        """Plan on these perceptions (default: what the last step sensed, or nothing) and return the action."""
        given = [perceptions] if isinstance(perceptions, Perception) else perceptions
        action = await self._step("plan", given)
        assert action is None or isinstance(action, Action)
        return action

    async def step_act(self, action: Action | None = None) -> ActionResult:
        """Execute this action (default: the last step's) for real. A failure is in the result, not raised."""
        result = await self._step("act", action)
        assert isinstance(result, ActionResult)
        return result

    async def step_reflect(self, result: ActionResult | None = None) -> Reflection:
        """Reflect on this result (default: the last step's); its experiences are stored and the chain's cycle ends."""
        reflection = await self._step("reflect", result)
        assert isinstance(reflection, Reflection)
        return reflection

    async def _step(self, phase: Phase, given: Any) -> Any:
        self._demand("step", f"step_{phase}")
        if self._is_inside():
            raise LifecycleError(f"step_{phase}", "in the middle of a cycle or a handler")
        self._bind()
        return await self._exclusively(functools.partial(self._step_alone, phase, given), f"step_{phase}")

    async def _step_alone(self, phase: Phase, given: Any) -> Any:
        self._demand("step", f"step_{phase}")
        given = self._step_input(phase, given)
        self._has_stepped = True
        await self.open()
        lane = self._lane(STANDING)
        if phase == "sense" or self._chain is None:
            self._close_chain()
            self._chain = lane.opened()
            self._chain.is_stepped = True
        cycle = self._chain
        if phase in INPUT:
            setattr(cycle, INPUT[phase], given)
        lane.cycle, cycle.error, cycle.is_cut = cycle, None, True
        self._stepping = True
        try:
            product = await self._on_strand(lane, self._stepped(lane, cycle, phase, given))
            cycle.is_cut = False
        except asyncio.CancelledError as error:
            if _is_cancelled():
                raise
            raise SparError(f"step_{phase} was interrupted: {self.modules[phase].name} cancelled itself") from error
        finally:
            self._stepping, lane.cycle, lane.stop_reason = False, None, ""
        if cycle.error is not None and phase != "act":
            raise cycle.error
        if phase == "reflect":
            self._close_chain()
        return product

    def _step_input(self, phase: Phase, given: Any) -> Any:
        """What the phase is to work on: what was given or what the last step brought. Raises: ValueError, TypeError."""
        if phase not in INPUT:
            return None
        if given is None:
            given = () if self._chain is None else getattr(self._chain, INPUT[phase])
        if phase == "plan":
            if isinstance(given, str) or not all(isinstance(item, Perception) for item in given):
                raise TypeError(f"step_plan takes a Perception or a list of them, found {given!r:.60}")
            return list(given)
        kind: type = Action if phase == "act" else ActionResult
        if given is None or given == ():
            before = {"act": "step_plan() brought no action", "reflect": "step_act() brought no result"}[phase]
            raise ValueError(f"nothing to {phase} on: {before}, and none was given")
        if not isinstance(given, kind):
            raise TypeError(f"step_{phase} takes the {kind.__name__} of the step before, found {given!r:.60}")
        return given

    async def _stepped(self, lane: Lane, cycle: Cycle, phase: Phase, given: Any) -> Any:
        try:
            product = await lane.loop.phase(phase, cycle, given)
            setattr(cycle, PRODUCT[phase], product)
            return product
        except Skip:
            if cycle.error is None:
                cycle.error = PermissionError(f"a hook refused step_{phase}")
            return None

    async def _on_strand(self, lane: Lane, work: Any) -> Any:
        """Run work on a lane that does not turn; cancelled, it cancels the phase and a grace later leaves it behind."""
        outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        async def main() -> None:
            product = await work
            if not outcome.done():
                outcome.set_result(product)

        def ended(error: BaseException | None) -> None:
            if not outcome.done():
                outcome.set_exception(error or asyncio.CancelledError())
                outcome.exception()  # retrieved here in case nobody waits any more

        self._start_inside(lane, main(), ended)
        try:
            return await asyncio.shield(outcome)
        except asyncio.CancelledError:
            if not outcome.done():
                assert lane.cycle is not None
                grace = self.steps[lane.cycle.phase].grace
                lane.cut("step called off")
                for give_up in (lane.strand.abandon, lane.strand.abandon):
                    await asyncio.wait([outcome], timeout=grace)
                    if not outcome.done():
                        give_up()
            raise

    def _close_chain(self) -> None:
        if self._chain is not None:
            cycle, self._chain = self._chain, None
            self._lane(STANDING).closed(cycle)

    # -- what lanes and health ask of it

    def report(self, cycle: Cycle, fault: Fault, error: BaseException, policy: str) -> None:
        """Say that a phase failed, everywhere it is to be said, and do what its policy asks of the agent."""
        if policy != "retry":
            cycle.error = error
        log.warning("phase failed", agent=self.name, cycle=cycle.id, phase=fault.phase, part=fault.part,
                    fault=fault.kind, reason=fault.message, policy=policy)  # fmt: skip
        if policy != "retry":
            self.account.errors_by_phase[fault.phase] += 1
        self.events.publish(
            ErrorOccurred(cycle_id=cycle.id, phase=fault.phase, error=fault, policy=policy, exception=error)
        )
        if isinstance(error, PhaseTimeoutError):
            alert = self.health.alert("stuck", f"{fault.phase}: {fault.message}", cycle_id=cycle.id)
            step = "abandon" if error.was_left_behind else "cancel"
            self.events.publish(RecoveryStep(step=step, part=fault.part, reason=fault.message, alert_id=alert.id))
        if policy == "pause":
            self.request_pause()
        elif policy == "stop":
            self._request_stop()

    def report_hook_faults(self, cycle_id: str, outcome: Any) -> None:
        for fault in outcome.faults:
            log.warning(
                "hook failed", agent=self.name, cycle=cycle_id, hook=fault.part, point=fault.phase, reason=fault.message
            )
            self.events.publish(ErrorOccurred(cycle_id=cycle_id, phase=fault.phase, error=fault, policy="continue"))

    def remember(self, cycle: Cycle, duration: float) -> None:
        """Hand what a cycle came to to the background writer."""
        reflection, keeper = cycle.reflection, self._keeper
        if reflection is not None:
            for ability in reflection.abilities:
                self.abilities[ability_key(ability.tool, ability.task)] = ability
        if keeper is None:
            return
        for experience in _experiences(cycle):
            keeper.keep(experience)
        if keeper.wants_cycles:
            keeper.keep(cycle.record(self.name, duration))

    async def settle(self, cycle: Cycle) -> None:
        """Between two cycles: what has been seen through is told to the sense module; a failing module is restarted."""
        if cycle.faults:
            await self.health.mend()
        # Only the standing lane polls, so only its cycles have seen through what the sensors handed over.
        if self.settled is not None and cycle.session == STANDING and cycle.perceptions and not cycle.faults:
            try:
                await self.settled()
            except Exception as error:
                self.report(cycle, Fault.of(error, part=self.modules["sense"].name, phase="sense"), error, "continue")

    async def restart_module(self, phase: Phase) -> None:
        """Close one module and open it again; what that raises is reported and leaves the module as it is."""
        part = self.modules[phase].part
        for opening in self._openings:
            if opening.part is part:
                await opening.close(CLOSE_WITHIN)
                try:
                    await opening.open()
                except Exception as error:
                    fault = Fault.of(error, part=opening.name, phase=phase)
                    self.events.publish(
                        ErrorOccurred(cycle_id="", phase=phase, error=fault, policy="restart", exception=error)
                    )

    def degrade(self, reason: str) -> bool:
        """Let the planner fall back, if it can; True if it did."""
        fall_back = getattr(self.modules["plan"].part, "degrade", None)
        return bool(fall_back(reason)) if fall_back is not None else False

    def restore(self) -> None:
        """The agent is well again: the first planner decides again."""
        back = getattr(self.modules["plan"].part, "restore", None)
        if back is not None:
            back()

    async def exchange(self, parts: Mapping[str, Any], settings: Settings) -> None:
        """Put other modules and settings in the place of today's, between two cycles; work in hand finishes first.

        Raises: what opening a new module raises; everything then stays as it was.
        """
        was_running = self.state == "running"
        if was_running:
            await self.pause()
        try:
            old, old_openings = self.modules, self._openings
            given = {phase: parts.get(phase, module.part) for phase, module in old.items()}
            self._take_modules(given)
            kept = {id(opening.part): opening for opening in old_openings}
            self._openings = [kept.get(id(opening.part), opening) for opening in self._openings]
            fresh = [opening for opening in self._openings if opening not in old_openings]
            try:
                if self.state != "created":
                    await self.open()
            except BaseException:
                for opening in fresh:
                    await opening.close(CLOSE_WITHIN)
                self._take_modules({phase: module.part for phase, module in old.items()})
                self._openings = old_openings
                raise
            for opening in reversed([opening for opening in old_openings if opening not in self._openings]):
                await opening.close(CLOSE_WITHIN)
            self.apply(settings)
        finally:
            if was_running and self.state == "paused":
                await self.resume()

    # -- inside: modules

    async def open(self) -> None:
        """Open the modules, in order; the first that fails closes those before it. Idempotent."""
        if not self._has_loaded:
            await self._ask("agent_bootstrap", self)
        host = Host(self.name, self.clock, self.events, self.hooks, self.wake, self._state_store(), self.home)
        opened: list[Opening] = []
        try:
            for opening in self._openings:
                if opening.is_open:
                    continue
                attach = getattr(opening.part, "attach", None)
                if callable(attach):
                    attach(host)
                opened.append(opening)
                await opening.open()
            if not self._has_loaded:
                await self._load()
        except BaseException:
            await self._close_all(opened)
            raise

    def _take_modules(self, given: Mapping[Phase, Any]) -> None:
        self.modules = {phase: Module(phase, part, self.clock) for phase, part in given.items()}
        perceive = getattr(self.modules["sense"].part, "perceive", None)
        self.perceive: Callable[..., Any] | None = perceive if callable(perceive) else None
        settled = getattr(self.modules["sense"].part, "settled", None)
        self.settled: Callable[[], Any] | None = settled if callable(settled) else None
        self._openings = []
        for part in (self.memory, *(module.part for module in self.modules.values())):
            if part is not None and all(opening.part is not part for opening in self._openings):
                self._openings.append(Opening(part, type(part).__qualname__, self._lost))

    def _step_of(self, phase: Phase) -> Step:
        """How a phase is run: its module, its contract and the terms that the settings give it."""
        given = getattr(self.settings.agent.phases, phase)
        policy = getattr(self.settings.agent.errors, phase)
        retries = given.retries or (RETRIES if policy == "retry" else 0)
        return Step(
            phase,
            self.modules[phase].name,
            PRODUCT_OF[phase],
            self.account.phases[phase].add,
            given.timeout or float("inf"),
            retries + 1,
            Backoff(given.backoff, 60.0),
            given.grace,
            policy,
        )

    async def _close_all(self, openings: Sequence[Opening]) -> None:
        for opening in reversed(openings):
            error = await opening.close(CLOSE_WITHIN)
            if error is not None:
                fault = Fault.of(error, part=opening.name, phase="close")
                log.warning("closing failed", agent=self.name, part=opening.name, reason=fault.message)
                self.events.publish(ErrorOccurred(cycle_id="", phase="close", error=fault, policy="continue"))

    def _lost(self, opening: Opening, error: BaseException) -> None:
        """A module has closed by itself, as one does whose background task failed."""
        fault = Fault.of(error, part=opening.name, phase="open")
        log.error("module ended by itself", agent=self.name, part=opening.name, reason=fault.message)
        self.events.publish(ErrorOccurred(cycle_id="", phase="open", error=fault, policy="continue", exception=error))

    async def _close(self) -> None:
        """Flush, save, close: after this nothing of the agent is open."""
        self._close_chain()
        if self._keeper is not None:
            await self._flush(self._keeper)
            await self._save()
        await self._close_all(self._openings)

    async def _flush(self, keeper: Keeper) -> None:
        """Have everything written that was accepted; a failure is said and does not keep the agent from stopping."""
        try:
            is_written = await keeper.flush(CLOSE_WITHIN)
        except Exception as error:
            log.error("store not flushed", agent=self.name, reason=str(error))
        else:
            if not is_written:
                log.error("experiences not stored in time", agent=self.name, waiting=keeper.waiting)

    def _state_store(self) -> Any:
        return self.memory if hasattr(self.memory, "load") and hasattr(self.memory, "save") else None

    async def _load(self) -> None:
        store = self._state_store()
        state = None if store is None else await _in_time(store.load(f"agent:{self.name}"), "the store's load")
        self._has_loaded = True
        if isinstance(state, dict):
            self.account.restore(state.get("stats") or {})
            self.events.seq = max(self.events.seq, int(state.get("seq") or 0))
            for item in state.get("abilities") or []:
                try:
                    ability = msgspec.convert(item, Ability)
                except msgspec.ValidationError as error:  # of another version: what does not fit is learnt again
                    log.warning("ability not taken over", agent=self.name, reason=str(error))
                else:
                    self.abilities[ability_key(ability.tool, ability.task)] = ability

    async def _save(self) -> None:
        store = self._state_store()
        if store is None or not self._has_loaded:
            return
        abilities = [msgspec.structs.asdict(ability) for ability in self.abilities.values()]
        state = {"stats": self.account.state(), "seq": self.events.seq + SEQ_AHEAD, "abilities": abilities}
        try:
            await _in_time(store.save(f"agent:{self.name}", state), "the store's save")
        except Exception as error:
            log.error("state not saved", agent=self.name, reason=str(error))

    # -- inside: lanes

    def _lane(self, session: str) -> Lane:
        lane = self.lanes.get(session)
        if lane is None:
            lane = self.lanes[session] = Lane(self, session)
        return lane

    def _spawn_all(self) -> None:
        self._lane(STANDING)
        self._spawn(*list(self.lanes.values()))

    def _spawn(self, *lanes: Lane) -> None:
        """Give lanes their task that have none and something to do, as far as the limit of sessions allows it."""
        if self.state != "running":
            return
        idle = [lane for lane in lanes if lane.strand.task is None and (lane.is_standing or lane.has_work)]
        if not idle:
            return
        alive = sum(other.strand.task is not None and not other.is_standing for other in self.lanes.values())
        for lane in idle:
            if not lane.is_standing:
                if alive >= self.settings.runs.limit:
                    continue
                alive += 1
            lane.stop_reason = ""
            lane.wake.clear()  # its first cycle comes at once
            self._start_inside(lane, lane.live(), functools.partial(self._lane_ended, lane))

    def _retire(self, lane: Lane) -> None:
        """Forget a session's lane that has nothing left to do."""
        if not lane.is_standing and not lane.has_work and lane.strand.task is None:
            self.lanes.pop(lane.session, None)

    def _start_inside(self, lane: Lane, main: Any, done: Callable[[BaseException | None], object]) -> None:
        token = _inside.set((*_inside.get(), self))
        try:
            lane.strand.start(main, done)
        finally:
            _inside.reset(token)

    def _lane_ended(self, lane: Lane, error: BaseException | None) -> None:
        was_cut, lane.cycle = bool(lane.stop_reason), None
        if error is not None and not isinstance(error, asyncio.CancelledError):
            self._lane_broke(lane, error)
        elif error is not None and not was_cut and self.state == "running":
            # Cancelled by nobody we know: the event loop is being shut down under us.
            self.failure = "its task was cancelled from outside"
            self._enter("failed")
        self._retire(lane)
        self._spawn(*list(self.lanes.values()))
        self._settle()

    def _lane_broke(self, lane: Lane, error: BaseException) -> None:
        """The loop itself failed, which no module can make it do: restart it, but not for ever."""
        log.error("loop failed", agent=self.name, session=lane.session, reason=repr(error))
        fault = Fault.of(error, part="loop")
        self.events.publish(ErrorOccurred(cycle_id="", phase="loop", error=fault, policy="restart", exception=error))
        if self.state in ("running", "pausing") and not self._lane_restarts.allow(self.clock.monotonic()):
            often = f"more than {self._lane_restarts.limit} times within {self._lane_restarts.within:g} s"
            self.failure = f"the loop failed {often}: {fault.message}"
            self._enter("failed")

    def _settle(self) -> None:
        """Once no lane turns any more, a pause that was asked for has come."""
        if self.state == "pausing" and self._is_quiet():
            self._enter("paused")
        self._notify()

    def _is_quiet(self) -> bool:
        return all(lane.strand.task is None for lane in self.lanes.values())

    def _wake_lanes(self) -> None:
        for lane in self.lanes.values():
            lane.wake.set()

    def _wake_standing(self) -> None:
        if (lane := self.lanes.get(STANDING)) is not None:
            lane.wake.set()

    # -- inside: states

    def _demand(self, what: str, action: str | None = None) -> None:
        if what not in LEGAL[self.state]:
            raise LifecycleError(action or what, self.state, LEGAL[self.state])

    def _enter(self, state: State) -> None:
        old = self.state
        assert state in FOLLOWS[old], f"{old} -> {state}"
        self.state = state
        log.info("state changed", agent=self.name, old=old, new=state)
        if state == "running":
            self._begin_watch()
        elif state in ("stopped", "failed"):
            self._end_watch()
        self.events.publish(StateChanged(old=old, new=state))
        self._notify()

    async def _stop(self) -> None:
        try:
            await self._outwait()
            self._exclusive = asyncio.current_task()
            if self.state not in ("created", "stopped"):
                await self._ask("service_stop", self)
                self._enter("stopping")
            elif not self._has_stepped:
                return
            try:
                self._wake_lanes()
                await self._drain()
                await self._close()
            finally:
                if self.state == "stopping":
                    self._enter("stopped")
            self._has_stepped = False
            try:
                async with asyncio.timeout(1.0):
                    await self.events.drain()
            except TimeoutError:
                log.warning("handlers still busy", agent=self.name)
            self.events.close()
        finally:
            self._stop_by = float("inf")
            if self._exclusive is asyncio.current_task():
                self._exclusive = None
            self._notify()

    async def _outwait(self) -> None:
        """Wait until no start and no step is being made; what is not done by the deadline of a stop is cancelled."""
        while (task := self._exclusive) is not None:
            left = self._stop_by - self.clock.monotonic()
            if left <= 0 and not task.cancelling():
                task.cancel()
            await self._change(left if left > 0 else None)

    async def _exclusively(self, work: Callable[[], Coroutine[Any, Any, R]], name: str) -> R:
        """Do what must not overlap with its like (a start, a step, a resume), in a task of its own.

        Cancelling the caller cancels the work and waits until it has cleaned up behind itself.
        Raises: LifecycleError when a stop called it off.
        """

        async def alone() -> R:
            while self._exclusive is not None:
                await self._change()
            self._exclusive = asyncio.current_task()
            try:
                return await work()
            finally:
                self._exclusive = None
                self._notify()

        task = self._in_background(alone(), name)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.done() and not _is_cancelled():
                raise LifecycleError(name, "stopping", LEGAL["stopping"]) from None
            task.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait([task])
            raise

    async def _unless_inside(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Await work that may have to wait for the cycle in hand; inside one it goes on behind our back."""
        if self._is_inside():
            self._in_background(work, name)
        else:
            await work

    async def _drain(self) -> None:
        """Wait for the cycles in hand, cancel what is not done by the deadline, leave what ignores that."""
        grace = max(step.grace for step in self.steps.values())
        for answer, more in ((None, 0.0), ("cut", grace), ("abandon", grace)):
            for lane in list(self.lanes.values()):
                if lane.strand.task is not None and answer == "cut":
                    lane.cut(lane.stop_reason or "stop")
                elif lane.strand.task is not None and answer == "abandon":
                    lane.strand.abandon()
            while not self._is_quiet():
                left = self._stop_by + more - self.clock.monotonic()
                if left <= 0:
                    break
                await self._change(left)

    async def _change(self, timeout: float | None = None) -> None:
        """Wait until something about the agent changes, at most `timeout` seconds."""
        if self._changed is None:
            self._changed = asyncio.Event()
        changed = self._changed
        if timeout is None or timeout == float("inf"):
            await changed.wait()
            return
        timer = self.clock.call_at(self.clock.monotonic() + timeout, self._notify)
        try:
            await changed.wait()
        finally:
            timer.cancel()

    def _notify(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    def _bind(self) -> None:
        """Belong to the event loop that runs now; after a stop, or when its old one has ended, it may be another.

        Raises: RuntimeError when the agent's own loop still runs, in another thread.
        """
        loop, old = asyncio.get_running_loop(), self.event_loop
        if old is loop:
            return
        if old is not None and old.is_running() and self.state not in ("created", "stopped"):
            raise RuntimeError(
                f"agent {self.name!r} belongs to another event loop, which still runs: call it from there"
            )
        self.event_loop, self._thread_id = loop, threading.get_ident()
        self._changed = self._exclusive = self._stop_task = None
        if self.state not in ("created", "stopped", "failed"):
            self.failure = "its event loop ended"
            self.lanes = {session: lane for session, lane in self.lanes.items() if self._revived(lane)}
            self._enter("failed")

    def _revived(self, lane: Lane) -> bool:
        """Free a lane from a loop that ended in the middle of its work; whether it still has something to do."""
        lane.strand, lane.wake, lane.cycle = Strand(lane.strand.name, self.clock), Wake(self.clock), None
        lane.loop.strand = lane.strand
        return lane.has_work

    def _is_inside(self) -> bool:
        return self in _inside.get() or self.events in HANDLING.get()

    def _request_stop(self) -> asyncio.Task[None]:
        if self._stop_task is None or self._stop_task.done():
            self._stop_task = self._in_background(self._stop(), "stop")
        return self._stop_task

    def _in_background(self, work: Coroutine[Any, Any, R], name: str) -> asyncio.Task[R]:
        context = contextvars.copy_context()
        context.run(_inside.set, ())
        context.run(HANDLING.set, ())
        task = asyncio.get_running_loop().create_task(work, name=f"{name} {self.name}", context=context)
        self._requests.add(task)
        task.add_done_callback(self._done_in_background)
        return task

    def _done_in_background(self, task: asyncio.Task[Any]) -> None:
        self._requests.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.debug("request failed", agent=self.name, request=task.get_name(), reason=repr(error))

    def _begin_watch(self) -> None:
        if self.clock.is_virtual:
            self._watch = self._watch or LoopWatcher(self)
        else:
            watcher.add(self)

    def _end_watch(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        watcher.remove(self)

    async def _ask(self, point: str, value: Any) -> None:
        if self.hooks.at(point):
            await self._asked(HookContext(point, self.name, value))

    async def _asked(self, ctx: HookContext) -> Outcome:
        """What the hooks say, their faults reported; what they ask of the agent are requests."""
        token = _inside.set((*_inside.get(), self))
        try:
            outcome = await self.hooks.run(ctx)
        finally:
            _inside.reset(token)
        self.report_hook_faults("", outcome)
        return outcome

    def _handler_failed(self, name: str, error: Exception, turned_off: bool) -> None:
        log.warning("handler failed", agent=self.name, handler=name, reason=repr(error), turned_off=turned_off)


def _is_cancelled() -> bool:
    """Whether somebody has cancelled the current task, as opposed to what it awaited."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _in_time(work: Coroutine[Any, Any, R], what: str) -> R:
    """Await something foreign that may hang, and even ignore its cancellation. Raises: TimeoutError; what it raises."""
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait([task], timeout=CLOSE_WITHIN)
    finally:
        task.cancel()
    if not done:
        raise TimeoutError(f"{what} took longer than {CLOSE_WITHIN:g} s")
    return task.result()


@functools.cache
def _default_settings() -> Settings:
    from spar.settings import from_mapping

    return from_mapping({})


def _settings_of(given: Mapping[str, Any] | Settings | None) -> Settings:
    if given is None:
        return _default_settings()
    from spar.settings import Settings, from_mapping

    return given if isinstance(given, Settings) else from_mapping(given)


def _with_defaults(sense: Any, plan: Any, act: Any, reflect: Any, given: Iterable[Any]) -> dict[Phase, Any]:
    """The four parts, with what stands in for those that were not given."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ConfigError(f"tools= must be a list of tools, found {given!r}")
    tools = tuple(given)
    if act is None:
        act = defaults.executor(tools) if plan is not None or tools else defaults.act_nothing
    elif tools:
        raise ConfigError("tools= belong to the built-in executor: give them to your act module, or leave act= out")
    if reflect is None:
        reflect = defaults.reflector() if plan is not None else defaults.reflect_nothing
    return {
        "sense": sense if sense is not None else defaults.sense_nothing,
        "plan": plan if plan is not None else defaults.plan_nothing,
        "act": act,
        "reflect": reflect,
    }


def _experiences(cycle: Cycle) -> Iterable[Experience]:
    """What is remembered of a cycle; of one whose reflection failed at least what was done and how it ended."""
    if cycle.reflection is not None:
        return cycle.reflection.experiences
    if cycle.result is None or cycle.written_action is None:
        return ()
    action = cycle.written_action
    situation = "; ".join(perception.text[:200] for perception in action.perceptions[:3])
    calls = ", ".join(call.tool for call in action.calls[:20])
    cause = next((fault.message for fault in cycle.faults), "")
    return (Experience(situation, calls, cycle.result.status, session=cycle.session, cause=cause, origin=cycle.id),)
