"""Table of the duties of each contender: a ratio says little where one of the two does less.

`make bench` prints the rows of those that were measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from benchmarks.table import columns

DUTIES: Mapping[str, str] = {
    "order": "starts work only after what it needs",
    "values": "hands results on by reference or by a shared state",
    "checks": "checks values against their types",
    "events": "tells subscribers",
    "contains": "a step that raises ends alone, as a value",
    "deadline": "a deadline for each step",
    "account": "keeps durations and counts",
    "record": "keeps each result for a reader",
    "durable": "goes on after a crash",
}

#: By the beginning of the name that the table of figures has; the longest that fits counts.
CONTENDERS: Mapping[str, str] = {
    "spar: cycle": "order values checks events contains deadline account",
    "spar: journalled cycle": "order values checks events contains deadline account record durable",
    "spar: call": "order values checks events contains deadline account record",
    "spar: call, with journal": "order values checks events contains deadline account record durable",
    "spar: publish": "events contains",
    "spar: run": "order values checks events contains deadline account record",
    "raw anyio": "order",
    "raw asyncio": "order",
    "raw countdown": "order",
    "raw SQLite": "order durable",
    "raw group commit": "order durable",
    "anyio task group": "order",
    "py_trees tick": "order",
    "LangGraph, the better form": "order values",
    "LangGraph Send": "order values",
    "LangGraph ToolNode": "order values checks record",
    "LangGraph, a node per call": "order values",
    "LangGraph at its best": "order values record durable",
    "LangGraph as shipped": "order values record durable",
    "LangGraph, WAL": "order values record durable",
    "DBOS": "order record durable",
    "LLMCompiler": "order values",
    "Hamilton": "order values",
    "pydantic-ai": "order values checks record account",
    "openai-agents": "order values checks contains record account",
    "plain calls": "events",
    "awaiting each": "events",
    "blinker": "events",
    "pyee": "events",
    "append to a list": "",
    "prometheus-client": "account",
    "plan, then act": "order",
    "a layer a turn": "order",
    "a call a turn": "order",
    "the model and the tool called by hand": "order values",
}


def duties_of(name: str) -> str | None:
    """Return the key of `CONTENDERS` that a name begins with, the longest; None when there is none."""
    return max((known for known in CONTENDERS if name.startswith(known)), key=len, default=None)


def table_of(contenders: Iterable[str]) -> str:
    """Return the table as Markdown: a row for those of these keys that have the same duties."""
    wanted, alike = set(contenders), dict[str, list[str]]()
    for name, own in CONTENDERS.items():
        if name in wanted:
            alike.setdefault(" ".join(duty for duty in DUTIES if duty in own.split()), []).append(name)
    if unknown := set(" ".join(CONTENDERS.values()).split()) - set(DUTIES):
        raise ValueError(f"duties that are not known: {', '.join(sorted(unknown))}")
    return columns([("contender", "duties"), *(("; ".join(names), own) for own, names in alike.items())])


def beside(against: Iterable[str]) -> str:
    """Return the table of spar and of those that these lines are against, and the meaning of each duty."""
    keys = {key for name in against if (key := duties_of(name)) is not None}
    meanings = "\n".join(f"- {duty}: {meaning}" for duty, meaning in DUTIES.items())
    return f"{table_of([*keys, *(key for key in CONTENDERS if key.startswith('spar:'))])}\n\n{meanings}"
