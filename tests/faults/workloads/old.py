"""A file of the first release: brought to the present format, used, cleared of what is too old, and copied."""

from __future__ import annotations

import asyncio
from pathlib import Path

import apsw

from memory.care.backup import back_up
from planning.rules.planner import RulesPlanner
from spar import Agent
from tests.faults.workloads.life import Workload, agent, live, submit
from tests.faults.workloads.rules import RULES, wants_of
from tests.faults.world import World

MESSAGES = ("m1", "m2")
_FIRST_RELEASE = Path(__file__).parents[2] / "memory" / "sqlite" / "format_1.sql"
_TENDED = 1.2  # seconds after which a file that is left alone has been cleared


async def main(world: World) -> None:
    world.state.mkdir(exist_ok=True)
    if not world.database.exists():
        new = world.folder / "old.db"
        connection = apsw.Connection(str(new))
        connection.execute(_FIRST_RELEASE.read_text())
        connection.close()
        new.rename(world.database)
    made = agent(world, plan=RulesPlanner(RULES), keep_days=1)

    async def feed(made: Agent) -> None:
        await submit(world, made, MESSAGES)
        await asyncio.sleep(_TENDED)
        await asyncio.to_thread(back_up, str(world.database), str(world.copy))

    await live(world, made, feed)


WORKLOAD = Workload(
    "old",
    main,
    tuple(want for event in MESSAGES for want in wants_of(event)),
    points=("migrate.*", "retention.*", "backup.*", "wal.*"),
)
