"""Decisions of a configuration without effects.

The planner is made as for a service. Its host lends it the time of then, the names and terms of the tools, experiences
and conversations of then, and nothing that writes, sends or calls. The actor is only asked what its policy says.

Store, clock and conversation of the planner are as they were at a time, and nothing of them can be written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final, Self

from msgspec import Struct

from spar.clock import SystemClock, Timer
from spar.config.tables.settings import Loaded
from spar.data.learning.abilities import AgedAbilities, KnownAbilities
from spar.decoding import convert
from spar.errors import SparError
from spar.hooks import Hooks
from spar.loop.plan_stream import OpenPlan
from spar.loop.setup import Module, action_of
from spar.parts.factory import Parts
from spar.ports.any_part import Attachable, has, offers
from spar.ports.phases import OptionalActor, OptionalTool
from spar.ports.planners import AnswerTo, OptionalPlanner
from spar.ports.rows import rows_in
from spar.ports.store import DurableStore, InspectsExperiences
from spar.protocols import Context, Home, Host, Lent
from spar.records.transcript import Entry, still_read
from spar.replay.difference import matched_rules
from spar.replay.tape import Inputs
from spar.types import Ability, Action, Call, CycleRecord, Experience, Fault, Perception, trust_of

#: Factor by which more experiences are read than are asked for, because newer ones are left out.
_LOOKED_AT: Final = 4
#: Most entries of a conversation that are read.
_MOST_ENTRIES: Final = 5_000


class NoTimer:
    """Timer that never goes off."""

    def cancel(self) -> None:
        return None


class PastClock(SystemClock):
    """Clock that stands at a recorded time, `at`. Its timers never go off; `sleep` is real."""

    def __init__(self) -> None:
        self.at = datetime.fromtimestamp(0, UTC)

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.at.timestamp()

    def call_at(self, when: float, callback: Callable[[], object]) -> Timer:
        return NoTimer()


class PastRows:
    """Rows of a module in memory. Args: values: the rows by key; they are changed."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    def keep(self, key: str, value: Any, *, cycle_id: str = "") -> None:
        self._values[key] = value

    def drop(self, key: str, *, cycle_id: str = "") -> None:
        self._values.pop(key, None)

    async def list(self) -> Mapping[str, Any]:
        return dict(self._values)


class PastStore:
    """Experiences, abilities and conversations of an agent as of the time of a clock, read from its store.

    What was forgotten, merged or changed since then is not known any more.
    """

    def __init__(self, memory: Any, agent: str, clock: PastClock) -> None:
        self._memory, self._agent, self._clock = memory, agent, clock
        self._abilities: list[Ability] | None = None

    def use(self, memory: Any) -> None:
        """Read from this store from now on."""
        self._memory, self._abilities = memory, None

    async def recall(self, query: str, k: int = 5, **filters: Any) -> Sequence[Experience]:
        """Return the experiences from before the time that match best."""
        if not has(self._memory, DurableStore.recall):
            return ()
        experiences = await self._memory.recall(query, _LOOKED_AT * k, **filters)
        return [experience for experience in experiences if self._was_known(experience)][:k]

    async def search(self, query: str, k: int = 5, **filters: Any) -> Sequence[Any]:
        """Return the best matches among the experiences from before the time."""
        if not offers(self._memory, InspectsExperiences):
            return ()
        matches = await self._memory.search(query, _LOOKED_AT * k, **filters)
        return [match for match in matches if self._was_known(match.experience)][:k]

    def _was_known(self, experience: Experience) -> bool:
        return (experience.first_at or experience.at) < self._clock.at

    async def read(self, session: str) -> Sequence[Entry]:
        """Return the conversation of a session at the time, the oldest entry first, as a planner reads it."""
        if not has(self._memory, DurableStore.transcripts):
            return ()
        entries = await self._memory.transcripts.tail(self._agent, session, _MOST_ENTRIES)
        return conversation_before(entries, self._clock.at)

    async def compact(self, session: str, run_id: str, entry: Entry) -> None:
        """Refuse to write. Raises: SparError."""
        raise SparError("the past cannot be changed")

    async def abilities(self) -> Mapping[str, Ability]:
        """Return the abilities whose last trial was before the time; what the others were then is not known."""
        if self._abilities is None:
            stored = await rows_in(self._memory, f"ability:{self._agent}")
            self._abilities = [convert(row, Ability) for row in stored.values()]
        if not self._abilities:
            return {}
        at = self._clock.at.timestamp()
        return AgedAbilities(KnownAbilities(one for one in self._abilities if one.at < at), self._clock.now)


def conversation_before(entries: Sequence[Entry], at: datetime) -> Sequence[Entry]:
    """Return the entries from before a time that a planner read then: from the last summary or reset on."""
    return still_read([entry for entry in entries if entry.at < at])


#: Seconds that one decision may take; an answer of a model that is asked takes longer.
WITHIN: Final = 30.0
WITHIN_ASKED: Final = 600.0


class ShownTool(Struct, frozen=True):
    """Tool as a planner sees it: its name, schema and terms. It cannot be called."""

    name: str
    schema: Mapping[str, Any]
    terms: Any


class Decided(Struct, frozen=True):
    """Decision without effects: the action, None for nothing to do. `error` says why there is none, "" if there is;
    `pursued` is about what it would have started runs for."""

    action: Action | None = None
    error: str = ""
    pursued: tuple[Perception, ...] = ()


