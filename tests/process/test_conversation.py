"""A conversation with a language model from outside, with all that happens in one: steering, questions, deaths."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.process.conftest import Service, Spar, until
from tests.process.conversation import (
    PATIENCE,
    Novelist,
    Story,
    Talk,
    asked_for,
    block,
    check_events,
    check_transcript,
    command,
    configured,
    followed,
    held,
    is_summing_up,
    written,
)
from tests.servers.llm import LlmServer, served
from tests.servers.llm_replies import Reply, ToolCall, pieces, says

pytestmark = pytest.mark.process
pytest.importorskip("pydantic_ai", reason="the library of models (spar-agent[llm]) is not installed")

KEY = "key_77/alpha"
LONG = "It is not to be told to anybody, and it must be changed in spring. " * 24
STORY = "Once upon a time there was a host that was kept well, and it lived happily ever after."


def note(text: str, gate: str = "", **more: Any) -> ToolCall:
    return ToolCall("note", {"text": text, "gate": gate, **more})


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


def payment(text: str) -> Reply:
    return says("the baker is paid") if '"paid"' in text else says("", ToolCall("pay", {"to": "baker", "amount": 30}))


def told(text: str) -> Reply:
    if '"delivered"' in text:
        return says("it is done")
    return says("", ToolCall("say", {"text": "I am on it"}))


def slow(text: str) -> Reply:
    garden = ToolCall("measure", {"what": "bobs-garden", "gate": "never", "_id": "x"})
    return says("", garden, note("bobs-secret", _after=["x"]))


def story(text: str, gate: threading.Event | None = None) -> Reply:
    told = says(pieces(STORY, 8))
    return told if gate is None else held(told, 5, gate)


def test_two_sessions_talk_side_by_side(
    spar: Spar, start: Callable[..., Service], capsys: pytest.CaptureFixture[str]
) -> None:
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
        alices += [*_corrects(talk, server), *_asks(talk, server, capsys)]
        alices += [*_listens(talk, gate, capsys), *_talks_for_long(talk, server)]

        # Bob has had enough, and is served again.
        assert command(spar, "abort", bobs[0]) == 0
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
    assert "[correction] no: one and four" in second and "noted one" in second
    offered = block(second, "skipped")
    assert [(each["call"]["text"], each["reason"]) for each in offered] == [("two", "steered"), ("three", "steered")]
    assert "[correction] no: one and four" in third and block(third, "skipped") == []

    warm = talk.submit("alice", "[temperature] how warm is my room?")
    assert talk.ended(warm)["output"] == "it has 293 kelvin"
    _, corrected, _ = asked_for(server, "temperature")
    [failed] = block(corrected, "error")
    assert (failed["call"]["unit"], failed["error"]["message"]) == ("celsius", "unit is 'celsius', expected 'kelvin'")
    return [errand, correction, warm]


def _asks(talk: Talk, server: LlmServer, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """A call that people are asked about, and something that is said on the way."""
    paid = talk.submit("alice", "[payment] pay the baker 30")
    [waiting] = until(lambda: talk.service.api("/v1/approvals").json(), "the question", PATIENCE)
    assert not talk.lines("paid.txt")
    assert command(talk.spar, "approvals", "approve", "--yes", waiting["id"]) == 0
    assert talk.ended(paid)["output"] == "the baker is paid"
    assert talk.lines("paid.txt") == ["30 to baker"]

    told = talk.submit("alice", "[told] tell me when you begin")
    assert talk.ended(told)["output"] == "it is done"
    return [paid, told]


def _listens(talk: Talk, gate: threading.Event, capsys: pytest.CaptureFixture[str]) -> list[str]:
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

    capsys.readouterr()
    assert command(talk.spar, "send", "--follow", "--session", "alice", "[again] tell it again") == 0
    assert capsys.readouterr().out == f"{STORY}\n"
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

    print([(a.number, is_summing_up(a), len(a.raw)) for a in server.requests], [e for r in runs for e in talk.events(r) if e["stream"] == "compaction"])
    compactions = [entry for entry in talk.transcript("alice") if entry["kind"] == "compaction"]
    assert compactions and all(KEY in each["body"]["summary"] for each in compactions)
    assert len(compactions) == sum(map(is_summing_up, server.requests))
    last = next(asked for asked in reversed(server.requests) if "[which]" in asked.text)
    assert KEY in last.text and "remember that it is" not in last.text
    told = [event for run_id in runs for event in talk.events(run_id) if event["stream"] == "compaction"]
    assert [event["data"]["phase"] for event in told] == ["start", "end"] * len(compactions), told
    return runs
