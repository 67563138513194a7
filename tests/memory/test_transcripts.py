"""Transcripts: only added to, by one run at a time, read from the last compaction on, gone in the order of age."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

from memory import Memory, transcripts
from memory.care.integrity import verify
from memory.retention import BATCH, RetentionLimits, trim_transcripts
from memory.sqlite import database, schema
from memory.transcripts import MOST_BYTES, append, rows, tail
from spar import facts
from spar.errors import FencedError, PermanentError
from spar.records.journal import Closing
from spar.records.transcript import Entry, TranscriptSummary
from spar.types import CycleRecord, Fault
from tests.journal.left import tell
from tests.memory.sqlite.test_writer import until

START = datetime(2026, 1, 1, tzinfo=UTC)


def said(text: str, *, run: str = "", at: datetime = START) -> Entry:
    return Entry("user", {"text": text}, run, at=at)


def compaction(summary: str, first_kept: int) -> Entry:
    return Entry("compaction", {"summary": summary, "first_kept": first_kept})


def texts(entries: list[Entry]) -> list[Any]:
    return [entry.body.get("text", entry.body.get("summary")) for entry in entries]


def closing(cycle_id: str, run_id: str, *entries: Entry) -> Closing:
    record = CycleRecord(cycle_id, "main", "talk", START, 0.1, "acted")
    return Closing("acted", record, run_id=run_id, entries=entries, session="talk")


@pytest.fixture
async def memory() -> AsyncIterator[Memory]:
    async with Memory.open("sqlite://:memory:") as opened:
        opened.on_fault = faults.append
        faults.clear()
        yield opened


faults: list[Fault | None] = []


# -- adding and reading


async def test_what_was_added_is_read_in_order_and_numbered(memory: Memory) -> None:
    await memory.transcripts.append(
        "main", "talk", "a", [said("hello"), Entry("turn", {"calls": [1], "text": "there"})]
    )
    await memory.transcripts.append("main", "other", "b", [said("elsewhere")])
    await memory.transcripts.append("someone", "talk", "c", [said("of another agent")])

    found = await memory.transcripts.read("main", "talk")

    assert texts(found) == ["hello", "there"]
    assert [(entry.kind, entry.run_id, entry.at) for entry in found] == [
        ("user", "a", START),
        ("turn", "a", found[1].at),
    ]
    assert found[0].seq < found[1].seq
    assert await memory.transcripts.read("main", "nowhere") == []


async def test_what_a_cycle_adds_comes_with_its_end(memory: Memory) -> None:
    end = closing("cycle-1", "a", said("hello"), said("again", run="a"))
    tell(memory.journal, facts.CycleWritten, cycle="cycle-1", closing=end)

    found = await memory.transcripts.read("main", "talk")

    assert [(entry.run_id, entry.body["text"]) for entry in found] == [("a", "hello"), ("a", "again")]
    assert await memory.cycle("cycle-1") is not None


async def test_any_text_comes_back_as_it_was_and_too_large_a_body_is_cut_not_torn(memory: Memory) -> None:
    strange = "é \udc80 \0 \x1b[2J \N{PILE OF POO}"
    await memory.transcripts.append("main", "s\udc80\0", "a", [said(strange), said("x" * (MOST_BYTES + 1))])

    [first, second] = await memory.transcripts.read("main", "s\udc80\0")

    assert first.body == {"text": strange}
    assert "truncated" in second.body["text"]
    assert len(second.body["text"]) < MOST_BYTES


# -- one run at a time


async def test_a_run_that_was_superseded_adds_nothing_more(memory: Memory) -> None:
    await memory.transcripts.append("main", "talk", "old", [said("1")])
    await memory.transcripts.append("main", "talk", "new", [said("2")])

    with pytest.raises(FencedError, match="session 'talk' was taken over by run 'new': run 'old' adds nothing more"):
        await memory.transcripts.append("main", "talk", "old", [said("3"), said("4")])
    await memory.transcripts.append("main", "talk", "new", [said("5")])
    await memory.transcripts.append("main", "other", "old", [said("elsewhere it may")])

    assert texts(await memory.transcripts.read("main", "talk")) == ["1", "2", "5"]
    assert texts(await memory.transcripts.read("main", "other")) == ["elsewhere it may"]


async def test_the_cycle_of_a_superseded_run_ends_all_the_same_and_its_loss_is_told(memory: Memory) -> None:
    await memory.transcripts.append("main", "talk", "old", [said("1")])
    await memory.transcripts.append("main", "talk", "new", [said("2")])

    tell(memory.journal, facts.CycleWritten, cycle="cycle-1", closing=closing("cycle-1", "old", said("3")))
    await memory.flush()
    await until(lambda: bool(faults))

    assert await memory.cycle("cycle-1") is not None
    assert texts(await memory.transcripts.read("main", "talk")) == ["1", "2"]
    assert [(fault.kind, fault.retryable) for fault in faults if fault] == [("superseded", False)]
    await memory.save("a memory", "that still writes")


async def test_of_two_runs_that_write_at_once_the_last_to_claim_wins_and_they_never_take_turns(memory: Memory) -> None:
    async def write(run: str) -> int:
        for count in range(20):
            try:
                await memory.transcripts.append("main", "talk", run, [said(f"{run} {count}")])
            except FencedError:
                return count
        return 20

    written = dict(zip("ab", await asyncio.gather(write("a"), write("b")), strict=True))

    found = [entry.run_id for entry in await memory.transcripts.read("main", "talk")]
    assert sorted(written.values())[1] == 20
    assert found == sorted(found, key=lambda run: written[run]), "the one that was superseded, then the other"
    assert {run: found.count(run) for run in "ab"} == written


async def test_a_run_is_known_as_superseded_also_by_the_next_process_and_after_its_session_was_forgotten(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path}/memory.db"
    async with Memory.open(url) as memory:
        await memory.transcripts.append("main", "talk", "old", [said("1")])
        await memory.transcripts.append("main", "talk", "new", [said("2")])
    async with Memory.open(url) as memory:
        assert await memory.transcripts.forget("main", "talk") == 2
        with pytest.raises(FencedError):
            await memory.transcripts.append("main", "talk", "old", [said("3")])
        await memory.transcripts.append("main", "talk", "new", [said("4")])  # it goes on in the next process

        assert texts(await memory.transcripts.read("main", "talk")) == ["4"]


def test_a_transcript_is_only_added_to(connection: apsw.Connection) -> None:
    append(connection, rows("main", "talk", "a", [said("1")]))

    with pytest.raises(apsw.ConstraintError, match="a transcript is only added to"):
        connection.execute("UPDATE transcript SET body = '{}'")
    connection.close()


# -- compaction


async def test_reading_begins_with_the_last_compaction_and_what_it_kept(memory: Memory) -> None:
    add = memory.transcripts.append
    await add("main", "talk", "a", [said("1"), said("2"), said("3")])
    first, second, third = [entry.seq for entry in await memory.transcripts.read("main", "talk")]
    await add("main", "talk", "a", [compaction("1 and 2", third), said("4")])
    assert texts(await memory.transcripts.read("main", "talk")) == ["1 and 2", "3", "4"]

    await add("main", "talk", "b", [compaction("1 and so on", second)])

    assert texts(await memory.transcripts.read("main", "talk")) == ["1 and so on", "2", "3", "4"]
    assert texts(await memory.transcripts.tail("main", "talk")) == ["1", "2", "3", "1 and 2", "4", "1 and so on"]
    assert texts(await memory.transcripts.tail("main", "talk", limit=2, before=third + 1)) == ["2", "3"]
    assert first < second


async def test_it_is_read_on_from_where_it_was_as_long_as_that_stands_there(memory: Memory) -> None:
    add, read = memory.transcripts.append, memory.transcripts.read
    await add("main", "talk", "a", [said(str(number)) for number in range(20)])
    before = await read("main", "talk")
    await add("main", "talk", "a", [said("new")])
    await add("main", "other", "b", [said("elsewhere")])

    after = await read("main", "talk")

    assert texts(after) == [*map(str, range(20)), "new"]
    assert all(one is other for one, other in zip(before, after, strict=False))  # not read again
    assert after[-1] is (await read("main", "talk"))[-1]

    after.clear()  # a list of the caller's own
    await add("main", "talk", "a", [compaction("all but the last", before[-1].seq)])
    assert texts(await read("main", "talk")) == ["all but the last", "19", "new"]
    await add("main", "talk", "a", [said("more")])
    assert texts(await read("main", "talk")) == ["all but the last", "19", "new", "more"]

    assert await memory.transcripts.forget("main", "talk") == 23
    assert await read("main", "talk") == []
    await add("main", "talk", "a", [said("anew")])
    assert texts(await read("main", "talk")) == ["anew"]


async def test_where_the_last_compaction_cannot_be_read_the_one_before_it_counts(connection: apsw.Connection) -> None:
    given = [said("1"), compaction("one", 2), said("2"), compaction("one and two", 4), said("3")]
    *first, (agent, session, run, kind, at, size, body), last = rows("main", "talk", "a", given)
    append(connection, [*first, (agent, session, run, kind, at, size, body.replace("two", "six")), last])
    missed: list[str] = []

    assert texts([*transcripts.read(connection, "main", "talk", missed).entries]) == ["one", "2", "3"]
    assert len(missed) == 1
    connection.close()


async def test_of_more_than_there_is_room_for_the_newest_are_read_whole(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    await memory.transcripts.append("main", "talk", "a", [compaction("before", 1)])
    await memory.transcripts.append("main", "talk", "a", [said(str(number)) for number in range(10)])

    monkeypatch.setattr(transcripts, "READ_ENTRIES", 3)
    assert texts(await memory.transcripts.read("main", "talk")) == ["before", "7", "8", "9"]
    monkeypatch.setattr(transcripts, "READ_BYTES", 400)
    assert texts(await memory.transcripts.read("main", "talk")) == ["before", "8", "9"]


# -- what is kept


async def test_the_sessions_are_told_with_what_is_kept_of_them(memory: Memory) -> None:
    later = START + timedelta(hours=1)
    await memory.transcripts.append("main", "a", "run-1", [said("1"), said("2", at=later)])
    await memory.transcripts.append("main", "b", "run-2", [said("3")])
    await memory.transcripts.append("main", "a", "run-3", [said("4", at=later)])

    [first, second] = await memory.transcripts.sessions("main")

    assert first == TranscriptSummary("a", 3, first.bytes, later, "run-3")
    assert (second.session, second.entries, second.run_id) == ("b", 1, "run-2")
    assert first.bytes > second.bytes > 0


@pytest.mark.parametrize(
    ("limits", "left"),
    [
        (RetentionLimits(None, None, None, None, keep_transcript_days=10.5), 11),
        (RetentionLimits(None, None, None, None, keep_transcripts=7), 7),
        (RetentionLimits(None, None, None, None, keep_transcript_bytes=1_000), 5),
        (
            RetentionLimits(
                None, None, None, None, keep_transcript_days=None, keep_transcripts=None, keep_transcript_bytes=None
            ),
            600,
        ),
    ],
    ids=["age", "number", "size", "all"],
)
def test_the_oldest_entries_go_in_small_batches(
    connection: apsw.Connection, limits: RetentionLimits, left: int
) -> None:
    for number in range(600):
        entry = said(f"{number:03}", at=START + timedelta(days=number))
        append(connection, rows("main", "talk", f"run-{number}", [entry]))
    now = (START + timedelta(days=599)).timestamp()

    while gone := trim_transcripts(connection, limits, now):
        assert gone <= 2 * BATCH

    found = texts(tail(connection, "main", "talk", 1_000, None, []))
    assert found == [f"{number:03}" for number in range(600 - left, 600)]
    assert append(connection, rows("main", "talk", "run-599", [said("more")])) == []
    connection.close()


async def test_a_memory_tidies_its_transcripts_by_itself(tmp_path: Path) -> None:
    memory = Memory(f"sqlite:///{tmp_path}/memory.db", keep_transcripts=3)
    async with memory:
        await memory.transcripts.append("main", "talk", "a", [Entry("user", {"text": number}) for number in range(9)])

        async def are_three() -> bool:
            return len(await memory.transcripts.read("main", "talk")) == 3

        await until(are_three)


# -- the file


async def test_an_altered_entry_is_found_by_verify_told_once_and_does_not_keep_the_others(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    async with Memory.open(f"sqlite:///{path}") as memory:
        await memory.transcripts.append("main", "talk", "a", [said("1"), said("2"), said("3")])
    connection = database.open_writer(str(path), "off")
    connection.execute("DROP TRIGGER transcript_stays")
    connection.execute("UPDATE transcript SET body = replace(body, '2', '7')")
    tables = schema.tables(4)
    connection.execute(tables[tables.index("CREATE TRIGGER") :].partition("END;")[0] + "END;")
    connection.close()

    report = verify(str(path))
    told: list[Fault | None] = []
    async with Memory.open(f"sqlite:///{path}") as memory:
        memory.on_fault = told.append
        for _ in range(2):
            assert texts(await memory.transcripts.read("main", "talk")) == ["1", "3"]

    assert [(finding.table, finding.row) for finding in report.findings] == [("transcript", "2")]
    assert report.rows["transcript"] == 3
    assert [fault.kind for fault in told if fault] == ["damaged"]


async def test_a_copy_holds_the_transcripts_and_a_reader_cannot_add(tmp_path: Path) -> None:
    copy = str(tmp_path / "copy.db")
    async with Memory.open(f"sqlite:///{tmp_path}/memory.db") as memory:
        await memory.transcripts.append("main", "talk", "a", [said("1")])
        await asyncio.to_thread(memory.care.back_up, copy)
        lines = {line.name: line.found for line in await asyncio.to_thread(memory.care.examine)}

    async with Memory.open(f"sqlite:///{copy}", read_only=True) as memory:
        assert texts(await memory.transcripts.read("main", "talk")) == ["1"]
        with pytest.raises(PermanentError, match="open read-only"):
            await memory.transcripts.append("main", "talk", "a", [said("2")])
    assert lines["transcripts"] == "1"
