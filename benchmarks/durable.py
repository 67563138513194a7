"""Row 3: the cycle of row 1 with a journal that outlives the process; that it does is shown before it is measured."""

from __future__ import annotations

from benchmarks import durable_peers, resumed
from benchmarks.harness import Effort, Measured, compare
from benchmarks.journalled import folder, journalled
from benchmarks.rows import committed_each, database
from benchmarks.table import Line, compared

TITLE = "journalled cycle, 8 events to 1 subscriber"
LIMIT = "raw SQLite on the loop: 4 rows, 1 commit, NORMAL"


async def measure(effort: Effort) -> list[Line]:
    await resumed.must_be_gone_on_with()
    with folder() as place, database(f"{place}/rows.db", "NORMAL") as connection:
        async with (
            durable_peers.installed(place) as (others, missing),
            journalled(durability="process") as one,
            journalled(durability="process", listeners=False) as quiet,
        ):
            others.pop(durable_peers.SYNC, None)  # row 4 is about that
            own = {"spar": one.batch, "spar, quiet": quiet.batch}
            measured, limit = await compare({**own, **others}, committed_each(connection), effort)
    measured |= {name: Measured(error=reason) for name, reason in missing.items()}
    spar = measured["spar"]
    best = min(
        (measured[name] for name in (durable_peers.EXIT, durable_peers.SELF_LOOP)),
        key=lambda graph: float("inf") if graph.error else graph.wall,
    )
    shipped, dbos = (measured[name] for name in (durable_peers.SHIPPED, durable_peers.DBOS))
    return [
        compared(3, TITLE, spar, LIMIT, limit, is_limit=True, first=2, then=1),
        compared(3, "the same, nobody listens", measured["spar, quiet"], LIMIT, limit, is_limit=True),
        compared(3, TITLE, spar, "LangGraph at its best: WAL + NORMAL", best, first=1 / 75, then=1 / 200),
        compared(3, TITLE, spar, durable_peers.SHIPPED, shipped, first=1 / 200, then=1 / 500, by="wall"),
        compared(3, TITLE, spar, durable_peers.DBOS, dbos, first=1 / 200, then=1 / 500, by="wall"),
    ]
