"""Choice among several tools by their learnt ability at a kind of task, and by cases; pure.

An *ability* is the share of calls of a tool that succeed at a kind of task, with its uncertainty. A *case* is a call
that the memory holds, with the situation in which it was made and how it went.

Optimism under uncertainty: the tool with the highest plausible ability wins. So a tool with few trials gets its chance,
and one that keeps failing loses it. Of equal tools the first one in the rule wins.
Source: upper credible bounds of a posterior as an index, Kaufmann, Cappé, Garivier, "On Bayesian Upper Confidence
Bounds for Bandit Problems", AISTATS 2012; mean plus `WIDTH` standard deviations stands for the Beta quantile here.
For a new task the ability at similar tasks is taken (`spar.data.learning.abilities`).

Where there are cases of situations like this one (`planning.cases`), they decide, and ability decides only between
equals: situations of one kind of task may need different tools. But where nearly all trials of the kind of task were
made in this very situation, ability decides: it then says the same with more trials.

A tool whose effect must not be repeated is not tried out. It is taken only where it is the first one of the rule, where
it has worked before, where a person is asked before it runs, or where all other tools fail more often than not.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from planning.cases.evidence import NO_EVIDENCE, Case, Evidence, evidence_of
from planning.cases.failures import KnownFailure, known_failure, other_value
from planning.cases.situations import Situation
from spar.data.learning.abilities import ability_key, is_known, known_of
from spar.data.learning.situations import is_of_strangers, kind_of_task, looked_up, whoever
from spar.types import Ability, Learnt

#: Weight of ability beside cases: just enough to choose between tools with equal cases.
_BESIDE_CASES: Final = 0.0005
#: Share of the trials of a kind of task that were made in this very situation; from there on ability decides.
_SAME_SHARE: Final = 0.8
#: Trials that have failed; with less evidence of failure the memory is not asked.
_FAILED: Final = 0.5
#: Cases that a decision names at most.
_NAMED: Final = 5

#: Standard deviations above the mean that are still plausible; this number lost least where evidence fades by 0.975 a
#: trial.
WIDTH = 1.2
_UNKNOWN = 0.5 + WIDTH * math.sqrt(1 / 12)  # mean and deviation of Beta(1, 1): nothing known


def optimistic(ability: Ability | None) -> float:
    """Return the plausible ability: mean plus `WIDTH` deviations; for an unknown tool those of the flat prior."""
    if ability is None:
        return _UNKNOWN
    bound = ability.estimate + WIDTH * ability.uncertainty
    return bound if math.isfinite(bound) else _UNKNOWN


def is_below(ability: Ability | None, least: float) -> bool:
    """Return whether enough trials show that the ability is less than `least` (0..1)."""
    return ability is not None and is_known(ability) and ability.estimate < least


def choose(tools: Sequence[str], task: str, abilities: Mapping[str, Ability], least: float | None = None) -> str | None:
    """Return the tool for this kind of task; None when the ability of all tools is known to be less than `least`."""
    known = _known(tools, task, abilities)
    names = looked_up(task)
    own = names[: names.index(kind_of_task(whoever(task))) + 1]  # failures with other intents must not rule a tool out
    able = [
        tool
        for tool, of in known.items()
        if least is None or of is None or of.task not in own or not is_below(of, least)
    ]
    return max(able, key=lambda tool: optimistic(known[tool]), default=None)


def _known(tools: Sequence[str], task: str, abilities: Mapping[str, Ability]) -> Mapping[str, Ability | None]:
    """Return the ability of each tool at this kind of task, None for none."""
    return {tool: known_of(tool, task, abilities) for tool in tools} if abilities else dict.fromkeys(tools)


class Decision(Struct, frozen=True):
    """Decision about a call: `tool` with `params`; or no tool, then `left_out` says why.

    `learnt` says how memory changed the decision, None where it did not. `look` is the number of seconds after which a
    call that is left out may be made. `is_asked`: a person has to approve it. `is_lent`: a parameter comes from an
    untrusted case.
    """

    tool: str | None
    params: dict[str, Any]
    left_out: str = ""
    learnt: Learnt | None = None
    look: float | None = None
    is_asked: bool = False
    is_lent: bool = False


class Question(Struct, frozen=True):
    """Question to be decided: which of `tools` to call with `params` at a `task`; `first` is taken without memory.

    `least` is the ability that a tool needs, None for any. `may_try` tells whether a tool may be called as a trial.
    `is_wanted`: a person has asked for the work, so a call is made even where all of them have failed before.
    """

    tools: Sequence[str]
    params: dict[str, Any]
    task: str
    least: float | None = None
    may_try: Callable[[str], bool] = lambda tool: True
    is_wanted: bool = False

    @property
    def first(self) -> str:
        return self.tools[0]


def has_failed(tool: str, task: str, abilities: Mapping[str, Ability]) -> bool:
    """Return whether a tool has failed at this very task not long ago, so that the memory may hold cases of it."""
    names = (task, whoever(task)) if is_of_strangers(task) else (task,)
    return any(_has_failed(abilities.get(ability_key(tool, name))) for name in names)


def _has_failed(known: Ability | None) -> bool:
    if known is None or not (0 < known.estimate < 1 and 0 < known.uncertainty < 0.5):
        return False
    weight = known.estimate * (1 - known.estimate) / max(known.uncertainty, 1e-6) ** 2 - 1
    return (1 - known.estimate) * weight - 1 >= _FAILED


def decide(
    question: Question, abilities: Mapping[str, Ability], cases: Sequence[Case] = (), at: Situation | None = None
) -> Decision:
    """Return the decision by cases and abilities; without cases by abilities alone.

    A call that would only fail again is not made: its remedy is applied, or the next tool is taken.
    Args: cases: empty where the memory was not asked; at: the situation, where there are cases.
    """
    task, params = question.task, question.params
    able = _able(question.tools, task, abilities, question.least)
    if not able:
        why = "its tools do too badly at this"
        return Decision(
            None, params, why, Learnt(f"{_evidence_sentence(question.first, NO_EVIDENCE, task, abilities)}")
        )
    failures = _failures(able, params, cases, at) if at is not None else {}
    evidence = evidence_of(cases)
    free = [tool for tool in able if tool not in failures]
    if free:
        proposed = next((failure.remedy.tool for failure in failures.values() if failure.remedy.tool in free), "")
        tool = _best(free, question, evidence, abilities, proposed)
        return Decision(tool, params, learnt=_learnt(question, tool, evidence, failures, abilities))
    return _mended(question, failures, cases)


def explore(question: Question, cases: Sequence[Case], chance: str) -> Decision:
    """Return the next step in an environment: a tool that has worked in this state, else the one with the fewest trials
    of those that have not failed here.

    Args: chance: a text that decides between equal tools, in the same way each time.
    """
    evidence = evidence_of([case for case in cases if case.is_same])

    def order(tool: str) -> tuple[int, int, bytes]:
        known = evidence.get(tool, NO_EVIDENCE)
        balance = (known.failed > known.worked) - (known.worked > known.failed)
        return balance, known.tried, hashlib.blake2b(f"{chance}|{tool}".encode()).digest()

    tried = [tool for tool in question.tools if question.may_try(tool)] or list(question.tools[:1])
    tool = min(tried, key=order)
    learnt = _learnt(question, tool, evidence, {}, {}, "was tried least often here")
    return Decision(tool, question.params, learnt=learnt)


def _able(tools: Sequence[str], task: str, abilities: Mapping[str, Ability], least: float | None) -> list[str]:
    if least is None:
        return list(tools)
    return [tool for tool in tools if choose([tool], task, abilities, least) is not None]


def _failures(
    tools: Sequence[str], params: Mapping[str, Any], cases: Sequence[Case], at: Situation
) -> dict[str, KnownFailure]:
    known_failures = {tool: known_failure(cases, tool, params, at) for tool in tools}
    return {tool: failure for tool, failure in known_failures.items() if failure is not None}


def _best(
    tools: Sequence[str],
    question: Question,
    evidence: Mapping[str, Evidence],
    abilities: Mapping[str, Ability],
    proposed: str,
) -> str:
    """Return the best of the tools that may be taken; `proposed` is one that the remedy of a failure names."""
    known = _known(question.tools, question.task, abilities)
    trials = [ability.trials for ability in known.values() if ability is not None]
    same = sum(tool_evidence.same for tool_evidence in evidence.values())
    by_cases = bool(evidence) and not (trials and same > 0 and same >= _SAME_SHARE * sum(trials))
    estimates = {tool: 0.5 if ability is None else ability.estimate for tool, ability in known.items()}

    def index(tool: str) -> float:
        if not by_cases:
            return optimistic(known[tool])
        tool_evidence = evidence.get(tool, NO_EVIDENCE)
        bonus = 1.0 if tool == proposed and not tool_evidence.failed else 0.0
        return tool_evidence.plausible + _BESIDE_CASES * optimistic(known[tool]) + bonus

    def mean(tool: str) -> float:
        return evidence.get(tool, NO_EVIDENCE).mean if by_cases else estimates[tool]

    def is_proven(tool: str) -> bool:
        return bool(evidence.get(tool, NO_EVIDENCE).worked) or estimates[tool] > 0.5

    eligible = [tool for tool in tools if tool == question.first or question.may_try(tool) or is_proven(tool)]
    best = max(eligible, key=index, default="")
    return best if best and mean(best) >= 0.5 else max(tools, key=index)


def _mended(question: Question, failures: Mapping[str, KnownFailure], cases: Sequence[Case]) -> Decision:
    """Return the decision where each tool would fail again: another parameter, a question to a person, or no call."""
    named = tuple(dict.fromkeys(failure.case.experience.id for failure in failures.values()))[:_NAMED]
    why = "; ".join(failure.sentence for failure in failures.values())
    for tool, failure in failures.items():
        remedy = failure.remedy
        if (
            remedy.action == "other_parameter"
            and (replacement := other_value(cases, failure, question.params)) is not None
        ):
            value, case = replacement
            is_lent = "untrusted" in (case.tried.trust, case.experience.trust)
            learnt = Learnt(
                f"{why}; another {remedy.parameter!r} worked",
                cases=(case.experience.id, *named),
                instead_of=f"{question.first} with its own {remedy.parameter!r}",
            )
            return Decision(tool, {**question.params, remedy.parameter: value}, learnt=learnt, is_lent=is_lent)
    for tool, failure in failures.items():
        if failure.remedy.action == "ask":
            learnt = Learnt(f"{why}; a person is asked first", cases=named, instead_of=f"{question.first} unasked")
            return Decision(tool, question.params, learnt=learnt, is_asked=True)
    if question.is_wanted:
        return Decision(question.first, question.params)
    if unsure := [tool for tool, failure in failures.items() if not failure.is_certain]:
        evidence = evidence_of(cases)
        tool = max(unsure, key=lambda name: evidence[name].plausible)
        return Decision(tool, question.params, learnt=_learnt(question, tool, evidence, failures, {}))
    look = min(failure.seconds for failure in failures.values())
    learnt = Learnt(why, cases=named, instead_of=question.first)
    return Decision(None, question.params, why, learnt, look)


def _learnt(
    question: Question,
    tool: str,
    evidence: Mapping[str, Evidence],
    failures: Mapping[str, KnownFailure],
    abilities: Mapping[str, Ability],
    otherwise: str = "is still to be tried",
) -> Learnt | None:
    """Return how memory changed a decision, None when it did not; `otherwise` explains a tool without trials."""
    first = question.first
    if tool == first:
        return None
    chosen, left = evidence.get(tool, NO_EVIDENCE), evidence.get(first, NO_EVIDENCE)
    reason = _evidence_sentence(tool, chosen, question.task, abilities) or f"{tool} {otherwise}"
    against = (
        failures[first].sentence if first in failures else _evidence_sentence(first, left, question.task, abilities)
    )
    cases = tuple(dict.fromkeys([*chosen.cases[:_NAMED], *left.cases[:_NAMED]]))
    return Learnt("; ".join(filter(None, (reason, against))), cases=cases, instead_of=first)


def _evidence_sentence(tool: str, evidence: Evidence, task: str, abilities: Mapping[str, Ability]) -> str:
    """Return a sentence on how well a tool worked in like situations, else at its kind of task; "" without trials."""
    if total := evidence.worked + evidence.failed:
        cause = max(evidence.causes, key=lambda cause_name: evidence.causes[cause_name], default="")
        why = f" ({cause})" if cause and not evidence.worked else ""
        number = len(dict.fromkeys(evidence.cases))
        return f"{tool} worked {evidence.worked} of {total} times in {number} like situation{'s'[: number != 1]}{why}"
    known = known_of(tool, task, abilities) if abilities else None
    if known is None or not known.trials:
        return ""
    return f"{tool} succeeds {known.estimate:.0%} of the time at {known.task!r}, by {known.trials} trials"
