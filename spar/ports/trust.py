"""Trust in a run: whether text from outside influenced it, or came into it by its calls; pure.

A tool states that it `brings_untrusted`; an unknown tool may bring anything. An action names the perceptions of its
plan. Which data of a run is concerned is decided by `acting.approvals.taint`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from spar.ports.optional.act import BringsUntrusted, HasTerms
from spar.ports.optional.any_part import offers
from spar.types import Action, ActionResult, CallResult, Perception, Trust, copy_with


def least_trust(perceptions: Iterable[Perception]) -> Trust:
    """Return the trust of the least trusted of these perceptions."""
    for perception in perceptions:  # no generator: this runs for each plan, and most have one perception
        if perception.trust == "untrusted":
            return "untrusted"
    return "trusted"


def answering(action: Action, noticed: Sequence[Perception]) -> Action:
    """Return the action with its cycle's perceptions added, as far as the planner left them out.

    A planner may name the perceptions that it answers. But text from outside may have influenced any plan, so if a
    planner names only trusted perceptions, the untrusted ones are added.
    """
    named = action.perceptions
    if not named:
        return copy_with(action, perceptions=tuple(noticed)) if noticed else action
    if named is noticed or least_trust(named) == "untrusted" or least_trust(noticed) == "trusted":
        return action
    untrusted = [perception for perception in noticed if perception.trust == "untrusted"]
    return copy_with(action, perceptions=(*named, *untrusted))


def is_tainted(results: Iterable[CallResult], tools: Mapping[str, Any]) -> bool:
    """Return whether a call returned anything from outside, which a model then reads."""
    for result in results:
        tool = tools.get(result.call.tool)
        terms: Any = tool.terms if offers(tool, HasTerms) else tool
        brings = tool is None or (offers(terms, BringsUntrusted) and terms.brings_untrusted)
        if result.attempts and (brings or result.call.meta.get("_trust") == "untrusted"):
            return True
    return False


def was_misled(ticks: Iterable[ActionResult]) -> bool:
    """Return whether one of these results has a plan from untrusted text: what it wrote may repeat that text."""
    return any(result.results and (result.action is None or trust_of(result.action) == "untrusted") for result in ticks)


def trust_of(action: Action) -> Trust:
    """Return the trust of an action: its own value, or else that of its least trusted perception."""
    return action.trust or least_trust(action.perceptions)
