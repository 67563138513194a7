"""Recall finds by words, by what stands beside a hit, by meaning; it says why, and its cost is bounded."""

from __future__ import annotations

import asyncio
import hashlib
import math
import operator
from array import array
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import apsw
import pytest

from memory import Memory
from memory.experiences import embedding, rows
from memory.experiences import search as search_module
from memory.experiences.rows import ExperienceFilter
from memory.experiences.search import search
from memory.sqlite import seals
from spar.errors import PermanentError
from spar.types import Credit, Experience, Fault
from tests.effort import Effort

NOW = datetime.now(UTC) - timedelta(days=1)


def said(text: str, number: int, **more: Any) -> Experience:
    return Experience(f"message: {text}", said=text, id=f"e{number}", at=NOW + timedelta(seconds=number), **more)


class Words:
    """An embedder to which texts are near that share a first letter of a word; counts what it is asked for."""

    dimension = 8

    def __init__(self, fingerprint: str = "letters:1") -> None:
        self.fingerprint, self.asked = fingerprint, list[str]()

    def embed(self, texts: Sequence[str], /) -> Sequence[array[float]]:
        self.asked += texts
        return [self._one(text) for text in texts]

    def _one(self, text: str) -> array[float]:
        found = [0.001] * self.dimension
        for word in text.split():
            found[hashlib.sha256(word[:1].encode()).digest()[0] % self.dimension] += 1.0
        length = sum(each * each for each in found) ** 0.5
        return array("f", [each / length for each in found])


async def embedded(memory: Memory) -> None:
    await memory.flush()
    assert memory.embedding is not None
    while await memory.embedding.step():
        pass
    await memory.flush()


async def test_the_answer_beside_the_question_comes_along_in_its_session_only(memory: Memory) -> None:
    for number, text in enumerate(["good morning", "where is the key to the cellar?", "under the red stone", "fine"]):
        await memory.store(said(text, number, session="house"))
        await memory.store(said(f"talk of other things {number}", 100 + number, session="office"))
    found = await memory.recall("key of the cellar", 3)

    assert [each.id for each in found][:2] == ["e1", "e2"]
    assert {each.session for each in found} == {"house"}


async def test_it_says_how_well_each_fits_and_why() -> None:
    async with Memory.open("sqlite://:memory:", embedder=Words()) as memory:
        for number, text in enumerate(["nginx is down", "what now?", "apples"]):
            await memory.store(said(text, number, key="message"))
        await memory.store(said("nginx is down", 9, key="message"))
        await memory.apply([Credit("e0", has_helped=False)] * 3)
        await embedded(memory)
        first, *rest = await memory.search("nginx down", 3)

    assert first.experience.id == "e0"
    assert all(first.score > each.score for each in rest)
    assert "its words fit: place 1 of 1" in first.reasons
    assert "words in common: nginx, down" in first.reasons
    assert "made 2 times" in first.reasons
    assert any(reason.startswith("its meaning is near: ") for reason in first.reasons)
    assert any("beside the hit at place 1" in reason for each in rest for reason in each.reasons)


async def test_a_lesson_that_only_harms_is_retired_and_stays_listed(memory: Memory) -> None:
    await memory.store(Experience("disk full", lesson="delete all", id="e"))
    await memory.apply([Credit("e", has_helped=False)] * 2)
    before = await memory.recall("disk")
    await memory.apply([Credit("e", has_helped=False)])
    [after] = await memory.search("disk")
    await memory.apply([Credit("e", has_helped=True)])
    again = await memory.recall("disk")

    assert (before[0].lesson, after.experience.lesson, again[0].lesson) == ("delete all", "", "delete all")
    assert any("its lesson is retired" in reason for reason in after.reasons)


async def test_filters_hold_exactly(memory: Memory) -> None:
    stored = [
        Experience("disk", id="a", at=NOW, key="alert", session="s1", task="t1"),
        Experience("disk", id="b", at=NOW + timedelta(seconds=1), trust="trusted", session="s2", task="t1"),
        Experience("disk", id="c", at=NOW + timedelta(seconds=2), success=False, lesson="look", session="s2"),
    ]
    chosen: list[tuple[dict[str, Any], set[str]]] = [
        ({"key": "alert"}, {"a"}),
        ({"trust": "trusted"}, {"b"}),
        ({"before": NOW + timedelta(seconds=1)}, {"a"}),
        ({"since": NOW + timedelta(seconds=1)}, {"b", "c"}),
        ({"as_of": NOW + timedelta(seconds=1)}, {"a", "b"}),
        ({"as_of": NOW - timedelta(seconds=1)}, set()),
        ({"success": False}, {"c"}),
        ({"lesson": True}, {"c"}),
        ({"lesson": False}, {"a", "b"}),
        ({"session": "s2"}, {"b", "c"}),
        ({"task": "t1"}, {"a", "b"}),
        ({"session": "s2", "task": "t1"}, {"b"}),
        ({"session": "' OR 1 --"}, set()),
    ]
    for experience in stored:
        await memory.store(experience)
    for filters, expected in chosen:
        for query in ("disk", ""):
            found = {each.experience.id for each in await memory.search(query, 9, **filters)}
            assert found == expected, (query, filters)