class Decider:
    """Planner of a configuration, without effects. An async context manager.

    Args:
        memory: a store that is open for reading; None: nothing is remembered.
        agent: the name of the agent whose memory it is.
        answer_to: gives the answers of models. Without it no model is asked and none answers.
        is_asked: whether a model is asked a request without an answer.
        rows: the rows of the planner's modules by name, such as cooldowns, in memory; they are changed.
    Raises: ConfigError with file and line.
    """

    def __init__(self, loaded: Loaded, memory: Any, agent: str, *, answer_to: AnswerTo = lambda note: None,
                 is_asked: bool = False, rows: dict[str, dict[str, Any]] | None = None) -> None:  # fmt: skip
        self._clock = PastClock()
        self._agent, self._learning = agent, loaded.settings.memory.learning
        self._past = PastStore(memory, agent, self._clock)
        self._pursued: list[Perception] = []
        self._open = AsyncExitStack()
        self._rows = {} if rows is None else rows
        self._within = WITHIN_ASKED if is_asked else WITHIN
        parts = Parts(loaded)
        self._planner, self._actor = parts.module("plan"), parts.module("act")
        self._module = Module("plan", self._planner, self._clock)
        self.name = loaded.settings.plan.use
        lent = self._planner.lends() if has(self._planner, OptionalPlanner.lends) else Lent()
        if has(self._actor, OptionalActor.borrow):
            self._actor.borrow(lent)
        self._tools = _shown(self._actor)
        if offers(self._planner, Attachable):
            self._planner.attach(self._host(parts.home))
        if has(self._planner, OptionalPlanner.answer_from):
            self._planner.answer_from(answer_to, is_asked=is_asked)

    @property
    def reach(self) -> float:
        """Return the seconds after which an earlier decision has no effect on a later one."""
        return self._planner.reach if has(self._planner, OptionalPlanner.reach, OptionalPlanner.recall) else 0.0

    def recall(self, cycle: CycleRecord) -> None:
        """Take over from an earlier cycle which rules fired in it."""
        if has(self._planner, OptionalPlanner.reach, OptionalPlanner.recall) and cycle.action is not None:
            self._clock.at = cycle.started_at
            self._planner.recall(matched_rules(cycle.action.reason), cycle.perceptions, self._clock)

    @property
    def tools(self) -> Mapping[str, ShownTool]:
        """Return the tools that calls may name."""
        return self._tools

    def ruling(self, call: Call, action: Action, session: str) -> tuple[str, str]:
        """Return what the policy decides about a call ("auto", "ask", "deny"), and why; "" if it is not known."""
        if not has(self._actor, OptionalActor.ruling):
            return "", "this actor does not say what its policy decides"
        actor: OptionalActor = self._actor
        return actor.ruling(call, trust_of(action), session)

    def effect_of(self, call: Call) -> str:
        """Return the stated effect of the tool of a call; "once" for an unknown tool."""
        tool = self._tools.get(call.tool)
        return "once" if tool is None or tool.terms is None else str(tool.terms.effect)

    def remember(self, memory: Any) -> None:
        """Use this store from now on."""
        self._past.use(memory)

    async def __aenter__(self) -> Self:
        if isinstance(self._planner, AbstractAsyncContextManager):
            await self._open.enter_async_context(self._planner)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._open.aclose()

    async def decide(self, inputs: Inputs) -> Decided:
        """Return the decision on recorded inputs; what the planner raises is a sentence in it."""
        self._clock.at = inputs.at
        self._pursued.clear()
        abilities = {} if self._learning == "off" else await self._past.abilities()
        context = Context(
            self._agent, inputs.cycle.cycle_id, inputs.cycle.session, inputs.run, memory=self._past,
            abilities=abilities, clock=self._clock, learning=self._learning,
        )  # fmt: skip
        perceptions = list(inputs.perceptions)
        try:
            async with asyncio.timeout(self._within):
                action = await self._asked(perceptions, context)
        except TimeoutError:
            return Decided(error=f"the planner {self.name!r} did not decide within {self._within:g} s")
        except Exception as error:
            return Decided(error=f"the planner {self.name!r} raised: {Fault.of(error).message}")
        return Decided(action, pursued=tuple(self._pursued))

    async def _asked(self, perceptions: Sequence[Perception], context: Context) -> Action | None:
        """Return the plan of the planner as one action. Raises: what the planner raises."""
        call = self._module.call
        plan = await (call(perceptions, context) if self._module.wants_context else call(perceptions))
        if hasattr(plan, "__aiter__"):
            written = OpenPlan(plan.__aiter__(), perceptions, self.name, self._clock, lambda task: None)
            plan = await written.begin(float("inf"), 0.0, at_once=False)
        action = action_of(plan, self.name, perceptions)
        return action if isinstance(action, Action) else None

    def _host(self, home: Home) -> Host:
        """Return services without effects."""
        return Host(self._agent, self._clock, _Nobody(), Hooks(), lambda: None, home=home, tools=lambda: self._tools,
                    transcripts=self._past, pursue=self._pursue,
                    rows=lambda name: PastRows(self._rows.setdefault(name, {})))  # fmt: skip

    async def _pursue(self, perception: Perception) -> str:
        self._pursued.append(perception)
        return perception.id


class _Nobody:
    """Event bus that drops all events, and says so."""

    def publish(self, event: Any) -> None:
        return None

    def listeners(self, kind: type[Any]) -> bool:
        return False


def _shown(actor: Any) -> Mapping[str, ShownTool]:
    """Return what a planner sees of the tools of an actor."""
    if not has(actor, OptionalActor.tools):
        return {}
    tools: Mapping[str, Any] = actor.tools
    return MappingProxyType({
        name: ShownTool(name, tool.schema, tool.terms if has(tool, OptionalTool.terms) else None)
        for name, tool in tools.items()
    })  # fmt: skip
