"""The contract of a store with a journal: the built-in memory passes, and each broken promise is named."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from memory.journal.in_flight import InFlightFile
from memory.journal.journal import Journal
from spar import facts
from spar.errors import ConflictError
from spar.facts import CycleWritten, Fact
from spar.protocols import Record
from spar.records.journal import RowChange
from spar.records.transcript import Entry
from spar.testing import check_journal, check_process_death, check_retention
from spar.types import replace


async def test_the_built_in_memory_passes(tmp_path: Path) -> None:
    await check_journal(partial(Memory, f"sqlite:///{tmp_path}/memory.db"))


class Instead:
    """A journal or transcripts with some operations of its own."""

    def __init__(self, real: Any, operations: dict[str, Any]) -> None:
        self._real, self._operations = real, operations

    def __getattr__(self, name: str) -> Any:
        real, own = getattr(self._real, name), self._operations.get(name)
        return real if own is None else own if isinstance(own, Instead) else partial(own, real)


def broken(url: str, **operations: Any) -> Callable[[], Any]:
    """The built-in memory with operations `journal_…`, `transcripts_…`, `store_…`, each given the real one first."""

    def of(part: str) -> dict[str, Any]:
        return {name.removeprefix(f"{part}_"): made for name, made in operations.items() if name.startswith(part)}

    class Broken(Memory):
        @property
        def journal(self) -> Any:
            journal = super().journal
            return Instead(journal, {**of("journal"), "views": Instead(journal.views, of("views"))})

        def __getattribute__(self, name: str) -> Any:
            real = super().__getattribute__(name)
            if name == "transcripts":
                return Instead(real, of("transcripts"))
            return partial(of("store")[name], real) if name in of("store") else real

    return lambda: Broken(url)


def altered(kind: type[Fact], change: Callable[[Any], Any]) -> Callable[..., Any]:
    """An operation that is given an altered fact of this kind; None: it is not given the fact."""

    def write(real: Any, fact: Fact, agent: str = "") -> Any:
        given = change(fact) if isinstance(fact, kind) else fact
        return None if given is None else real(given, agent)

    return write


def on_item(change: Callable[[Any], Any]) -> Callable[..., Any]:
    return altered(facts.WorkAccepted, lambda fact: replace(fact, item=change(fact.item)))


def on_closing(**fields: Any) -> Callable[..., Any]:
    return altered(facts.CycleWritten, lambda fact: replace(fact, closing=replace(fact.closing, **fields)))


async def newest_first(real: Any, *args: Any, **given: Any) -> Any:
    return (await real(*args, **given))[::-1]


def a_part(item: Any) -> Any:
    return replace(item, perception=replace(item.perception, content=str(item.perception.content)[:1000]))


async def answers_letters_twice(real: Any, fact: Fact, agent: str) -> Any:
    try:
        return await real(fact, agent)
    except ConflictError:
        if not isinstance(fact, facts.LetterAnswered):
            raise
        return None


def changes_one_by_one(real: Any, fact: Fact, agent: str = "") -> None:
    for part in (
        [replace(fact, changes=(row,)) for row in fact.changes] if isinstance(fact, facts.RowsChanged) else [fact]
    ):
        real(part, agent)


def cut(fact: Any) -> Any:
    return replace(
        fact, changes=tuple([RowChange(c.owner, c.key, str(c.value)[:99], c.is_dropped) for c in fact.changes])
    )


def counted_once(fact: Any) -> Any:
    return replace(fact, spends=tuple([replace(each, amount=max(each.amount, 0)) for each in fact.spends]))


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
        (
            {"journal_commit": on_item(lambda item: replace(item, key=None))},
            "of a known key must return the item that has it",
        ),
        ({"journal_commit": on_item(a_part)}, "accepted work must be kept whole"),
        ({"views_items": newest_first}, r"views\.items\(\) must be in order"),
        ({"views_recent_ids": newest_first}, "must be the newest first"),
        ({"journal_commit": answers_letters_twice}, "dealt with must raise ConflictError, found None"),
        ({"views_dead_letters": newest_first}, "must be what was put aside, the oldest first"),
        ({"journal_append": on_closing(entries=())}, "must add the entries of the transcript"),
        ({"journal_append": on_closing(done=())}, "end the items that are done"),
        (
            {"journal_append": altered(facts.RowsChanged, lambda fact: replace(fact, cycle=""))},
            "beginning or the end of their cycle, and only then",
        ),
        ({"journal_append": changes_one_by_one}, r"all changes that were accepted and no other, but: \['half'\]"),
        ({"journal_append": altered(facts.RowsChanged, cut)}, "and only then, found|must return values exactly"),
        (
            {"journal_append": altered(facts.AttemptStarted, lambda fact: None)},
            "which calls ended and which are in doubt",
        ),
        (
            {"journal_append": altered(facts.AttemptStarted, lambda fact: replace(fact, values=None))},
            "values that a call was started with",
        ),
        ({"views_doubts": newest_first}, "must be all in order"),
        ({"journal_append": altered(facts.BudgetUsed, counted_once)}, "must be the sums of what was spent"),
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
        await check_journal(broken(f"sqlite:///{tmp_path}/memory.db", **operations), large=10_000)


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


# -- the built-in memory keeps what it acknowledged when its process is killed, and never forgets what is needed


@pytest.mark.process
async def test_a_killed_process_leaves_whole_units_only(tmp_path: Path) -> None:
    await check_process_death(partial(Memory, f"sqlite:///{tmp_path}/memory.db", durability="process"), kills=2)


class Passes:
    """A journal that passes on what it is asked."""

    def __init__(self, real: Journal) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class LeavesOut(Passes):
    """A journal that leaves the rows out of each third cycle's end."""

    def append(self, fact: Fact, agent: str = "") -> None:
        if isinstance(fact, CycleWritten) and fact.cycle.endswith("3"):
            fact = replace(fact, closing=replace(fact.closing, changes=()))
        self._real.append(fact, agent)


