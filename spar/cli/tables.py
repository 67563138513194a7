"""Answers laid out for people: tables with a header, local times with their zone, one cycle as a tree."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from spar.data.text import one_line, printable

#: Digits of an id that are shown; a unique beginning of an id is taken everywhere.
ID = 12
#: Characters of a text that are shown in a tree; `--json` shows all of it.
TEXT = 200
#: How a call ended, in one sign.
SIGNS = {"ok": "✓", "failed": "✗", "timeout": "✗", "denied": "✗", "skipped": "–", "cancelled": "–", "in_doubt": "?"}


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return rows under their header, in columns; a head that begins with ">" has its column to the right."""
    cells = [[head.removeprefix(">") for head in heads], *[[one_line(cell) for cell in row] for row in rows]]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for row in cells:
        padded = (
            cell.rjust(width) if head.startswith(">") else cell.ljust(width)
            for head, cell, width in zip(heads, row, widths, strict=True)
        )
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def local(at: Any) -> str:
    """Return a time (ISO text) in this machine's zone, to the second; "" for none."""
    try:
        return datetime.fromisoformat(str(at)).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except ValueError:
        return ""


def zoned(head: str) -> str:
    """Return a column's head with the zone that `local` shows times in: `started (CET)`."""
    return f"{head} ({datetime.now().astimezone().tzname()})"


def took(seconds: float) -> str:
    """Return a duration for people: `340 µs`, `3.5 ms`, `12.01 s`."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def short(value: Any) -> str:
    """Return the beginning of a value, on one line."""
    return one_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), TEXT)


def hook_line(did: dict[str, Any]) -> str:
    """Return what a hook did to the prompt of a request."""
    told = [f"{key.replace('_', ' ')}: {short(value)}" for key, value in did.items() if key not in ("hook", "point")]
    return f"hook {did['hook']} at {did['point']}: {'; '.join(told)}"


def cycle_tree(cycle: dict[str, Any]) -> str:
    """Return a cycle as it is on the tape: noticed, decided, each call with what came of it, learnt, what failed."""
    lines = [f"cycle {cycle['cycle_id']}  session {cycle['session']}  {zoned(local(cycle['started_at']))}  "
             f"{cycle['outcome']} in {took(cycle['duration'])}"]  # fmt: skip
    phases = cycle.get("phases") or {}
    action, result = cycle.get("action") or {}, cycle.get("result") or {}
    _branch(lines, "noticed", phases.get("sense"), [_perception(each) for each in cycle.get("perceptions") or ()])
    decided = [action[key] for key in ("goal", "reason") if action.get(key)]
    if action.get("deferred"):
        decided.append(f"put off: {action['deferred']}")
    if action.get("output") is not None:
        decided.append(f"answer: {short(action['output'])}")
    did = [each for note in cycle.get("notes") or () if note.get("kind") == "hooks" for each in note["hooks"]]
    _branch(lines, "decided", phases.get("plan"), [*[hook_line(each) for each in did], *decided])
    known = {each["call"]["id"] for each in result.get("results") or ()}
    results = [_result(each) for each in result.get("results") or ()]
    results += [
        f"· {_call(each)}: not known what came of it" for each in action.get("calls") or () if each["id"] not in known
    ]
    _branch(lines, "done", phases.get("act"), results)
    reflection = cycle.get("reflection") or {}
    learnt = [f"✗ {each['call']['tool']}: {each['cause']}" for each in reflection.get("failures") or ()]
    learnt += [each["lesson"] for each in reflection.get("experiences") or () if each.get("lesson")]
    _branch(lines, "learnt", phases.get("reflect"), learnt)
    _branch(lines, "failed", None, [f"{each['phase']}: {each['message']}" for each in cycle.get("faults") or ()])
    _branch(lines, "in doubt", None, [f"{each['id']}: {each['why']}" for each in cycle.get("doubts") or ()])
    return "\n".join(lines)


def _branch(lines: list[str], name: str, seconds: float | None, items: Sequence[Any]) -> None:
    if not items and seconds is None:
        return
    lines.append(f"├─ {name}" + (f"  {took(seconds)}" if seconds is not None else ""))
    lines += [f"│    {short(item)}" for item in items]


def _perception(perception: dict[str, Any]) -> str:
    about = "/".join(part for part in (perception["source"], perception["kind"], perception["intent"]) if part)
    return f"{about}: {short(perception['content'])}"


def _call(call: dict[str, Any]) -> str:
    given = ", ".join(f"{name}={short(value)}" for name, value in call["params"].items())
    return f"{call['tool']}({given})"


def _result(result: dict[str, Any]) -> str:
    fault = result.get("fault") or {}
    came = fault.get("message") or result.get("reason") or ("" if result["output"] is None else short(result["output"]))
    sign = SIGNS.get(result["status"], "?")
    status = "" if result["status"] == "ok" else f" {result['status']}"
    doubt = " (was in doubt)" if result.get("doubt") else ""
    shown = f"{sign} {_call(result['call'])}{status}{doubt} in {took(result['duration'])}"
    return f"{shown} → {came}" if came else shown


def model_lines(agent: dict[str, Any]) -> list[str]:
    """Each model that cannot be asked now, and why; with the last of them, how many runs wait for one."""
    lines = [
        f"model {printable(each['model'])}: {one_line(printable(each['reason']))}, {_tried(each)}"
        for each in agent["models"]
        if each["state"] != "closed"
    ]
    if lines and (waiting := agent["waiting_for_models"]):
        lines[-1] += f"; {waiting} {'run waits' if waiting == 1 else 'runs wait'}"
    return lines


def _tried(model: dict[str, Any]) -> str:
    return f"next try in {model['wait']:.0f} s" if model["state"] == "open" else "the next request tries it"
