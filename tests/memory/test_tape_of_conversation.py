"""The record of a conversation with a model: small, whole, and read again exactly."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import NODEFAULT

from benchmarks.record import conversation, stored
from memory import Memory, cycle_log, pieces
from memory.codec import sealed
from memory.cycle_log.body import _defaults, with_repeats, without_repeats
from spar.types import (
    Action,
    ActionResult,
    Call,
    CallResult,
    CycleRecord,
    Experience,
    Fault,
    Perception,
    Reflection,
    replace,
    utcnow,
)

NOW = utcnow()
#: A quarter of those that `make tape` has: a turn takes as long as all turns before it.
TURNS = 50


async def test_fifty_turns_cost_less_than_three_times_their_transcript_and_are_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    await conversation(path, TURNS)

    async with Memory(f"sqlite:///{path}", read_only=True) as memory:
        (newest,) = await memory.cycles(1)
        record = await memory.cycle(newest["cycle_id"])
        entries = await memory.transcripts.tail("main", "main", 10_000)

    assert stored(path, "cycle", "tape_piece") <= 2.95 * stored(path, "transcript")  # of 200 turns it is 2 % more
    assert record.faults == ()
    turns = record.notes[0]["turns"]
    assert len(turns) == 3 * TURNS - 1
    said = [turn["text"] for turn in turns if turn["role"] == "user"]
    assert said == [entry.body["text"] for entry in entries if entry.kind == "user"]


def asked(number: int, *texts: str) -> CycleRecord:
    """Return the cycle of a request with these turns."""
    turns = [{"role": "user", "text": text} for text in texts]
    call = Call("look", {"at": "the door of the house in the garden"}, id="c1-0123456789abcdef")
    result = CallResult(call, "ok", output="open " * 60)
    action = Action([call], goal="look at the door of the house", id="a1")
    seen = Perception("open " * 60, id="p1", at=NOW)
    note = {"kind": "model.request", "turns": turns, "instructions": "be brief " * 50}
    return CycleRecord(f"c{number:05}", "main", "main", NOW, 0.1, "acted", (seen,), action,
                       ActionResult(action, results=(result,)), calls={"ok": 1, "failed": 0, "skipped": 0},
                       notes=(note,))  # fmt: skip


async def test_a_conversation_that_is_longer_than_what_is_kept_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "SLACK", 32)
    texts = [f"message {number} of the conversation" for number in range(6 * pieces.SLACK)]
    async with Memory.open(f"sqlite:///{tmp_path}/m.db", keep_cycles=10) as memory:

        def tend(connection: Any) -> int:
            while memory._tend(connection):
                pass
            return int(connection.execute("SELECT count(*) FROM cycle").get)

        for number in range(1, len(texts) + 1):
            await memory.record(asked(number, *texts[:number]))
            if number % 20 == 0:
                await memory.flush()
                assert await memory._file.commit(tend) == 10
        for number in (len(texts) - 3, len(texts)):
            assert await memory.cycle(f"c{number:05}") == asked(number, *texts[:number])


async def test_a_request_after_many_that_were_forgotten_is_read_whole(memory: Memory) -> None:
    for number in range(3 * pieces.SLACK):
        await memory.record(replace(asked(number), session="alice"))
    await memory.sessions.forget("main", "alice")
    record = asked(3 * pieces.SLACK, *[f"message {number}" for number in range(9)])
    await memory.record(record)
    await memory._file.commit(pieces.trim)

    assert await memory.cycle(record.cycle_id) == record


async def test_a_request_that_is_not_what_was_recorded_is_told(memory: Memory) -> None:
    texts = [f"message {number}" for number in range(40)]
    await memory.record(asked(1, *texts))

    def swap(connection: Any) -> None:  # with a piece that is whole in itself
        (old,) = connection.execute("SELECT text FROM tape_piece WHERE text LIKE '%message 7\"%'").fetchone()
        new = sealed(old[:-9].replace("message 7", "message 8"))
        connection.execute("UPDATE tape_piece SET text = ? WHERE text = ?", (new, old))

    await memory._file.commit(swap)
    record = await memory.cycle("c00001")

    assert [fault.kind for fault in record.faults] == ["unreadable"]


async def test_what_earlier_releases_wrote_is_read_as_before(memory: Memory) -> None:
    record = replace(asked(1), notes=({"kind": "model.request", "turns": [{"n": number} for number in range(20)]},))
    old = json.dumps([{"n": number} for number in range(20)])
    await memory.record(replace(record, notes=({"kind": "model.request", "turns": []},)))

    def as_before(connection: Any) -> None:
        (body,) = connection.execute("SELECT body FROM cycle").fetchone()
        plain = json.loads(body[:-9])
        plain["record"]["notes"][0]["turns"] = [{"$pieces": "d1"}]
        plain["has_pieces"] = True
        connection.execute("UPDATE cycle SET body = ?", (sealed(json.dumps(plain)),))
        connection.execute("INSERT INTO tape_piece (digest, last, bytes, text) VALUES ('d1', 1, 9, ?)", (sealed(old),))

    await memory._file.commit(as_before)
    assert await memory.cycle("c00001") == record


PARTS = st.recursive(
    st.sampled_from([None, True, 1, 1.0, 0.0, -0.0, "short", "x" * 30, "y" * 30]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "c" * 20]), inner),
    max_leaves=30,
)


@given(PARTS)
def test_any_json_comes_back_from_its_compact_form(value: Any) -> None:
    twice = json.loads(json.dumps([value, {"again": value}, value]))

    compact = json.dumps(without_repeats(twice))

    assert json.dumps(with_repeats(json.loads(compact))) == json.dumps(twice)
    assert len(compact) <= len(json.dumps(twice))


def test_a_default_of_what_is_written_without_its_defaults_is_not_changed_unnoticed() -> None:
    """Rows in the compact form lack what had its default when they were written. Whoever changes one gives the form of
    `memory.cycle_log.rows` another number, and reads the earlier rows with the earlier default."""
    kinds = (CycleRecord, Action, ActionResult, Call, CallResult, Perception, Fault, Reflection, Experience)
    defaults = {kind.__name__: {name: repr(default) for name, default in _defaults(kind) if default is not NODEFAULT}
                for kind in kinds}  # fmt: skip

    path = Path(__file__).with_name("compact_defaults.json")
    assert defaults == json.loads(path.read_text())


async def test_a_secret_stands_in_no_piece(tmp_path: Path) -> None:
    secret = "ghp_" + "a1B2" * 9
    record = asked(1, f"my key is {secret}, {'and so on ' * 40}", *["again"] * 9)
    row = cycle_log.row(replace(record, perceptions=(Perception(f"{secret} {'and so on ' * 40}"),)))

    assert secret not in str(row)
    assert "my key is ***" in str(row.pieces)


async def test_under_a_limit_of_bytes_only_as_many_cycles_go_as_take_the_room_with_their_texts(tmp_path: Path) -> None:
    """A text takes its room until no cycle refers to it, so that more cycles would go than must."""
    url, numbers, texts = f"sqlite:///{tmp_path}/m.db", range(1_200), 12
    at = datetime(2026, 6, 1, tzinfo=UTC)
    async with Memory.open(url) as memory:
        for number in numbers:
            note = {f"part {part}": f"{number} {part} ".ljust(1_000, ".") for part in range(texts)}
            began = at + timedelta(seconds=number)
            await memory.record(CycleRecord(f"c{number:04}", "main", "main", began, 0.1, "acted", notes=(note,)))
        await memory.flush()

    most = len(numbers) * texts * 1_100 // 2  # half of them with their texts
    async with Memory.open(url, keep_bytes=most, keep_days=None) as memory:
        await memory._file.commit(lambda connection: [None for _ in iter(lambda: memory._tend(connection), False)])
        kept = [cycle["cycle_id"] for cycle in await memory.cycles(len(numbers))]

    assert len(numbers) // 3 < len(kept) < len(numbers) // 2 + 100
    assert kept == [f"c{number:04}" for number in reversed(numbers)][: len(kept)]
