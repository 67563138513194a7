"""Operations on rules: how often each fired, why one did not in a past cycle, what a backtest found."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from itertools import islice
from typing import Annotated, Literal

from msgspec import DecodeError, Meta, Struct

from spar.data.text import unknown
from spar.decoding import convert, decode
from spar.operations import history
from spar.operations.operation import (
    AgentStore,
    Column,
    CommandForm,
    Nothing,
    TimedChoice,
    chosen,
    operation,
)
from spar.replay.tally import KEPT_BACKTEST, BacktestReport


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


@operation("rules list", "GET /v1/rules", "read", where="service", is_stored=True, command=CommandForm(
    columns=(
        Column("rule", "name"), Column(">fired", "fired"),
        Column("last", "last_at", "time", lambda row: "" if row.fired is None else "never"),
        Column(">matched", "matched"), Column(">in cooldown", "cooled_down"), Column(">failed", "failed"),
        Column("counted since", "since", "time"),
    ),
    empty=lambda given: "each rule has fired" if given.never else "no rules are configured ([[rules]])",
    examples=("spar rules list", "spar rules list --sort fired --limit 5", "spar rules list --never"),
))  # fmt: skip
async def list_rules(store: AgentStore, given: RulesChoice) -> list[RuleRow]:
    """List the rules: how often each fired since it is counted, over restarts, and when last."""
    if store.agent is None:
        from spar.ports.rows import rows_in

        counts = await rows_in(store.memory, f"rules:{store.agent_name}")
        names = [str(table.get("name", "")) for table in store.configuration("rules").settings.rules]
        rows = [convert({"name": name, **counts.get(name, {})}, RuleRow, strict=False) for name in names]
    else:
        from spar.service.agent_metrics import snapshot_of

        snapshot = snapshot_of(store.agent.setup.modules["plan"].part)
        planners = snapshot.get("planners", {"": snapshot}).values()  # a chain of planners has one for each
        rows = [RuleRow(rule, **counts) for planner in planners for rule, counts in planner.get("rules", {}).items()]
    return chosen_rules(given, rows)


# -- why one did not fire


class ExplainChoice(history.CycleId, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A cycle, and the rule that is asked about it."""

    rule: Annotated[str | None, Meta(description='Only this rule; "*": all of them.')] = None
    limit: Annotated[int, Meta(ge=1, le=10_000, description="How many at most.")] = 1_000


class RuleAnswer(Struct, frozen=True):
    """Answer of a rule about one perception of a cycle: whether it would fire, and why; whether it fired then."""

    rule: str
    perception: str
    about: str
    matches: bool
    has_fired: bool
    why: str


class RuleAnswers(Struct, frozen=True):
    """Answers of the present rules about a past cycle, what was decided in it, and the names of all rules."""

    cycle_id: str
    decided: str
    rules: list[str]
    answers: list[RuleAnswer]


@operation("why-not", "GET /v1/cycles/{cycle_id}/rules", "read", is_stored=True, command=CommandForm(
    arguments=("rule", "cycle_id"), hidden=("limit",), default={"rule": "*", "cycle_id": "last"}, by_other=True,
    spelled={"rule": ("[RULE]",), "cycle_id": ("[CYCLE]",)},
    examples=("spar why-not disk", "spar why-not disk 18ec5a35", 'spar why-not "*" last --json'),
))  # fmt: skip
async def explain(store: AgentStore, given: ExplainChoice) -> RuleAnswers:
    """Say why a rule did not decide in a past cycle: its first condition that is not met, for each perception. With "*"
    every rule is asked.

    The rules are those of the present configuration, the perceptions those that the cycle recorded. A unique beginning
    of the cycle's id is enough; "last" is the newest."""
    from anyio import to_thread

    limit, rule = given.limit, None if given.rule == "*" else given.rule
    loaded = store.configuration()
    cycle = await history.show_cycle.work(store, history.CycleId(given.cycle_id))
    decided = cycle.action.reason if cycle.action is not None else ""

    def ask() -> RuleAnswers:
        from spar.parts.factory import Parts
        from spar.ports.any_part import has
        from spar.ports.planners import OptionalPlanner
        from spar.replay.difference import matched_rules
        from spar.replay.reasons import about, why_of

        planner, fired = Parts(loaded).rules(), matched_rules(decided)
        if not has(planner, OptionalPlanner.rule_names, OptionalPlanner.explain):
            raise LookupError("the planner named 'rules' here cannot explain its rules")
        names = list(planner.rule_names)
        if rule is not None and rule not in names:
            raise LookupError(unknown("rule named", rule, names))
        lines = {perception.id: about(perception) for perception in cycle.perceptions}
        looks = (look for look in planner.explain(cycle.perceptions) if rule in (None, look.rule))
        answers = (RuleAnswer(look.rule, look.perception, lines[look.perception], look.matches, look.rule in fired,
                              why_of(look, decided)) for look in looks)  # fmt: skip
        return RuleAnswers(cycle.cycle_id, decided, names, list(islice(answers, limit)))

    return await to_thread.run_sync(ask)  # nothing else must wait


# -- the backtest


@operation("rules backtest", "GET /v1/rules/backtest", "read", where="service", is_stored=True)
async def backtest(store: AgentStore, given: Nothing) -> BacktestReport | None:
    """Return the last backtest that was stored (`spar backtest --keep`), null without one."""
    from anyio import Path

    from spar.parts.factory import home_of

    try:
        content = await (Path(home_of(store.configuration("service")).state) / KEPT_BACKTEST).read_bytes()
        report: BacktestReport = decode(content, BacktestReport)
    except OSError:
        return None
    except DecodeError as error:
        raise LookupError(f"the stored backtest is of another version: {error}; spar backtest --keep") from None
    return report
