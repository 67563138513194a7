"""What an agent is put together from: modules and settings, taken in, opened, exchanged, restarted and closed."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from spar.accounts import in_micro
from spar.cycle import RETRIES, Step
from spar.events import ErrorOccurred
from spar.health import Health, Limits
from spar.logs import get_logger
from spar.modules import PRODUCT_OF, Module
from spar.opening import Opening
from spar.pacing import Pace
from spar.policies import Backoff
from spar.protocols import Host
from spar.run import Limits as RunLimits
from spar.types import PHASES, Fault, Phase

if TYPE_CHECKING:
    from spar.agent import Agent
    from spar.sections import RunSettings
    from spar.settings import Settings

log = get_logger("spar.agent")

#: Seconds that closing one module may take.
CLOSE_WITHIN = 10.0

#: Equal ones are one: they are never changed, and agents are many.
_shared = functools.lru_cache(maxsize=64, typed=True)
_backoff, _limits, _pace = _shared(Backoff), _shared(Limits), _shared(Pace)


class Assembly:
    """The modules of one agent and what holds them open."""

    __slots__ = ("_agent", "_openings")

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._openings: tuple[Opening, ...] = ()

    def take(self, given: Mapping[Phase, Any]) -> None:
        """Take these as the modules from now on; nothing is opened. Raises: ContractError."""
        agent = self._agent
        agent.modules = {phase: Module(phase, part, agent.clock) for phase, part in given.items()}
        sense = agent.modules["sense"].part
        perceive, settled = getattr(sense, "perceive", None), getattr(sense, "settled", None)
        agent.perceive = perceive if callable(perceive) else None
        agent.settled = settled if callable(settled) else None
        openings: list[Opening] = []
        for part in (agent.memory, *(module.part for module in agent.modules.values())):
            opening = Opening(part, type(part).__qualname__, self._lost)
            is_concerned = opening.is_needed or callable(getattr(part, "attach", None))
            if is_concerned and all(other.part is not part for other in openings):
                openings.append(opening)
        self._openings = tuple(openings)

    def apply(self, settings: Settings) -> None:
        """Take the settings that a running agent can change."""
        agent, of_agent, health = self._agent, settings.agent, settings.health
        agent.settings = settings
        agent.budgets.apply(settings.budgets.limits)
        agent.pace = _pace(of_agent.loop_interval, of_agent.min_interval, of_agent.max_interval, of_agent.busy_count)
        agent.plan_when_idle = of_agent.plan_when_idle
        agent.runs.limits = run_limits(settings.runs)
        agent.runs.inactivity = settings.runs.inactivity
        agent.runs.verify_output = settings.runs.verify_output
        agent.steps = {phase: self._step(phase) for phase in PHASES}
        limits = _limits(health.failing_after, health.slow_after, health.blocked_after, health.stalled_after,
                         health.backoff, health.max_restarts, health.within)  # fmt: skip
        if not hasattr(agent, "health"):
            agent.health = Health(agent, limits)
        agent.health.limits = limits
        for lane in agent.lanes.values():
            lane.loop.steps, lane.loop.plan_when_idle = agent.steps, agent.plan_when_idle

    def _step(self, phase: Phase) -> Step:
        """How a phase is run: its module, its contract and the terms that the settings give it."""
        agent = self._agent
        given = getattr(agent.settings.agent.phases, phase)
        policy = getattr(agent.settings.agent.errors, phase)
        retries = given.retries or (RETRIES if policy == "retry" else 0)
        return Step(
            phase,
            agent.modules[phase].name,
            PRODUCT_OF[phase],
            agent.account.phases[phase].add,
            given.timeout or float("inf"),
            retries + 1,
            _backoff(given.backoff, 60.0),
            given.grace,
            policy,
        )

    async def open(self) -> None:
        """Open the modules, in order; the first that fails closes those before it. Idempotent.

        Raises: what a module or the loading of the agent's state raises.
        """
        agent, keeping = self._agent, self._agent.keeping
        if not keeping.has_loaded:
            await agent.reports.ask("agent_bootstrap", agent)
        keeping.listen()
        opened: list[Opening] = []
        try:
            for opening in self._openings:
                if opening.is_open:
                    continue
                attach = getattr(opening.part, "attach", None)
                if callable(attach):
                    attach(self._host())
                opened.append(opening)
                await opening.open()
            await keeping.load()
            journal = keeping.journal
            agent.budgets.open(journal, () if journal is None else await journal.spent())
        except BaseException:
            await self._close(opened)
            raise

    def _host(self) -> Host:
        agent = self._agent
        return Host(agent.name, agent.clock, agent.events, agent.hooks, agent.wake, agent.keeping.state_store,
                    agent.home, agent.sessions.resume, agent.keeping.journal, agent.budgets, self.tools,
                    agent.transcripts, agent.deliveries.tell, agent.intake.pursue, agent.runs.used,
                    agent.sessions.note, agent.keeping.rows_of)  # fmt: skip

    def tools(self) -> Mapping[str, Any]:
        """What the actor can call now, by name; nothing where it does not say."""
        tools = getattr(self._agent.modules["act"].part, "tools", None)
        return tools if isinstance(tools, Mapping) else {}

    async def close(self) -> None:
        """Close the modules in reverse order; what that raises is reported."""
        self._agent.budgets.close()
        await self._close(self._openings)

    async def _close(self, openings: Sequence[Opening]) -> None:
        agent = self._agent
        for opening in reversed(openings):
            error = await opening.close(CLOSE_WITHIN)
            if error is not None:
                fault = Fault.of(error, part=opening.name, phase="close")
                log.warning("closing failed", agent=agent.name, part=opening.name, reason=fault.message)
                agent.events.publish(ErrorOccurred(cycle_id="", phase="close", error=fault, policy="continue"))

    def _lost(self, opening: Opening, error: BaseException) -> None:
        """A module has closed by itself, as one does whose background task failed."""
        agent, fault = self._agent, Fault.of(error, part=opening.name, phase="open")
        log.error("module ended by itself", agent=agent.name, part=opening.name, reason=fault.message)
        agent.events.publish(ErrorOccurred(cycle_id="", phase="open", error=fault, policy="continue", exception=error))

    async def restart(self, phase: Phase) -> None:
        """Close one module and open it again; what that raises is reported and leaves the module as it is."""
        agent, part = self._agent, self._agent.modules[phase].part
        for opening in self._openings:
            if opening.part is part:
                await opening.close(CLOSE_WITHIN)
                try:
                    await opening.open()
                except Exception as error:
                    fault = Fault.of(error, part=opening.name, phase=phase)
                    agent.events.publish(
                        ErrorOccurred(cycle_id="", phase=phase, error=fault, policy="restart", exception=error)
                    )

    async def exchange(self, parts: Mapping[str, Any], settings: Settings) -> None:
        agent = self._agent
        was_running = agent.state == "running"
        try:
            await agent.lifecycle.exclusively(functools.partial(self._exchange, parts, settings), "exchange")
        finally:
            if was_running and agent.state == "paused":
                await agent.resume()

    async def _exchange(self, parts: Mapping[str, Any], settings: Settings) -> None:
        agent = self._agent
        while agent.state in ("running", "pausing"):  # somebody may resume it while it comes to rest
            await agent.pause()
        old, old_openings = agent.modules, self._openings
        self.take({phase: parts.get(phase, module.part) for phase, module in old.items()})
        kept = {id(opening.part): opening for opening in old_openings}
        self._openings = tuple(kept.get(id(opening.part), opening) for opening in self._openings)
        fresh = [opening for opening in self._openings if opening not in old_openings]
        try:
            if agent.state == "paused":
                await self.open()
        except BaseException:
            for opening in fresh:
                await opening.close(CLOSE_WITHIN)
            self.take({phase: module.part for phase, module in old.items()})
            self._openings = old_openings
            raise
        for opening in reversed([opening for opening in old_openings if opening not in self._openings]):
            await opening.close(CLOSE_WITHIN)
        agent.apply(settings)


def run_limits(runs: RunSettings) -> RunLimits:
    """What a run may take; money in millionths."""
    given = {quantity: getattr(runs, quantity) for quantity in ("requests", "calls", "tokens", "money")}
    most = {key: in_micro(amount) for key, amount in given.items() if amount != "off"}
    return RunLimits(runs.timeout, most, runs.patience)
