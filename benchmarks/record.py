"""Measure what the record of an agent costs: `python -m benchmarks.record` (`make tape`).

Each row is a figure and the most of it that is owed. The conversation has two hundred turns, each a message, a call and
an answer of a few sentences, by a scripted model. Counted are the bytes that SQLite stores of the cycles and their
pieces, with their indexes, over those of the transcript.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import apsw

from acting import Executor
from memory import Memory
from planning.llm.planner import ModelPlanner
from planning.ports import Request
from reflection import Reflect
from spar import Agent, tool

TURNS: Final = 200
_WORDS: Final = ("disk", "load", "host", "unit", "log", "page", "line", "was", "restarted", "morning", "and", "again")


class Row(NamedTuple):
    """Row of the table: a figure, the most of it that is owed, and the figure of earlier builds."""

    name: str
    figure: float
    owed: float
    before: str


class Chat:
    """Model that calls a tool and then answers, in words of its own."""

    def __init__(self) -> None:
        self._words, self._steps = random.Random(7), 0

    async def __call__(self, request: Request) -> Mapping[str, Any]:
        self._steps += 1
        if self._steps % 2:
            return {"calls": [{"_tool": "service_status", "name": f"unit{self._steps}"}], "output": None}
        return {"calls": [], "output": self.prose(250)}

    def prose(self, characters: int) -> str:
        """Return a text that differs each time."""
        return " ".join(self._words.choices(_WORDS, k=characters // 4))[:characters]


async def conversation(path: Path, turns: int = TURNS) -> None:
    """Have a conversation with an agent whose memory is this file."""
    chat = Chat()

    @tool(effect="read", brings_untrusted=False)
    async def service_status(name: str) -> str:
        """Say how a service is."""
        return f"{name}: {chat.prose(400)}"

    agent = Agent(plan=ModelPlanner(chat), act=Executor([service_status]), reflect=Reflect(),
                  memory=Memory(f"sqlite:///{path}", ballast=0, durability="off"),
                  settings={"agent": {"loop_interval": "off", "min_interval": 0}})  # fmt: skip
    async with agent:
        for number in range(turns):
            run = await agent.submit(f"How is unit{number}? {chat.prose(120)}")
            status = await agent.wait(run.run_id, 60)
            assert status.status == "ok", status.error


def stored(path: Path, *tables: str) -> int:
    """Return the bytes that SQLite stores of tables of a file, with their indexes."""
    with apsw.Connection(str(path)) as connection:
        names = ", ".join("?" * len(tables))
        sql = ("SELECT sum(payload) FROM dbstat WHERE name IN (SELECT name FROM sqlite_schema "
               f"WHERE tbl_name IN ({names}))")  # fmt: skip
        return int(str(connection.execute(sql, tables).get))


async def requests(folder: Path) -> Row:
    """Return what the record of the cycles of a conversation costs over its transcript."""
    path = folder / "conversation.db"
    await conversation(path)
    ratio = stored(path, "cycle", "tape_piece") / stored(path, "transcript")
    return Row(f"record of {TURNS} turns with a model, times their transcript", ratio, 3.0, "5.40")


ROWS: Final[tuple[Callable[[Path], Awaitable[Row]], ...]] = (requests,)


async def main() -> int:
    """Print the table; return 1 if a row is missed."""
    code = 0
    for measure in ROWS:
        with tempfile.TemporaryDirectory() as folder:
            row = await measure(Path(folder))
        print(f"{row.name:<60} {row.figure:8.2f}   at most {row.owed:g}   (before: {row.before})")
        code |= row.figure > row.owed
    return code


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
