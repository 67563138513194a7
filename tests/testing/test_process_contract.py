"""The built-in memory keeps what it acknowledged when its process is killed, and never forgets what is needed."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from memory.journal.in_flight import InFlightFile
from memory.journal.journal import Journal
from spar.facts import CycleWritten, Fact
from spar.testing import check_process_death, check_retention
from spar.types import replace


@pytest.mark.process
@pytest.mark.parametrize("durability", ["power", "process"])
async def test_a_killed_process_leaves_whole_units_only(tmp_path: Path, durability: str) -> None:
    await check_process_death(partial(Memory, f"sqlite:///{tmp_path}/memory.db", durability=durability), kills=2)


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
