"""Agent as programs use it: start, stop, pause, resume, single steps, messages, and its status.

    agent = Agent(sense=sense, plan=plan, act=act, reflect=reflect, loop_interval=1.0)
    async with agent:
        ...

This module is the public interface. `spar.agent.parts` constructs the parts, and each subject has its own: its states
`spar.agent.lifecycle`, its sessions `spar.session.sessions`, new work `spar.agent.submission`, single steps
`spar.steps.steps`, its modules `spar.agent.lifespan`, its state that outlives the process
`spar.journal.state.agent_state`, its event loop `spar.loop.core`, its error reports `spar.health.error_reporting`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from spar.agent.parts import AgentParts
from spar.checks import shorten
from spar.clock import Clock, SystemClock
from spar.errors import ConfigError
from spar.events import Event
from spar.hooks import Hook
from spar.loop.setup import Interval, Pace, check_interval
from spar.observe.stats import Snapshot
from spar.parts import defaults
from spar.records.run_options import RunOptions
from spar.records.runs import Receipt, RunStatus
from spar.records.session import Origin, SessionRecord
from spar.types import Action, ActionResult, Call, Perception, Phase, Reflection

if TYPE_CHECKING:
    from spar.config.tables.settings import Loaded, Settings
    from spar.parts.registry import Registry
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
    from spar.review.pending_approvals import AgentApprovals


#: The clock of all agents that are given none. It has no state.
_CLOCK = SystemClock()
#: The public names of an agent.
PUBLIC = (
    "abort", "accept", "approvals", "budgets", "clock", "events", "exchange", "from_config", "hook", "hooks",
    "is_running", "loop_interval", "memory", "name", "on", "pause", "push", "recovery", "refused", "reset", "resume",
    "run", "settings", "start", "state", "stats", "step_act", "step_plan", "step_reflect", "step_sense", "stop",
    "submit", "wait", "wake",
)  # fmt: skip


class Agent(AgentParts):
    """A continuous loop over four modules, each an object with the phase's method or a bare function.

    Args:
        sense, plan, act, reflect: the modules; without them it senses nothing, plans nothing, executes calls of
        `tools`, and reflects by the built-in reflector.
        tools: functions or tools that the built-in executor may call.
        name: its name in events, logs and metrics.
        loop_interval: seconds between cycles, "adaptive", 0 (no pause) or "off" (only pushed work begins a cycle).
        settings: a mapping shaped like config.toml, `Settings`, or what `load` returned.
        memory: an object with `await store(experience)`; may also have `recall`, `record`, `load` and `save`.
        clock: the source of time.
        home: the folders of the service, for parts that need them.
        confirm: a function that takes a call and returns a verdict; it is asked instead of people.
        attach: attachments (`spar.attaching`), in order: functions, objects, or names as in `[[attachments]]`.
    Raises: ConfigError for an invalid setting, ContractError for an invalid module.
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
        settings: Mapping[str, Any] | Settings | Loaded | None = None,
        memory: Any = None,
        clock: Clock | None = None,
        home: Home | None = None,
        confirm: Callable[[Call], Any] | None = None,
        attach: Iterable[Any] = (),
    ) -> None:
        checked_settings = defaults.settings(settings)
        if name is not None and (not isinstance(name, str) or not name.strip()):
            raise ConfigError(f"name = {shorten(name)}: must be text that is not empty", path=("agent", "name"))
        super().__init__(name or checked_settings.agent.name, clock or _CLOCK, checked_settings, memory, home)
        self.lifespan.take(defaults.modules(sense, plan, act, reflect, tools, checked_settings, settings, confirm,
                                            has_memory=memory is not None))  # fmt: skip
        self.apply(checked_settings)
        if loop_interval is not None:
            self.loop_interval = loop_interval
        for given in attach:
            is_name = isinstance(given, str)
            self.attachments.add(defaults.attachment(given) if is_name else given, "attach=", given if is_name else "")

    def __repr__(self) -> str:
        return f"<Agent {shorten(self.name, 100)}, {self.state}>"

    def __dir__(self) -> list[str]:
        """List the public names only, because internal names may change."""
        return sorted({*object.__dir__(self)} & {*PUBLIC, *dir(object)})

    @classmethod
    def from_config(cls, path: str, **overrides: Any) -> Agent:
        """Return the agent that a configuration file describes.

        Args: path: the file; overrides: dotted keys of settings with `__` for the dots (`log__level="debug"`).
        Raises: ConfigError that lists all errors, with file and line.
        """
        from spar.config.load import load

        dotted = {key.replace("__", "."): value for key, value in overrides.items()}
        return build_agent(load(path, overrides=dotted))

    # -- its status

    @property
    def stats(self) -> Snapshot:
        """Return a snapshot of the statistics so far; may be called from any thread."""
        return self.account.snapshot()

    def stats_of(self, session: str) -> Snapshot:
        """Return a snapshot of the statistics of one session in this process; may be called from any thread.

        Raises: LookupError for a session that has completed no cycle, or none for so long that it was forgotten.
        """
        return self.session_accounts.snapshot(session)

    @property
    def loop_interval(self) -> Interval:
        """Return the seconds between cycles, "adaptive", 0 or "off". It may be set at any time and counts from the next
        wait on.

        Raises: ConfigError for any other value.
        """
        return self.setup.pace.interval

    @loop_interval.setter
    def loop_interval(self, interval: Interval) -> None:
        check_interval(interval)
        pace = self.setup.pace
        self.setup.pace = Pace(interval, pace.min_interval, pace.max_interval, pace.busy_count)
        self.requests.in_loop(self.sessions.wake_all)

    @property
    def is_running(self) -> bool:
        """Return whether the agent runs cycles: it was started, and neither paused nor stopped."""
        return self.state == "running"

    @property
    def refused(self) -> int:
        """Return how many perceptions were refused for lack of room."""
        return self.conversations.submission.refused if self.has_conversations else 0

    # -- control

    async def __aenter__(self) -> Agent:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    # -- work

    def submit(
        self,
        message: str | Perception,
        *,
        session: str | None = None,
        mode: str | None = None,
        idempotency_key: str | None = None,
        output: Mapping[str, Any] | None = None,
        options: RunOptions | Mapping[str, Any] | None = None,
        origin: Origin | None = None,
    ) -> Coroutine[Any, Any, Receipt]:
        """Accept a message as a run of its session; return at once its receipt, with the id of the run.

        Args: session: its key; None: the one that the perception names, "main" for a text; mode: what happens to it
        while the session has a run: `followup steer collect interrupt`; None: the setting `runs.queue_mode`; output:
        the JSON schema of a model's answer; options: its `model instructions thinking timeout verbose`, where they
        differ from those of its session; origin: the interface, channel and sender that it came through, recorded with
        a session that it begins.
        The same `idempotency_key` returns the same receipt again. A paused agent accepts messages and processes them
        later.
        Raises: ValueError for an empty message, LifecycleError when stopped, InboxFullError when too much work waits,
        PermissionError for instructions of an untrusted source, NotReadyError before the start of an agent whose memory
        keeps a journal, since accepted means on disk.
        """
        submission = self.conversations.submission
        return submission.submit(message, session, mode, idempotency_key, output, options, origin)

    def wait(self, run_id: str, timeout: float | None = 30.0) -> Coroutine[Any, Any, RunStatus]:
        """Return the status of a run once it has ended, or status `timeout` after so many seconds. Waiting never stops
        the run.

        Raises: LookupError for an unknown run.
        """
        return self.runs.wait(run_id, timeout)

    async def abort(self, run_id: str) -> None:
        """End a run: a queued one never starts, the phase of a running one is cancelled. Return when that is complete.

        A run that has ended stays as it is.

        Raises: LookupError for an unknown run, NotReadyError while an agent is stopped whose memory keeps a journal:
        the next start would resume the run.
        """
        await self.conversations.submission.abort(run_id)

    async def reset(self, session: str, *, by: str = "") -> SessionRecord:
        """Begin a new conversation in a session: its next message sees nothing of the earlier ones. Return the session.

        Its current and waiting runs end with `error`, reason `reset`. Its transcript, title, defaults and learnt
        abilities are kept. A session without messages since the last reset stays as it is.
        Args: by: who requests it, for the transcript.
        Return when all of it is on disk and the current run has ended; inside a cycle or a handler do not wait.
        Raises: LookupError for a session without messages, LifecycleError when stopped, NotReadyError.
        """
        return await self.conversations.resets.reset(session, by)

    async def feedback(self, run_id: str, good: bool, why: str = "") -> None:
        """Report how a run that has ended went. Its calls and experiences are trusted more, or less.

        A later report replaces an earlier one. With a memory that keeps a journal it is on disk on return.
        Args: run_id: the id of the run, or of a cycle; why: a reason, for people.
        Raises: LookupError for an unknown id, ConflictError while `memory.learning` is "off", NotReadyError.
        """
        await self.attached("learning").give(run_id, good, why)

    async def accept(self, perception: Perception) -> bool:
        """Accept a perception so that it cannot be lost: with a memory that keeps a journal it is on disk on return.
        Return False for an id that was accepted before.

        Raises: InboxFullError when its session's inbox is full, LifecycleError when stopped, NotReadyError as `submit`.
        """
        return await self.conversations.submission.accept(perception)

    def on(self, kind: type[Event]) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
        """Decorator: call the function for each event of this class. Raises: TypeError for another class."""
        decorate: Callable[[Callable[[Any], Any]], Callable[[Any], Any]] = self.events.subscribe(kind)
        return decorate

    def hook(self, point: str, *, priority: int = 0, timeout: float | None = None) -> Callable[[Hook], Hook]:
        """Decorator: call the function at this point (`spar.hooks.POINTS`), the highest priority first.

        Args: timeout: seconds that it may take; None: 15. Raises: ValueError for an unknown point.
        """

        def register(function: Hook) -> Hook:
            self.hooks.add(point, function, priority=priority, timeout=timeout)
            return function

        return register

    @property
    def approvals(self) -> AgentApprovals:
        """Return the calls that wait for a person's decision, to be listed and decided by this program."""
        from spar.review.pending_approvals import AgentApprovals

        return AgentApprovals(self.core, self.setup, self.recovery.demand_ready)

    # -- single steps

    async def step_sense(self) -> list[Perception]:
        """Run the sense phase alone and return its perceptions. This begins a new chain of steps, which share a cycle.

        Steps work when the agent is created, paused or stopped. Raises: LifecycleError otherwise; errors of sense.
        """
        return list(await self.stepper.step("sense", None))

    async def step_plan(self, perceptions: Perception | Sequence[Perception] | None = None) -> Action | None:
        """Plan on these perceptions (default: those of the last step, or none) and return the action.

        Raises: as `step_sense`; TypeError for a wrong input; errors of plan.
        """
        phase_input = [perceptions] if isinstance(perceptions, Perception) else perceptions
        action = await self.stepper.step("plan", phase_input)
        assert action is None or isinstance(action, Action)
        return action

    async def step_act(self, action: Action | None = None) -> ActionResult:
        """Execute this action (default: the last step's) for real. A failure is in the result, not raised.

        Raises: as `step_sense`; ValueError without an action.
        """
        result = await self.stepper.step("act", action)
        assert isinstance(result, ActionResult)
        return result

    async def step_reflect(self, result: ActionResult | None = None) -> Reflection:
        """Reflect on this result (default: the last step's). Its experiences are stored, and the chain's cycle ends.

        Raises: as `step_sense`; ValueError without a result; errors of reflect.
        """
        reflection = await self.stepper.step("reflect", result)
        assert isinstance(reflection, Reflection)
        return reflection

    # -- exchange

    async def exchange(self, parts: Mapping[Phase, Any], settings: Settings) -> None:
        """Replace modules and settings while the agent works.

        New modules are opened beside the old ones. Each session changes to them after its current cycle, and the old
        ones are closed when no session uses them any more.
        Raises: errors of opening a new module; the old modules then stay. LifecycleError when a stop cancelled it.
        """
        await self.exclusively(partial(self.exchange_now, parts, settings), "exchange")


def build_agent(
    loaded: Loaded,
    *,
    clock: Clock | None = None,
    registry: Registry | None = None,
    tools: Iterable[Any] | None = None,
) -> Agent:
    """Return the agent that the settings describe, not started.

    Args: tools: the tools of its calls; None: those that the settings name. Raises: ConfigError.
    """
    from spar.parts.factory import Parts

    parts = Parts(loaded, registry, tools)
    agent = Agent(**parts.modules(), memory=parts.memory(), settings=loaded, clock=clock, home=parts.home)
    agent.lifespan.make = lambda phase: Parts(loaded, registry, tools).module(phase)
    parts.attach(agent.attachments.add, agent.attachments.by_name)
    for register in parts.plugins():
        register(agent)
    return agent
