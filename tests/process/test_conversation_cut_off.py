"""Conversations that are cut off by the death of the service.

Where a model is away and a budget used up: tests/console/test_stories_office.py, tests/runs/test_restarts.py; that they
are only added to whatever happens: tests/planning/llm/test_added_to.py.
"""

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
    held,
    is_summing_up,
    note,
    payment,
    story,
    written,
)
from tests.servers.llm import LlmServer, served
from tests.servers.llm_replies import Reply, ToolCall, pieces, says

pytestmark = pytest.mark.process
pytest.importorskip("pydantic_ai", reason="the library of models (spar-agent[llm]) is not installed")


# -- killed in the middle


class Deaths:
    """Sessions that are each in the middle of something else when the process dies: of writing an answer, of a plan, of
    a call, of a question to people, of a correction, of a summary."""

    def __init__(self, spar: Spar, start: Callable[..., Service]) -> None:
        self.spar, self._start = spar, start
        self.gate = threading.Event()
        self.stories: dict[str, Story] = {
            "written": lambda text: held(says(pieces(STORY, 8)), 5, self.gate),
            "behind": lambda text: says("I have waited"),
            "planned": self._planned,
            "noted": lambda text: (
                says("somebody should look") if "may have had its effect" in text else says("", note("noted", "go"))
            ),
            "measured": lambda text: self._measured("measured", text),
            "instead": lambda text: self._measured("instead", text),
            "heard": lambda text: says("", ToolCall("measure", {"what": "heard", "gate": "go-heard"})),
            "louder": lambda text: held(says("I hear you"), 2, self.gate),
            "paid": payment,
            "long": story,
            "summed": lambda text: says("I know it all"),
        }
        self.runs: dict[str, str] = {}
        self.talk: Talk

    def summary(self, text: str) -> Reply:
        return held(says(f"Somebody named {KEY} again and again."), 3, self.gate)

    def _planned(self, text: str) -> Reply:
        if "noted second" in text:
            return says("both are noted")
        if "noted first" in text:
            return says("", note("second"))
        return held(says("", note("first"), note("second")), 11, self.gate)

    def _measured(self, what: str, text: str) -> Reply:
        if f"{what}: 293 kelvin" in text:
            return says(f"{what}: 293")
        return says("", ToolCall("measure", {"what": what, "gate": "go"}))

    def live(self) -> None:
        self.talk = Talk(self.spar, self._start().ready())

    def die(self) -> None:
        self.talk.service.kill()

    def say(self, session: str, name: str, text: str = "", **more: Any) -> None:
        self.runs[name] = self.talk.submit(session, f"[{name}] {text}", idempotency_key=f"key-{name}", **more)

    def begin(self, server: LlmServer) -> None:
        """Have all of them come to the middle."""
        for _ in range(4):
            assert self.talk.ask("sums", f"[long] {KEY} {LONG}") == STORY
        self.say("sums", "summed", LONG)
        for name in ("written", "planned", "noted", "measured", "heard", "paid"):
            self.say(name, name)
        self.say("written", "behind", mode="followup")
        found = self.spar.folder
        until(lambda: {"first", "noted"} <= set(self.talk.lines("book.txt")), "lines", PATIENCE)
        until(lambda: (found / "measured-measured").exists() and (found / "measured-heard").exists(), "calls", PATIENCE)
        self.say("measured", "instead")
        self.say("heard", "louder")
        self.talk.open("go-heard")
        until(lambda: asked_for(server, "louder"), "the correction heard", PATIENCE)
        until(lambda: any(map(is_summing_up, server.requests)), "a summary asked for", PATIENCE)
        until(lambda: asked_for(server, "written"), "an answer begun", PATIENCE)
        until(lambda: self.talk.service.api("/v1/approvals").json(), "a question", PATIENCE)


def test_killed_twice_in_the_middle_of_everything_it_loses_and_doubles_nothing(
    spar: Spar, start: Callable[..., Service]
) -> None:
    deaths = Deaths(spar, start)
    with served(Novelist(deaths.stories, deaths.summary)) as server:
        configured(spar, server.url, context_tokens=4_500)
        deaths.live()
        deaths.begin(server)
        talk, runs = deaths.talk, deaths.runs
        heard = _heard_of(talk, runs["written"])
        deaths.die()

        # It comes to the middle of what it did once more, and is killed there again.
        deaths.live()
        until(lambda: sum(map(is_summing_up, server.requests)) > 1, "the summary asked for again", PATIENCE)
        until(lambda: len(asked_for(server, "noted")) > 1, "a request with the call in doubt", PATIENCE)
        # Not between the second line of the plan and its record: it would be in doubt, and this model writes it again.
        until(lambda: any("noted second" in text for text in asked_for(server, "planned")), "the plan noted", PATIENCE)
        deaths.die()

        deaths.live()
        talk = deaths.talk
        deaths.gate.set()
        talk.open("go")
        [waiting] = until(lambda: talk.service.api("/v1/approvals").json(), "the question", PATIENCE)
        assert spar("approvals", "approve", "--yes", waiting["id"]).code == 0
        ends = {name: talk.ended(run_id) for name, run_id in runs.items()}

        assert {name: end["output"] for name, end in ends.items()} == {
            "written": STORY, "behind": "I have waited", "planned": "both are noted", "noted": "somebody should look",
            "measured": "measured: 293", "instead": "instead: 293", "heard": "I hear you", "louder": "I hear you",
            "paid": "the baker is paid", "summed": "I know it all",
        }  # fmt: skip
        assert ends["written"]["ended_at"] < ends["behind"]["started_at"], "who came first is served first"
        assert len(asked_for(server, "behind")) == 1
        assert (ends["louder"]["outcome"], ends["louder"]["started_at"]) == ("steered", ends["heard"]["started_at"])
        assert sorted(talk.lines("book.txt")) == ["first", "noted", "second"]
        assert talk.lines("paid.txt") == ["30 to baker"]
        doubts = spar("--json", "calls", "list").json
        assert [each["call"]["params"]["text"] for each in doubts] == ["noted"], (
            "it happened, but nobody has seen it end"
        )

        for session in ("written", "planned", "noted", "measured", "heard", "paid", "sums"):
            check_transcript(talk.transcript(session))
        for name, run_id in runs.items():
            check_events(talk.events(run_id))
            assert talk.submit("anybody", f"[{name}] once more", idempotency_key=f"key-{name}") == run_id
        heard += talk.events(runs["written"], heard[-1]["seq"])
        check_events(heard)
        assert written(heard) == STORY
        compactions = [entry for entry in talk.transcript("sums") if entry["kind"] == "compaction"]
        assert len(compactions) == 1, "the one that came to its end"
        assert talk.service.stop() == 0


def _heard_of(talk: Talk, run_id: str) -> list[dict[str, Any]]:
    """A run's events up to the first words of its answer."""
    heard: list[dict[str, Any]] = []
    with followed(talk.spar.state, run_id) as events:
        for event in events:
            heard.append(event)
            if written(heard):
                break
    return heard
