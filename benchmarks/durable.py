"""Row 3: the cycle of row 1 with a journal that outlives the process; that it does is shown before it is measured."""

from __future__ import annotations

from benchmarks import durable_peers, resumed
from benchmarks.harness import Effort, Measured, compare
from benchmarks.journalled import folder, journalled
from benchmarks.rows import committed_each, database
from benchmarks.table import Line, compared

TITLE, QUIET = "journalled cycle, 8 events to 1 subscriber", "the same, nobody listens"
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
        compared(3, TITLE, spar, LIMIT, limit, is_limit=True, owed=2.5, moonshot=1.5),
        compared(3, QUIET, measured["spar, quiet"], LIMIT, limit, is_limit=True, owed=1.8, moonshot=1.2),
        compared(3, TITLE, spar, "LangGraph at its best: WAL + NORMAL", best, owed=1 / 50, moonshot=1 / 100),
        compared(3, TITLE, spar, durable_peers.SHIPPED, shipped, owed=1 / 200, moonshot=1 / 500, by="wall"),
        compared(3, TITLE, spar, durable_peers.DBOS, dbos, owed=1 / 200, moonshot=1 / 500, by="wall"),
    ]
