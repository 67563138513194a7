"""Secrets of known kinds in what is kept: of what people typed and of what tools returned only the mask stays."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from msgspec import to_builtins

from memory import Memory, cycle_log
from memory.sqlite import database, schema
from spar import Action, Agent, Call, Context, Perception, tool
from spar.config.load import load
from spar.server.routes.applications import control
from spar.service.app import Service
from spar.testing import VirtualClock
from spar.types import CycleRecord

SECRET = "ghp_abcdefghijklmnopqrstuvwx1234"  # made up
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@tool(effect="read")
async def look(where: str) -> str:
    return f"{where}: token {SECRET}"


async def plan(perceptions: list[Perception], context: Context) -> Action | None:
    if context.run is None or context.run.number > 1:
        return Action(output="seen") if context.run is not None else None
    return Action((Call("look", {"where": perceptions[0].text}),), f"look for {SECRET}")


@pytest.mark.parametrize("is_kept", [True, False])
async def test_neither_tape_nor_transcript_nor_memory_keeps_a_known_secret(
    tmp_path: Path, clock: VirtualClock, is_kept: bool
) -> None:
    memory = Memory(f"sqlite:///{tmp_path / 'm.db'}") if is_kept else None
    heard: list[str] = []

    async def hears(perceptions: list[Perception], context: Context) -> Action | None:
        heard.extend(each.text for each in perceptions)
        return await plan(perceptions, context)

    agent = Agent(plan=hears, tools=[look], memory=memory, clock=clock, loop_interval=0.1)
    async with agent:
        receipt = await agent.submit(f"my key is {SECRET}, keep it")
        assert (await agent.wait(receipt.run_id, 20)).status == "ok"
        await clock.sleep(2)
        entries = await agent.conversations.transcripts.read("main")
        assert SECRET not in repr(entries)
        assert "my key is ***, keep it" in repr(entries)
        if memory is not None:
            rows = list(await memory.cycles())
            cycles = [await memory.cycle(row["cycle_id"]) for row in rows]
            kept = str(to_builtins([rows, cycles, await memory.recall("key")]))
            assert SECRET not in kept
            assert "look for ***" in kept
            assert "token ***" in kept
    assert heard[0] == f"my key is {SECRET}, keep it"  # who plans is told what was said


async def test_the_status_of_the_service_shows_no_known_secret() -> None:
    class Acts:
        def snapshot(self) -> dict[str, str]:
            return {"error": f"the server refused {SECRET}"}

        async def act(self, action: Action) -> None: ...

    service = Service(load(None, environ={}), Agent(act=Acts()))
    transport = httpx.ASGITransport(control(service), client=("alice", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://spar") as client:
        text = (await client.get("/v1/status")).text
    assert SECRET not in text
    assert "the server refused ***" in text


@pytest.mark.parametrize("secret", ["Bearer abcdefgh12345678", "sk-abcdefgh12345678", "AKIA0123456789ABCDEF"])
def test_a_small_cycle_is_encoded_at_once_as_it_is_later_and_written_without_its_secret(secret: str) -> None:
    def cycle(text: str, id: str = "c") -> CycleRecord:
        return CycleRecord(id, "main", "main", NOW, 0.1, "acted", (Perception(text),), Action(goal=text, id="a"))

    plain = cycle_log.prepared(cycle("hello"))
    assert isinstance(plain, cycle_log.CycleRow)
    assert plain.columns[:2] == cycle_log.row(cycle("hello")).columns[:2]
    assert "hello" in plain.columns[-1]
    for other in ("x" * 2_000, "umläut", "\ud800"):
        assert isinstance(cycle_log.prepared(cycle(other)), CycleRecord)

    assert secret not in str(cycle_log.row(cycle(secret)).columns)
    connection = database.open_writer(database.IN_MEMORY, "off")
    schema.migrate(connection)
    texts = ["hello", secret, f"{'x' * 2_000} {secret}", f"so: {secret}"]
    cycle_log.write(connection, [cycle_log.prepared(cycle(text, str(n))) for n, text in enumerate(texts)])
    found = [cycle_log.find(connection, str(n)) for n in range(4)]
    assert secret not in str(list(connection.execute("SELECT * FROM cycle")))
    assert [each.perceptions[0].text.replace(secret, "***") for each in found if each is not None] == [
        text.replace(secret, "Bearer ***" if secret.startswith("Bearer") else "***") for text in texts
    ]
