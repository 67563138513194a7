"""One agent: started, stopped, paused, resumed, stepped; what it knows of itself.

    agent = Agent(sense=sense, plan=plan, act=act, reflect=reflect, loop_interval=1.0)
    async with agent:
        ...

This is its face: what may be asked of it. What it is put together from is `spar.agent.parts`, and each subject has a
part of its own: its states `spar.agent.lifecycle`, who turns `spar.session.sessions`, what comes in
`spar.agent.submission`, single steps `spar.agent.steps`, its modules `spar.agent.lifespan`, what outlives it
`spar.journal.state.agent_state`, the event loop that it belongs to `spar.loop.tasks`, what went wrong
`spar.health.error_reporting`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from spar.agent.approvals import AgentApprovals
from spar.agent.parts import AgentParts
from spar.agent.steps import Steps
from spar.checks import shorten
from spar.clock import Clock, SystemClock
from spar.config import defaults
from spar.errors import ConfigError, ContractError
from spar.events import Event
from spar.hooks import Hook
from spar.loop.cycle import STANDING
from spar.loop.pacing import Interval, Pace, check_interval
from spar.observe.stats import Snapshot
from spar.ports.optional import offers
from spar.ports.store import KeepsExperiences
from spar.protocols import (
    ActFunction,
    ActModule,
    Home,
    PlanFunction,
    PlanModule,
    ReflectFunction,
    ReflectModule,
    SenseFunction,
    SenseModule,
)
from spar.records.run_options import RunOptions
from spar.records.session import Origin, SessionRecord
from spar.runs.run import Receipt, RunStatus
from spar.types import Call, Perception

if TYPE_CHECKING:
    from spar.config.load import Loaded, Settings
    from spar.config.registry import Registry


#: One for all agents that are given none: it keeps nothing.
_CLOCK = SystemClock()
#: What an agent is for whoever uses it.
PUBLIC = (
    "abort", "accept", "approvals", "budgets", "clock", "events", "exchange", "from_config", "hook", "hooks",
    "is_running", "loop_interval", "memory", "name", "on", "pause", "push", "recovery", "refused", "reset", "resume",
    "run", "settings", "start", "state", "stats", "step_act", "step_plan", "step_reflect", "step_sense", "stop",
    "submit", "wait", "wake",
)  # fmt: skip


class Agent(AgentParts, Steps):
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
        confirm: a function that takes a call and returns a verdict, asked in the place of people.
    Raises: ConfigError for a setting that cannot be used, ContractError for a module that is none.
    """

    __slots__ = ()

    def __init__(
        self,
        *,
        sense: SenseModule | SenseFunction | None = None,
        plan: PlanModule | PlanFunction | None = None,
        act: ActModule | ActFunction | None = None,
        reflect: ReflectModule | ReflectFunction | None = None,
        tools: Iterable[Any] = (),
        name: str | None = None,
        loop_interval: Interval | None = None,
        settings: Mapping[str, Any] | Settings | None = None,
        memory: Any = None,
        clock: Clock | None = None,
        home: Home | None = None,
        confirm: Callable[[Call], Any] | None = None,
    ) -> None:
        given = defaults.settings(settings)
        if name is not None and (not isinstance(name, str) or not name.strip()):
            raise ConfigError(f"name = {name!r}: must be text that is not empty", path=("agent", "name"))
        if memory is not None and not offers(memory, KeepsExperiences):
            raise ContractError(f"memory= must be an object with a method 'store', found {memory!r}")
        super().__init__(name or given.agent.name, clock or _CLOCK, given, memory, home)
        self.lifespan.take(defaults.modules(sense, plan, act, reflect, tools, self.settings, settings, confirm))
        self.apply(self.settings)
        if loop_interval is not None:
            self.loop_interval = loop_interval

    def __repr__(self) -> str:
        return f"<Agent {shorten(self.name, 100)}, {self.state}>"

    def __dir__(self) -> list[str]:
        """List what people use of an agent; its inner works have names, too, which are nobody's to rely on."""
        return sorted({*object.__dir__(self)} & {*PUBLIC, *dir(object)})

    @classmethod
    def from_config(cls, path: str, **overrides: Any) -> Agent:
        """The agent that a configuration file describes.

        Args: path: the file; overrides: dotted keys of settings with `__` for the dots (`log__level="debug"`).
        Raises: ConfigError that lists all that is wrong, with file and line.
        """
        from spar.config.load import load

        given = {key.replace("__", "."): value for key, value in overrides.items()}
        return build_agent(load(path, overrides=given))

    # -- what it knows of itself

    @property
    def stats(self) -> Snapshot:
        """A snapshot of the statistics so far; safe from any thread."""
        return self.account.snapshot()

    def stats_of(self, session: str) -> Snapshot:
        """A snapshot of the statistics of one session in this process; safe from any thread.

        Raises: LookupError for a session that has completed no cycle, or none for so long that it was forgotten.
        """
        return self.session_accounts.snapshot(session)

    @property
    def loop_interval(self) -> Interval:
        """Seconds between cycles, "adaptive", 0 or "off"; may be set at any time and counts from the next wait on.

        Raises: ConfigError for anything else.
        """
        return self.pace.interval

    @loop_interval.setter
    def loop_interval(self, interval: Interval) -> None:
        check_interval(interval)
        self.setup.pace = Pace(interval, self.pace.min_interval, self.pace.max_interval, self.pace.busy_count)
        self.requests.in_loop(self.sessions.wake_all)

    @property
    def is_running(self) -> bool:
        """Return whether cycles turn: the agent was started, and neither paused nor stopped."""
        return self.state == "running"

    @property
    def refused(self) -> int:
        """Return how many pushed perceptions there was no room for."""
        return self.submission.refused

    # -- control

    async def start(self, *, resume: bool = False) -> None:
        """Open the modules, start the loop in the background, return once it runs.

        With a memory, an agent whose last process died while it was paused comes back paused, and says so.
        Args: resume: go on all the same.
        Idempotent while running. Inside a cycle or a handler it is a request and returns at once.
        Raises: LifecycleError when paused, or when a `stop` called it off; what a module's opening raises, after
        closing what had been opened: it can be called again.
        """
        await self.lifecycle.start(resume=resume)

    async def run(self) -> None:
        """Start, and return when the agent has been stopped. Cancelling it stops the agent.

        Raises: SparError when the agent failed: its loop had to be restarted more often than it may.
        """
        await self.lifecycle.run()

    async def stop(self, deadline: float | None = None) -> None:
        """Let the cycle in hand finish, flush experiences, save state, close the modules side by side, then the memory.

        Args: deadline: seconds until what still runs (a hook, a cycle, the closing of a module) is cancelled, and a
            grace later left behind; a cycle cut so is recorded as interrupted. None: each step has a bound of its own.
        A second stop with an earlier deadline shortens the first.
        Idempotent. Awaited inside a cycle or a handler it is a request and returns at once.
        Raises: ValueError for a deadline below 0.
        """
        await self.lifecycle.stop(deadline)

    async def pause(self) -> None:
        """Return when the cycles in hand have finished; no new one starts. Idempotent while paused.

        Raises: LifecycleError when the agent has not been started or is stopped. Inside a cycle it is a request.
        """
        await self.lifecycle.pause()

    async def resume(self) -> None:
        """Go on. Idempotent while running. Raises: LifecycleError when the agent has not been started or is stopped."""
        await self.lifecycle.resume()

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
        output: Mapping[str, Any] | None = None,
        options: RunOptions | Mapping[str, Any] | None = None,
        origin: Origin | None = None,
    ) -> Receipt:
        """Accept a message as a run of its session; return its receipt, with the id of the run, at once.

        Args: mode: what becomes of it while the session has a run: `followup steer collect interrupt`; None: as
            `runs.queue_mode` says; output: the JSON schema that a model's answer has to fit; options: its `model
            instructions thinking timeout verbose`, where they are not to be those of its session; origin: the door,
            channel and sender that it came through, kept with a session that it begins.
        The same `idempotency_key` gives the same receipt again. A paused agent accepts and serves later.
        Raises: ValueError for an empty message, LifecycleError when stopped, InboxFullError when too much waits,
            PermissionError for instructions of an untrusted source, NotReadyError before the agent was started where
            its memory keeps a journal: accepted means on disk.
        """
        return await self.submission.submit(message, session, mode, idempotency_key, output, options, origin)

    async def wait(self, run_id: str, timeout: float | None = 30.0) -> RunStatus:
        """Return what became of a run, or status `timeout` after so many seconds; waiting never stops the run.

        Raises: LookupError for a run that is not known.
        """
        return await self.runs.wait(run_id, timeout)

    async def abort(self, run_id: str) -> None:
        """End a run: a queued one never starts, a running one's phase is cancelled; returns when that has settled.

        After its end it does nothing.

        Raises: LookupError for a run that is not known, NotReadyError while the agent is stopped where its memory keeps
            a journal: the next start would go on with the run.
        """
        await self.submission.abort(run_id)

    async def reset(self, session: str, *, by: str = "") -> SessionRecord:
        """Begin a session anew: its next message sees nothing of what was said before; return the session.

        Its runs, under way and waiting, end `error`, reason `reset`. Its transcript is kept, and so are title, defaults
        and what was learnt. One in which nothing was said since it began stays as it is.
        Args: by: who wants it, for the transcript.
        Returns when all of it is on disk and the run in hand has ended; inside a cycle or a handler it does not wait.
        Raises: LookupError for a session that nothing was said in, LifecycleError when stopped, NotReadyError.
        """
        return await self.resets.reset(session, by)

    async def feedback(self, run_id: str, good: bool, why: str = "") -> None:
        """Say how a run that has ended went; the calls and experiences of it are believed more, or less.

        A later word takes the place of an earlier one. With a memory that keeps a journal it is on disk when this
        returns.
        Args: run_id: the id of the run, or of a cycle; why: a reason, for people.
        Raises: LookupError for what is not known, ConflictError while `memory.learning` is "off", NotReadyError.
        """
        await self.given_feedback.give(run_id, good, why)

    async def accept(self, perception: Perception) -> bool:
        """Take a perception in so that it is not lost any more: with a memory that keeps a journal it is on disk when
        this returns. False for one whose id was taken in before.

        Raises: InboxFullError when its session's inbox is full, LifecycleError when stopped, NotReadyError as `submit`.
        """
        return await self.submission.accept(perception)

    def on(self, kind: type[Event]) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
        """Decorator: call the function for each event of this class. Raises: TypeError for another class."""
        decorate: Callable[[Callable[[Any], Any]], Callable[[Any], Any]] = self.events.subscribe(kind)
        return decorate

    def hook(self, point: str, *, priority: int = 0, timeout: float | None = None) -> Callable[[Hook], Hook]:
        """Decorator: ask the function at this point (`spar.hooks.POINTS`), the highest priority first.

        Args: timeout: seconds that it may take; None: 15. Raises: ValueError for an unknown point.
        """

        def register(function: Hook) -> Hook:
            self.hooks.add(point, function, priority=priority, timeout=timeout)
            return function

        return register

    @property
    def approvals(self) -> AgentApprovals:
        """The calls that wait for a person's word, to be listed and decided from this program."""
        return AgentApprovals(self.name, self.setup, self.recovery)

    # -- exchange

    async def exchange(self, parts: Mapping[str, Any], settings: Settings) -> None:
        """Put other modules and settings in the place of today's, without holding up any work.

        New modules are opened beside today's; each session changes over when its cycle in hand has ended, and what is
        replaced is closed when the last one has left it.
        Raises: what opening a new module raises; everything then stays as it was. LifecycleError when a stop called it
        off.
        """
        await self.lifecycle.exclusively(partial(self.exchange_now, parts, settings), "exchange")


def build_agent(loaded: Loaded, *, clock: Clock | None = None, registry: Registry | None = None) -> Agent:
    """Return the agent that the settings describe, not yet started. Raises: ConfigError."""
    from spar.config.factory import Parts, judge_modules, makers, name_of

    parts = Parts(loaded, registry)
    tools = parts.tools()
    planner, actor, reflector = parts.plan([name_of(tool) for tool in tools]), parts.act(tools), parts.reflect()
    judge_modules(planner, actor, reflector, loaded)
    agent = Agent(
        sense=parts.sense(),
        plan=planner,
        act=actor,
        reflect=reflector,
        memory=parts.memory(),
        settings=loaded.settings,
        clock=clock, home=parts.home,
    )  # fmt: skip
    agent.lifespan.makers = makers(parts)
    agent.channels.take(parts.channels())
    for register in parts.plugins():
        register(agent)
    return agent