async def test_what_was_known_then_is_told_by_its_first_making(memory: Memory) -> None:
    for number in range(3):
        await memory.store(Experience("disk", id=f"e{number}", key="alert", at=NOW + timedelta(days=number)))
    assert len(await memory.search("disk", as_of=NOW + timedelta(hours=1))) == 1
    assert await memory.search("disk", as_of=NOW - timedelta(hours=1)) == []


# -- meaning


async def test_of_the_candidates_the_one_that_means_the_same_comes_first_and_one_without_a_vector_is_neutral() -> None:
    async with Memory.open("sqlite://:memory:", embedder=Words()) as memory:
        await memory.store(said("cellar zzz zz z", 0, session="a"))
        await memory.store(said("cellar kkk kk k", 1, session="b"))
        await embedded(memory)
        await memory.store(said("cellar qqq qq q", 2, session="c"))
        found = [each.id for each in await memory.recall("cellar kite king", 3)]

    assert found == ["e1", "e2", "e0"]


async def test_for_a_situation_what_was_meant_alike_there_comes_first_though_it_shares_no_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(search_module, "BY_MEANING", 3)
    async with Memory.open("sqlite://:memory:", embedder=Words()) as memory:
        for number, (text, key) in enumerate(
            [("kind kings", "old"), ("king kong", "order"), ("cellar door", "order"), ("kite", "other"),
             ("zebra", "order"), ("key kept", "order")]
        ):  # fmt: skip
            await memory.store(said(text, number, key=key, session=f"s{number}"))
        await embedded(memory)
        asked = "kettle cellar"
        anywhere = [each.experience.id for each in await memory.search(asked, 9)]
        found = await memory.search(asked, 9, situation="order")
        first = [each.experience.id for each in await memory.search("kettle koala", 1, situation="order")]
        filtered = [each.experience.id for each in await memory.search(asked, 9, situation="order", success=True)]

    assert anywhere == ["e2"]
    assert {each.experience.id for each in found} == {"e2", "e4", "e5"}, "of the newest three there, and by words"
    assert all(any("its meaning is near" in reason for reason in each.reasons) for each in found)
    assert first == ["e5"]
    assert filtered == []


async def test_for_a_decision_the_words_of_situations_count_and_not_what_was_done_or_said_beside_them(
    memory: Memory,
) -> None:
    await memory.store(said("open my account", 0, action="bank", outcome="bank failed", session="a"))
    await memory.store(said("the bank is closed", 1, session="a"))
    await memory.store(said("good morning", 2, session="a"))
    anywhere = {each.experience.id for each in await memory.search("which bank", 9)}
    decided = {each.experience.id for each in await memory.search("which bank", 9, situation="")}

    assert anywhere == {"e0", "e1", "e2"}
    assert decided == {"e1"}


async def test_what_is_stored_is_embedded_when_the_memory_is_idle() -> None:
    words = Words()
    async with Memory.open("sqlite://:memory:", embedder=words) as memory:
        await memory.store(said("cellar", 0))
        for _ in range(600):
            if "cellar" in words.asked:
                break
            await asyncio.sleep(0.01)
    assert words.asked.count("cellar") == 1


async def test_another_model_has_all_embedded_anew_and_meanwhile_words_count_alone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/memory.db"
    async with Memory.open(url, ballast=0, embedder=Words()) as memory:
        for number in range(70):
            await memory.store(said(f"cellar {number}", number))
        await embedded(memory)

    other = Words("letters:2")
    async with Memory.open(url, ballast=0, embedder=other) as memory:
        [first, *_] = await memory.search("cellar 5", 1)
        assert not any("meaning" in reason for reason in first.reasons)
        await embedded(memory)
        again, once = await memory.search("cellar 5", 1), len(other.asked)
        await embedded(memory)

    assert any("meaning" in reason for reason in again[0].reasons)
    assert (once, len(other.asked)) == (72, 72), "70 texts and two questions, and nothing twice"


async def test_a_row_whose_words_change_is_embedded_again() -> None:
    words = Words()
    async with Memory.open("sqlite://:memory:", embedder=words) as memory:
        await memory.store(Experience("disk", id="a", key="k", answer="first", at=NOW))
        await embedded(memory)
        await memory.store(Experience("disk", id="b", key="k", answer="second", at=NOW))
        await embedded(memory)

    assert words.asked == ["disk\nfirst", "disk\nsecond"]


