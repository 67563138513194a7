"""Rows 4 and 5: every cycle on the disk itself before its agent turns the next, a hundred agents and one."""

from __future__ import annotations

from benchmarks import durable_peers
from benchmarks.durable_peers import SYNC
from benchmarks.harness import Effort, Measured, compare
from benchmarks.journalled import Journalled, folder, journalled
from benchmarks.rows import Group, committed_each, database
from benchmarks.table import Line, compared

AGENTS = 100


async def measure(effort: Effort) -> list[Line]:
    return await many(effort) + await single(effort)


async def many(effort: Effort) -> list[Line]:
    """Agents on one file share their flushes, and so do the tasks of the limit."""
    turns = 5 if effort.is_quick else 20
    with folder() as place:
        group = Group(f"{place}/group.db", "FULL")
        async with (
            durable_peers.installed(place) as (others, missing),
            journalled(AGENTS, durability="power") as crowd,
            journalled(AGENTS, durability="power", listeners=False) as quiet,
        ):
            contenders = {"spar": crowd.together(turns), "spar, quiet": quiet.together(turns)}
            if SYNC in others:
                contenders[SYNC] = others[SYNC]
            measured, limit = await compare(contenders, group.together(AGENTS, turns), effort)
            must_have_flushed(crowd)
            must_have_flushed(quiet)
        await group.close()
    measured |= {name: Measured(error=reason) for name, reason in missing.items()}
    title, silent = f"flushed cycle, {AGENTS} agents on one file", "the same, nobody listens"
    raw = f"raw group commit, FULL, {AGENTS} tasks"
    return [
        compared(4, title, measured["spar"], raw, limit, is_limit=True, owed=3, moonshot=1.5, by="wall"),
        compared(4, silent, measured["spar, quiet"], raw, limit, is_limit=True, owed=3, moonshot=1.5, by="wall"),
        compared(4, title, measured["spar"], SYNC, measured[SYNC], owed=1 / 400, by="wall"),
    ]


async def single(effort: Effort) -> list[Line]:
    with folder() as place, database(f"{place}/rows.db", "FULL") as connection:
        async with journalled(durability="power") as one:
            measured, limit = await compare({"spar": one.batch}, committed_each(connection), effort)
            must_have_flushed(one)
    raw = "raw SQLite on the loop: 1 commit, FULL"
    title, goals = "flushed cycle, 1 agent", {"owed": 1.5, "moonshot": 1.15}
    return [compared(5, title, measured["spar"], raw, limit, is_limit=True, by="wall", **goals)]


def must_have_flushed(crowd: Journalled) -> None:
    """Raises: RuntimeError when an agent began a cycle before the one before it was on the disk."""
    turns = min(one.turned for one in crowd.agents)
    if crowd.groups < turns:
        raise RuntimeError(f"each agent turned {turns} cycles, and the journal was flushed {crowd.groups} times")
