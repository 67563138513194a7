"""The contract of a journal, as far as it is about open work: that of a file and that of a server.

`spar.testing.check_journal` checks accepted work, letters, doubts, rows, counts and budgets. An agent without a journal
has its open work in the states of its sessions alone.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from memory.postgres.store import PostgresMemory
from spar import facts
from spar.decisions.resume import completed
from spar.errors import NotReadyError
from spar.facts import Fact
from spar.journal.in_memory import JournalInMemory
from spar.ports.store import Journal
from spar.records.journal import Closing, Item, Unfinished
from spar.state.apply import SessionState, fold
from spar.types import Action, Call, CallResult, Perception, replace
from tests.decisions.history import START
from tests.decisions.journalled import AGENT, drawn

HISTORIES = 8
#: Facts that an earlier one may rule out.
COMMITTED = (facts.WorkAccepted, facts.LetterAnswered, facts.DoubtAnswered)


@pytest.fixture(params=["file", "server"])
async def journal(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Journal]:
    """A new journal of each kind."""
    in_file = request.param == "file"
    url = f"sqlite:///{tmp_path}/memory.db" if in_file else request.getfixturevalue("url")
    async with Memory.open(url, ballast=0) if in_file else PostgresMemory(url) as memory:
        yield memory.journal


def item(id: str, at: int = 0, **fields: Any) -> Item:
    return Item(id, Perception(id, id=f"p-{id}"), at=START + timedelta(seconds=at), **fields)


def tell(journal: Journal, kind: type[Fact], **fields: Any) -> None:
    journal.append(kind(session="main", **fields), AGENT)


async def test_a_cycle_that_is_put_off_or_begun_again_keeps_its_calls_and_counts_its_beginnings(
    journal: Journal,
) -> None:
    tell(journal, facts.CycleOpened, cycle="1", items=("done",))
    tell(journal, facts.Planned, cycle="1", action=Action((Call("look", id="ended"),)))
    tell(journal, facts.CallEnded, cycle="1", result=CallResult(Call("look", id="ended"), "ok"))
    again = Unfinished("1", "main", items=("done",), attempts=2)
    tell(journal, facts.CycleWritten, cycle="1", closing=Closing("interrupted", again=again))
    [put_off] = await journal.views.unfinished(AGENT)
    assert (put_off.attempts, len(put_off.known)) == (2, 1)
    tell(journal, facts.CycleReopened, cycle="1", items=("done",), attempts=3)
    [begun_again] = await journal.views.unfinished(AGENT)
    assert (begun_again.attempts, len(begun_again.known), journal.open_cycles) == (3, 1, 1)


async def test_a_reset_leaves_the_cycle_that_it_cuts_off_as_the_next_process_shall_see_it(journal: Journal) -> None:
    tell(journal, facts.CycleOpened, cycle="1", run="run", perceptions=(Perception("p"), Perception("q", id="q")))
    cut = Unfinished("1", "main", (Perception("q", id="q"),))
    reset = facts.Reset("reset", "main", 1, START)
    tell(journal, facts.ConversationReset, reset=reset, cut=cut)
    [left] = await journal.views.unfinished(AGENT)
    assert ([one.id for one in left.perceptions], left.run_id) == (["q"], None)


# -- drawn histories


@dataclass
class World:
    """States of the sessions of an agent, and the journal that is told their facts."""

    journal: Journal
    states: dict[str, SessionState] = field(default_factory=dict)

    async def tell(self, group: list[Fact]) -> None:
        """Tell facts together. What people decide of a letter is in the journal before its work is handed out."""
        for fact in sorted(group, key=lambda fact: not isinstance(fact, facts.LetterAnswered)):
            if isinstance(fact, COMMITTED):
                assert await self.journal.commit(fact, AGENT) is None
            else:
                self.journal.append(fact, AGENT)
        for fact in group:
            state = self.states.setdefault(fact.session, SessionState(fact.session))
            fold(fact.session, (fact,), state)

    @property
    def unfinished(self) -> Iterator[Unfinished]:
        for state in self.states.values():
            if (cycle := state.cycle) is not None and cycle.opened is not None:
                yield replace(completed(cycle.opened.unfinished, cycle), opened_at=START)

    async def check(self) -> None:
        """Compare what the journal says is open with the states."""
        views, states = self.journal.views, self.states.values()
        items = {one.id: one for one in await views.items(AGENT)}
        assert items == {id: one for state in states for id, one in state.items.items()}
        letters, doubts = await views.dead_letters(AGENT), await views.doubts(AGENT)
        assert {letter.id for letter in letters} == {id for state in states for id in state.put_aside}
        assert {doubt.id for doubt in doubts} == {id for state in states for id in state.doubts}
        unfinished = await views.unfinished(AGENT)
        detached = {one.cycle_id: one.effect for one in unfinished if one.effect}
        assert detached == {id: effect for state in states for id, effect in state.detached.items()}
        cycles = [replace(one, opened_at=START) for one in unfinished if not one.effect]
        assert cycles == sorted(self.unfinished, key=lambda cycle: cycle.cycle_id)
        assert {run for state in states for run in state.runs} <= items.keys()
        for id, one in items.items():
            if one.kind == "run":
                assert await views.run(AGENT, id) == (one, None)


@pytest.mark.parametrize("seed", range(HISTORIES))
async def test_what_a_journal_has_of_a_drawn_history_adds_up_to_the_states(journal: Journal, seed: int) -> None:
    world, draw = World(journal), random.Random(seed)
    groups = drawn(seed)
    for number, group in enumerate(groups, 1):
        await world.tell(group)
        if number == len(groups) or draw.random() < 0.1:
            await world.check()


async def test_the_journal_in_memory_recognizes_work_that_comes_again_by_its_id_and_key() -> None:
    journal = JournalInMemory()
    run, pushed = item("b", 1, key="k", kind="run"), item("a", 2)
    journal.append(facts.WorkChanged(session="main", item=pushed))
    given = (run, item("b"), item("x", key="k"), item("a"), item("y"))
    earlier = [await journal.commit(facts.WorkAccepted(session=one.session, item=one), AGENT) for one in given]
    assert [None if one is None else (one.id, one.kind, one.at) for one in earlier] == [
        None, ("b", "run", run.at), ("b", "run", run.at), ("a", "perception", pushed.at), None
    ]  # fmt: skip


async def test_the_journal_in_the_place_of_a_memory_that_is_not_open_promises_nothing() -> None:
    journal = JournalInMemory("the memory is not open")
    with pytest.raises(NotReadyError, match="not open"):
        await journal.safe()
    with pytest.raises(NotReadyError, match="not open"):
        await journal.commit(facts.WorkAccepted(session="s", item=Item("i", Perception("x"))), "main")