@pytest.mark.parametrize("has_numpy", [True, False])
async def test_a_byte_for_a_number_keeps_how_near_texts_are(has_numpy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_numpy:
        monkeypatch.setattr(embedding, "find_spec", lambda name: None)
    words = Words()
    texts = ["key cellar cat cow", "zebra cellar", "kite", "key key cellar apple"]
    async with Memory.open("sqlite://:memory:", embedder=words) as memory:
        for number, text in enumerate(texts):
            await memory.store(said(text, number, key="order"))
        await embedded(memory)
        found = {
            each.experience.said: each.nearness for each in await memory.search("key cellar", 9, situation="order")
        }

    asked, *known = words.embed(["key cellar", *texts])
    for text, vector in zip(texts, known, strict=True):
        assert found[text] == pytest.approx(sum(map(operator.mul, asked, vector)), abs=0.01)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, PermanentError("the weights are gone")], ids=str)
async def test_an_embedder_that_gives_no_numbers_or_cannot_be_loaded_is_told_once_and_words_do(wrong: Any) -> None:
    class Wrong(Words):
        def embed(self, texts: Sequence[str], /) -> Sequence[array[float]]:
            if isinstance(wrong, Exception):
                raise wrong
            return [array("f", [wrong, 1.0]) for _ in texts]

    told: list[Fault | None] = []
    async with Memory.open("sqlite://:memory:", embedder=Wrong()) as memory:
        memory.on_fault = told.append
        await memory.store(said("cellar", 0))
        for _ in range(600):
            if told:
                break
            await asyncio.sleep(0.01)
        found = [await memory.search("cellar", 1) for _ in range(3)]

    assert [each.nearness for [each] in found] == [None] * 3
    [fault] = told
    assert fault is not None
    assert not isinstance(wrong, Exception) or fault.message == str(wrong)


# -- cost


def test_the_rows_that_are_ranked_do_not_grow_with_the_memory(
    connection: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_module, "BUDGET", 60)
    monkeypatch.setattr(search_module, "COUNTED", 100)
    ranked: list[str] = []
    efforts: list[float] = []
    for size in (600, 2_400):
        there = int(str(connection.execute("SELECT count(*) FROM experience").get))
        texts = [f"disk full on web{n % 20} number{n}" for n in range(there, size)]
        rows.insert(connection, [rows.row(said(text, there + n, session=f"s{n}")) for n, text in enumerate(texts)])
        seals.seal_all(connection)
        with Effort() as used:
            found, _ = search(connection, "is the disk full on web7 number507", 5, ExperienceFilter())
        ranked.append(found[0].experience.id)
        efforts.append(used.steps)
        assert search(connection, "disk", 5, ExperienceFilter())[0], "a word that is everywhere finds the newest"
        assert search(connection, "disk full", 5, ExperienceFilter(session="s7"))[0], "and those under a filter"

    assert ranked == ["e507", "e507"]
    assert efforts[1] <= 2 * efforts[0], "four times the rows"


def test_what_happened_in_one_situation_is_found_without_looking_through_all_others(
    connection: apsw.Connection,
) -> None:
    steps: list[int] = []
    for there, size in ((0, 300), (300, 1_200)):
        lived = [said(f"disk full {n}", n, key=f"alert[host{n}]" if n < 20 else "alert") for n in range(there, size)]
        rows.insert(connection, [rows.row(each) for each in lived])
        seals.seal_all(connection)
        for key in ("alert[host7]", "none"):
            ten = count()
            connection.set_progress_handler(lambda ten=ten: next(ten) < 0, 10)
            found, _ = search(connection, "", 20, ExperienceFilter(key=key))
            connection.set_progress_handler(None)
            steps.append(next(ten))
            assert [each.experience.id for each in found] == (["e7"] if key != "none" else [])

    assert max(steps) <= 100, "ten instructions of the database each"


async def test_an_experience_whose_counts_were_altered_on_disk_is_not_recalled_and_not_exported(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    async with Memory(f"sqlite:///{path}", ballast=0) as memory:
        await memory.store(said("the disk is full", 1))
        await memory.store(said("the disk is well", 2))
    changing = apsw.Connection(str(path))
    changing.execute("UPDATE experience SET helped = 1000 WHERE seq = 1")
    changing.close()

    async with Memory(f"sqlite:///{path}", ballast=0) as memory:
        [found] = await memory.recall("disk", 5)
        assert found.said == "the disk is well"
        assert memory.snapshot()["unreadable"] == 1
        with pytest.raises(PermanentError, match="it was altered"):
            await memory.export(tmp_path / "all.jsonl")
        with pytest.raises(PermanentError, match="it was altered"):
            await memory.detail("e1")
