"""Commands `why` and `why-not`: the reasons of a recorded cycle, and those for which a rule did not decide in it."""

from __future__ import annotations

from contextlib import suppress
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import click

from spar.cli.blocks import Branch, styled
from spar.cli.commands.records.replay import decider_of, other_configuration
from spar.cli.context import Options, fail, refusals, show
from spar.cli.tables import ID, local, zoned
from spar.service import exit_codes as exits

if TYPE_CHECKING:
    from pathlib import Path

    from spar.config.factory import Parts
    from spar.config.tables.settings import Loaded
    from spar.operations.history import ShownCycle
    from spar.ports.optional import ExplainsRules
    from spar.replay.reasons import Reason

#: The title of each part of the chain, and of one that has nothing.
TITLES = {
    "noticed": ("noticed, by which stage and why", "it noticed nothing"),
    "configuration": ("decided by another configuration than the present one", ""),
    "rules": ("rules that were looked at (as they {})", "no rule was asked"),
    "memory": ("experiences that weighed", "no experience changed a decision"),
    "calls": ("calls", "nothing was called"),
    "hand": ("changed by hand", ""),
    "outcome": ("what it led to", ""),
}
#: The words for rules and policy of now, and for those of then.
_WHEN = {False: ("is now", "are now"), True: ("was then", "were then")}
#: Keys that are named at most.
_MOST_KEYS = 20


@click.command()
@click.argument("cycle", default="last")
@other_configuration
@click.pass_obj
def why(options: Options, cycle: str, other: Path | None) -> None:
    """Say why a past cycle went as it did: what was noticed, which rules matched or failed by which condition, which
    experiences weighed, what the policy said of each call, and what it led to.

    Rules and policy are those by which it was decided, as far as they are kept, or those of another configuration. A
    unique beginning of the cycle's id is enough; "last" is the newest.

    \b
    Examples:
      spar why
      spar why 18ec5a35 --json
    """
    from spar.config.factory import Parts
    from spar.operations import history, memory, review
    from spar.ports.optional import RulesOnCalls, offers
    from spar.ports.trust import trust_of
    from spar.replay.reasons import reasons_of

    recorded = _with_changes(options, _cycle(options, cycle))
    loaded, configuration, is_past = _decided_by(options, recorded, other)
    parts = Parts(loaded)
    with refusals():
        actor = parts.act()
    action = recorded.action
    learnt: Any = _ask(options, memory.why, history.CycleId(recorded.cycle_id)) if action and action.learnt else ()
    asked: Any = ()
    if action is not None and action.calls:
        rows = _ask(options, review.list_approvals, review.ApprovalsChoice(status="all", since=recorded.started_at))
        asked = [approval for approval in rows if approval.cycle_id == recorded.cycle_id]

    def ruling(call: Any, plan: Any, session: str) -> tuple[str, str]:
        return actor.ruling(call, trust_of(plan), session) if offers(actor, RulesOnCalls) else ("", "")

    looks, (was, were) = _planner(parts).explain(recorded.perceptions), _WHEN[is_past]
    reasons = reasons_of(recorded, looks, learnt, asked, ruling, configuration, was)
    chain = {name: [_plain(reason) for reason in getattr(reasons, name)] for name in TITLES}
    answer = {"cycle": recorded.cycle_id, "at": recorded.started_at.isoformat(), "session": recorded.session, **chain}
    titles = {name: styled(title.format(were), "strong") for name, (title, _) in TITLES.items()}
    parts_shown = [
        Branch(titles[name], tuple(map(_branch, getattr(reasons, name)))) if chain[name] else Branch(nothing)
        for name, (_, nothing) in TITLES.items()
        if chain[name] or nothing
    ]
    run = f", run {action.run_id[:ID]}" if action is not None and action.run_id else ""
    head = f"cycle {recorded.cycle_id[:ID]}, session {recorded.session}{run}, {zoned(local(recorded.started_at))}"
    show(options, answer, Branch(head, tuple(parts_shown)))


