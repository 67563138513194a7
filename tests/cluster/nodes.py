"""Speed of nodes that share an agent: how work grows with them, how soon another node begins it and goes on after a
kill, and a hundred leases on one server."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import psycopg
from msgspec import Struct

from memory.postgres.cluster import lease, rows
from memory.postgres.cluster.ownership import Ownership
from memory.postgres.server import connect, parsed
from memory.postgres.store import PostgresMemory
from tests.cluster.programs import NodeProcess, ProcessCluster, process_cluster

#: Sessions of each node while their speed is measured, and its calls in each.
_SESSIONS, _SLOW = 2, 0.05


class Grown(Struct, frozen=True):
    """Runs a second of one process and of four, with calls that wait 50 ms; seconds from the submission of a message at
    one node to its begin at another."""

    one: float
    four: float
    begun: list[float]

    @property
    def times(self) -> float:
        return self.four / self.one


async def grown(url: str, again: str, times: int) -> Grown:
    """Measure processes on two databases. Args: times: runs in each session."""
    async with process_cluster(url, 1, _SLOW) as cluster:
        one = await _rate(cluster, times)
    async with process_cluster(again, 4, _SLOW) as cluster:
        four = await _rate(cluster, times)
        return Grown(one, four, await _begun(cluster, times))


async def _owned(node: NodeProcess) -> list[str]:
    answer = await node.ask("owned", [f"s{number}" for number in range(200)])
    return list(answer["sessions"])


async def _rate(cluster: ProcessCluster, times: int) -> float:
    """Return the runs a second while each node works on sessions of its own."""
    sessions = [(await _owned(node))[:_SESSIONS] for node in cluster.nodes]
    work = list(zip(cluster.nodes, sessions, strict=True))
    await asyncio.gather(*(node.ask("work", own, 2) for node, own in work))  # warms them up
    began = time.monotonic()
    answers = await asyncio.gather(*(node.ask("work", own, times) for node, own in work))
    assert all("error" not in answer for answer in answers), answers
    return sum(map(len, sessions)) * times / (time.monotonic() - began)


async def _begun(cluster: ProcessCluster, times: int) -> list[float]:
    """Return the seconds from submissions at one node to the begin at another, one at a time."""
    asked, owner = cluster.nodes[:2]
    seconds = []
    for number in range(times):
        for session in (await _owned(owner))[:_SESSIONS]:
            receipt = await asked.ask("submit", session, f"{session}-{number}", "only wait")
            status = await owner.ask("wait", receipt["run"])
            seconds.append(status["begun"] - receipt["at"])
    return seconds


async def killed(url: str, times: int, draw: random.Random) -> list[float]:
    """Kill one of four nodes that all work, again and again. Return the seconds until another one has committed work of
    a session of it."""
    seconds = []
    async with process_cluster(url, 4) as cluster:
        for number in range(times):
            victim = cluster.nodes[draw.randrange(4)]
            session, *_ = await _owned(victim)
            await asyncio.sleep(draw.uniform(0.0, 1.0))
            asked = next(node for node in cluster.nodes if node is not victim)
            at = time.monotonic()
            victim.kill_now()
            receipt = await asked.ask("submit", session, f"quick {number}", f"quick {number}")
            status = await asked.ask("wait", receipt["run"])
            assert status["status"] == "ok", status
            seconds.append(time.monotonic() - at)
            await victim.kill()
            cluster.nodes.remove(victim)
            await cluster.add()
            await cluster.spread()
    return seconds


# -- a hundred leases


class Vanishing(lease.LeaseThread):
    """Lease of a node that can vanish: it says nothing any more, but its connection stays."""

    is_vanished = False
    renewals: list[float]

    def _step(self) -> None:
        while self.is_vanished and not self._is_ended:
            time.sleep(0.05)
        super()._step()


class Silent:
    """Listener of a lease that has no agent: it owns what it took, and hands over at once."""

    def __init__(self, ownership: Ownership) -> None:
        self.ownership, self.thread = ownership, None

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *given: None

    def gained(self, token: str, taken: rows.Taken) -> None:
        self.ownership.partitions = {**self.ownership.partitions, **taken.epochs}

    def leaving(self, token: str, ids: frozenset[int]) -> None:
        self.thread.release(ids)


class Leases(Struct, frozen=True):
    """Seconds of renewals of a hundred nodes, and until all was owned after twenty had vanished."""

    renewals: list[float]
    owned: list[float]


def leases(url: str, number: int, times: int) -> Leases:
    """Hold the leases of many nodes on one server, and let a fifth of them vanish, so many times. No node wakes others:
    each looks by itself."""
    server, renewals, owned = parsed(url), list[float](), list[float]()
    asyncio.run(_made(url))
    renew, notify = rows.renew, lease._notify

    def timed(connection: Any, token: str, format: int) -> bool:
        began = time.monotonic()
        is_renewed = renew(connection, token, format)
        renewals.append(time.monotonic() - began)
        return is_renewed

    nodes, is_over = list[Vanishing](), threading.Event()

    def begin(name: str) -> None:
        ownership = Ownership(name)
        listener = Silent(ownership)
        node = Vanishing(
            partial(connect, server), name, "0", ownership, listener, lambda function, *given: function(*given)
        )
        listener.thread = node
        node.start()
        nodes.append(node)

    def beat() -> None:
        while not is_over.wait(0.25):
            for node in nodes:
                node._ownership.beat += 1

    beating = threading.Thread(target=beat, daemon=True)
    beating.start()
    rows.renew, lease._notify = timed, lambda *given: None
    try:
        for index in range(number):
            begin(f"n{index}")
        _until_owned(url, nodes)
        renewals.clear()
        for index in range(times):
            time.sleep(3.0)
            gone, nodes[:] = nodes[: number // 5], nodes[number // 5 :]
            at = time.monotonic()
            for node in gone:
                node.is_vanished = True
            _until_owned(url, nodes)
            owned.append(time.monotonic() - at)
            for node in gone:
                node.stop(0.0)
                begin(f"n{index}-{node._name}")
            _until_owned(url, nodes)
        return Leases(list(renewals), owned)
    finally:
        rows.renew, lease._notify = renew, notify
        for node in nodes:
            node.stop(0.0)
        is_over.set()
        for node in nodes:
            node._thread.join(5.0)


async def _made(url: str) -> None:
    async with PostgresMemory(url, nodes=True):
        pass


def _until_owned(url: str, nodes: list[Vanishing]) -> None:
    """Wait until all partitions are owned by these nodes."""
    with psycopg.connect(url, autocommit=True) as connection:
        while True:
            tokens = [node._token for node in nodes]
            sql = "SELECT count(*) FROM partition WHERE owner = ANY(%s)"
            if connection.execute(sql, (tokens,)).fetchone() == (256,):
                return
            time.sleep(0.02)
