"""Parts of one agent: their construction, and their requests to one another.

Each part gets only what it needs in its constructor, never the whole agent. A part that needs another one which is
constructed later (`spar.health.health` needs `spar.agent.lifecycle`, for example) calls the agent through a narrow
port.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from functools import cached_property
from threading import RLock
from typing import TYPE_CHECKING, Any, ClassVar, cast

from spar.agent.lifecycle import Lifecycle
from spar.agent.lifespan import Lifespan, shared
from spar.checks import shorten
from spar.clock import Clock
from spar.decisions.finish import Limits
from spar.errors import ContractError
from spar.health.error_reporting import ErrorReporter
from spar.health.health import Health
from spar.health.watchdog import Watched
from spar.journal.recovery import Recovery
from spar.journal.state.agent_state import AgentState
from spar.loop.core import Core, Requests, State, StopDeadline
from spar.loop.setup import Setup
from spar.observe.stats import SessionStats, Stats
from spar.parts import defaults
from spar.ports.any_part import has
from spar.ports.budgets import QUANTITIES, in_micro
from spar.ports.phases import OptionalActor
from spar.runs.runs import Runs
from spar.session.parts import Holding
from spar.session.sessions import Session, Sessions
from spar.state.apply import Ledger
from spar.types import Ability, Perception, Phase

if TYPE_CHECKING:
    from spar.agent.exchange import ModuleExchange
    from spar.agent.submission import Conversations
    from spar.attaching import Attachments
    from spar.config.load import Settings
    from spar.config.tables.agent import BudgetSettings, RunSettings
    from spar.journal.restart import Restart
    from spar.journal.work import Work
    from spar.protocols import Home, Host

_MAKING = RLock()  # sensors may push from threads of their own, metrics are read in others


@shared
def _is_limited(budgets: BudgetSettings) -> bool:
    return bool(budgets.limits)


@shared
def _run_limits(runs: RunSettings) -> Limits:
    """Return the limits of a run; money in millionths."""
    amounts = {quantity: getattr(runs, quantity) for quantity in QUANTITIES if quantity != "effects"}
    most: dict[str, int] = {quantity: in_micro(amount) for quantity, amount in amounts.items() if amount != "off"}
    return Limits(runs.timeout, most, runs.patience)


def _state_of(memory: Any) -> type[AgentState]:
    """Return the class of the state of an agent with this memory. Raises: ContractError for what is no memory."""
    if memory is None:
        return AgentState
    from spar.journal.state.stored_state import StoredState
    from spar.ports.any_part import has
    from spar.ports.store import DurableStore

    if not has(memory, DurableStore.store):
        raise ContractError(f"memory= must be an object with a method 'store', found {shorten(memory)}")
    return StoredState


class AgentParts(Lifecycle):
    """Parts of one agent, its figures, and the operations that its parts call.

    `name` is its name in events, logs and metrics, `clock` its source of time, `events` the bus of its events, `hooks`
    are its hooks, by point. `ledger_of` makes the ledger of a new agent; None for the usual one. The tests set it, to
    read all facts.
    """

    __slots__ = ("clock", "events", "hooks", "lifespan", "memory", "name")

    ledger_of: ClassVar[Callable[[AgentParts, str], Ledger] | None] = None

    def __init__(self, name: str, clock: Clock, settings: Settings, memory: Any, home: Home | None) -> None:
        super().__init__()
        ledger = AgentParts.ledger_of(self, name) if AgentParts.ledger_of else None
        core = self.core = Core(name, clock, settings, ledger)
        setup = self.setup = Setup()
        self.name, self.clock, self.home, self.memory = name, clock, home, memory
        self.events, self.hooks = core.events, core.hooks
        account = self.account = Stats()
        requests = self.requests = Requests(name, clock, core.events)
        by_key: dict[str, Session] = {}
        health = self.health = Health(core, setup, account, self, by_key)
        self.session_accounts = SessionStats(health.worst_of)
        reports = self.reports = ErrorReporter(core, setup, account, requests, health, self)
        core.events.on_handler_error = reports.handler_failed
        self.agent_state = _state_of(memory)(core, memory, account, requests, reports, self)
        self.runs = Runs(core, lambda run, why: self.conversations.stops.late(run, why),
                         lambda: self.installed("interim"))  # fmt: skip
        core.events.runs = self.runs
        self.holding = Holding(core, requests, by_key, self.take_over)
        self.sessions = Sessions(self, by_key)
        self.recovery = Recovery(core, self.agent_state, self.runs, self._restart)
        deadline = self._deadline = StopDeadline(core, requests, setup.grace)
        self.lifespan = Lifespan(self, deadline, memory, self.host)
        self.watched = Watched(core, setup, health, requests, by_key)
        self.sessions.fail, self.sessions.settle = self.fail, self.settle

    # -- its conversations

    @cached_property
    def conversations(self) -> Conversations:
        """Parts that only messages need, which the first one makes."""
        from spar.agent.submission import Conversations

        with _MAKING:
            if not self.has_conversations:
                self.__dict__["conversations"] = Conversations(self, self.attachments)
            return cast(Conversations, self.__dict__["conversations"])

    @property
    def has_attachments(self) -> bool:
        """Return whether something was attached."""
        return "attachments" in self.__dict__

    @cached_property
    def attachments(self) -> Attachments:
        """Attachments of the agent, which the first one makes."""
        from spar.attaching import Attachments, Services

        state, requests = self.agent_state, self.requests
        services = Services(self.core, self.memory, self.home, state.rows_of,
                            lambda *message, **options: self.conversations.submission.submit(*message, **options),
                            self.runs, self.sessions,
                            requests.in_background, self, self.setup, self.health, state,
                            lambda: self.conversations)  # fmt: skip
        return Attachments(services, requests, self._deadline)

    @cached_property
    def modules_exchange(self) -> ModuleExchange:
        """Exchange of its modules, which the first one makes."""
        from spar.agent.exchange import ModuleExchange

        return ModuleExchange(self, self.lifespan, self.host)

    @property
    def stepper(self) -> Any:
        """Return the runner of single phases by hand, which is attached now at the latest."""
        return self.attached("steps")

    @property
    def forks(self) -> Any:
        """Return the forks of its sessions, which are attached now at the latest."""
        return self.attached("forks")

    # -- its figures

    @property
    def state(self) -> State:
        """Return its state: one of `created running pausing paused stopping stopped failed`."""
        return self.core.state

    @property
    def settings(self) -> Settings:
        """Return the settings in force."""
        return self.core.settings

    @property
    def left_behind(self) -> int:
        """Return how many phases, hooks, handlers and blocking calls ignored their cancellation and still run."""
        tasks = sum(len(session.runner.left_behind) for session in list(self.sessions.by_key.values()))
        threads = sum(module.left_behind for module in self.setup.modules.values())
        attached = self.attachments.left_behind if self.has_attachments else 0
        return tasks + threads + attached + len(self.core.hooks.left_behind) + len(self.core.events.left_behind)

    @property
    def abilities(self) -> MutableMapping[str, Ability]:
        """Return what is known of each tool at each kind of task."""
        return {} if self.learning is None else self.learning.known

    def caches(self) -> tuple[object, ...]:
        """Return the parts that may have caches to clear when memory runs short."""
        return (self.runs, self.memory, *(module.part for module in self.setup.modules.values()))

    def attached(self, name: str) -> Any:
        """Return the part of a built-in attachment, which is attached now at the latest. Raises: ConfigError."""
        with _MAKING:
            if name not in self.attachments.by_name:
                defaults.attach(name, self.attachments.add)
        return self.attachments.by_name[name].part

    def attachment(self, name: str) -> Any:
        """Return the part of an attachment; None while it is not attached."""
        return self.attachments.find(name) if self.has_attachments else None

    def installed(self, name: str) -> Any:
        """Return the part of a built-in attachment, attached now at the latest; None where it is not installed."""
        return self.attached(name) if defaults.is_installed(name) else None

    @cached_property
    def learning(self) -> Any:
        """Learning of its tools, which the first use attaches; None where that is not installed."""
        return self.installed("learning")

    @cached_property
    def budgets(self) -> Any:
        """Its budgets, which their first use attaches."""
        return self.attached("budgets")

    def apply(self, settings: Settings) -> None:
        """Apply the settings that may change while the agent runs: pace, phases, policies, runs."""
        runs = self.runs
        runs.timers.limits, runs.timers.inactivity = _run_limits(settings.runs), settings.runs.inactivity
        self.lifespan.apply(settings)
        if _is_limited(settings.budgets):
            self.attached("budgets")
        if settings.runs.are_told_early:
            self.attached("interim")
        if settings.sessions.commands:
            self.attached("commands")

    # -- operations that its parts call

    def _restart(self, work: Work) -> Restart:
        from spar.journal.restart import Restart

        return Restart(work, self.core, self.agent_state, self.requests, self.runs, self.sessions.of,
                       self.sessions.spawn, self.push,
                       lambda run: self.attached("commands").carry_out(run))  # fmt: skip

    def push(self, perception: Perception) -> bool:
        """Queue a perception in its session, which wakes at once; return False if its inbox is full.

        May be called from any thread. A perception of another thread that finds no room later is counted in `refused`.
        """
        return self.conversations.submission.push(perception)

    async def open(self) -> None:
        """Open the modules in order, without starting. If one fails, close those opened before it. Idempotent."""
        self.core.events.open()
        self.agent_state.listen()
        await self.lifespan.open(self._load)

    async def restart_module(self, phase: Phase, *, is_anew: bool = False) -> None:
        """Replace a failing module by a new one, or close it and open it again. After an error it stays."""
        await self.modules_exchange.restart(phase, is_anew=is_anew)

    async def take_over(self) -> None:
        """Have the present actor take over the open calls of the one before it."""
        await self.core.request(self.setup.modules["act"], OptionalActor.take_over)

    def host(self, part: Any) -> Host:
        """Return the services for a part."""
        from spar.agent.hosting import host_of

        return host_of(part, self, self.sessions, self.conversations, self.installed("budgets"), self.home)

    def wake(self) -> None:
        """Begin the next cycle of the standing session at once; may be called from any thread."""
        self.requests.in_loop(self.sessions.wake_standing)

    async def open_all(self) -> None:
        """Open all parts and resume unfinished work; after an error everything is closed."""
        try:
            await self.open()
            await self.recovery.begin()
            actor = self.setup.modules["act"].part
            if has(actor, OptionalActor.abandon, OptionalActor.waiting_runs, OptionalActor.close_questions):
                await self.conversations.stops.forget_ended()
            await self.reports.ask("service_start", self)
            if self.has_attachments:
                await self.attachments.open()
        except BaseException:
            self.recovery.end()
            self.close_chain()  # earlier steps are recorded while the memory is still open
            if self.agent_state.journal is not None or not self.agent_state.has_journal:  # else it was not opened
                await self.agent_state.flush()
            await self.close_all()
            raise

    async def _load(self) -> None:
        """Load the stored state, and the used amounts of the budgets."""
        await self.agent_state.load()
        if self.has_conversations or self.memory is not None:
            self.conversations.records.begin()
        if (journal := self.agent_state.journal) is not None:
            self.core.ledger.journal = journal
            self.events.process = max(self.events.process, journal.epoch)
        for name in defaults.of_memory(self.memory):
            self.attached(name)
        if self.has_attachments:
            await self.attachments.load()

    def close_chain(self) -> None:
        """End the chain of steps."""
        if (steps := self.attachment("steps")) is not None:
            steps.close_chain()

    async def close_all(self) -> None:
        """Close the parts that were opened."""
        if self.has_attachments:
            await self.attachments.close()
        self.core.ledger.__dict__.pop("journal", None)
        await self.lifespan.close()

    async def exchange_now(self, modules: Mapping[Phase, Any], settings: Settings) -> None:
        """Replace modules and settings. No other exchange may run meanwhile."""
        await self.modules_exchange.replace(modules)
        pace = self.setup.pace
        self.apply(settings)
        if self.has_attachments:
            self.attachments.apply(settings)
            if self.core.state in ("running", "pausing", "paused"):  # the budgets may be new
                await self.attachments.load()
                await self.attachments.open()
        if self.setup.pace != pace and self.setup.pace.interval != "off":
            self.sessions.wake_all()  # no wait may be longer than the new pace
