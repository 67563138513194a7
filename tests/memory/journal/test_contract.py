"""The contract of a journal, as far as it is about open work: that of a file and that of a server.

`spar.testing.check_journal` checks rows, counts, budgets and answers. An agent without a journal has its open work in
the states of its sessions alone.
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
from spar.errors import ConflictError, NotReadyError
from spar.facts import Fact
from spar.journal.in_memory import JournalInMemory
from spar.ports.store import Journal
from spar.records.journal import Closing, Doubt, Item, Unfinished
from spar.state.apply import SessionState, fold
from spar.types import Action, Call, CallResult, CycleRecord, Perception, replace
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


async def accept(journal: Journal, *items: Item) -> list[Item | None]:
    return [await journal.commit(facts.WorkAccepted(session=one.session, item=one), AGENT) for one in items]


async def ids(journal: Journal) -> list[str]:
    return [one.id for one in await journal.views.items(AGENT)]


async def test_accepted_work_is_there_once_in_the_order_of_its_times(journal: Journal) -> None:
    first, second, ended = item("b", 1, key="k", kind="run"), item("a", 2), item("c", 3, key="l", kind="run")
    assert await accept(journal, first, second, ended) == [None] * 3
    tell(journal, facts.RunAnswered, run="c", answer={"run_id": "c", "status": "ok"})
    assert await journal.views.items(AGENT) == [first, second]
    earlier = await accept(journal, item("b"), item("x", key="k"), item("c"), item("y", key="l"))
    assert [None if one is None else (one.id, one.kind, one.at) for one in earlier] == [
        ("b", "run", first.at), ("b", "run", first.at), ("c", "run", ended.at), ("c", "run", ended.at)
    ]  # fmt: skip
    assert await journal.views.items(AGENT) == [first, second]


async def test_a_cycle_is_open_from_its_beginning_until_it_is_written(journal: Journal) -> None:
    calls = tuple(Call("look", id=id) for id in ("ended", "begun", "waits", "put off"))
    await accept(journal, item("done"), item("left", 1), item("run", 2, kind="run"))
    tell(
        journal, facts.CycleOpened, cycle="1", run="run", items=("done", "run"), perceptions=(Perception("p", id="p"),)
    )
    tell(journal, facts.Planned, cycle="1", action=Action(calls[:2], id="action"))
    tell(journal, facts.CallsPlanned, cycle="1", calls=calls[2:])
    for id in ("ended", "begun", "put off"):
        tell(journal, facts.AttemptStarted, cycle="1", call=id, attempt=1, effect="once")
    tell(journal, facts.CallEnded, cycle="1", result=CallResult(calls[0], "ok", output=2**53 + 1))
    tell(journal, facts.CallEnded, cycle="1", result=CallResult(calls[3], "cancelled"))
    await journal.safe()
    [cut] = await journal.views.unfinished(AGENT)
    assert (cut.cycle_id, cut.run_id, cut.items, cut.attempts) == ("1", "run", ("done", "run"), 1)
    assert cut.action is not None
    assert [call.id for call in cut.action.calls] == ["ended", "begun", "waits", "put off"]
    assert [(known.call.id, known.status) for known in cut.known] == [("ended", "ok"), ("begun", "in_doubt")]
    assert cut.known[0].output == 2**53 + 1
    assert journal.open_cycles == 1
    again = replace(cut, action=None, known=(), attempts=2)
    tell(journal, facts.CycleWritten, cycle="1", closing=Closing("interrupted", again=again))
    [put_off] = await journal.views.unfinished(AGENT)
    assert (put_off.attempts, len(put_off.known)) == (2, 2)
    tell(journal, facts.CycleReopened, cycle="1", run="run", items=("done",), attempts=3)
    assert [cycle.attempts for cycle in await journal.views.unfinished(AGENT)] == [3]
    tell(journal, facts.CycleWritten, cycle="1", closing=Closing("acted", run_id="run", done=("done",)))
    assert (await journal.views.unfinished(AGENT), await ids(journal)) == ([], ["left", "run"])
    assert journal.open_cycles == 0


async def test_a_reset_leaves_the_cycle_that_it_cuts_off_as_the_next_process_shall_see_it(journal: Journal) -> None:
    tell(journal, facts.CycleOpened, cycle="1", run="run", perceptions=(Perception("p"), Perception("q", id="q")))
    cut = Unfinished("1", "main", (Perception("q", id="q"),))
    reset = facts.Reset("reset", "main", 1, START)
    tell(journal, facts.ConversationReset, reset=reset, cut=cut)
    [left] = await journal.views.unfinished(AGENT)
    assert ([one.id for one in left.perceptions], left.run_id) == (["q"], None)


async def test_work_put_aside_waits_for_one_decision(journal: Journal) -> None:
    for number, id in enumerate(("tried", "dropped", "left")):
        tell(journal, facts.PutAside, item=item(id, number, attempts=3), reason=f"why {id}")
    letters = {letter.id: letter for letter in await journal.views.dead_letters(AGENT)}
    assert [(id, letter.reason) for id, letter in letters.items()] == [
        ("tried", "why tried"), ("dropped", "why dropped"), ("left", "why left")
    ]  # fmt: skip
    assert await ids(journal) == []
    for id, is_tried_again in (("tried", True), ("dropped", False)):
        answer = facts.LetterAnswered(session="main", letter=letters[id], is_tried_again=is_tried_again)
        assert await journal.commit(answer, AGENT) is None
        with pytest.raises(ConflictError):
            await journal.commit(answer, AGENT)
    assert [letter.id for letter in await journal.views.dead_letters(AGENT)] == ["left"]
    assert [(one.id, one.attempts) for one in await journal.views.items(AGENT)] == [("tried", 0)]


async def test_a_call_in_doubt_is_answered_once_and_a_refused_answer_leaves_nothing(journal: Journal) -> None:
    tell(journal, facts.CycleOpened, cycle="1")
    tell(journal, facts.CycleWritten, cycle="1", closing=Closing("acted", CycleRecord("1", AGENT, "main", START, 1.0,
                                                                                      "acted")))  # fmt: skip
    doubts = [Doubt(f"1/{id}", Call("pay", {"n": "†x"}, id=id), "1", at=START + timedelta(seconds=at), why="cut off")
              for at, id in enumerate("cd")]  # fmt: skip
    for doubt in doubts:
        tell(journal, facts.CallDoubted, doubt=doubt)
    assert await journal.views.doubts(AGENT) == doubts
    action = Action((Call("pay", {"n": 7}, id="c"),), id="a")
    again = facts.DoubtAnswered(session="main", doubt=replace(doubts[0], answer="again"),
                                again=Unfinished("2", "main", action=action))  # fmt: skip
    assert await journal.commit(again, AGENT) is None
    other = replace(again, doubt=replace(doubts[0], answer="done"), again=Unfinished("3", "main", action=action))
    with pytest.raises(ConflictError):
        await journal.commit(other, AGENT)
    assert await journal.views.doubts(AGENT) == doubts[1:]
    assert [one.answer for one in await journal.views.doubts(AGENT, is_open=False)] == ["again", None]
    [made_again] = await journal.views.unfinished(AGENT)
    assert (made_again.cycle_id, made_again.action) == ("2", replace(action, perceptions=()))


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
