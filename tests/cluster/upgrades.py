"""Nodes of two releases under load, exchanged one after the other, and back once; what became of all that was accepted.

The newer release has a second format: it writes a table that the first one has not, and removes that of the first one.
Each transaction of a node notes there its release and the format in force, so that a write in the wrong one shows.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress

from tests.cluster.programs import NodeProcess, ProcessCluster, process_cluster
from tests.cluster.takeover import Counts
from tests.waiting import until

_NOTES = """
from memory.postgres import schema
from memory.postgres.cluster.writing import NodeTransactions

def begin_and_note(self, begin=NodeTransactions.begin):
    begin(self)
    self.connection.execute(
        f"INSERT INTO oracle.format_{self._ownership.format} VALUES (?, (SELECT max(number) FROM spar_format))",
        (schema.known().highest,),
    )

NodeTransactions.begin = begin_and_note
"""
_TABLE = "CREATE TABLE IF NOT EXISTS oracle.format_{} (knows BIGINT, in_force BIGINT)"
OLDER = f"""{_NOTES}
with psycopg.connect(sys.argv[1], autocommit=True) as connection:
    connection.execute("{_TABLE.format(1)}")
"""
NEWER = f"""{_NOTES}
schema.CHANGES = (schema.Change("{_TABLE.format(2)}", "ALTER TABLE oracle.format_1 RENAME TO former"),)
"""
_IMPORTS = "import sys, psycopg\n"
#: Writes of a node that did not know the format in force, or in a format that was not in force yet.
_STALE = """
SELECT (SELECT count(*) FROM oracle.former WHERE in_force > knows)
     + (SELECT count(*) FROM oracle.format_2 WHERE in_force < 2)
"""
LANES = 6


class Load:
    """Messages without a pause, each to one of the nodes that serve; sent again to another one until it has ended."""

    def __init__(self, draw: random.Random) -> None:
        self._draw, self._is_over = draw, False
        self.serving: list[NodeProcess] = []
        self.accepted, self.answers = set[str](), dict[str, str]()

    async def lane(self, lane: int) -> None:
        """Send one message after the other in a session until `end`."""
        number = 0
        while not self._is_over:
            id = f"{lane}-{number}"
            while id not in self.answers:
                with suppress(ConnectionError):  # it has ended meanwhile
                    await self._send(id, f"s{lane}")
            number += 1

    async def _send(self, id: str, session: str) -> None:
        receipt = await self._draw.choice(self.serving).ask("submit", session, id, id)
        if "run" not in receipt:
            await asyncio.sleep(0.05)
            return
        self.accepted.add(id)
        status = await self._draw.choice(self.serving).ask("wait", receipt["run"])
        if status.get("status") not in (None, "timeout"):
            self.answers[id] = status["status"]

    async def goes_on(self) -> None:
        """Wait until some more of it has ended."""
        done = len(self.answers)
        while len(self.answers) < done + LANES:
            await asyncio.sleep(0.02)

    def end(self) -> None:
        self._is_over = True


async def rolled(url: str, draw: random.Random, *, number: int = 3, kills: float = 0.0) -> Counts:
    """Exchange nodes of the older release for newer ones, with one step back, and judge what became of the work.

    Args: kills: the share of nodes that are killed instead of stopped.
    """
    counts, load = Counts(), Load(draw)
    async with process_cluster(url, number, before=_IMPORTS + OLDER) as cluster:
        load.serving = list(cluster.nodes)
        lanes = [asyncio.create_task(load.lane(lane)) for lane in range(LANES)]

        async def exchange(node: NodeProcess, release: str) -> NodeProcess:
            """Return the node in the place of another one, once the cluster has worked on for a while."""
            load.serving = [other for other in load.serving if other is not node]
            ending = node.kill if draw.random() < kills else node.stop
            _, new = await asyncio.gather(ending(), cluster.add(_IMPORTS + release))
            load.serving = [*load.serving, new]
            counts.tried += 1
            await load.goes_on()
            return new

        older = list(cluster.nodes)
        newer = [await exchange(older.pop(0), NEWER) for _ in range(number - 1)]
        older.append(await exchange(newer[-1], OLDER))
        while older:
            assert cluster.rows("SELECT number FROM spar_format") == [(1,)]
            await exchange(older.pop(0), NEWER)

        async def is_newer() -> bool:
            return cluster.rows("SELECT number FROM spar_format") == [(2,)]

        await until(is_newer)
        await load.goes_on()
        load.end()
        await asyncio.gather(*lanes)
        return await _judged(cluster, load, counts)


async def _judged(cluster: ProcessCluster, load: Load, counts: Counts) -> Counts:
    doubts = set((await load.serving[0].ask("doubts"))["doubts"])
    done = Counter(cluster.done)
    counts.accepted, counts.in_doubt = len(load.accepted), len(doubts)
    counts.lost = sum(load.answers.get(id) != "ok" and id not in doubts for id in load.accepted)
    counts.silent = sum(not done[id] and id not in doubts for id in load.accepted)
    counts.doubled = sum(times > 1 for times in done.values())
    counts.stale = int(cluster.rows(_STALE)[0][0])
    return counts
