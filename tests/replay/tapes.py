"""Tapes for tests: cycles that a configuration decides one after another in virtual time, and their record."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from memory import Memory
from spar.config.lines import Sources
from spar.config.load import from_mapping
from spar.config.tables.settings import Loaded
from spar.replay.deciding import Decider
from spar.replay.tape import Inputs, Tape
from spar.types import Action, ActionResult, CallResult, CycleRecord, Perception

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
AGENT = "main"


def configured(*rules: Mapping[str, Any], **tables: Any) -> Loaded:
    """Return a configuration of rules, with the tools `note` and `say`."""
    table = {"rules": list(rules), "tools": [{"use": "note"}, {"use": "say"}], **tables}
    return Loaded(from_mapping(table), Sources())


def rule(name: str, text: str = "{text}", **more: Any) -> dict[str, Any]:
    """Return a rule that notes the text of a reading."""
    return {
        "name": name,
        "when": {"kind": "reading"},
        "stop": False,
        "calls": [{"tool": "note", "params": {"text": text}}],
        **more,
    }


def reading(text: str = "7", **fields: Any) -> Perception:
    return Perception(text, source="meter", kind="reading", trust="trusted", **fields)


def cycle(number: int, perceptions: Iterable[Perception], action: Action | None, **fields: Any) -> CycleRecord:
    """Return the record of a cycle, a second after the one before it; each call ended well."""
    result = None
    if action is not None:
        result = ActionResult(action, results=[CallResult(call, "ok", attempts=1) for call in action.calls])
    given = {"phases": {"sense": 0.001, "plan": 0.001}, "result": result, "outcome": "acted", **fields}
    return CycleRecord(f"{number:026x}", AGENT, "main", started_at=BEGAN + timedelta(seconds=number), duration=0.01,
                       perceptions=tuple(perceptions), action=action, **given)  # fmt: skip


async def decided(loaded: Loaded, batches: Sequence[Sequence[Perception]]) -> list[CycleRecord]:
    """Return the records of cycles with these perceptions, as a configuration decides them."""
    records = []
    async with Decider(loaded, None, AGENT) as decider:
        for number, batch in enumerate(batches, 1):
            undecided = cycle(number, batch, None)
            decision = await decider.decide(Inputs(undecided, tuple(batch)))
            records.append(cycle(number, batch, decision.action))
    return records


@asynccontextmanager
async def taped(folder: Path, records: Iterable[CycleRecord]) -> AsyncIterator[Tape]:
    """Yield the tape of a store with these records, which is open for reading only."""
    url = f"sqlite:///{folder / 'memory.db'}"
    async with Memory(url) as memory:
        for record in records:
            await memory.record(record)
        await memory.flush()
    async with Memory(url, read_only=True) as memory:
        yield Tape(memory, AGENT)
