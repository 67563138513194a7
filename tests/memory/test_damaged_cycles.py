"""Rows of the tape that cannot be read: the list and the cycle are shown all the same, and say what is wrong."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import pytest

from memory import Memory
from spar.types import Action, ActionResult, Call, CallResult, CycleRecord

BODIES = ["", "{", "[]", "7", '{"record": 7}', '{"record": {"cycle_id": []}}', "[" * 100_000, b"\xff\x00", 7.5,
          '{"record": {}}\n00000000']  # fmt: skip


def record(id: str, status: Any = "ok") -> CycleRecord:
    call = Call("note", {"text": "x"}, id="a")
    action = Action(calls=[call], goal="file it")
    result = ActionResult(results=(CallResult(call, status),), action=action)
    at = datetime(2026, 1, 2, 3, 4, int(id[1:]), tzinfo=UTC)
    return CycleRecord(id, "main", "main", at, 0.5, "acted", action=action, result=result)


async def damaged(folder: Path, **columns: Any) -> str:
    """Return the address of a memory of three cycles; the second one failed, and has other columns."""
    url = f"sqlite:///{folder / 'memory.db'}"
    async with Memory(url) as memory:
        for each in (record("c1"), record("c2", "failed"), record("c3")):
            await memory.record(each)
        await memory.flush()
    with apsw.Connection(str(folder / "memory.db")) as connection:
        connection.pragma("ignore_check_constraints", True)
        for name, value in columns.items():
            connection.execute(f"UPDATE cycle SET {name} = ? WHERE id = 'c2'", (value,))
    return url


@pytest.mark.parametrize("body", BODIES, ids=lambda body: repr(body)[:30])
async def test_a_damaged_row_is_listed_and_shown_with_what_is_known(tmp_path: Path, body: Any) -> None:
    url = await damaged(tmp_path, body=body, summary="")

    async with Memory(url, read_only=True) as memory:
        listed = await memory.cycles()
        shown = [await memory.cycle(id) for id in ("c2", "c1", "c3")]

    assert [each["cycle_id"] for each in listed] == ["c3", "c2", "c1"]
    assert (listed[1]["outcome"], listed[1]["duration"]) == ("acted", 0.5)
    assert [each and each.cycle_id for each in shown] == ["c2", "c1", "c3"]
    assert shown[0] is not None
    assert (shown[0].session, shown[0].outcome, shown[0].faults[0].kind) == ("main", "acted", "unreadable")
    assert "cannot be read: " in shown[0].faults[0].message
    assert "cannot be read: " in listed[1]["about"]
    assert [each and each.action and each.action.goal for each in shown] == [None, "file it", "file it"]


@pytest.mark.parametrize("summary", ["{", "[]", "7", '"text"', "null", b"\xff"], ids=repr)
@pytest.mark.parametrize("is_failed", [False, True])
async def test_a_damaged_summary_hides_no_other_cycle(tmp_path: Path, summary: Any, is_failed: bool) -> None:
    url = await damaged(tmp_path, summary=summary)

    async with Memory(url, read_only=True) as memory:
        listed = await memory.cycles(failed=is_failed)
        whole = await memory.cycle("c2")

    assert [each["cycle_id"] for each in listed] == (["c2"] if is_failed else ["c3", "c2", "c1"])
    assert whole is not None
    assert whole.result is not None
    assert [each.status for each in whole.result.results] == ["failed"]
