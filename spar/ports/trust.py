"""Trust in what a run did: did text from outside influence it, or come into it by its calls; pure.

A tool says of itself that it `brings_untrusted`; one that nobody knows may bring anything. What a plan was made from
its action says. Which data of a run this concerns is for who carries out calls (`acting.approvals.taint`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from spar.ports.optional import BringsUntrusted, HasTerms, offers
from spar.types import Action, ActionResult, CallResult, Perception, Trust, replace


def least_trust(perceptions: Sequence[Perception]) -> Trust:
    for each in perceptions:  # no generator: each plan is asked about, and most follow from one perception
        if each.trust == "untrusted":
            return "untrusted"
    return "trusted"


def answering(action: Action, noticed: Sequence[Perception]) -> Action:
    """Return the action with what its cycle noticed, as far as the planner left that out.

    A planner may name the perceptions that it answers, and then those stand. But what came from outside may have had a
    say in whatever was planned, so where a planner names trusted ones only, the untrusted ones are added.
    """
    named = action.perceptions
    if not named:
        return replace(action, perceptions=tuple(noticed)) if noticed else action
    if named is noticed or least_trust(named) == "untrusted" or least_trust(noticed) == "trusted":
        return action
    return replace(action, perceptions=(*named, *[each for each in noticed if each.trust == "untrusted"]))


def is_tainted(results: Iterable[CallResult], tools: Mapping[str, Any]) -> bool:
    """Return whether a call has brought anything from outside, which a model is then shown."""
    for each in results:
        tool = tools.get(each.call.tool)
        terms: Any = tool.terms if offers(tool, HasTerms) else tool
        brings = tool is None or (offers(terms, BringsUntrusted) and terms.brings_untrusted)
        if each.attempts and (brings or each.call.meta.get("_trust") == "untrusted"):
            return True
    return False


def was_misled(ticks: Iterable[ActionResult]) -> bool:
    """Return whether one of these was planned from text from outside: what it wrote down may repeat that text."""
    return any(each.results and (each.action is None or trust_of(each.action) == "untrusted") for each in ticks)


def trust_of(action: Action) -> Trust:
    """Return the trust of an action: the planner's word, else that of its least trusted perception."""
    return action.trust or least_trust(action.perceptions)
