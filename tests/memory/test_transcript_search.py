"""Transcripts are searched by all words, newest first, and never what a conversation was ended or forgotten with."""

from __future__ import annotations

import pytest

from memory import Memory, transcripts
from spar.records.transcript import Entry


async def said(memory: Memory, session: str, *texts: str) -> None:
    entries = [Entry("user", {"text": text}) for text in texts]
    await memory.transcripts.append("main", session, f"run-{session}", entries)


async def found(memory: Memory, text: str, **more: str) -> list[str]:
    return [each.entry.body["text"] for each in await memory.transcripts.search("main", text, **more)]


async def test_all_words_must_be_there_in_any_case_and_the_newest_comes_first(memory: Memory) -> None:
    await said(memory, "a", "the Cellar door is green", "the door is red", "the cellar DOOR is blue")
    await said(memory, "b", "cellar door, closed")

    assert await found(memory, "cellar door") == [
        "cellar door, closed", "the cellar DOOR is blue", "the Cellar door is green"
    ]  # fmt: skip
    assert await found(memory, "cellar door", session="b") == ["cellar door, closed"]
    assert await found(memory, "cellar window") == []
    assert await found(memory, "  ") == []
    assert [each.session for each in await memory.transcripts.search("other", "cellar")] == []


@pytest.mark.parametrize("text", ["100%", "a_b", 'say "hi"', "back\\slash", "Ключ", "ключ", "磁盘"])
async def test_any_text_is_found_as_it_stands(text: str, memory: Memory) -> None:
    await said(memory, "a", f"here is {text} now", "here is nothing")

    assert await found(memory, text) == [f"here is {text} now"]


async def test_what_is_old_is_found_however_much_others_said_since(
    monkeypatch: pytest.MonkeyPatch, memory: Memory
) -> None:
    monkeypatch.setattr(transcripts, "SEARCHED", 10)
    await said(memory, "a", "the cellar is dry", "the cellar is wet")
    await said(memory, "b", *(f"good morning {number}" for number in range(45)))
    await said(memory, "a", "the cellar is sold", *(f"and so on {number}" for number in range(30)))

    everything = ["the cellar is sold", "the cellar is wet", "the cellar is dry"]
    assert await found(memory, "cellar") == await found(memory, "cellar", session="a") == everything
    assert [each.entry.body["text"] for each in await memory.transcripts.search("main", "cellar", 2)] == everything[:2]
    assert await found(memory, "attic") == []


async def test_what_was_said_before_a_reset_or_was_forgotten_is_not_found(memory: Memory) -> None:
    await said(memory, "a", "the cellar key is under the stone")
    await said(memory, "b", "the cellar key is lost")
    reset = Entry("reset", {})
    await memory.transcripts.append("main", "a", "run-a", [reset])
    await said(memory, "a", "which cellar?")
    await memory.transcripts.forget("main", "b")

    assert await found(memory, "cellar") == ["which cellar?"]
