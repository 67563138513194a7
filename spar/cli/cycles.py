"""The answer of `cycles show`: one past cycle as a tree, from its perceptions to its lessons and failures; its times as
bars. Those of `why` and `why-not`: its reasons. That of `incidents show`: the history of an incident, and the cycles
that handled it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, Final

from spar.cli.blocks import ID, Branch, call_text, counted, local, short, styled, took, zoned
from spar.operations.fields import hook_line
from spar.operations.history import OUTCOME_STYLES, ShownCycle
from spar.operations.knowledge.rules import RuleAnswers
from spar.operations.perceived import ShownIncident
from spar.replay.reasons import Reason, Reasons, rule_line
from spar.types import Action, CallResult, CycleRecord, Perception, Reflection
from spar.types.values import Learnt

#: The sign and the style of each status of a call.
SIGNS = {"ok": ("✓", "good"), "failed": ("✗", "bad"), "timeout": ("✗", "bad"), "denied": ("✗", "bad"),
         "skipped": ("–", "dim"), "cancelled": ("–", "dim"), "in_doubt": ("?", "warn")}  # fmt: skip


def cycle_blocks(given: object, cycle: ShownCycle) -> list[Branch]:
    """Return the tree of a recorded cycle."""
    times, results = _Times(cycle), _results(cycle)
    action, reflection = cycle.action or Action(), cycle.reflection or Reflection()
    known = {result.call.id for result in results}
    marked = {doubt.call.id for doubt in cycle.doubts}
    calls = [_result(result, times, was_in_doubt=result.call.id in marked) for result in results]
    calls += _leaves(f"· {call_text(call)}: not known what came of it" for call in action.calls if call.id not in known)
    learnt = [f"✗ {failure.call.tool}: {failure.cause}" for failure in reflection.failures]
    learnt += [experience.lesson for experience in reflection.experiences if experience.lesson]
    faults = [": ".join(filter(None, (fault.phase, fault.message))) for fault in cycle.faults]
    # A cycle that was interrupted and not continued has no results, so its doubts are listed separately.
    doubts = [f"{doubt.id}: {doubt.why}" for doubt in cycle.doubts if doubt.call.id not in known]
    parts = [
        *_leaves([f"trace {cycle.trace_id}"] if cycle.trace_id else []),
        *_part("noticed", times, _leaves(map(_perception, cycle.perceptions)), "sense"),
        *_part("decided", times, _leaves(_decisions(cycle, action)), "plan"),
        *_part("done", times, calls, "act"),
        *_part("learnt", times, _leaves(learnt), "reflect"),
        *_part("failed", times, _leaves(styled(text, "bad") for text in faults)),
        *_part("in doubt", times, _leaves(styled(text, "warn") for text in doubts)),
    ]
    at = zoned(local(cycle.started_at))
    head = f"cycle {cycle.cycle_id}, session {cycle.session}, {at}, {cycle.outcome} in {took(cycle.duration)}"
    return [Branch(styled(head, OUTCOME_STYLES.get(cycle.outcome, "")), tuple(parts))]


def call_lines(cycle: CycleRecord) -> list[Branch]:
    """Return a line for each call of a cycle, with its parameters and its result."""
    times = _Times(cycle)
    calls = [_result(result, times) for result in _results(cycle)]
    return [Branch(call.text, took=call.took) for call in calls]


class _Times:
    """Times of phases and calls in their cycle, in seconds after its start.

    The phases follow each other. Act begins with its first call if that ran while the plan was still being written.
    """

    def __init__(self, cycle: CycleRecord) -> None:
        self._began = cycle.started_at
        starts = [start for result in _results(cycle) if (start := self.offset(result)) is not None]
        self.phases: dict[str, tuple[float, float]] = {}
        end = 0.0
        for phase in ("sense", "plan", "act", "reflect"):
            if phase in cycle.phases:
                begin = min(end, *starts) if phase == "act" and starts else end
                end = max(end, begin + cycle.phases[phase])
                self.phases[phase] = (begin, begin + cycle.phases[phase])
        self._scale = max(cycle.duration, end, 1e-9)

    def offset(self, result: CallResult) -> float | None:
        """Return the seconds from the start of the cycle to the start of a call, None if unknown."""
        return None if result.started_at is None else max((result.started_at - self._began).total_seconds(), 0.0)

    def bar(self, waits: float, begins: float, ends: float) -> tuple[float, float, float]:
        """Return the bar of a branch: the times in seconds as shares of the whole cycle."""
        return waits / self._scale, begins / self._scale, ends / self._scale


def _results(cycle: CycleRecord) -> Sequence[CallResult]:
    return cycle.result.results if cycle.result is not None else ()


def _part(name: str, times: _Times, children: Sequence[Branch], phase: str = "") -> list[Branch]:
    """Return the branch of a part with its lines, none if the cycle has nothing of it."""
    text = styled(name, "strong")
    if phase not in times.phases:
        return [Branch(text, tuple(children))] if children else []
    begins, ends = times.phases[phase]
    return [Branch(text, tuple(children), took(ends - begins), times.bar(begins, begins, ends))]


def _decisions(cycle: CycleRecord, action: Action) -> list[str]:
    """Return the lines of the plan phase: changes by hooks, goal and reason, experiences, delay, answer."""
    hooks: list[Any] = [hook for note in cycle.notes if note.get("kind") == "hooks" for hook in note["hooks"]]
    lines = [*map(hook_line, hooks), *filter(None, (action.goal, action.reason)), *map(_memory_line, action.learnt)]
    if action.deferred:
        lines.append(f"put off: {action.deferred}")
    if action.output is not None:
        lines.append(f"answer: {short(action.output)}")
    return lines


def _memory_line(learnt: Learnt) -> str:
    """Return the line about the experiences that a decision used, or would have used."""
    cases = ", ".join(learnt.cases)
    by = f"the experiences {cases}" if cases else "what the tools did at such tasks so far"
    instead = f" instead of {learnt.instead_of}" if learnt.instead_of else ""
    return f"memory: it {'went' if learnt.is_used else 'would have gone'} by {by}{instead}"


def _perception(perception: Perception) -> str:
    about = "/".join(filter(None, (perception.source, perception.kind, perception.intent)))
    return f"{about}: {short(perception.content)}"


def _result(result: CallResult, times: _Times, *, was_in_doubt: bool = False) -> Branch:
    """Return the branch of a call with its result, duration and bar."""
    consequence = (result.fault.message if result.fault is not None else "") or result.reason or (
        "" if result.output is None else short(result.output))  # fmt: skip
    sign, style = SIGNS[result.status]
    ending = "" if result.status == "ok" else f" {result.status}"
    text = styled(f"{sign} {call_text(result.call)}{ending}{' (was in doubt)' if was_in_doubt else ''}"
                  + (f" → {consequence}" if consequence else ""), style)  # fmt: skip
    if (begins := times.offset(result)) is None:
        return Branch(text, took=took(result.duration) if result.duration else "")
    waits = min(times.phases.get("act", (begins, begins))[0], begins)
    return Branch(text, took=took(result.duration), bar=times.bar(waits, begins, begins + result.duration))


# -- its reasons

#: The title of each part of the chain, and of one that has nothing.
TITLES: Final = {
    "noticed": ("noticed, by which stage and why", "it noticed nothing"),
    "configuration": ("decided by another configuration than the present one", ""),
    "rules": ("rules that were looked at (as they {})", "no rule was asked"),
    "memory": ("experiences that weighed", "no experience changed a decision"),
    "calls": ("calls", "nothing was called"),
    "hand": ("changed by hand", ""),
    "outcome": ("what it led to", ""),
}


def reason_blocks(given: object, reasons: Reasons) -> list[Branch]:
    """Return the reasons of a cycle as a tree."""
    run = f", run {reasons.run_id[:ID]}" if reasons.run_id else ""
    head = f"cycle {reasons.cycle[:ID]}, session {reasons.session}{run}, {zoned(local(reasons.at))}"
    parts = []
    for name, (title, nothing) in TITLES.items():
        title = styled(title.format("were then" if reasons.is_past else "are now"), "strong")
        if (rows := getattr(reasons, name)) or nothing:
            parts.append(Branch(title, tuple(map(_reason, rows))) if rows else Branch(nothing))
    return [Branch(head, tuple(parts))]


def _reason(reason: Reason) -> Branch:
    return Branch(reason.text, tuple(map(_reason, reason.because)))


def rule_blocks(given: object, answers: RuleAnswers) -> list[Branch]:
    """Return what rules say of each perception of a cycle as a tree."""
    parts = [
        Branch(about, tuple(_leaves(rule_line(row.rule, row.why, matches=row.matches) for row in rows)))
        for (_, about), rows in groupby(answers.answers, lambda row: (row.perception, row.about))
    ]
    head = f"cycle {answers.cycle_id[:ID]}, decided: {answers.decided or 'nothing'}"
    return [Branch(head, tuple(parts or _leaves(["it noticed nothing, so no rule was asked"])))]


def _leaves(texts: Iterable[str]) -> list[Branch]:
    return [Branch(text) for text in texts]


#: The words for each kind of step.
_DID = {"joined": "joins", "grown": "grows", "raised": "grows worse", "over": "is over", "again": "comes again",
        "asked": "is to be closed", "opened": "opens", "reopened": "opens again", "closed": "closes"}  # fmt: skip


def incident_blocks(given: object, incident: ShownIncident) -> list[Branch]:
    """Return the tree of an incident: its head, its history in order of time, its perceptions, and omitted numbers."""
    number = len(incident.things) + incident.left_out.get("things", 0)
    size = f"{counted(incident.count, 'perception')} of {counted(number, 'thing')}"
    head = f"{incident.id}, {incident.state}, {incident.severity}, {size}, session {incident.session}"
    about = [short(incident.title)]
    if incident.strange:
        untrusted = counted(incident.strange, "perception")
        about.append(f"{untrusted} of untrusted sources besides, which move nothing here")
    about += [f"{kind}: {', '.join(names)}" for kind, names in incident.entities.items()]
    if incident.closed_at:
        about.append(f"closed {zoned(local(incident.closed_at))}: {incident.reason}")
    texts = {example.id: f" ({example.source}: {short(example.text)})" for example in incident.examples}
    history = [(step.at, Branch(f"{local(step.at)}  {_DID[step.did]}{', untrusted' if step.is_strange else ''}: "
                                f"{step.why}{texts.get(step.perception, '')}")) for step in incident.steps]  # fmt: skip
    history += [(cycle.started_at, Branch(f"{local(cycle.started_at)}  cycle {cycle.cycle_id[:ID]} {cycle.outcome}",
                                          tuple(call_lines(cycle)))) for cycle in incident.dealt]  # fmt: skip
    things = [Branch(f"{thing.count} × {thing.source}/{thing.kind} {thing.state}: {short(thing.text)}")
              for thing in sorted(incident.things.values(), key=lambda thing: thing.first_at)]  # fmt: skip
    parts = [
        *map(Branch, about),
        Branch("what happened", tuple(branch for _, branch in sorted(history, key=lambda entry: entry[0]))),
        Branch("what belongs to it", tuple(things)),
    ]
    if incident.left_out:
        parts.append(Branch("not kept: " + ", ".join(f"{many} {name}" for name, many in incident.left_out.items())))
    return [Branch(head, tuple(parts))]
