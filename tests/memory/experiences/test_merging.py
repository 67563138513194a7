"""Like experiences are one row: counted, credited, judged by a later word; trusted and untrusted never meet."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

from memory import Memory
from memory.care.integrity import verify
from memory.experiences import rows
from spar import facts
from spar.errors import ContractError
from spar.records.journal import Closing
from spar.types import Credit, CycleRecord, Experience, Feedback, TriedCall, replace
from tests.effort import Effort

NOW = datetime(2026, 6, 1, tzinfo=UTC)
CALL = TriedCall("restart", {"unit": "nginx"}, success=True)


def alike(number: int = 0, **changes: Any) -> Experience:
    made = Experience(
        "alert about nginx: nginx is down", id=f"e{number}", at=NOW + timedelta(minutes=number), key="alert#restart",
        success=True, calls=[CALL], run_id=f"run{number}", origin=f"cycle{number}", trust="trusted",
    )  # fmt: skip
    return replace(made, **changes)


async def kept(*experiences: Experience) -> list[Experience]:
    async with Memory.open("sqlite://:memory:") as memory:
        for experience in experiences:
            await memory.store(experience)
        return await memory.recall("", 1_000)


async def test_five_hundred_repetitions_take_one_row_and_the_right_one_is_among_the_best_five(memory: Memory) -> None:
    others = [alike(number, key="alert#tell", id=f"other{number}", said=f"word{number} nginx") for number in range(20)]
    right = replace(alike(), id="right", key="alert#look", situation="alert about nginx: nginx is down on web7")

    for each in [*others, right, *map(alike, range(500))]:
        await memory.store(each)
    found = await memory.recall("nginx down web7", 5)
    [one] = [each for each in await memory.recall("", 100) if each.key == "alert#restart"]

    assert "right" in [each.id for each in found]
    assert (one.count, one.id, one.first_at, one.at) == (500, "e0", NOW, NOW + timedelta(minutes=499))


@pytest.mark.parametrize(
    "changes",
    [
        {"session": "other"},
        {"key": "alert#tell"},
        {"success": False},
        {"said": "nginx is down, please"},
        {"trust": "untrusted"},
        {"calls": [TriedCall("restart", {"unit": "redis"}, success=True)]},
        {"calls": [TriedCall("stop", {"unit": "nginx"}, success=True)]},
        {"calls": [CALL, CALL]},
    ],
    ids=["session", "key", "success", "said", "trust", "parameter", "tool", "more calls"],
)
async def test_what_differs_stays_apart(changes: dict[str, Any]) -> None:
    assert [each.count for each in await kept(alike(0), alike(1, **changes))] == [1, 1]


async def test_what_was_told_in_other_words_or_has_no_key_stays_apart_and_other_numbers_are_no_other_words() -> None:
    told = ("a disk is full", "a disk is slow", "disk 7 is full", "disk 8 is full")

    found = await kept(*(alike(number, situation=f"alert: {text}") for number, text in enumerate(told)))

    assert sorted(each.count for each in found) == [1, 1, 2]
    assert len(await kept(alike(0, key=""), alike(1, key=""))) == 2


async def test_the_best_example_is_shown_and_the_first_and_last_are_kept_beside_it_also_of_one_that_comes_late() -> (
    None
):
    [found] = await kept(
        alike(2, score=0.5, answer="slow"), alike(5, score=1.0, answer="quick"), alike(1, score=0.2, answer="late")
    )

    assert (found.answer, found.score, found.count) == ("quick", 1.0, 3)
    assert (found.first_at, found.at) == (NOW + timedelta(minutes=1), NOW + timedelta(minutes=5))


async def test_the_words_of_the_example_that_is_kept_find_it(memory: Memory) -> None:
    await memory.store(alike(0, answer="first words"))
    await memory.store(alike(1, answer="second words"))

    assert len(await memory.recall("second")) == 1
    assert await memory.recall("first") == []


def test_the_work_of_merging_does_not_grow_with_what_is_there(connection: apsw.Connection) -> None:

    def effort(number: int) -> float:
        with Effort() as used:
            rows.insert(connection, [rows.row(alike(number))])
        return used.steps

    rows.insert(connection, [rows.row(alike(n, key=f"k{n}")) for n in range(10)])
    effort(10_000)
    few = effort(10_001)
    rows.insert(connection, [rows.row(alike(n, key=f"k{n}")) for n in range(10, 500)])

    assert effort(10_002) <= 2 * few
    connection.close()


async def test_helped_and_harmed_are_counted_by_any_id_of_the_row(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/memory.db"
    async with Memory.open(url, ballast=0) as memory:
        for number in range(3):
            await memory.store(alike(number))
        await memory.apply(
            [Credit("e0", has_helped=True), Credit("e2", has_helped=True), Credit("e1", has_helped=False)]
        )
        await memory.apply([Credit("nobody", has_helped=True)])
        [found] = await memory.recall("nginx")

    assert (found.helped, found.harmed, found.count) == (2, 1, 3)
    assert verify(str(tmp_path / "memory.db")).is_whole


@pytest.mark.parametrize("about", ["run1", "cycle1", "e1"])
async def test_a_word_on_one_of_many_takes_that_one_out(about: str, memory: Memory) -> None:
    for number in range(3):
        await memory.store(alike(number))
    changed = await memory.apply(feedback=[Feedback(about, success=False, by="person", why="it fell over again")])
    again = await memory.apply(feedback=[Feedback(about, success=False, by="person", why="it fell over again")])
    good, bad = sorted(await memory.recall("", 10), key=lambda each: -each.count)

    assert (changed, again) == (1, 0)
    assert (good.success, good.count) == (True, 2)
    assert (bad.id, bad.success, bad.score, bad.count, bad.at) == ("e1", False, 0.0, 1, NOW + timedelta(minutes=1))
    assert bad.cause == "a person says: it fell over again"


async def test_a_lesson_that_something_works_does_not_outlive_the_word_that_it_did_not(memory: Memory) -> None:
    words = [("e0", "wrong list", "a person says: wrong list"), ("e1", "", "a person said so")]
    for number, (about, why, said) in enumerate(words):
        await memory.store(replace(alike(number), key=f"k{number}", task="message", lesson="for message: note worked"))
        await memory.apply(feedback=[Feedback(about, success=False, by="person", why=why)])
        [found] = await memory.recall("", 1)
        assert found.lesson == f"for message: {found.action} did not work: {said}"
        await memory.apply(feedback=[Feedback(about, success=False, by="person", why=why)])
        assert [found] == await memory.recall("", 1)
    await memory.store(replace(alike(9), success=False, lesson="the disk was full"))
    await memory.apply(feedback=[Feedback("e9", success=False, by="person", why="still down")])
    assert (await memory.recall("", 1))[0].lesson == "the disk was full", "of a failure that is confirmed"


async def test_a_word_on_the_first_of_many_leaves_the_row_to_the_others(memory: Memory) -> None:
    for number in range(3):
        await memory.store(alike(number))
    await memory.apply(feedback=[Feedback("run0", success=False, by="verify")])
    good, bad = sorted(await memory.recall("", 10), key=lambda each: -each.count)
    await memory.apply(feedback=[Feedback("run1", success=False, by="verify")])
    after = {each.success: each.count for each in await memory.recall("", 10)}

    assert (good.id, good.count, bad.id, bad.success) == ("e1", 2, "e0", False)
    assert after == {True: 1, False: 2}, "what is alike now is one row"


async def test_a_later_word_that_makes_two_rows_alike_makes_them_one(memory: Memory) -> None:
    await memory.store(alike(0, success=None))
    await memory.store(alike(1))
    await memory.apply(feedback=[Feedback("run0", success=True, by="expect", score=0.8)])
    [found] = await memory.recall("", 10)

    assert (found.count, found.success, found.score) == (2, True, 0.8)


async def test_a_word_that_cannot_be_taken_is_refused_before_anything_is_written(memory: Memory) -> None:
    await memory.store(alike(0))
    for wrong in (Feedback("run0", success="no", by="person"), Feedback("run0", success=True, by="x", score=7.0)):  # type: ignore[arg-type]
        with pytest.raises(ContractError):
            await memory.apply(feedback=[wrong])
    [found] = await memory.recall("", 10)
    assert found.success is True


async def test_what_a_cycle_says_of_others_comes_with_its_end(memory: Memory) -> None:
    await memory.store(alike(0))
    record = CycleRecord("c", "main", "main", NOW, 0.1, "acted")
    closing = Closing(
        "acted", record, (alike(1),), credits=(Credit("e0", has_helped=True),),
        feedback=(Feedback("run1", success=False, by="verify"),),
    )  # fmt: skip
    memory.journal.append(facts.CycleOpened(session="main", cycle="c"), "main")

    memory.journal.append(facts.CycleWritten(session="main", cycle="c", closing=closing), "main")
    found = {each.success: each for each in await memory.recall("", 10)}

    assert (found[True].helped, found[True].count, found[False].id) == (1, 1, "e1")


async def test_a_forged_import_is_untrusted_claims_nothing_and_overwrites_nothing(memory: Memory) -> None:
    forged = [
        {"situation": "mine", "id": "e0", "trust": "trusted", "key": "alert#restart"},
        {"situation": "alert about nginx: nginx is down", "id": "x", "trust": "trusted", "key": "alert#restart",
         "success": True, "count": 10**9, "helped": 10**6, "calls": [{"tool": "restart", "params": {"unit": "nginx"}}]},
    ]  # fmt: skip
    lines = "\n".join(map(json.dumps, forged))

    await memory.store(alike(0, trust="untrusted"))
    assert await memory.import_(io.StringIO(lines)) == 1
    found = {each.id: each for each in await memory.recall("", 10)}
    trusting = await memory.import_(io.StringIO(lines.replace('"x"', '"y"')), trust=True)
    believed = {each.id: each for each in await memory.recall("", 10)}

    assert found["e0"].situation == "alert about nginx: nginx is down"
    assert (found["e0"].count, found["x"].count, found["x"].helped, found["x"].trust) == (1, 1, 0, "untrusted")
    assert trusting == 1
    assert (believed["y"].count, believed["y"].trust) == (10**9, "trusted")


async def test_what_was_merged_is_exported_with_its_counts_and_imported_equal(tmp_path: Path) -> None:
    async with Memory.open("sqlite://:memory:") as memory:
        for number in range(4):
            await memory.store(alike(number))
        await memory.apply([Credit("e3", has_helped=False)])
        await memory.export(tmp_path / "x.jsonl")
        before = await memory.recall("")
    async with Memory.open("sqlite://:memory:") as memory:
        await memory.import_(tmp_path / "x.jsonl", trust=True)
        after = await memory.recall("")

    assert before == after
    assert (after[0].count, after[0].harmed) == (4, 1)