class NotesNothing(Passes):
    """A journal that does not know what a process had in hand."""

    hand = InFlightFile(None, 1)


class KeepsHalf(Memory):
    @property
    def journal(self) -> Any:
        return LeavesOut(super().journal)


class Forgetful(Memory):
    @property
    def journal(self) -> Any:
        return NotesNothing(super().journal)


@pytest.mark.process
async def test_half_a_unit_is_caught(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"of \d+ units rows differ in \['3'"):
        await check_process_death(partial(KeepsHalf, f"sqlite:///{tmp_path}/memory.db"))


@pytest.mark.process
async def test_a_store_that_acknowledges_what_is_not_kept_is_caught() -> None:
    with pytest.raises(AssertionError, match="has acknowledged must be there after a kill: 5 units, found 0"):
        await check_process_death(partial(Memory, "sqlite://:memory:"))


@pytest.mark.process
async def test_a_store_that_does_not_know_what_was_in_hand_is_caught(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="what was in hand at a kill must be known"):
        await check_process_death(partial(Forgetful, f"sqlite:///{tmp_path}/memory.db"), kills=0)


async def test_a_factory_that_no_other_process_can_call_is_told() -> None:
    with pytest.raises(AssertionError, match="make_store must be one that another process can call"):
        await check_process_death(lambda: Memory("sqlite://:memory:"))


def keeping(folder: Path, few: int | None) -> Memory:
    return Memory(f"sqlite:///{folder}/memory.db", keep_cycles=few, keep_experiences=few, keep_facts=few,
                  keep_transcripts=few)  # fmt: skip


async def test_what_is_needed_stays_while_the_oldest_goes(tmp_path: Path) -> None:
    await check_retention(lambda: keeping(tmp_path, 10), keeps=10)


async def test_a_store_that_keeps_too_much_or_too_little_is_caught(tmp_path: Path) -> None:
    for name in ("all", "few"):
        (tmp_path / name).mkdir()
    with pytest.raises(AssertionError, match=r"must give up what is too much in time, but keeps \{'cycles': 15"):
        await check_retention(lambda: keeping(tmp_path / "all", None), keeps=5, limit=0.2)
    with pytest.raises(AssertionError, match="of cycles the oldest must go first and no more than must"):
        await check_retention(lambda: keeping(tmp_path / "few", 3), keeps=5)
