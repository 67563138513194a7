"""The command `why-not`: says which condition of a rule a recorded cycle did not meet."""

from __future__ import annotations

import json
from difflib import get_close_matches
from typing import TYPE_CHECKING

import click

from spar.cli.context import Options, fail, refusals, write
from spar.cli.tables import ID, short
from spar.data.text import visible
from spar.service import exit_codes as exits

if TYPE_CHECKING:
    from spar.ports.optional import ExplainsRules


@click.command("why-not")
@click.argument("rule")
@click.argument("cycle", default="last")
@click.pass_obj
def why_not(options: Options, rule: str, cycle: str) -> None:
    """Say why a rule did not decide in a past cycle: the first of its conditions that is not met, for each perception.

    The rules are those of the configuration as it is now, the perceptions those that the cycle recorded. A unique
    beginning of the cycle's id is enough; "last" is the newest. With "*" every rule is asked.

    \b
    Examples:
      spar why-not disk
      spar why-not disk 18ec5a35
      spar why-not "*" last --json
    """
    from spar.cli.client import ask
    from spar.operations.history import CycleId, show_cycle
    from spar.types import Action

    planner = _planner(options)
    known = list(planner.rule_names)
    if rule not in (*known, "*"):
        near = get_close_matches(rule, known, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        fail(f"no rule named {rule!r}; known: {', '.join(known) or 'none'}{hint}", exits.USAGE)
    recorded = ask(options, show_cycle, CycleId(cycle), is_typed=True)
    perceptions = {perception.id: perception for perception in recorded.perceptions}
    looks = [look for look in planner.explain(recorded.perceptions) if rule in (look.rule, "*")]
    decided = (recorded.action or Action()).reason
    if options.as_json:
        rows = [{"rule": look.rule, "perception": look.perception, "matches": look.matches, "why": look.why}
                for look in looks]  # fmt: skip
        write(json.dumps({"cycle": recorded.cycle_id, "decided": decided, "looks": rows}))
        return
    write(visible(f"cycle {recorded.cycle_id[:ID]}, decided: {decided or 'nothing'}"))
    if not perceptions:
        write("  it noticed nothing, so no rule was asked")
    for id, perception in perceptions.items():
        about = "/".join(filter(None, (perception.source, perception.kind, perception.intent)))
        write(visible(f"  {about}: {short(perception.content)}"))
        for look in looks:
            if look.perception == id:
                write(visible(f"    {'+' if look.matches else '–'} {look.rule}: {look.why}"))


def _planner(options: Options) -> ExplainsRules:
    """Return the planner of the configured rules. One that cannot explain them ends the command."""
    from spar.config.factory import Parts
    from spar.ports.optional import ExplainsRules, offers

    loaded = options.load()
    with refusals():
        planner = Parts(loaded).rules()
    if not offers(planner, ExplainsRules):
        fail("the planner named 'rules' here cannot explain its rules", exits.UNAVAILABLE)
    explaining: ExplainsRules = planner
    return explaining
