"""One cycle as a tree: noticed, decided, each call with what came of it, learnt, what failed; with its times as bars.

A cycle comes from the tape, where anything may stand after damage: what has another shape than it should is left out
of the tree and said so, and `--json` shows it as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

from spar.cli.blocks import Branch, styled
from spar.cli.tables import hook_line, local, short, took, zoned

#: How a call ended, in one sign, and what that means.
SIGNS = {"ok": ("✓", "good"), "failed": ("✗", "bad"), "timeout": ("✗", "bad"), "denied": ("✗", "bad"),
         "skipped": ("–", "dim"), "cancelled": ("–", "dim"), "in_doubt": ("?", "warn")}  # fmt: skip
#: How a cycle's outcome is meant.
OUTCOMES = {"acted": "good", "failed": "bad", "degraded": "warn", "interrupted": "warn", "skipped": "dim"}


def cycle_tree(cycle: dict[str, Any]) -> Branch:
    """Return a cycle as it is on the tape."""
    times = _Times(cycle)
    phases, action, result = _table(cycle, "phases"), _table(cycle, "action"), _table(cycle, "result")
    known = {_table(each, "call").get("id") for each in _rows(result, "results")}
    calls = [_told(_result, each, times) for each in _rows(result, "results")]
    calls += [Branch(f"· {_call(each)}: not known what came of it") for each in _rows(action, "calls")
              if each.get("id") not in known]  # fmt: skip
    reflection = _table(cycle, "reflection")
    learnt = [f"✗ {_table(each, 'call').get('tool', '?')}: {each.get('cause', '?')}"
              for each in _rows(reflection, "failures")]  # fmt: skip
    learnt += [str(each["lesson"]) for each in _rows(reflection, "experiences") if each.get("lesson")]
    parts = [
        *([Branch(f"trace {cycle['trace_id']}")] if cycle.get("trace_id") else []),
        _phase("noticed", "sense", phases, times, [_told(_perception, each) for each in _rows(cycle, "perceptions")]),
        _phase("decided", "plan", phases, times, _leaves(_decided(cycle, action))),
        _phase("done", "act", phases, times, calls),
        _phase("learnt", "reflect", phases, times, _leaves(learnt)),
        _phase("failed", "", phases, times,
               [Branch(styled(": ".join(str(each[name]) for name in ("phase", "message") if each.get(name)), "bad"))
                for each in _rows(cycle, "faults")]),
        _phase("in doubt", "", phases, times,
               [Branch(styled(f"{each.get('id', '?')}: {each.get('why', '?')}", "warn"))
                for each in _rows(cycle, "doubts")]),
    ]  # fmt: skip
    outcome, id = str(cycle.get("outcome", "?")), cycle.get("cycle_id", "?")
    at = zoned(local(cycle.get("started_at")))
    head = f"cycle {id}, session {cycle.get('session', '?')}, {at}, {outcome} in {took(times.whole)}"
    return Branch(styled(head, OUTCOMES.get(outcome, "")), tuple(part for part in parts if part is not None))


def call_lines(cycle: dict[str, Any]) -> list[Branch]:
    """Return a line for each call of a cycle: with what it was made, and what came of it."""
    times = _Times(cycle)
    calls = [_told(_result, each, times) for each in _rows(_table(cycle, "result"), "results")]
    return [Branch(call.text, took=call.took) for call in calls]


class _Times:
    """Places of phases and calls in the time of their cycle; phases follow each other, and act begins with its first
    call where that came while the plan was still written."""

    def __init__(self, cycle: dict[str, Any]) -> None:
        self._began = _moment(cycle.get("started_at"))
        self.whole = _number(cycle.get("duration"))
        starts = [self.offset(each) for each in _rows(_table(cycle, "result"), "results")]
        first_call = min((each for each in starts if each is not None), default=None)
        self.phases: dict[str, tuple[float, float]] = {}
        end, durations = 0.0, _table(cycle, "phases")
        for phase in ("sense", "plan", "act", "reflect"):
            if phase in durations:
                begin = end if phase != "act" or first_call is None else min(end, first_call)
                end = max(end, begin + _number(durations[phase]))
                self.phases[phase] = (begin, begin + _number(durations[phase]))
        self._scale = max(self.whole, end, 1e-9)

    def offset(self, result: dict[str, Any]) -> float | None:
        """Return how many seconds after the cycle a call began; None where that is not known."""
        at = _moment(result.get("started_at"))
        return None if at is None or self._began is None else max((at - self._began).total_seconds(), 0.0)

    def bar(self, waits: float, begins: float, ends: float) -> tuple[float, float, float]:
        return waits / self._scale, begins / self._scale, ends / self._scale


def _phase(name: str, phase: str, phases: dict[str, Any], times: _Times, children: Sequence[Branch]) -> Branch | None:
    """Return a phase with its lines; None for one of which there is nothing to say."""
    if not children and phase not in phases:
        return None
    if phase not in times.phases:
        return Branch(styled(name, "strong"), tuple(children))
    begins, ends = times.phases[phase]
    return Branch(styled(name, "strong"), tuple(children), took(ends - begins), times.bar(begins, begins, ends))


def _decided(cycle: dict[str, Any], action: dict[str, Any]) -> list[str]:
    did = [each for note in _rows(cycle, "notes") if note.get("kind") == "hooks" for each in _rows(note, "hooks")]
    decided = [hook_line(each) if "hook" in each and "point" in each else short(each) for each in did]
    decided += [str(action[key]) for key in ("goal", "reason") if action.get(key)]
    decided += [_went_by(each) for each in _rows(action, "learnt")]
    if action.get("deferred"):
        decided.append(f"put off: {action['deferred']}")
    if action.get("output") is not None:
        decided.append(f"answer: {short(action['output'])}")
    return decided


def _went_by(learnt: dict[str, Any]) -> str:
    """Say which experiences a decision went by, or would have gone by; the reason says why."""
    cases = ", ".join(str(each) for each in learnt.get("cases") or ())
    by = f"the experiences {cases}" if cases else "what the tools did at such tasks so far"
    instead = f" instead of {learnt['instead_of']}" if learnt.get("instead_of") else ""
    return f"memory: it {'went' if learnt.get('is_used') else 'would have gone'} by {by}{instead}"


def _perception(perception: dict[str, Any]) -> Branch:
    about = "/".join(str(perception[name]) for name in ("source", "kind", "intent") if perception.get(name))
    return Branch(f"{about}: {short(perception.get('content', ''))}")


def _call(call: dict[str, Any]) -> str:
    given = ", ".join(f"{name}={short(value)}" for name, value in _table(call, "params").items())
    return f"{call.get('tool', '?')}({given})"


def _result(result: dict[str, Any], times: _Times) -> Branch:
    status, output = str(result.get("status", "?")), result.get("output")
    came = _table(result, "fault").get("message") or result.get("reason") or ("" if output is None else short(output))
    sign, style = SIGNS.get(status, ("?", "warn"))
    told = "" if status == "ok" else f" {status}"
    doubt = " (was in doubt)" if result.get("doubt") else ""
    text = f"{sign} {_call(_table(result, 'call'))}{told}{doubt}" + (f" → {came}" if came else "")
    seconds, begins = _number(result.get("duration")), times.offset(result)
    if begins is None:
        return Branch(styled(text, style), took=took(seconds) if seconds else "")
    waits = min(times.phases.get("act", (begins, begins))[0], begins)
    return Branch(styled(text, style), took=took(seconds), bar=times.bar(waits, begins, begins + seconds))


def _leaves(texts: Iterable[str]) -> list[Branch]:
    return [Branch(text) for text in texts]


# -- values of any shape


def _told(make: Callable[..., Branch], value: dict[str, Any], *more: Any) -> Branch:
    """Return a line about a value; one that cannot be told says so."""
    try:
        return make(value, *more)
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        return Branch(styled(f"cannot be shown ({type(error).__name__}: {error}); --json has it", "warn"))


def _table(value: dict[str, Any], name: str) -> dict[str, Any]:
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def _rows(value: dict[str, Any], name: str) -> list[dict[str, Any]]:
    found = value.get(name)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and 0 <= value < 1e12 else 0.0


def _moment(value: Any) -> datetime | None:
    try:
        found = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    return found if found.tzinfo is not None else None
