"""Long texts of forgotten sessions: deleted with the session, unless the cycle of another one refers to them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from memory import Memory, cycle_log, pieces
from memory.care.integrity import verify
from spar.errors import SparError
from spar.types import Action, Call, CycleRecord, utcnow

NOW = utcnow()
PROMPT = "be brief and kind to everybody " * 20


def asked(session: str, number: int, turns: list[str]) -> CycleRecord:
    """Return a cycle of a session: a request with these turns, and an action with a long text."""
    note = {"kind": "model.request", "instructions": PROMPT, "turns": [{"role": "user", "text": t} for t in turns]}
    action = Action([Call("write", {"text": f"{session} wrote " * 40})], goal=f"{session} goes on", id="a1")
    return CycleRecord(f"{session}{number}", "main", session, NOW, 0.1, "acted", action=action, notes=(note,))


def turns_of(session: str, count: int) -> list[str]:
    return [f"{session} said {number} " * 20 for number in range(count)]


async def talk(memory: Memory, session: str, count: int, shared: list[str] | None = None) -> list[CycleRecord]:
    """Record the cycles of a session, each with the turns before it. Args: shared: turns that it begins with."""
    turns = [*(shared or ()), *turns_of(session, count)]
    records = [asked(session, number, turns[:number]) for number in range(1, len(turns) + 1)]
    for record in records:
        await memory.record(record)
    return records


async def texts(memory: Memory) -> str:
    """Return the texts of all pieces."""

    def look(connection: Any) -> str:
        return "\n".join(str(text) for (text,) in connection.execute("SELECT text FROM tape_piece"))

    return await memory._read(look)


async def test_no_long_text_of_a_forgotten_session_stays_and_others_keep_theirs(memory: Memory) -> None:
    before = await talk(memory, "bob", 12)
    await talk(memory, "alice", 30)
    after = await talk(memory, "carl", 12)
    assert "alice said 7" in await texts(memory)

    await memory.sessions.forget("main", "alice")

    assert "alice" not in await texts(memory)
    for record in (*before, *after):
        assert await memory.cycle(record.cycle_id) == record


async def test_turns_that_a_fork_shares_stay_for_it_alone(memory: Memory) -> None:
    await talk(memory, "alice", 30)
    fork = await talk(memory, "fork", 3, turns_of("alice", 20))

    await memory.sessions.forget("main", "alice")

    left = await texts(memory)
    assert "alice said 19" in left
    assert "alice said 20" not in left
    assert "alice wrote" not in left
    for record in fork:
        assert await memory.cycle(record.cycle_id) == record
    await memory.sessions.forget("main", "fork")
    assert await texts(memory) == ""


async def test_texts_of_cycles_that_retention_has_deleted_are_not_left_behind(tmp_path: Path) -> None:
    async with Memory.open(f"sqlite:///{tmp_path}/m.db", keep_cycles=20, ballast=0) as memory:
        await talk(memory, "alice", 20)
        kept = await talk(memory, "bob", 15)

        def tend(connection: Any) -> None:
            while memory._tend(connection):
                pass

        await memory._file.commit(tend)
        assert "alice said 3 " in await texts(memory)
        await memory.sessions.forget("main", "alice")

        assert "alice" not in await texts(memory)
        for record in kept:
            assert await memory.cycle(record.cycle_id) == record
    assert verify(f"{tmp_path}/m.db").is_whole


async def test_a_deletion_that_was_cut_off_is_completed_by_the_next(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = await talk(memory, "bob", 12, turns_of("alice", 6))
    await talk(memory, "alice", 30)

    def fail(connection: Any, digests: Any) -> list[str]:
        raise SparError("cut off")

    with monkeypatch.context() as patch:
        patch.setattr(pieces, "acquit", fail)
        with pytest.raises(SparError):
            await memory.sessions.forget("main", "alice")
    assert {cycle["session"] for cycle in await memory.cycles()} == {"bob"}
    await memory.sessions.forget("main", "alice")

    assert "alice said 6 " not in await texts(memory)
    for record in kept:
        assert await memory.cycle(record.cycle_id) == record


async def test_a_cycle_that_is_written_meanwhile_keeps_what_it_refers_to(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    await talk(memory, "alice", 30)
    late = asked("bob", 1, turns_of("alice", 25))
    search = pieces.referred

    def written_first(connection: Any, table: str, after: int) -> Any:
        if table == "tape_piece":  # the cycles have been searched
            monkeypatch.setattr(pieces, "referred", search)
            memory._file.writer.offer(lambda writer: cycle_log.insert(writer, cycle_log.row(late)), 1)
        return search(connection, table, after)

    monkeypatch.setattr(pieces, "referred", written_first)
    await memory.sessions.forget("main", "alice")

    assert await memory.cycle("bob1") == late
    assert "alice said 25 " not in await texts(memory)


async def test_two_sessions_that_are_forgotten_at_once_leave_nothing_and_take_nothing(memory: Memory) -> None:
    kept = await talk(memory, "bob", 9, turns_of("alice", 5))
    await talk(memory, "alice", 30)
    await talk(memory, "fork", 20, turns_of("alice", 20))

    await asyncio.gather(*[memory.sessions.forget("main", key) for key in ("alice", "fork")])

    left = await texts(memory)
    assert "alice said 5 " not in left
    assert "fork" not in left
    for record in kept:
        assert await memory.cycle(record.cycle_id) == record


async def test_pieces_are_kept_and_deleted_in_batches(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "BATCH", 3)
    kept = await talk(memory, "bob", 12, turns_of("alice", 12))
    await talk(memory, "alice", 30)

    await memory.sessions.forget("main", "alice")

    assert "alice said 12 " not in await texts(memory)
    for record in kept:
        assert await memory.cycle(record.cycle_id) == record
