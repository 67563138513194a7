"""Conversations with language models from outside, over two sessions and with all that happens in them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.process.conftest import Service, Spar, until
from tests.process.conversation import (
    KEY,
    LONG,
    PATIENCE,
    STORY,
    Novelist,
    Story,
    Talk,
    asked_for,
    check_events,
    check_transcript,
    configured,
    followed,
    is_summing_up,
    note,
    payment,
    story,
    written,
)
from tests.servers.llm import LlmServer, served
from tests.servers.llm_replies import Reply, ToolCall, says
from tests.servers.tiny_llm import tiny_llm

pytestmark = pytest.mark.process
pytest.importorskip("pydantic_ai", reason="the library of models (spar-agent[llm]) is not installed")


# -- a conversation over two sessions


def errands(text: str) -> Reply:
    """Three lines, one after another; after the correction only what was asked for then."""
    if "[correction]" in text and "noted four" in text:
        return says("one and four are noted")
    if "[correction]" in text:
        return says("", note("four"))
    return says("", note("one", "go-one", _id="a"), note("two", _after=["a"], _id="b"), note("three", _after=["b"]))


def temperature(text: str) -> Reply:
    if "293 kelvin" in text:
        return says("it has 293 kelvin")
    unit = "kelvin" if "expected 'kelvin'" in text else "celsius"
    return says("", ToolCall("measure", {"what": "alices-room", "unit": unit}))


def told(text: str) -> Reply:
    if '"delivered"' in text:
        return says("it is done")
    return says("", ToolCall("say", {"text": "I am on it"}))


def slow(text: str) -> Reply:
    garden = ToolCall("measure", {"what": "bobs-garden", "gate": "never", "_id": "x"})
    return says("", garden, note("bobs-secret", _after=["x"]))


def test_two_sessions_talk_side_by_side(spar: Spar, start: Callable[..., Service]) -> None:
    gate = threading.Event()
    stories: dict[str, Story] = {
        "key": lambda text: says("It is kept in mind."),
        "errands": errands,
        "correction": errands,
        "temperature": temperature,
        "payment": payment,
        "told": told,
        "story": lambda text: story(text, gate),
        "again": story,
        "nothing": lambda text: says("NO_REPLY"),
        "which": lambda text: says(f"it is {KEY}" if KEY in text else "I do not know"),
        "slow": slow,
        "hello": lambda text: says("hello, bob"),
    }
    model = Novelist(stories, lambda text: says(f"Alice named {KEY} and had errands done."))
    with served(model) as server:
        configured(spar, server.url, context_tokens=4_500)
        talk = Talk(spar, start().ready())

        # Bob wants something that takes long, in a session of his own, while all that follows happens.
        bobs = [talk.submit("bob", "[slow] what is the temperature of bobs-garden?")]
        until(lambda: (spar.folder / "measured-bobs-garden").exists(), "bob's call", PATIENCE)
        alices = [talk.submit("alice", f"[key] remember that it is {KEY}. {LONG}")]
        assert talk.ended(alices[0])["output"] == "It is kept in mind."
        alices += [*_corrects(talk, server), *_asks(talk)]
        alices += [*_listens(talk, gate), *_talks_for_long(talk, server)]

        # Bob has had enough, and is served again.
        assert spar("runs", "abort", bobs[0]).code == 0
        assert (status := talk.status(bobs[0]))["error"] == "aborted", status
        bobs.append(talk.submit("bob", "[hello] are you there?"))
        assert talk.ended(bobs[1])["output"] == "hello, bob"

        for run_id in (*alices, *bobs):
            check_events(talk.events(run_id))
        for session, runs in (("alice", alices), ("bob", bobs)):
            entries = talk.transcript(session)
            check_transcript(entries)
            assert {entry["run_id"] for entry in entries} == set(runs) - {alices[2]}, "each run, steered ones in theirs"
        for asked in server.requests:
            assert len({each for each in ("alice", "bob") if each in asked.text.lower()}) <= 1, asked.text
        assert "bobs-secret" not in talk.lines("book.txt")
        assert server.aborted == 0
        assert talk.service.stop() == 0


def _corrects(talk: Talk, server: LlmServer) -> list[str]:
    """A correction in the middle of a batch, then a failure that the model corrects by itself."""
    errand = talk.submit("alice", "[errands] note one, two and three")
    until(lambda: talk.lines("book.txt") == ["one"], "the first line", PATIENCE)
    correction = talk.submit("alice", "[correction] no: one and four")
    talk.open("go-one")
    for run_id, outcome in ((errand, "started"), (correction, "steered")):
        ended = talk.ended(run_id)
        assert (ended["output"], ended["outcome"], ended["errors"]) == ("one and four are noted", outcome, [])
    assert talk.lines("book.txt") == ["one", "four"]

    first, second, third = asked_for(server, "errands")
    assert "[correction]" not in first
    assert "[correction] no: one and four" in second
    assert "noted one" in second
    left_out = "not started because of a new message"
    assert second.count(left_out) == third.count(left_out) == 2, "that two calls were left out is told once"
    assert third.startswith(second), "a conversation is only added to"

    warm = talk.submit("alice", "[temperature] how warm is my room?")
    assert talk.ended(warm)["output"] == "it has 293 kelvin"
    _, corrected, _ = asked_for(server, "temperature")
    assert corrected.count("unit is 'celsius', expected 'kelvin'") == 1, "an error is told once"
    return [errand, correction, warm]


def _asks(talk: Talk) -> list[str]:
    """A call that people are asked about, and something that is said on the way."""
    paid = talk.submit("alice", "[payment] pay the baker 30")
    [waiting] = until(lambda: talk.service.api("/v1/approvals").json(), "the question", PATIENCE)
    assert not talk.lines("paid.txt")
    assert talk.spar("approvals", "approve", "--yes", waiting["id"]).code == 0
    assert talk.ended(paid)["output"] == "the baker is paid"
    assert talk.lines("paid.txt") == ["30 to baker"]

    told = talk.submit("alice", "[told] tell me when you begin")
    assert talk.ended(told)["output"] == "it is done"
    return [paid, told]


def _listens(talk: Talk, gate: threading.Event) -> list[str]:
    """An answer as it is written, over a connection that breaks off, and one that nobody is to hear."""
    run_id = talk.submit("alice", "[story] tell me a story")
    heard: list[dict[str, Any]] = []
    with followed(talk.spar.state, run_id) as events:
        for event in events:
            heard.append(event)
            if written(heard) == STORY[:32]:
                break
    gate.set()
    talk.ended(run_id)
    heard += talk.events(run_id, heard[-1]["seq"])
    check_events(heard)
    assert written(heard) == heard[-1]["data"]["output"] == STORY

    assert talk.spar("send", "--follow", "--session", "alice", "[again] tell it again").out == f"{STORY}\n"
    again = next(entry["run_id"] for entry in talk.transcript("alice") if "[again]" in entry["body"].get("text", ""))

    silent = talk.submit("alice", "[nothing] this is only to be known")
    status = talk.ended(silent)
    assert (status["status"], status["silent"], status["output"], status["reply"]) == ("ok", True, None, None)
    assert "NO_REPLY" not in written(talk.events(silent))
    return [run_id, again, silent]


def _talks_for_long(talk: Talk, server: LlmServer) -> list[str]:
    """Talk until what was said first is only known from a summary."""
    runs = []
    for _ in range(4):
        runs.append(talk.submit("alice", f"[again] tell the story again. {LONG}"))
        assert talk.ended(runs[-1])["output"] == STORY
    runs.append(talk.submit("alice", "[which] which one was it?"))
    talk.ended(runs[-1])

    compactions = [entry for entry in talk.transcript("alice") if entry["kind"] == "compaction"]
    assert all(KEY in each["body"]["summary"] for each in compactions)
    assert 1 <= len(compactions) == sum(map(is_summing_up, server.requests))
    last = next(asked for asked in reversed(server.requests) if "[which]" in asked.text)
    assert KEY in last.text
    assert "remember that it is" not in last.text, "it is known from the summary"
    told = [event for run_id in runs for event in talk.events(run_id) if event["stream"] == "compaction"]
    assert [event["data"]["phase"] for event in told] == ["start", "end"] * len(compactions), told
    return runs


# -- a real model


WORDS = {"type": "object", "properties": {"words": {"type": "string", "maxLength": 40}}, "required": ["words"]}
ROOM = "It is a good room with a door and a window and a bed. " * 16


def test_with_a_real_model_every_message_ends_whatever_it_says(spar: Spar, start: Callable[..., Service]) -> None:
    """What it says is its own affair: it is small, and mostly wrong."""
    with tiny_llm(longest=10) as url:  # each token takes long
        configured(spar, url, name="smollm2-135m", context_tokens=1_000, tools=["mine:measure"])
        spar.edit("recall = 0", "recall = 0\nreferences = false")
        spar.edit('queue_mode = "steer"', 'queue_mode = "steer"\nrequests = 2\ntimeout = 600')
        spar.edit('tool = "pay"', 'tool = "measure"')
        talk = Talk(spar, start().ready())

        bobs = [talk.submit("bob", "Write a very long note about the sea.")]
        alices = [talk.submit("alice", "What is the temperature of the room? Measure it.", output=WORDS)]
        until(lambda: talk.status(alices[0])["started_at"] and talk.status(bobs[0])["started_at"], "both runs")
        alices.append(talk.submit("alice", "No, measure the temperature of the garden."))
        assert spar("runs", "abort", bobs[0]).code == 0
        bobs.append(talk.submit("bob", "Say hello."))
        approved = _attended(talk, [*alices, *bobs])
        told: list[dict[str, Any]] = []
        for number in range(12):  # how many fill its context is its own affair too
            alices.append(talk.submit("alice", f"The number of the room is room_{number}. {'' if number else ROOM}"))
            approved += _attended(talk, alices)
            told = [event for run_id in alices for event in talk.events(run_id) if event["stream"] == "compaction"]
            if told and number:
                break

        assert talk.status(bobs[0])["error"] == "aborted"
        assert talk.status(alices[1])["outcome"] in ("steered", "started"), "heard in the run, or by itself after it"
        for run_id in (*alices, *bobs):
            status = talk.status(run_id)
            assert status["status"] == "ok" or status["error"], status
            check_events(talk.events(run_id))
        calls = []
        for session in ("alice", "bob"):
            entries = talk.transcript(session)
            check_transcript(entries)
            said = [entry["body"]["text"] for entry in entries if entry["kind"] == "user"]
            assert len(said) == len(set(said)) == len(alices if session == "alice" else bobs), "none lost, none doubled"
            calls += [each for entry in entries if entry["kind"] == "turn" for each in entry["body"]["calls"]]
        assert (
            sum(each["status"] in ("ok", "failed") and each["call"]["_tool"] == "measure" for each in calls) <= approved
        )
        summaries = [entry for entry in talk.transcript("alice") if entry["kind"] == "compaction"]
        assert told, "a summary was tried"
        assert [event["data"]["phase"] for event in told] == ["start", "end"] * (len(told) // 2)
        assert len(summaries) == sum(event["data"].get("completed") is True for event in told)
        assert talk.service.get("/readyz").status_code == 200
        assert talk.service.agent["open_runs"] == 0
        assert talk.service.stop() == 0


def _attended(talk: Talk, runs: list[str]) -> int:
    """See these runs to their ends, saying yes to whatever is asked; how often that was."""
    approved: set[str] = set()

    def all_ended() -> bool:
        for waiting in talk.service.api("/v1/approvals").json():
            if waiting["id"] not in approved:
                approved.add(waiting["id"])
                answer = {"digest": waiting["digest"], "decision": "approve"}
                assert talk.service.api(f"/v1/approvals/{waiting['id']}", "POST", json=answer).status_code == 200
        return all(talk.status(run_id, 0.5)["status"] != "timeout" for run_id in runs)  # the model needs the machine

    until(all_ended, "the end of all runs")
    return len(approved)
