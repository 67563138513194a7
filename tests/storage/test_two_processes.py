"""One process writes at a time, also when the one before it only slept."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from spar.errors import ConfigError
from tests.process.conftest import Spar, spar, start, until  # noqa: F401  # two of them are fixtures
from tests.storage.child import child
from tests.storage.rows import integrity

pytestmark = pytest.mark.process

WRITE = """
async def main():
    told = []
    memory = Memory.open(url)
    memory.on_fault = lambda fault: told.append(fault)
    try:
        async with memory:
            await memory.keep("row", "first", "A")
            say("open")
            await asyncio.to_thread(sys.stdin.readline)  # until the other has written
            for number in range(3):
                try:
                    await asyncio.wait_for(memory.keep("row", f"zombie {number}", "A"), 10)
                    say("accepted", number)
                except Exception as error:
                    say("refused", type(error).__name__)
            await asyncio.sleep(0.1)
            say("told", any(fault is not None for fault in told))
            await memory.store(__import__("spar.types").types.Experience("of a zombie", id="zombie"))
    except Exception as error:
        say("ended", type(error).__name__)

asyncio.run(main())
"""


@pytest.mark.parametrize("is_stopped_first", [True, False], ids=["the second is still there", "and has closed again"])
async def test_a_process_that_was_asleep_while_another_took_over_cannot_write(
    tmp_path: Path, is_stopped_first: bool
) -> None:
    url = f"sqlite:///{tmp_path}/memory.db"
    with child(WRITE, tmp_path / "memory.db") as first:
        assert first.line() == "open"
        with pytest.raises(ConfigError, match=f"in use by process {first.pid}"):
            async with Memory.open(url):
                pass
        os.kill(first.pid, signal.SIGSTOP)
        (tmp_path / "memory.db.lock").unlink()  # somebody "cleans up", or the lock is on a disk that forgets it

        second = Memory.open(url)
        async with second:
            await second.keep("row", "first", "B")
            if is_stopped_first:
                os.kill(first.pid, signal.SIGCONT)
                said = _told_to_go_on(first)
                await second.keep("row", "after", "B")
        if not is_stopped_first:
            os.kill(first.pid, signal.SIGCONT)
            said = _told_to_go_on(first)

    assert [line for line in said if line.startswith("accepted")] == []
    assert said.count("refused FencedError") == 3, said
    assert "told True" in said
    async with Memory.open(url) as memory:
        rows = {record.id: record.value for record in await memory.records("row")}
        assert rows == {"first": "B", "after": "B"} if is_stopped_first else {"first": "B"}
        assert await memory.recall() == []
    assert integrity(tmp_path / "memory.db") == []


def _told_to_go_on(process: Any) -> list[str]:
    process.process.stdin.write(b"go on\n")
    said: list[str] = process.rest()
    return said


TICKS = """
[[sensors]]
use = "schedule"
name = "ticks"
options = { interval = 1.0, text = "tick" }

[[rules]]
name = "tick"
when = { source = "ticks" }

[[rules.calls]]
tool = "note"
params = { title = "tick", text = "due {attributes.due_at}" }

[[sensors]]
use = "schedule"
name = "daily"
"""


def test_a_service_that_sleeps_for_five_seconds_wakes_up_without_a_burst_and_forgets_nothing(
    spar: Spar,  # noqa: F811
    start: Any,  # noqa: F811
) -> None:
    text, old = spar.config.read_text(), '[[sensors]]\nuse = "schedule"\nname = "daily"\n'
    assert text.count(old) == 1
    spar.write(text.replace(old, TICKS, 1))
    service = start().ready()
    before = {"message": "note: before the sleep", "idempotency_key": "before"}
    receipt = service.api("/v1/runs", "POST", json=before).json()
    until(lambda: ticks(spar), "the first tick")

    service.signal(signal.SIGSTOP)
    fell_asleep = datetime.now(UTC)
    time.sleep(5.0)
    woke = datetime.now(UTC)
    service.signal(signal.SIGCONT)

    after = service.api("/v1/runs", "POST", json={"message": "note: after the sleep"}).json()
    for each in (receipt, after):
        assert service.api(f"/v1/runs/{each['run_id']}/wait?timeout=20").json()["status"] == "ok"
    until(lambda: max(ticks(spar)) > woke, "a tick that was due after the sleep")
    slept_through = [due for due in ticks(spar) if fell_asleep + timedelta(seconds=0.5) < due < woke]
    assert len(slept_through) <= 1, "of five missed ticks one is made up for"
    assert len(ticks(spar)) == len(set(ticks(spar))), "none came twice"
    assert service.agent["state"] == "running"
    assert [line for line in service.log if "timeout" in str(line.get("kind", ""))] == [], "nobody's time was up"
    assert service.api("/v1/runs", "POST", json=before).json() == receipt, "and it is still known what was accepted"
    assert service.stop() == 0
    assert integrity(spar.state / "memory.db") == []


def ticks(spar: Spar) -> list[datetime]:  # noqa: F811
    """When the ticks were due that became perceptions of a cycle on the tape."""

    async def read() -> list[datetime]:
        async with Memory.open(f"sqlite:///{spar.state}/memory.db", read_only=True) as memory:
            cycles = [await memory.cycle(row["cycle_id"]) for row in await memory.cycles(200)]
        return [
            datetime.fromisoformat(perception.attributes["due_at"])
            for cycle in cycles if cycle is not None
            for perception in cycle.perceptions
            if perception.source == "ticks"
        ]  # fmt: skip

    return asyncio.run(read())