def _decided_by(options: Options, cycle: ShownCycle, other: Path | None) -> tuple[Loaded, list[str], bool]:
    """Return the configuration with the rules and the policy of a cycle, sentences about how it differs from the
    present one, and whether it is that of then."""
    from msgspec.structs import replace

    from spar.client.client import ServiceError
    from spar.config.in_force import differing, digest_of, explaining, readable
    from spar.errors import ConfigError
    from spar.operations.debugging.configurations import ConfigurationId, show_configuration

    loaded = decider_of(options, other)
    now = readable(loaded)
    if other is not None or not cycle.configuration or cycle.configuration == digest_of(now):
        return loaded, [], False
    try:
        then = _ask(options, show_configuration, ConfigurationId(cycle.configuration))
        settings = explaining(loaded.settings, then.settings)
    except (click.ClickException, ServiceError, ConfigError) as error:
        why = error.message if isinstance(error, click.ClickException) else str(error)
        return loaded, [f"{why}; rules and policy are those of now"], False
    keys = differing(then.settings, now)
    since = f"{cycle.configuration}, in force since {local(then.at)}, spar {then.version}"
    sentences = [since, f"different now: {', '.join(keys[:_MOST_KEYS])}{', …' if len(keys) > _MOST_KEYS else ''}"]
    return replace(loaded, settings=settings), sentences, True


@click.command("why-not")
@click.argument("rule")
@click.argument("cycle", default="last")
@other_configuration
@click.pass_obj
def why_not(options: Options, rule: str, cycle: str, other: Path | None) -> None:
    """Say why a rule did not decide in a past cycle: the first of its conditions that is not met, for each perception.

    The rules are those of the present configuration, or of another one, the perceptions those that the cycle recorded.
    A unique beginning of the cycle's id is enough; "last" is the newest. With "*" every rule is asked.

    \b
    Examples:
      spar why-not disk
      spar why-not disk 18ec5a35
      spar why-not "*" last --json
    """
    from spar.config.factory import Parts
    from spar.replay.reasons import rule_reasons

    planner = _planner(Parts(decider_of(options, other)))
    known = list(planner.rule_names)
    if rule not in (*known, "*"):
        near = get_close_matches(rule, known, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        fail(f"no rule named {rule!r}; known: {', '.join(known) or 'none'}{hint}", exits.USAGE)
    recorded = _cycle(options, cycle)
    looks = [look for look in planner.explain(recorded.perceptions) if rule in (look.rule, "*")]
    decided = recorded.action.reason if recorded.action is not None else ""
    rows = [{"rule": look.rule, "perception": look.perception, "matches": look.matches, "why": look.why}
            for look in looks]  # fmt: skip
    lines = [_branch(reason) for reason in rule_reasons(recorded, looks)]
    head = f"cycle {recorded.cycle_id[:ID]}, decided: {decided or 'nothing'}"
    show(options, {"cycle": recorded.cycle_id, "decided": decided, "looks": rows},
         Branch(head, tuple(lines) or (Branch("it noticed nothing, so no rule was asked"),)))  # fmt: skip


def _cycle(options: Options, cycle_id: str) -> ShownCycle:
    """Return a recorded cycle, from the running service or the store."""
    from spar.operations.history import CycleId, show_cycle

    cycle: ShownCycle = _ask(options, show_cycle, CycleId(cycle_id))
    return cycle


def _with_changes(options: Options, cycle: ShownCycle) -> ShownCycle:
    """Return a cycle with the changes by hand; those that a crash kept from its record are in the audit log."""
    from msgspec.structs import replace

    from spar.operations.history import AuditChoice, list_entries
    from spar.ports.breakpoints import BY_HAND
    from spar.replay.tape import by_hand

    entries: Any = ()
    with suppress(click.ClickException):  # a store without an audit log
        choice = AuditChoice(limit=1_000, action="breakpoint.change")  # the cycle may have begun before the crash
        entries = () if by_hand(cycle) else _ask(options, list_entries, choice)
    changes = [entry.detail for entry in reversed(entries) if entry.detail.get("cycle") == cycle.cycle_id]
    return replace(cycle, notes=(*cycle.notes, {"kind": BY_HAND, "changes": changes})) if changes else cycle


def _ask(options: Options, operation: Any, given: Any) -> Any:
    from spar.cli.client import ask

    return ask(options, operation, given, is_typed=True)


def _planner(parts: Parts) -> ExplainsRules:
    """Return the planner of the configured rules. One that cannot explain them ends the command."""
    from spar.ports.optional import ExplainsRules, offers

    with refusals():
        planner = parts.rules()
    if not offers(planner, ExplainsRules):
        fail("the planner named 'rules' here cannot explain its rules", exits.UNAVAILABLE)
    explaining: ExplainsRules = planner
    return explaining


def _branch(reason: Reason) -> Branch:
    return Branch(reason.text, tuple(map(_branch, reason.because)))


def _plain(reason: Reason) -> dict[str, Any]:
    because = [_plain(part) for part in reason.because]
    return {"text": reason.text, **({"because": because} if because else {})}
