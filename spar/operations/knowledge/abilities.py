"""Operations on abilities: how often each tool went well at a kind of task, now and over time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from spar.operations.operation import AgentStore, Column, CommandForm, Since, TimedChoice, chosen, operation, readable
from spar.types import Ability, CycleRecord

#: Cycles that one answer looks at.
MOST_CYCLES: Final = 1_000
#: Seconds since 1970 that a time can have: the year 5138.
_LATEST: Final = 1e11
Tool = Annotated[str | None, Meta(description="Only of this tool.")]
Task = Annotated[str | None, Meta(description="Only at this kind of task.")]


class AbilitiesChoice(TimedChoice, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Choice of abilities."""

    tool: Tool = None
    task: Task = None


class HistoryChoice(Struct, frozen=True, forbid_unknown_fields=True):
    """Choice of trials. They are read from the records of cycles, of which `limit` are looked at."""

    tool: Tool = None
    task: Task = None
    limit: Annotated[int, Meta(ge=1, le=MOST_CYCLES, description="How many cycles are looked at.")] = 200
    before: Annotated[str | None, Meta(description="Only cycles before the one of this id.")] = None
    since: Since = None


class AbilityRow(Struct, frozen=True):
    """Ability of a tool at a kind of task: the chance that it goes well (0..1), its standard deviation, the trials, the
    time of the last one, and the mean duration in seconds."""

    tool: str
    task: str
    estimate: float
    uncertainty: float
    trials: int
    at: datetime
    latency: float


class AbilityTrial(AbilityRow, frozen=True):
    """Ability after a cycle in which it was tried."""

    cycle_id: str = ""


class AbilityTrials(Struct, frozen=True):
    """Trials, the oldest first. `before` is the cycle before which earlier ones may be; null if none are."""

    trials: list[AbilityTrial]
    before: str | None


def _fields(ability: Ability) -> dict[str, Any]:
    """Return the fields of an ability as it is shown."""
    numbers = {name: round(getattr(ability, name), 4) for name in ("estimate", "uncertainty", "latency")}
    at = datetime.fromtimestamp(ability.at, UTC) if 0 <= ability.at < _LATEST else datetime.fromtimestamp(0, UTC)
    return {"tool": ability.tool, "task": ability.task, "trials": ability.trials, "at": at, **numbers}


def _filter(given: AbilitiesChoice | HistoryChoice) -> Callable[[Ability], bool]:
    """Return a function that returns whether an ability is asked for."""
    tool, task = given.tool, given.task
    return lambda ability: tool in (None, ability.tool) and task in (None, ability.task)


@operation("abilities list", "GET /v1/abilities", "read", where="store", served="stopping", command=CommandForm(
    columns=(
        Column("tool", "tool"), Column("task", "task"), Column(">goes well", lambda row: f"{row.estimate:.0%}"),
        Column(">±", lambda row: f"{row.uncertainty:.0%}"), Column(">trials", "trials"),
        Column(">takes", "latency", "took"), Column("last", "at", "time"),
    ),
    empty="nothing was tried", examples=("spar abilities list", "spar abilities list --tool shell"),
))  # fmt: skip
async def list_abilities(store: AgentStore, given: AbilitiesChoice) -> list[AbilityRow]:
    """List the abilities of tools at kinds of tasks, as they are now; the last tried one first."""
    from spar.clock import SystemClock
    from spar.data.learning.abilities import AgedAbilities, KnownAbilities
    from spar.ports.rows import rows_in

    is_chosen = _filter(given)
    rows = readable((await rows_in(store.memory, f"ability:{store.agent_name}")).values(), Ability)
    abilities = AgedAbilities(KnownAbilities(sorted(rows, key=lambda ability: ability.at)), SystemClock().now)
    newest = [AbilityRow(**_fields(ability)) for ability in abilities.values() if is_chosen(ability)][::-1]
    return chosen(given, newest, lambda row: row.at)


@operation("abilities history", "GET /v1/abilities/history", "read", where="store", served="stopping")
async def history(store: AgentStore, given: HistoryChoice) -> AbilityTrials:
    """Show abilities after each recorded cycle that tried one."""
    from spar.ports.any_part import has
    from spar.ports.store import OptionalStore

    memory: Any = store.memory
    if not has(store.memory, OptionalStore.cycle_records):
        raise LookupError("this store keeps no records of cycles that can be read whole")
    before, since, last = given.before, given.since, list[CycleRecord]()
    if before is None and (newest := await memory.cycles(limit=1)):
        before = str(newest[0]["cycle_id"])
        last = [await memory.cycle(before)]
    number, is_chosen = given.limit - len(last), _filter(given)
    cycles = [*(await memory.cycle_records(number, before=before) if before and number else ()), *last]
    is_whole = len(cycles) < given.limit or (since is not None and cycles[0].started_at < since)
    trials = (AbilityTrial(**_fields(ability), cycle_id=cycle.cycle_id)
              for cycle in cycles if cycle.reflection is not None
              for ability in cycle.reflection.abilities if is_chosen(ability))  # fmt: skip
    return AbilityTrials([trial for trial in trials if since is None or trial.at >= since],
                         None if is_whole else cycles[0].cycle_id)  # fmt: skip
