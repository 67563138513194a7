"""Record of what changed in settings and tools: a row for each change, over restarts."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spar.config.load import load
from spar.service import changes
from spar.service.changes import PRESENT, SINCE, ChangeRecord
from tests.doubles import KeptRows

AT = datetime(2026, 11, 22, 12, tzinfo=UTC)


class Disk(KeptRows):
    """Rows that outlive the record."""

    @property
    def changes(self) -> list[list[Any]]:
        return [list(self.rows[key]) for key in sorted(self.rows) if key not in (PRESENT, SINCE)]


def settings_of(folder: Path, text: str) -> Any:
    (folder / "config.toml").write_text(text)
    return load(folder / "config.toml", environ={}).settings


def record(disk: Disk, hours: float = 0, **tools: dict[str, Any]) -> ChangeRecord:
    there = {name: SimpleNamespace(name=name, schema=schema) for name, schema in tools.items()}
    return ChangeRecord(lambda: disk, lambda: AT + timedelta(hours=hours), lambda: there)


async def test_a_change_is_a_row_once_and_over_restarts(tmp_path: Path) -> None:
    disk = Disk()
    rule = '[[rules]]\nname = "{}"\nanswer = "{}"\n'
    first = settings_of(
        tmp_path, "[agent]\nmax_interval = 5\n" + rule.format("load", "high") + rule.format("disk", "x" * 900)
    )
    await record(disk).look_at_settings(first)
    assert (disk.changes, disk.rows[SINCE]) == ([], AT.isoformat())
    disk.cycles.clear()
    await record(disk, 1).look_at_settings(first)
    assert disk.cycles == [], "what is the same costs no row"
    second = settings_of(
        tmp_path, "[agent]\nmax_interval = 9\n" + rule.format("disk", "x" * 899 + "y") + rule.format("new", "n")
    )
    await record(disk, 2).look_at_settings(second)
    by_key = {what: (kind, before, after) for kind, what, before, after in disk.changes}
    assert by_key["agent.max_interval"] == ("setting", 5.0, 9.0)
    assert by_key.keys() == {"agent.max_interval", "rules[load]", "rules[disk]", "rules[new]"}
    assert by_key["rules[load]"][2] is by_key["rules[new]"][1] is None
    assert by_key["rules[disk]"][1]["digest"] != by_key["rules[disk]"][2]["digest"]


async def test_a_look_at_the_tools_beside_the_first_one_at_the_settings_forgets_none_of_them(tmp_path: Path) -> None:
    class Slow(Disk):
        async def list(self) -> dict[str, Any]:
            found = await super().list()
            await asyncio.sleep(0)
            return found

    disk = Slow()
    both = record(disk, one={})
    await asyncio.gather(both.look_at_settings(settings_of(tmp_path, "")), both.look_at_tools())
    await both.look_at_settings(settings_of(tmp_path, "[agent]\nmax_interval = 9\n"))
    assert [what for _, what, _, _ in disk.changes] == ["agent.max_interval"]


async def test_no_secret_is_written(tmp_path: Path) -> None:
    disk = Disk()
    for number in (1, 2):
        options = (
            f'{{ url = "https://x.test", password = "hidden{number}", text = "Bearer hiddenhiddenhidden{number}" }}'
        )
        text = f'[[notifiers]]\nname = "ops"\nuse = "webhook"\noptions = {options}\n'
        await record(disk, number).look_at_settings(settings_of(tmp_path, text))
    assert "hidden" not in str(disk.rows)


async def test_no_header_is_written_since_any_may_hold_a_secret(tmp_path: Path) -> None:
    disk = Disk()
    for number in (1, 2):
        header = f'{{ x-tenant = "hidden{number}", accept = "text/plain" }}'
        text = f'[tracing]\nheaders = {header}\n[[notifiers]]\nuse = "webhook"\noptions = {{ headers = {header} }}\n'
        await record(disk, number).look_at_settings(settings_of(tmp_path, text))
    assert "hidden" not in str(disk.rows)
    assert disk.rows[PRESENT]["setting"]["tracing.headers.accept"] == "text/plain"


async def test_tools_that_come_change_and_go_are_told(tmp_path: Path) -> None:
    disk, schema = Disk(), {"type": "object"}
    await record(disk, 0, one=schema).look_at_tools()
    await record(disk, 1, one={**schema, "description": "more"}, two=schema).look_at_tools()
    await record(disk, 2, two=schema).look_at_tools()
    told = [(what, before is not None, after is not None) for _, what, before, after in disk.changes]
    assert told == [("one", True, True), ("two", False, True), ("one", True, False)]


async def test_the_oldest_are_dropped_and_without_a_memory_nothing_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "MOST", 3)
    disk = Disk()
    for number in range(6):
        await record(disk, number, **{f"tool{number}": {}}).look_at_tools()
    assert len(disk.changes) == 3
    assert disk.changes[-1][1] == "tool5"
    await ChangeRecord(lambda: None, lambda: AT, dict).look_at_tools()
