"""Parts that a program enters by hand and then gives to an agent: opened once, closed with the last user."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from acting import Executor
from acting.mcp.server import McpServer
from acting.tools.notify import NotifyTool
from memory import Memory
from perception import Sense
from planning.chain import Chain
from planning.llm.planner import ModelPlanner
from spar import Agent
from spar.bus.bus import Events
from spar.clock import SystemClock
from spar.protocols import Home, Host, SensorSpec
from spar.testing import VirtualClock
from spar.threads import Users


class Resource:
    """Part of any phase that counts how often it is opened and closed."""

    name = "resource"

    def __init__(self) -> None:
        self.opened = self.closed = 0

    @property
    def is_open(self) -> bool:
        return self.opened == self.closed + 1

    async def __aenter__(self) -> Resource:
        self.opened += 1
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.closed += 1

    async def aclose(self) -> None:
        self.closed += 1

    async def load(self) -> None:
        self.opened += 1

    async def open(self, context: Any) -> None:
        self.opened += 1

    async def close(self) -> None:
        self.closed += 1

    def tools(self) -> list[Any]:
        return []

    async def plan(self, perceptions: Any) -> None: ...
    async def poll(self) -> list[Any]:
        return []

    async def notify(self, alert: Any) -> None: ...


MADE: dict[str, tuple[str, Callable[[Resource], Any]]] = {
    "executor": ("act", lambda inner: Executor([inner])),
    "executor with approvals": ("act", lambda inner: Executor([inner], settings={"approval": {}})),
    "executor with a tool of parts": ("act", lambda inner: Executor([NotifyTool(via=[inner])])),
    "chain of planners": ("plan", lambda inner: Chain([inner])),
    "planner by a model": ("plan", lambda inner: ModelPlanner(inner)),
    "sense": ("sense", lambda inner: Sense([SensorSpec("inner", inner)])),
}


@pytest.mark.parametrize("name", MADE)
async def test_a_part_that_is_entered_by_hand_and_given_to_an_agent_opens_and_closes_once(
    clock: VirtualClock, name: str
) -> None:
    phase, make = MADE[name]
    inner = Resource()
    part = make(inner)
    given: Any = {phase: part}
    async with part:
        await asyncio.sleep(0)
        for _ in range(2):
            async with Agent(clock=clock, loop_interval="off", **given):
                await asyncio.sleep(0.01)
                assert inner.is_open, (inner.opened, inner.closed)
            assert inner.is_open, "it was closed under its other user"
    # A sense module makes its sensors' supervisors anew for each agent, which opens them anew.
    assert (inner.opened, inner.closed) == ((1, 1) if phase != "sense" else (3, 3))
    async with part:
        await asyncio.sleep(0.01)
        assert inner.is_open, (inner.opened, inner.closed)
    assert inner.opened == inner.closed


async def test_a_memory_that_is_entered_by_hand_stays_open_after_its_agent(tmp_path: Path) -> None:
    memory = Memory(f"sqlite:///{tmp_path}/m.db")
    async with memory:
        async with Agent(memory=memory, loop_interval="off"):
            pass
        await memory.save("a", 1)
        assert await memory.load("a") == 1


async def test_a_server_of_tools_that_is_entered_twice_is_connected_once(tmp_path: Path) -> None:
    home = Home(str(tmp_path), str(tmp_path / "workspace"), str(tmp_path / "state"))
    command = [sys.executable, "-I", "-S", "-c", "import sys; sys.stdin.read()"]
    server = McpServer(home=home, command=command, wait=0.0)
    server.name = "s"
    server.attach(Host("a", SystemClock(), Events("a"), None, lambda: None, None, home))

    def at_work() -> list[str]:
        return sorted(task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("mcp s"))

    async with server:
        once = at_work()
        async with server:
            assert at_work() == once
        assert at_work() == once
    assert (len(once), at_work()) == (2, [])


async def test_the_questions_are_read_again_when_an_agent_has_brought_another_store(
    tmp_path: Path, clock: VirtualClock
) -> None:
    executor = Executor([], settings={"approval": {}})
    memory = Memory(f"sqlite:///{tmp_path}/m.db")
    async with executor, Agent(act=executor, memory=memory, clock=clock, loop_interval="off"):
        assert executor.approvals.store is memory
        assert executor.approvals._is_open


# -- counting


class Door:
    def __init__(self) -> None:
        self.users, self.heard = Users(), list[str]()
        self.may_open = asyncio.Event()
        self.error: Exception | None = None

    async def open(self) -> None:
        self.heard.append("open")
        await self.may_open.wait()
        if self.error:
            raise self.error

    async def again(self) -> None:
        self.heard.append("again")
        if self.error:
            raise self.error

    async def close(self) -> None:
        self.heard.append("close")

    async def enter(self) -> None:
        await self.users.enter(self.open, self.again)

    async def leave(self) -> None:
        await self.users.leave(self.close)


async def test_an_entry_that_is_cancelled_or_fails_does_not_count() -> None:
    door = Door()
    first, second = asyncio.ensure_future(door.enter()), asyncio.ensure_future(door.enter())
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    door.may_open.set()
    await second  # it waited for the first one, and opens now
    door.error = ValueError("no")
    with pytest.raises(ValueError, match="no"):
        await door.enter()
    door.error = None
    await door.enter()
    await door.leave()
    assert door.heard == ["open", "open", "again", "again"]
    await door.leave()
    assert (door.heard[4:], door.users.count) == (["close"], 0)


def test_the_users_of_a_closed_event_loop_do_not_count() -> None:
    users, heard = Users(), list[str]()

    async def note(what: str) -> None:
        heard.append(what)

    for _ in range(2):
        asyncio.run(users.enter(lambda: note("open"), lambda: note("again")))
    assert heard == ["open", "open"]
