"""The process of a service, as far as it can be looked at from inside."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from spar import Agent
from spar.agent.agent import build_agent
from spar.config.load import load
from spar.events import StateChanged
from spar.observe.sink import Logs
from spar.service.process import Process


@pytest.fixture
def logs() -> Iterator[Logs]:
    before = signal.getsignal(signal.SIGUSR1)
    logs = Logs("error", ())
    yield logs
    logs.close()
    signal.signal(signal.SIGUSR1, before)


class Started:
    """A process with the states that its agent entered; `meanwhile` happens between the start and the run."""

    def __init__(self, folder: Path, logs: Logs, meanwhile: Callable[[Agent], Awaitable[None]]) -> None:
        (config := folder / "config.toml").write_text("[agent]\n")
        loaded = load(config)
        self.agent = build_agent(loaded)
        self.states: list[str] = []
        self.agent.events.subscribe(StateChanged, lambda event: self.states.append(event.new))
        self.process = Process(loaded, self.agent, logs, None, lambda service: nullcontext(""))

        async def begin() -> None:
            await meanwhile(self.agent)

        self.process.service.begin = begin  # type: ignore[method-assign]


async def test_a_stop_that_comes_between_the_start_and_the_run_is_not_undone(tmp_path: Path, logs: Logs) -> None:
    async def stop(agent: Agent) -> None:
        signal.raise_signal(signal.SIGTERM)
        while agent.core.state != "stopped":
            await asyncio.sleep(0)

    started = Started(tmp_path, logs, stop)

    async with asyncio.timeout(20):
        assert await started.process.main() == 0

    assert started.states == ["running", "stopping", "stopped"]


async def test_a_pause_that_comes_between_the_start_and_the_run_ends_no_service(tmp_path: Path, logs: Logs) -> None:
    async def pause(agent: Agent) -> None:
        await agent.pause()
        asyncio.get_running_loop().call_later(0.05, signal.raise_signal, signal.SIGTERM)

    started = Started(tmp_path, logs, pause)

    async with asyncio.timeout(20):
        assert await started.process.main() == 0

    assert started.states == ["running", "pausing", "paused", "stopping", "stopped"]
