"""The audit log of a memory: a chain beside its rows, written with them or not at all, kept for longer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from memory import Memory, audit
from memory.care.integrity import verify
from memory.engine import hash_chain
from memory.engine.hash_chain import AUDIT
from memory.sqlite import database, schema
from spar.errors import ConflictError
from spar.records.audit import AuditDraft, auditing

if TYPE_CHECKING:
    from apsw import Connection

DAY = 86_400.0
NOW = 1_000 * DAY


def draft_of(number: int = 1, **more: object) -> AuditDraft:
    draft = AuditDraft(f"user{number}", "http", "approval.deny", f"a{number}", agent="main")
    draft.detail.update(more)
    return draft


def fill(connection: Connection, count: int, at: float = NOW) -> None:
    for number in range(1, count + 1):
        audit.append(connection, draft_of(number), at + number)


@pytest.mark.parametrize(
    ("harm", "number"),
    [
        ("UPDATE audit SET actor = 'somebody else' WHERE seq = 3", 3),
        ("UPDATE audit SET body = replace(body, 'http', 'chat') WHERE seq = 5", 5),
        ("UPDATE audit SET at = at + 1 WHERE seq = 2", 2),
        ("DELETE FROM audit WHERE seq = 4", 4),
        ("DELETE FROM audit WHERE seq = 1", 1),
        ("UPDATE audit SET seq = -seq WHERE seq IN (2, 3); UPDATE audit SET seq = 5 + seq WHERE seq < 0", 2),
        ("INSERT INTO audit SELECT 9, at, actor, subject, action, body, link FROM audit WHERE seq = 6", 7),
    ],
)
def test_an_entry_that_was_altered_taken_out_moved_or_put_in_is_named(
    connection: Connection, harm: str, number: int
) -> None:
    fill(connection, 6)
    assert hash_chain.check(connection, chain=AUDIT) is None
    connection.execute(harm)
    broken = hash_chain.check(connection, chain=AUDIT)
    assert (broken.seq, str(broken).startswith("the chain of the audit log is broken")) == (number, True)


async def test_entries_cut_off_at_the_end_are_found_as_well(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    async with Memory.open(f"sqlite:///{path}", ballast=0) as memory:
        for number in range(3):
            await memory.audit.write(draft_of(number))
    assert verify(str(path)).is_whole
    for harm in ("DELETE FROM audit WHERE seq = 3", "DELETE FROM seal WHERE tbl = 14 AND key = 3"):
        connection = database.open_writer(str(path), "off")
        connection.execute(harm)
        connection.close()
        assert [finding.table for finding in verify(str(path)).findings] == ["audit"]
        async with Memory.open(f"sqlite:///{path}", ballast=0) as memory:
            assert "the audit log is broken" in await memory.audit.verify()


def test_the_oldest_go_with_their_age_and_the_rest_can_still_be_verified(connection: Connection) -> None:
    fill(connection, 300)
    fill(connection, 3, NOW + 500 * DAY)
    assert audit.trim(connection, None, NOW + 900 * DAY) == 0
    assert audit.trim(connection, 400, NOW) == 0
    assert [audit.trim(connection, 400, NOW + 500 * DAY) for _ in range(3)] == [250, 50, 0]
    assert hash_chain.check(connection, chain=AUDIT) is None
    fill(connection, 2, NOW + 501 * DAY)
    assert hash_chain.check(connection, chain=AUDIT) is None
    connection.execute("DELETE FROM audit WHERE seq = 301")
    assert hash_chain.check(connection, chain=AUDIT) is not None
    assert audit.trim(connection, 1, NOW + 9_000 * DAY) < 5  # the newest stays
    assert hash_chain.newest(connection, AUDIT) == 305


async def test_an_entry_is_there_with_its_row_and_never_without(tmp_path: Path) -> None:
    async with Memory.open(f"sqlite:///{tmp_path / 'm.db'}", ballast=0) as memory:
        draft = draft_of(1, password="hunter2hunter2", text="key sk-abcdefghijklmnopqrstuvwxyz012345")
        with auditing(draft):
            await memory.keep("approval", "a1", {"n": 1}, expect=0)
            await memory.keep("approval", "a1", {"n": 2})
        (entry,) = await memory.audit.entries()
        assert (entry.actor, entry.before, len(entry.after)) == ("user1", "", 32)
        assert "hunter2" not in str(entry)
        assert "abcdefghij" not in str(entry)

        refused = draft_of(2)
        with auditing(refused), pytest.raises(ConflictError):
            await memory.keep("approval", "a1", {"n": 3}, expect=7)
        assert not refused.is_written
        with auditing(refused):
            await memory.drop("approval", "a1")
        newest, _ = await memory.audit.entries()
        assert (newest.actor, newest.before != "", newest.after) == ("user2", True, "")


async def test_a_file_of_the_sixth_format_gets_a_log(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    connection = database.open_writer(str(path), "off")
    connection.execute((Path(__file__).parent / "sqlite" / "format_5.sql").read_text("utf-8"))
    schema.migrate(connection, steps=schema.STEPS[:6])
    assert schema.version(connection) == 6
    connection.close()
    async with Memory.open(f"sqlite:///{path}", ballast=0) as memory:
        assert await memory.audit.entries() == []
        await memory.audit.write(draft_of(1))
        assert [each.seq for each in await memory.audit.entries()] == [1]
        assert {record.key for record in await memory.sessions.page("main")} == {"talk", "chat"}
    assert verify(str(path)).is_whole
