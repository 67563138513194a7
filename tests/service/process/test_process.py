"""The process of a service, as far as it can be looked at from inside."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from spar.agent.agent import build_agent
from spar.config.load import load
from spar.events import StateChanged
from spar.observe.sink import Logs
from spar.service.app import Service
from spar.service.process.process import Process


class NoServer:
    """Servers that nobody asks."""

    address = ""

    def __init__(self, service: Service) -> None:
        pass

    def open(self) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.fixture
def logs() -> Iterator[Logs]:
    before = signal.getsignal(signal.SIGUSR1)
    logs = Logs("error", ())
    yield logs
    logs.close()
    signal.signal(signal.SIGUSR1, before)


async def test_a_stop_that_comes_between_the_start_and_the_run_is_not_undone(tmp_path: Path, logs: Logs) -> None:
    (config := tmp_path / "config.toml").write_text("[agent]\n")
    loaded = load(config)
    agent = build_agent(loaded)
    states: list[str] = []
    agent.events.subscribe(StateChanged, lambda event: states.append(event.new))
    process = Process(loaded, agent, logs, None, NoServer)

    async def begin() -> None:
        signal.raise_signal(signal.SIGTERM)
        while agent.core.state != "stopped":
            await asyncio.sleep(0)

    process.service.begin = begin  # type: ignore[method-assign]

    async with asyncio.timeout(20):
        assert await process.main() == 0

    assert states == ["running", "stopping", "stopped"]
