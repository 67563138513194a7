"""Command `cycles show`: one past cycle as a tree, from its perceptions to its lessons and failures; its times as bars.

The record of a damaged cycle may contain values of any shape. The tree leaves out wrong values, or has a line that says
so; `--json` shows the record itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

import click

from spar.cli.blocks import Branch, styled
from spar.cli.client import ask
from spar.cli.context import Options, show
from spar.cli.tables import hook_line, local, short, took, zoned
from spar.operations import history

#: The sign and the style of each status of a call.
SIGNS = {"ok": ("✓", "good"), "failed": ("✗", "bad"), "timeout": ("✗", "bad"), "denied": ("✗", "bad"),
         "skipped": ("–", "dim"), "cancelled": ("–", "dim"), "in_doubt": ("?", "warn")}  # fmt: skip

#: The fields of a doubt that are added to the result of its call.
_MARK = ("id", "why", "answer", "answered_by", "answered_at", "reason", "output")


@click.command("show")
@click.argument("cycle_id")
@click.pass_obj
def show_cycle(options: Options, cycle_id: str) -> None:
    """Show one cycle in full: what was noticed, decided, done and learnt.

    CYCLE_ID may be a unique beginning of an id; "last" is the newest cycle.

    \b
    Examples:
      spar cycles show 18ea10a4
      spar cycles show last
    """
    marked = _with_marks(ask(options, history.show_cycle, history.CycleId(cycle_id)))
    show(options, marked, cycle_tree(marked))


def _with_marks(cycle: dict[str, Any]) -> dict[str, Any]:
    """Return the cycle with each doubt added to the result of its call, as `doubt`."""
    marks = {doubt["call"]["id"]: {name: doubt[name] for name in _MARK} for doubt in cycle.pop("doubts", ())}
    for result in (cycle.get("result") or {}).get("results", ()):
        if (mark := marks.pop(result["call"]["id"], None)) is not None:
            result["doubt"] = mark
    # A cycle that was interrupted and not continued has no results, so its doubts are listed separately.
    return {**cycle, "doubts": list(marks.values())} if marks else cycle


def cycle_tree(cycle: dict[str, Any]) -> Branch:
    """Return the tree of a recorded cycle."""
    times = _Times(cycle)
    phases, action, result = _table(cycle, "phases"), _table(cycle, "action"), _table(cycle, "result")
    known = {_table(row, "call").get("id") for row in _rows(result, "results")}
    calls = [_branch_or_error(_result, row, times) for row in _rows(result, "results")]
    calls += [Branch(f"· {_call(call)}: not known what came of it") for call in _rows(action, "calls")
              if call.get("id") not in known]  # fmt: skip
    reflection = _table(cycle, "reflection")
    learnt = [f"✗ {_table(failure, 'call').get('tool', '?')}: {failure.get('cause', '?')}"
              for failure in _rows(reflection, "failures")]  # fmt: skip
    learnt += [str(row["lesson"]) for row in _rows(reflection, "experiences") if row.get("lesson")]
    parts = [
        *([Branch(f"trace {cycle['trace_id']}")] if cycle.get("trace_id") else []),
        _phase("noticed", "sense", phases, times,
               [_branch_or_error(_perception, row) for row in _rows(cycle, "perceptions")]),
        _phase("decided", "plan", phases, times, _leaves(_decisions(cycle, action))),
        _phase("done", "act", phases, times, calls),
        _phase("learnt", "reflect", phases, times, _leaves(learnt)),
        _phase("failed", "", phases, times,
               [Branch(styled(": ".join(str(fault[name]) for name in ("phase", "message") if fault.get(name)), "bad"))
                for fault in _rows(cycle, "faults")]),
        _phase("in doubt", "", phases, times,
               [Branch(styled(f"{doubt.get('id', '?')}: {doubt.get('why', '?')}", "warn"))
                for doubt in _rows(cycle, "doubts")]),
    ]  # fmt: skip
    outcome, id = str(cycle.get("outcome", "?")), cycle.get("cycle_id", "?")
    at = zoned(local(cycle.get("started_at")))
    head = f"cycle {id}, session {cycle.get('session', '?')}, {at}, {outcome} in {took(times.whole)}"
    return Branch(
        styled(head, history.OUTCOME_STYLES.get(outcome, "")), tuple(part for part in parts if part is not None)
    )


def call_lines(cycle: dict[str, Any]) -> list[Branch]:
    """Return a line for each call of a cycle, with its parameters and its result."""
    times = _Times(cycle)
    calls = [_branch_or_error(_result, row, times) for row in _rows(_table(cycle, "result"), "results")]
    return [Branch(call.text, took=call.took) for call in calls]


class _Times:
    """Times of phases and calls in their cycle, in seconds after its start.

    The phases follow each other. Act begins with its first call if that ran while the plan was still being written.
    """

    def __init__(self, cycle: dict[str, Any]) -> None:
        self._began = _moment(cycle.get("started_at"))
        self.whole = _number(cycle.get("duration"))
        starts = [self.offset(row) for row in _rows(_table(cycle, "result"), "results")]
        first_call = min((start for start in starts if start is not None), default=None)
        self.phases: dict[str, tuple[float, float]] = {}
        end, durations = 0.0, _table(cycle, "phases")
        for phase in ("sense", "plan", "act", "reflect"):
            if phase in durations:
                begin = end if phase != "act" or first_call is None else min(end, first_call)
                end = max(end, begin + _number(durations[phase]))
                self.phases[phase] = (begin, begin + _number(durations[phase]))
        self._scale = max(self.whole, end, 1e-9)

    def offset(self, result: dict[str, Any]) -> float | None:
        """Return the seconds from the start of the cycle to the start of a call, None if unknown."""
        at = _moment(result.get("started_at"))
        return None if at is None or self._began is None else max((at - self._began).total_seconds(), 0.0)

    def bar(self, waits: float, begins: float, ends: float) -> tuple[float, float, float]:
        """Return the bar of a branch: the times in seconds as shares of the whole cycle."""
        return waits / self._scale, begins / self._scale, ends / self._scale


def _phase(name: str, phase: str, phases: dict[str, Any], times: _Times, children: Sequence[Branch]) -> Branch | None:
    """Return the branch of a phase with its lines, None if the cycle has nothing of it."""
    if not children and phase not in phases:
        return None
    if phase not in times.phases:
        return Branch(styled(name, "strong"), tuple(children))
    begins, ends = times.phases[phase]
    return Branch(styled(name, "strong"), tuple(children), took(ends - begins), times.bar(begins, begins, ends))


def _decisions(cycle: dict[str, Any], action: dict[str, Any]) -> list[str]:
    """Return the lines of the plan phase: changes by hooks, goal and reason, experiences, delay, answer."""
    hooks = [hook for note in _rows(cycle, "notes") if note.get("kind") == "hooks" for hook in _rows(note, "hooks")]
    lines = [hook_line(hook) if "hook" in hook and "point" in hook else short(hook) for hook in hooks]
    lines += [str(action[key]) for key in ("goal", "reason") if action.get(key)]
    lines += [_memory_line(learnt) for learnt in _rows(action, "learnt")]
    if action.get("deferred"):
        lines.append(f"put off: {action['deferred']}")
    if action.get("output") is not None:
        lines.append(f"answer: {short(action['output'])}")
    return lines


def _memory_line(learnt: dict[str, Any]) -> str:
    """Return the line about the experiences that a decision used, or would have used."""
    cases = ", ".join(str(case) for case in learnt.get("cases") or ())
    by = f"the experiences {cases}" if cases else "what the tools did at such tasks so far"
    instead = f" instead of {learnt['instead_of']}" if learnt.get("instead_of") else ""
    return f"memory: it {'went' if learnt.get('is_used') else 'would have gone'} by {by}{instead}"


def _perception(perception: dict[str, Any]) -> Branch:
    about = "/".join(str(perception[name]) for name in ("source", "kind", "intent") if perception.get(name))
    return Branch(f"{about}: {short(perception.get('content', ''))}")


def _call(call: dict[str, Any]) -> str:
    params = ", ".join(f"{name}={short(value)}" for name, value in _table(call, "params").items())
    return f"{call.get('tool', '?')}({params})"


def _result(result: dict[str, Any], times: _Times) -> Branch:
    """Return the branch of a call with its result, duration and bar."""
    status, output = str(result.get("status", "?")), result.get("output")
    consequence = (
        _table(result, "fault").get("message") or result.get("reason") or ("" if output is None else short(output))
    )
    sign, style = SIGNS.get(status, ("?", "warn"))
    ending = "" if status == "ok" else f" {status}"
    doubt = " (was in doubt)" if result.get("doubt") else ""
    text = f"{sign} {_call(_table(result, 'call'))}{ending}{doubt}" + (f" → {consequence}" if consequence else "")
    seconds, begins = _number(result.get("duration")), times.offset(result)
    if begins is None:
        return Branch(styled(text, style), took=took(seconds) if seconds else "")
    waits = min(times.phases.get("act", (begins, begins))[0], begins)
    return Branch(styled(text, style), took=took(seconds), bar=times.bar(waits, begins, begins + seconds))


def _leaves(texts: Iterable[str]) -> list[Branch]:
    return [Branch(text) for text in texts]


# -- values of any shape


def _branch_or_error(make: Callable[..., Branch], value: dict[str, Any], *more: Any) -> Branch:
    """Return the branch that `make` builds of a value, or one that says that the value cannot be shown."""
    try:
        return make(value, *more)
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        return Branch(styled(f"cannot be shown ({type(error).__name__}: {error}); --json has it", "warn"))


def _table(value: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the mapping under a name, an empty one if there is none."""
    table = value.get(name)
    return table if isinstance(table, dict) else {}


def _rows(value: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the mappings in the list under a name."""
    rows = value.get(name)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _number(value: Any) -> float:
    """Return a plausible number of seconds, 0 for any other value."""
    return float(value) if isinstance(value, int | float) and 0 <= value < 1e12 else 0.0


def _moment(value: Any) -> datetime | None:
    """Return a time with a zone, None for any other value."""
    try:
        at = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    return at if at.tzinfo is not None else None
