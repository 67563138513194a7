"""A node whose connections stand still: another one goes on, whatever its host's clock says, and it joins again."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from spar.clock import SystemClock
from spar.errors import NoRoomError
from spar.records.runs import Receipt
from tests.cluster.test_doors import Nodes
from tests.waiting import until

pytestmark = pytest.mark.process


class Proxy:
    """Way to a server by TCP. While it `swallows` a direction, it takes what comes and passes nothing on."""

    def __init__(self, socket: str) -> None:
        self._socket, self._tasks = socket, set[asyncio.Task[None]]()
        self.swallows: frozenset[str] = frozenset()
        self._may_pass = asyncio.Event()
        self._may_pass.set()

    async def start(self) -> int:
        """Return the port that it listens on."""
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, to = await asyncio.open_unix_connection(self._socket)
        for direction, source, target in (("requests", reader, to), ("answers", there, writer)):
            task = asyncio.create_task(self._pass_on(direction, source, target))
            self._tasks.add(task)

    async def _pass_on(self, direction: str, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while piece := await source.read(1 << 16):
                if direction in self.swallows:
                    await self._may_pass.wait()
                target.write(piece)
                await target.drain()
        except OSError:
            pass
        finally:
            target.close()

    def stall(self, *directions: str) -> None:
        self.swallows = frozenset(directions)
        self._may_pass.clear()

    def go_on(self) -> None:
        self.swallows = frozenset()
        self._may_pass.set()

    async def close(self) -> None:
        self.go_on()
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class ShiftedClock(SystemClock):
    """Clock of a host that is set wrong."""

    def __init__(self, hours: float) -> None:
        super().__init__()
        self._shift = timedelta(hours=hours)

    def now(self) -> datetime:
        return super().now() + self._shift


@pytest.mark.parametrize(("directions", "hours"), [(("requests", "answers"), -1), (("answers",), 1)])
async def test_who_hears_nothing_from_the_server_owns_nothing_and_another_one_goes_on(
    url: str, directions: tuple[str, ...], hours: float
) -> None:
    folder = url.partition("host=")[2].partition("&")[0]
    proxy = Proxy(str(Path(folder) / ".s.PGSQL.5432"))
    through = url.replace(f"@/postgres?host={folder}", f"@127.0.0.1:{await proxy.start()}/postgres?sslmode=disable")
    nodes = Nodes()
    cut = nodes.agent(through, clock=ShiftedClock(hours))
    async with nodes.agent(url) as other, cut:
        nodes.agents += [cut, other]
        shares: Any = [agent.memory.nodes.snapshot for agent in nodes.agents]
        await until(lambda: min(share()["partitions"] for share in shares) > 0)
        sessions = [nodes.session_of(0, prefix) for prefix in "abc"]
        runs = [await other.submit(f"text {session}", session=session) for session in sessions]
        assert {(await nodes.ended(1, run.run_id)).status for run in runs} == {"ok"}
        proxy.stall(*directions)
        runs = [await other.submit(f"more {session}", session=session) for session in sessions]
        assert {(await nodes.ended(1, run.run_id)).status for run in runs} == {"ok"}
        assert shares[1]()["partitions"] == 256
        assert not any(cut.core.owns(session) for session in sessions)
        proxy.go_on()
        await until(lambda: min(share()["partitions"] for share in shares) > 0)
        accepted: list[Receipt] = []

        async def is_accepted() -> bool:  # not before its writer has another connection
            with suppress(NoRoomError):
                accepted.append(await cut.submit("last", session=sessions[0], idempotency_key="last"))
            return bool(accepted)

        await until(is_accepted)
        assert (await nodes.ended(1, accepted[0].run_id)).output == "last"
    await proxy.close()
