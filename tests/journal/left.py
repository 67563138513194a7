"""A file as a process leaves it that told its journal some facts and was killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from memory import Memory
from spar import facts
from spar.facts import Fact
from spar.records.journal import Item, Unfinished
from spar.types import Action, Call, CallResult

CUT = "0cut"


async def left_behind(path: Path, *told: Fact) -> None:
    async with Memory(f"sqlite:///{path / 'memory.db'}") as memory:
        assert memory.journal is not None
        for fact in told:
            memory.journal.append(fact, "main")
        await memory.journal.safe()


def accepted(item: Item) -> Fact:
    return facts.WorkChanged(session="main", item=item)


def opened(*perceptions: Any, **fields: Any) -> Fact:
    return facts.CycleOpened.of(Unfinished(CUT, "main", perceptions, **fields))


def planned(action: Action, cycle: str = CUT, **fields: Any) -> Fact:
    return facts.Planned(session="main", cycle=cycle, action=action, **fields)


def started(call: Call, effect: Any = "once", cycle: str = CUT, **fields: Any) -> Fact:
    return facts.AttemptStarted(
        session="main", cycle=cycle, call=call.id, attempt=1, effect=effect, allowed="auto", **fields
    )


def ended(call: Call, status: Any = "ok", output: Any = None, cycle: str = CUT) -> Fact:
    attempts = int(status == "ok")
    return facts.CallEnded(
        session="main", cycle=cycle, result=CallResult(call, status, output=output, attempts=attempts)
    )


def tell(journal: Any, kind: type[Fact], *, session: str = "main", agent: str = "main", **fields: Any) -> None:
    """Append a fact of an agent to a journal."""
    journal.append(kind(session=session, **fields), agent)


async def accept(journal: Any, item: Item, *, agent: str = "main", **fields: Any) -> Item | None:
    """Accept work of an agent durably; return the earlier item if it is not new."""
    earlier: Item | None = await journal.commit(facts.WorkAccepted(session=item.session, item=item, **fields), agent)
    return earlier
