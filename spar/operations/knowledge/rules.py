"""Operations on rules: how often each fired."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct

from spar.decoding import convert
from spar.operations.operation import Column, CommandForm, StoppedAgent, TimedChoice, chosen, operation

if TYPE_CHECKING:
    from spar.service.app import Service


class RulesChoice(TimedChoice, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Choice of rules."""

    never: Annotated[bool, Meta(description="Only those that have never fired.")] = False
    sort: Annotated[
        Literal["written", "fired"],
        Meta(description="Their order: as they are written, or those that fire most first."),
    ] = "written"


class RuleRow(Struct, frozen=True):
    """Counts of a rule since a time, over restarts: how often it matched, fired (and when last), cooled down, failed,
    or left out a call. A rule that no service has counted yet has None."""

    name: str
    fired: int | None = None
    last_at: datetime | None = None
    matched: int | None = None
    cooled_down: int | None = None
    failed: int | None = None
    left_out: int | None = None
    since: datetime | None = None


def chosen_rules(given: RulesChoice, rows: Iterable[RuleRow]) -> list[RuleRow]:
    """Return the chosen rows in their order."""
    is_only_never, is_by_number = given.never, given.sort == "fired"
    rows = [row for row in rows if not (is_only_never and row.fired)]
    if is_by_number:
        rows.sort(key=lambda row: row.fired or 0, reverse=True)
    return chosen(given, rows, lambda row: row.last_at)


async def _rules_stored(store: StoppedAgent, given: RulesChoice) -> list[RuleRow]:
    from spar.ports.optional import offers
    from spar.protocols import Rows

    memory = store.memory
    counts = await memory.rows(f"rules:{store.agent_name}") if offers(memory, Rows) else {}
    names = [str(table.get("name", "")) for table in store.loaded("rules").settings.rules]
    rows = (convert({"name": name, **counts.get(name, {})}, RuleRow, strict=False) for name in names)
    return chosen_rules(given, rows)


@operation("rules list", "GET /v1/rules", "read", where="service", stored=_rules_stored, command=CommandForm(
    columns=(
        Column("rule", "name"), Column(">fired", "fired"),
        Column("last", "last_at", "time", lambda row: "" if row.fired is None else "never"),
        Column(">matched", "matched"), Column(">in cooldown", "cooled_down"), Column(">failed", "failed"),
        Column("counted since", "since", "time"),
    ),
    empty=lambda given: "each rule has fired" if given.never else "no rules are configured ([[rules]])",
    examples=("spar rules list", "spar rules list --sort fired --limit 5", "spar rules list --never"),
))  # fmt: skip
async def list_rules(service: Service, given: RulesChoice) -> list[RuleRow]:
    """List the rules: how often each fired since it is counted, over restarts, and when last."""
    from spar.service.health_metrics import snapshot_of

    snapshot = snapshot_of(service.agent.setup.modules["plan"].part)
    planners = snapshot.get("planners", {"": snapshot})  # a chain of planners has one for each
    rows = (
        RuleRow(rule, **counts) for planner in planners.values() for rule, counts in planner.get("rules", {}).items()
    )
    return chosen_rules(given, rows)
