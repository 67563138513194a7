"""A whole conversation, lived through at a terminal: skills, steering, another model, an approval, a new beginning, and
two deaths of the service. Nothing is lost, nothing is told twice, and the bill is what was asked for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.process.chatting import PATIENCE, Chat
from tests.process.conftest import Service, Spar, until
from tests.process.conversation import (
    STORY,
    Novelist,
    Story,
    Talk,
    asked_for,
    check_events,
    check_transcript,
    configured,
    note,
    payment,
    story,
)
from tests.servers.llm import LlmServer, served
from tests.servers.llm_replies import Reply, ToolCall, says

pytestmark = pytest.mark.process
pytest.importorskip("pydantic_ai", reason="the library of models (spar-agent[llm]) is not installed")

SKILL = """---
name: weather
description: Tells the weather of a town.
---
Say that the sky of every town is green.
"""


def weather(text: str) -> Reply:
    if "sky of every town is green" in text:
        return says("the sky of Ulm is green")
    return says("", ToolCall("skill", {"name": "weather"}))


def errands(text: str) -> Reply:
    if "[correction]" in text:
        return says("two is left out")
    return says("", note("one", "go-one", _id="a"), note("two", _after=["a"]))


def remembered(text: str) -> Reply:
    return says("you never told me")


def test_a_conversation_is_lived_through(spar: Spar, start: Callable[..., Service]) -> None:
    gate = threading.Event()
    stories: dict[str, Story] = {
        "weather": weather, "errands": errands, "correction": errands, "pay": payment, "who": remembered,
        "secret": lambda text: says("it is kept"), "verse": lambda text: says("roses are red"),
        "story": lambda text: story(text, gate), "back": lambda text: says("I am back"),
    }  # fmt: skip
    with served(Novelist(stories)) as server:
        _configure(spar, server)
        talk = Talk(spar, start().ready())
        chat = Chat(spar, "alice", "--plain")
        try:
            _lives(talk, server, chat, gate, start)
        finally:
            chat.close()
        _nothing_is_lost(talk, server, chat)
        assert talk.service.stop() == 0


def _configure(spar: Spar, server: LlmServer) -> None:
    configured(spar, server.url)
    spar.edit("recall = 0", 'recall = 0\nskills = "skills/"\nallowed_models = ["scripted", "second"]')
    prices = "prices = { input = 1.0, output = 2.0 } }"
    spar.edit(f"{prices}]", f'{prices}, {{ name = "second", base_url = "{server.url}", {prices}]')
    spar.write(spar.config.read_text() + "\n[budgets.month]\nrequests = 1000\n")
    skill = spar.folder / "skills" / "weather"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text(SKILL)


def _lives(talk: Talk, server: LlmServer, chat: Chat, gate: threading.Event, start: Callable[..., Service]) -> None:
    chat.shows("/help says")
    # A skill is read when it is wanted, and used.
    chat.say("[weather] how is the sky of Ulm?")
    chat.shows("the sky of Ulm is green")
    assert len(asked_for(server, "weather")) == 2

    # Steered in the middle of its work.
    chat.say("[errands] note one and two")
    until(lambda: talk.lines("book.txt") == ["one"], "the first line", PATIENCE)
    chat.say("[correction] leave two out")
    until(lambda: talk.service.agent["open_runs"] == 2, "the correction", PATIENCE)
    talk.open("go-one")
    chat.shows("two is left out")

    # Another model for one message.
    chat.say("/model second")
    chat.shows("model: second")
    chat.say("[verse] in verse, please")
    chat.shows("roses are red")
    assert server.requests[-1].body["model"] == "second"
    chat.say("/model -")
    chat.shows("model: as configured")

    # The service dies in the middle of an answer, and is started again.
    chat.say("[story] tell me a story")
    chat.shows(STORY[:24])
    talk.service.kill()
    gate.set()
    talk.service = start()
    chat.shows(STORY)
    talk.service.ready()

    # An approval is given inline; the service dies while it waits.
    chat.say("[pay] pay the baker 30")
    chat.shows("run it? y, n")
    talk.service.kill()
    talk.service = start().ready()
    assert not talk.lines("paid.txt")
    chat.say("y")
    chat.shows("the baker is paid")
    assert talk.lines("paid.txt") == ["30 to baker"]

    # A new beginning: nothing of before is told to the model.
    chat.say("[secret] my number is 4711")
    chat.shows("it is kept")
    chat.say("/new")
    chat.shows("begins anew")
    chat.say("[who] what is my number?")
    chat.shows("you never told me")
    assert "4711" not in server.requests[-1].text
    assert "4711" in server.requests[-2].text
    chat.say("[back] are you there?")
    chat.shows("I am back")
    chat.say("/quit")
    assert chat.ended() == 0


def _nothing_is_lost(talk: Talk, server: LlmServer, chat: Chat) -> None:
    entries = talk.transcript("alice")
    check_transcript([each for each in entries if each["kind"] != "reset"])
    said = [each["body"]["text"].partition("]")[0][1:] for each in entries if each["kind"] == "user"]
    assert said == ["weather", "errands", "correction", "verse", "story", "pay", "secret", "who", "back"]
    assert [each["kind"] for each in entries].count("reset") == 1
    for answer in (
        "the sky of Ulm is green",
        "two is left out",
        "roses are red",
        STORY,
        "the baker is paid",
        "I am back",
    ):
        assert chat.text.count(answer) == 1, answer
    for run_id in {each["run_id"] for each in entries if each["kind"] == "end"}:
        check_events(talk.events(run_id))
    assert talk.lines("book.txt") == ["one"]

    # The bill is what was asked for: each request that the model saw is counted once, also those of the dead.
    used: dict[str, Any] = {each["budget"]: each["used"] for each in talk.service.agent["budgets"]}
    assert used["month.requests"] == len(server.requests)
