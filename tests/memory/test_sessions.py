"""Sessions in the file: made with their messages, begun anew by a reset, listed page by page, forgotten."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memory import Memory
from memory.care.integrity import verify
from memory.retention import RetentionLimits, trim_transcripts
from memory.sqlite import database
from spar import facts
from spar.errors import FencedError
from spar.records.journal import Closing, Item, RowChange
from spar.records.run_options import RunOptions
from spar.records.session import Origin, Reset, SessionRecord, SessionUse
from spar.records.transcript import Entry
from spar.types import CycleRecord, Perception, replace
from tests.journal.left import accept, tell

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def said(text: str, run_id: str = "") -> Entry:
    return Entry("user", {"text": text}, run_id, at=NOW)


async def say(memory: Memory, key: str, run: str, after: float = 0.0, reset: Reset | None = None) -> None:
    """A message as an agent accepts it, and what it leaves in the transcript."""
    at = NOW + timedelta(seconds=after)
    use = SessionUse(at, Origin("http", "", key), reset)
    await accept(memory.journal, Item(run, Perception(run), "run", key, at=at), use=use)
    await memory.transcripts.append("main", key, run, [said(run)])


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[Memory]:
    async with Memory.open(f"sqlite:///{tmp_path}/m.db", ballast=0) as opened:
        yield opened


async def read(memory: Memory, key: str) -> list[str]:
    return [entry.body.get("text", entry.kind) for entry in await memory.transcripts.read("main", key)]


async def test_the_first_message_makes_the_row_and_later_ones_say_when_it_was_used(memory: Memory) -> None:
    await say(memory, "alice", "r1")
    await say(memory, "alice", "r2", after=60)
    record = await memory.sessions.get("main", "alice")

    assert record == SessionRecord("alice", NOW, NOW, NOW + timedelta(seconds=60), origin=Origin("http", "", "alice"))
    assert record.id == "alice#1"
    assert await memory.sessions.get("main", "bob") is None
    assert await memory.sessions.get("other", "alice") is None


async def test_reading_begins_after_a_reset_and_what_stands_before_is_kept(memory: Memory) -> None:
    await say(memory, "alice", "r1")
    await memory.transcripts.append("main", "alice", "r1", [Entry("compaction", {"summary": "old", "first_kept": 1})])
    assert await read(memory, "alice") == ["compaction", "r1"]

    reset = Reset("x", "alice", 1, NOW, by="tom")
    tell(memory.journal, facts.ConversationReset, reset=reset, entries=(said("last words", "r1"),))
    assert await read(memory, "alice") == []
    await say(memory, "alice", "r2")
    assert await read(memory, "alice") == ["r2"]
    assert await read(memory, "alice") == ["r2"]

    whole = await memory.transcripts.tail("main", "alice")
    assert [entry.kind for entry in whole] == ["user", "compaction", "user", "reset", "user"]
    assert whole[3].body == {"reason": "reset", "by": "tom", "ended": "alice#1", "begun": "alice#2"}


async def test_what_a_run_of_before_still_adds_after_a_reset_is_refused(memory: Memory) -> None:
    await say(memory, "alice", "r1")
    memory.journal.append(facts.ConversationReset(session="main", reset=Reset("x", "alice", 1, NOW)), "main")

    with pytest.raises(FencedError):
        await memory.transcripts.append("main", "alice", "r1", [said("too late")])
    assert await read(memory, "alice") == []


async def test_a_reset_takes_effect_once(memory: Memory) -> None:
    await say(memory, "alice", "r1")
    for name in ("x", "y"):
        tell(memory.journal, facts.ConversationReset, reset=Reset(name, "alice", 1, NOW + timedelta(hours=1)))
    await say(memory, "alice", "r2", after=7200, reset=Reset("z", "alice", 1, NOW))

    record = await memory.sessions.get("main", "alice")
    assert (record.ordinal, record.began_at) == (2, NOW + timedelta(hours=1))
    whole = await memory.transcripts.tail("main", "alice")
    assert [entry.kind for entry in whole] == ["user", "reset", "user"]


async def test_a_message_and_the_reset_before_it_are_one(memory: Memory) -> None:
    await say(memory, "alice", "r1")
    await say(memory, "alice", "r2", after=9, reset=Reset("z", "alice", 1, NOW, "idle"))

    record = await memory.sessions.get("main", "alice")
    assert record.id == "alice#2"
    assert await read(memory, "alice") == ["r2"]


async def test_a_reset_ends_the_work_of_its_conversation_for_good(memory: Memory) -> None:
    item = Item("r1", Perception("hello"), "run", "alice")
    await accept(memory.journal, item, use=SessionUse(NOW))
    memory.journal.append(facts.RunAnswered(session="main", run="r1", answer={"status": "error"}))
    memory.journal.append(facts.ConversationReset(session="main", reset=Reset("x", "alice", 1, NOW)), "main")
    memory.journal.append(facts.WorkChanged(session="main", item=replace(item, attempts=1)), "main")
    memory.journal.append(facts.RunAnswered(session="main", run="r1", answer={"status": "ok"}))

    assert await memory.journal.views.items("main") == []
    assert await memory.journal.views.run("main", "r1") == (None, {"status": "error"})


async def test_what_people_set_stays_over_messages_and_resets(memory: Memory) -> None:
    await say(memory, "alice", "r1")
    record = await memory.sessions.get("main", "alice")
    assert record is not None
    await memory.sessions.put("main", replace(record, title="Holidays", defaults=RunOptions(thinking="high")))
    await say(memory, "alice", "r2", after=5, reset=Reset("x", "alice", 1, NOW))

    found = await memory.sessions.get("main", "alice")
    assert (found.title, found.defaults, found.ordinal) == ("Holidays", RunOptions(thinking="high"), 2)


async def test_forgetting_deletes_what_is_kept_of_a_session_alone_and_the_file_stays_true(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    async with Memory.open(f"sqlite:///{path}", ballast=0) as memory:
        for key in ("alice", "bob"):
            for n in range(3):
                run = f"{key}{n}"
                await say(memory, key, run)
                record = CycleRecord(f"c{run}", "main", key, NOW, 0.1, "acted")
                tell(memory.journal, facts.CycleWritten, cycle=f"c{run}", closing=Closing("acted", record, run_id=run))
                memory.journal.append(facts.RunAnswered(session="main", run=run, answer={"status": "ok"}))
                told = RowChange("additions:main", run, {"items": [[0, {"blocks": ["what was told"]}]]})
                memory.journal.append(facts.RowsChanged(changes=(told,)))
        await memory.journal.safe()
        before = await memory.journal.views.counts("main")

        assert await memory.sessions.forget("main", "alice") == 13
        assert await memory.sessions.forget("main", "alice") == 0

        assert await memory.sessions.get("main", "alice") is None
        assert await memory.transcripts.tail("main", "alice") == []
        assert await memory.journal.views.run("main", "alice0") == (None, None)
        assert {cycle["session"] for cycle in await memory.cycles()} == {"bob"}
        assert (await memory.journal.views.counts("main"))["outcomes"] == before["outcomes"]
        assert len(await memory.transcripts.tail("main", "bob")) == 3
        assert list(await memory.journal.views.rows("additions:main")) == ["bob0", "bob1", "bob2"]
    assert verify(str(path)).is_whole


async def test_rows_of_sessions_without_a_transcript_go_with_time_unless_people_have_set_something(
    tmp_path: Path,
) -> None:
    path = tmp_path / "m.db"
    async with Memory.open(f"sqlite:///{path}", ballast=0) as memory:
        for key in ("quiet", "named", "talked"):
            await accept(memory.journal, Item(key, Perception("x"), "run", key, at=NOW), use=SessionUse(NOW))
        named = await memory.sessions.get("main", "named")
        assert named is not None
        await memory.sessions.put("main", replace(named, title="Keep me"))
        await memory.transcripts.append("main", "talked", "talked", [said("hello")])
    connection = database.open_writer(str(path), "off")
    now, limits = NOW.timestamp(), RetentionLimits(None, None, None, None, keep_transcript_days=90)

    def kept(days: float) -> list[str]:
        trim_transcripts(connection, limits, now + days * 86_400)
        return [str(key) for (key,) in connection.execute("SELECT key FROM session ORDER BY key")]

    assert kept(89) == ["named", "quiet", "talked"]
    assert kept(91) == ["named"]
    connection.close()


async def test_the_sessions_of_a_file_of_an_earlier_format_are_listed(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    connection = database.open_writer(str(path), "off")
    connection.execute((Path(__file__).parent / "sqlite" / "format_5.sql").read_text("utf-8"))
    connection.close()
    assert verify(str(path)).is_whole

    async with Memory.open(f"sqlite:///{path}", ballast=0) as memory:
        found = {record.key: record for record in await memory.sessions.page("main")}
        assert set(found) == {"talk", "chat"}
        assert found["chat"].created_at == found["chat"].began_at == datetime(2026, 11, 20, 8, tzinfo=UTC)
        memory.journal.append(facts.ConversationReset(session="main", reset=Reset("x", "talk", 1, NOW)), "main")
        assert await memory.transcripts.read("main", "talk") == []
    assert verify(str(path)).is_whole
