"""Formatting of values for people: local times with their zone, durations, amounts, entries of transcripts."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

from spar.cli.blocks import Block, table
from spar.data.text import one_line, printable

if TYPE_CHECKING:
    from spar.operations.agent import AgentStatus, ModelRow
    from spar.operations.perceived import Examples

#: Characters of an id that are shown; commands accept any unique beginning of an id.
ID = 12
#: Characters of a text that a tree shows; `--json` has all of it.
TEXT = 200


def local(at: Any) -> str:
    """Return a time (ISO text) in the zone of this machine, to the second; "" for anything else."""
    try:
        return datetime.fromisoformat(str(at)).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except ValueError:
        return ""


def zoned(head: str) -> str:
    """Return the head of a column with the zone of `local`: `started (CET)`."""
    return f"{head} ({datetime.now().astimezone().tzname()})"


def took(seconds: float) -> str:
    """Return a measured duration: `340 µs`, `3.5 ms`, `12.01 s`."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def span(seconds: float) -> str:
    """Return a long duration: `93 s`; from two minutes on in its two largest units: `2 h 5 min`."""
    if seconds < 120:
        return f"{max(seconds, 0.0):.0f} s"
    from spar.review.render import span as in_units

    return in_units(seconds)


def money(millionths: float) -> str:
    """Return an amount of money, which is given in millionths."""
    return f"{millionths / 1_000_000:,.4f}".rstrip("0").rstrip(".")


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: "1 thing", "2 things"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def short(value: Any) -> str:
    """Return the beginning of a value, on one line."""
    return one_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), TEXT)


def examples_blocks(given: object, answer: Examples) -> list[Block]:
    """Return the known labels and the taught examples as tables."""
    labels = [(row.what, row.label, str(row.written), str(row.taught)) for row in answer.labels]
    taught = [(row.id, row.what, row.label, row.text, row.by, local(row.at)) for row in answer.taught]
    blocks: list[Block] = [
        table(("what", "label", ">written", ">taught"), labels) if labels else "nothing was learnt yet"
    ]
    if taught:
        blocks += ["", table(("id", "what", "label", "text", "by", zoned("at")), taught)]
    return [*blocks, *([f"\n{answer.failure}"] if answer.failure else [])]


def hook_line(entry: dict[str, Any]) -> str:
    """Return the line that says how a hook changed the prompt of a request."""
    changes = [
        f"{key.replace('_', ' ')}: {short(value)}" for key, value in entry.items() if key not in ("hook", "point")
    ]
    return f"hook {entry['hook']} at {entry['point']}: {'; '.join(changes)}"


def model_lines(agent: AgentStatus) -> list[str]:
    """Return a line for each unavailable model, with the reason; the last one has the number of waiting runs."""
    lines = [
        f"model {printable(model.model)}: {one_line(printable(model.reason))}, {next_try(model)}"
        for model in agent.models
        if model.state != "closed"
    ]
    if lines and (waiting := agent.waiting_for_models):
        lines[-1] += f"; {waiting} {'run waits' if waiting == 1 else 'runs wait'}"
    return lines


def next_try(model: ModelRow) -> str:
    """Return when an unavailable model is tried again."""
    return f"next try in {model.wait:.0f} s" if model.state == "open" else "the next request tries it"
