"""A conversation with a language model from outside, with all that happens in one: steering, questions, deaths."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.process.conftest import Service, Spar, until
from tests.process.conversation import (
    PATIENCE,
    Novelist,
    Story,
    Talk,
    asked_for,
    check_events,
    check_transcript,
    command,
    configured,
    followed,
    held,
    is_summing_up,
)
from tests.servers.llm import LlmServer, served
from tests.servers.llm_replies import Reply, ToolCall, pieces, says

pytestmark = pytest.mark.process
pytest.importorskip("pydantic_ai", reason="the library of models (spar-agent[llm]) is not installed")

STORY = "Once upon a time there was a host that was kept well, and it lived happily ever after."


def note(text: str, gate: str = "", **more: Any) -> ToolCall:
    return ToolCall("note", {"text": text, "gate": gate, **more})


# -- a conversation over two sessions


def errands(text: str) -> Reply:
    """Three lines, one after another; after the correction only what was asked for then."""
    if "[errands-correction]" in text and "noted four" in text:
        return says("one and four are noted")
    if "[errands-correction]" in text:
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
    return says("", ToolCall("measure", {"what": "bobs-garden", "gate": "never"}), note("bobs-secret", _after=["x"]))


@pytest.fixture
def story_gate() -> threading.Event:
    return threading.Event()


def test_two_sessions_talk_side_by_side(spar: Spar, start: Callable[..., Service], capsys: Any) -> None:
    gate = threading.Event()
    stories: dict[str, Story] = {
        "key": lambda text: says("The key is kept in mind."),
        "errands": errands,
        "errands-correction": errands,
        "temperature": temperature,
        "payment": payment,
        "told": told,
        "story": lambda text: held(says(pieces(STORY, 8)), 5, gate),
        "again": lambda text: says(pieces(STORY, 8)),
        "nothing": lambda text: says("NO_REPLY"),
        "slow": slow,
        "hello": lambda text: says("hello, bob"),
        "which": lambda text: says("the key is key_77/alpha"),
    }
    with served(Novelist(stories, lambda text: says("Alice named key_77/alpha and had errands done."))) as server:
        configured(spar, server.url, context_tokens=4_500)
        talk = Talk(spar, start().ready())
        _converse(talk, server, gate, capsys)
        assert talk.service.stop() == 0


def _converse(talk: Talk, server: LlmServer, gate: threading.Event, capsys: Any) -> None:
    spar = talk.spar
    alices, bobs = {}, {}

    # Bob wants something that takes long, in a session of his own, while all that follows happens.
    bobs["slow"] = talk.submit("bob", "[slow] what is the temperature of bobs-garden?")
    until(lambda: (spar.folder / "measured-bobs-garden").exists(), "bob's call", PATIENCE)

    long = "It is not to be told to anybody, and it must be changed in spring. " * 24
    alices["key"] = talk.submit("alice", f"[key] remember that the key is key_77/alpha. {long}")
    assert talk.ended(alices["key"])["status"] == "ok"

    # A correction in the middle of a batch: what has not begun is skipped and offered again.
    alices["errands"] = talk.submit("alice", "[errands] note one, two and three")
    until(lambda: talk.lines("book.txt") == ["one"], "the first line", PATIENCE)
    alices["correction"] = talk.submit("alice", "[errands-correction] no: one and four")
    talk.open("go-one")
    assert talk.ended(alices["errands"])["output"] == "one and four are noted"
    assert talk.ended(alices["correction"])["output"] == "one and four are noted"
    assert (talk.status(alices["errands"])["outcome"], talk.status(alices["correction"])["outcome"]) == (
        "started", "steered",
    )  # fmt: skip
    assert talk.lines("book.txt") == ["one", "four"]
    print("\n=====\n".join(asked_for(server, "errands")))

    # A call that fails is in the next request with its reason, and corrected there.
    assert talk.ask("alice", "[temperature] how warm is my room?") == "it has 293 kelvin"
    print("\n=====\n".join(asked_for(server, "temperature")))

    # What asks people waits for them.
    alices["payment"] = talk.submit("alice", "[payment] pay the baker 30")
    waiting = until(lambda: talk.service.api("/v1/approvals").json(), "the question", PATIENCE)
    assert not talk.lines("paid.txt")
    assert command(spar, "approvals", "approve", "--yes", waiting[0]["id"]) == 0
    assert talk.ended(alices["payment"])["output"] == "the baker is paid"
    assert talk.lines("paid.txt") == ["30 to baker"]
    print("\n=====\n".join(asked_for(server, "payment")))

    assert talk.ask("alice", "[told] tell me when you begin") == "it is done"
    print("\n=====\n".join(asked_for(server, "told")))

    # bob
    assert command(spar, "abort", bobs["slow"]) == 0
    print(talk.status(bobs["slow"]), talk.events(bobs["slow"]))
    assert talk.ask("bob", "[hello] are you there?") == "hello, bob"

    for number in range(4):
        talk.ask("alice", f"[again] tell the story again {number}" + long)
    print(talk.ask("alice", "[which] which key was it?"))
    #print(json.dumps(talk.transcript("alice"), indent=1))
    for each in server.requests:
        print(each.number, is_summing_up(each), len(each.raw), sum(len(str(m)) for m in each.messages))
