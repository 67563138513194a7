"""The contract of a store with a journal: the built-in memory passes, and each broken promise is named."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from spar.errors import ConflictError
from spar.facts import AttemptStarted
from spar.protocols import Record
from spar.records.journal import Closing, RowChange
from spar.records.transcript import Entry
from spar.testing import check_journal
from spar.types import replace


async def test_the_built_in_memory_passes(tmp_path: Path) -> None:
    await check_journal(partial(Memory, f"sqlite:///{tmp_path}/memory.db"))


class Instead:
    """A journal or transcripts with some operations of its own."""

    def __init__(self, real: Any, operations: dict[str, Any]) -> None:
        self._real, self._operations = real, operations

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._real, name)
        return partial(self._operations[name], real) if name in self._operations else real


def broken(url: str, **operations: Any) -> Callable[[], Any]:
    """The built-in memory with operations `journal_…`, `transcripts_…`, `store_…`, each given the real one first."""

    def of(part: str) -> dict[str, Any]:
        return {name.removeprefix(f"{part}_"): made for name, made in operations.items() if name.startswith(part)}

    class Broken(Memory):
        @property
        def journal(self) -> Any:
            return Instead(super().journal, of("journal"))

        def __getattribute__(self, name: str) -> Any:
            real = super().__getattribute__(name)
            if name == "transcripts":
                return Instead(real, of("transcripts"))
            return partial(of("store")[name], real) if name in of("store") else real

    return lambda: Broken(url)


async def forgets_the_key(real: Any, agent: str, item: Any) -> Any:
    return await real(agent, replace(item, key=None))


async def newest_first(real: Any, *args: Any, **given: Any) -> Any:
    return (await real(*args, **given))[::-1]


async def accepts_a_part(real: Any, agent: str, item: Any) -> Any:
    short = replace(item.perception, content=str(item.perception.content)[:1000])
    return await real(agent, replace(item, perception=short))


async def buries_twice(real: Any, agent: str, letter: Any, *, waits: bool) -> Any:
    try:
        return await real(agent, letter, waits=waits)
    except ConflictError:
        return letter.item


def closes_without_entries(real: Any, agent: str, cycle_id: str, closing: Closing) -> None:
    real(agent, cycle_id, replace(closing, entries=()))


def closes_half(real: Any, agent: str, cycle_id: str, closing: Closing) -> None:
    real(agent, cycle_id, replace(closing, done=()))


def changes_at_once(real: Any, changes: Any, work: str = "") -> None:
    real(changes)


def changes_one_by_one(real: Any, changes: Any, work: str = "") -> None:
    for change in changes:
        real((change,), work)


def cuts_rows(real: Any, changes: Any, work: str = "") -> None:
    real([RowChange(c.owner, c.key, str(c.value)[:99], c.is_dropped) for c in changes], work)


def forgets_values(real: Any, fact: Any, agent: str = "") -> None:
    real(replace(fact, values=None) if isinstance(fact, AttemptStarted) else fact, agent)


def forgets_starts(real: Any, fact: Any, agent: str = "") -> None:
    if not isinstance(fact, AttemptStarted):
        real(fact, agent)


def counts_once(real: Any, spends: Any) -> None:
    real([replace(each, amount=max(each.amount, 0)) for each in spends])


async def adds_for_anybody(real: Any, agent: str, session: str, run: str, entries: Any) -> None:
    await real(agent, session, "anybody", [Entry(each.kind, each.body, at=each.at) for each in entries])


async def saves_floats(real: Any, key: str, value: Any) -> None:
    await real(key, float(value) if type(value) is int else value)


async def saves_the_beginning(real: Any, key: str, value: Any) -> None:
    await real(key, value[:1000] if isinstance(value, str) else value)


async def keeps_any_version(real: Any, kind: str, id: str, value: Any, *, expect: int | None = None) -> int:
    return int(await real(kind, id, value))


async def counts_from_zero(real: Any, kind: str) -> list[Record]:
    return [replace(each, version=each.version - 1) for each in await real(kind)]


def claims_anything(real: Any, agent: str, owner: object) -> None:
    return None


@pytest.mark.parametrize(
    ("operations", "duty"),
    [
        ({"journal_accept": forgets_the_key}, "of a known key must return the item that has it"),
        ({"journal_accept": accepts_a_part}, "accepted work must be kept whole"),
        ({"journal_items": newest_first}, r"journal\.items\(\) must be in order"),
        ({"journal_recent_ids": newest_first}, "must be the newest first"),
        ({"journal_exhume": buries_twice}, "dealt with must raise ConflictError, found None"),
        ({"journal_dead_letters": newest_first}, "must be what was put aside, the oldest first"),
        ({"journal_closed": closes_without_entries}, "must add the entries of the transcript"),
        ({"journal_closed": closes_half}, "end the items that are done"),
        ({"journal_change": changes_at_once}, "beginning or the end of their cycle, and only then"),
        ({"journal_change": changes_one_by_one}, r"all changes that were accepted and no other, but: \['half'\]"),
        ({"journal_change": cuts_rows}, "and only then, found|must return values exactly"),
        ({"journal_append": forgets_starts}, "which calls ended and which are in doubt"),
        ({"journal_append": forgets_values}, "values that a call was started with"),
        ({"journal_doubts": newest_first}, "must be all in order"),
        ({"journal_spend": counts_once}, "must be the sums of what was spent"),
        ({"journal_claim": claims_anything}, "must raise ConflictError while another owner"),
        ({"transcripts_append": adds_for_anybody}, "taken over must raise FencedError, found None"),
        ({"transcripts_tail": newest_first}, "must come back exactly and in order"),
        ({"store_save": saves_floats}, "must load what was saved exactly, saved 0, found 0.0"),
        ({"store_save": saves_the_beginning}, "must raise TooLargeError, found None"),
        ({"store_keep": keeps_any_version}, "another version must raise ConflictError"),
        ({"store_records": counts_from_zero}, "must be the rows by id"),
    ],
)
async def test_a_broken_promise_is_named(tmp_path: Path, operations: dict[str, Any], duty: str) -> None:
    with pytest.raises(AssertionError, match=duty):
        await check_journal(broken(f"sqlite:///{tmp_path}/memory.db", **operations), large=1_000_000)


async def test_a_store_that_forgets_when_it_is_closed_is_caught() -> None:
    with pytest.raises(AssertionError, match="must be in order"):
        await check_journal(lambda: Memory("sqlite://:memory:"), large=1_000)


async def test_two_writers_at_once_are_caught(tmp_path: Path) -> None:
    opened: list[int] = []

    def make() -> Memory:
        opened.append(1)
        return Memory(f"sqlite:///{tmp_path}/{'memory' if len(opened) < 4 else 'other'}.db")

    with pytest.raises(AssertionError, match="taken over must raise FencedError, found None"):
        await check_journal(make, large=1_000)
