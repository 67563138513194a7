"""Conversations with a service whose model is on the other side of a socket: what both say, and what is seen of it.

A scripted model goes by what it reads, not by how often it was asked: whoever was killed asks again. Each question
holds the name of its story in square brackets, and a story makes the reply from what the request says so far.
"""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.ports import SocketConnection
from tests.process.conftest import PATIENCE, Service, Spar, until
from tests.servers.llm import LlmServer, served
from tests.servers.llm_replies import Reply, Step, ToolCall, pieces, says
from tests.servers.llm_requests import Asked, content_of

TOOLS = '''
import asyncio, pathlib
from spar import tool

@tool(effect="once", brings_untrusted=False)
async def note(text: str, gate: str = "") -> str:
    """Write a line into the book."""
    with pathlib.Path("book.txt").open("a") as file:
        file.write(text + "\\n")
    while gate and not pathlib.Path(gate).exists():
        await asyncio.sleep(0.01)
    return f"noted {text}"

@tool(effect="read", brings_untrusted=False)
async def measure(what: str, unit: str = "kelvin", gate: str = "") -> str:
    """Measure something."""
    pathlib.Path(f"measured-{what}").touch()
    while gate and not pathlib.Path(gate).exists():
        await asyncio.sleep(0.01)
    if unit != "kelvin":
        raise ValueError(f"unit is {unit!r}, expected 'kelvin'")
    return f"{what}: 293 kelvin"

@tool(effect="once", brings_untrusted=False)
async def pay(to: str, amount: int) -> str:
    """Pay somebody."""
    with pathlib.Path("paid.txt").open("a") as file:
        file.write(f"{amount} to {to}\\n")
    return "paid"
'''

CONFIG = """
[agent]
loop_interval = "adaptive"
min_interval = 0

[runs]
queue_mode = "steer"

[[sensors]]
use = "messages"

[plan]
use = "llm"

# What was experienced is the agent's own, and every session's; conversations are not.
[plan.options]
model = [{{ name = "{name}", base_url = "{url}", prices = {{ input = 1.0, output = 2.0 }} }}]
context_tokens = {context_tokens}
max_tokens = 500
recall = 0

[[approval.rules]]
tool = "pay"
decision = "ask"

[log]
format = "json"
"""


def configured(
    spar: Spar,
    url: str,
    *,
    name: str = "scripted",
    context_tokens: int = 20_000,
    tools: Sequence[str] = ("mine:note", "mine:measure", "mine:pay", "say"),
    more: str = "",
) -> None:
    """What these services are made of; `more` are further tables."""
    (spar.folder / "mine.py").write_text(TOOLS)
    own = "".join(f'\n[[tools]]\nuse = "{tool}"\n' for tool in tools)
    spar.write(CONFIG.format(url=url, name=name, context_tokens=context_tokens) + own + more)


# -- the model


Story = Callable[[str], Reply]


class Novelist:
    """A model with a story for each kind of question, and one for summaries. The last one named in a request counts."""

    def __init__(self, stories: Mapping[str, Story], summary: Story | None = None) -> None:
        self._stories, self._summary = stories, summary

    def __call__(self, asked: Asked) -> Reply:
        text = question_of(asked)
        if is_summing_up(asked):
            return (self._summary or _summed_up)(text)
        named = [name for name in self._stories if f"[{name}]" in text]
        return self._stories[max(named, key=lambda name: text.rindex(f"[{name}]"))](text)


def question_of(asked: Asked) -> str:
    """What is new in a request: all from the last words of a person on that name a story (`[weather]`)."""
    messages = asked.messages
    said = [number for number, message in enumerate(messages)
            if message["role"] == "user" and re.match(r"\[[a-z]+\]", content_of(message))]  # fmt: skip
    return "\n\n".join(map(content_of, messages[said[-1] if said else 0 :]))


def is_summing_up(asked: Asked) -> bool:
    return content_of(asked.messages[0]).startswith("You sum up")


def asked_for(server: LlmServer, name: str) -> list[str]:
    """The requests so far that know of a story, each from the words that named it first."""
    texts = ["\n\n".join(map(content_of, asked.messages)) for asked in list(server.requests)]
    return [text[text.index(f"[{name}]") :] for text in texts if f"[{name}]" in text]


def _summed_up(text: str) -> Reply:
    return says("Earlier matters were settled.")


def held(reply: Reply, after: int, gate: threading.Event) -> Reply:
    """The reply, which stops after so many of its steps until the gate is open."""

    def steps() -> Iterator[Step]:
        for number, step in enumerate(reply._steps):
            while number == after and not gate.is_set():
                yield 0.01
            yield step

    return replace(reply, steps=steps())


# -- stories that are told in more than one place

KEY = "key_77/alpha"
LONG = "It is not to be told to anybody, and it must be changed in spring. " * 24
STORY = "Once upon a time there was a host that was kept well, and it lived happily ever after."


def note(text: str, gate: str = "", **more: Any) -> ToolCall:
    return ToolCall("note", {"text": text, "gate": gate, **more})


def payment(text: str) -> Reply:
    return (
        says("the baker is paid")
        if re.search(r'(?m)(^|: )"?paid"?$', text)
        else says("", ToolCall("pay", {"to": "baker", "amount": 30}))
    )


def story(text: str, gate: threading.Event | None = None) -> Reply:
    told = says(pieces(STORY, 8))
    return told if gate is None else held(told, 5, gate)


# -- people


class Talk:
    """A service and those who talk with it."""

    def __init__(self, spar: Spar, service: Service) -> None:
        self.spar, self.service = spar, service

    def submit(self, session: str, text: str, **more: Any) -> str:
        body = {"message": text, "session": session, **more}
        answer = self.service.api("/v1/runs", "POST", json=body)
        assert answer.status_code == 202, answer.text
        run_id: str = answer.json()["run_id"]
        return run_id

    def status(self, run_id: str, timeout: float = 0.0) -> dict[str, Any]:
        found: dict[str, Any] = self.service.api(f"/v1/runs/{run_id}/wait?timeout={timeout:g}").json()
        return found

    def ended(self, run_id: str) -> dict[str, Any]:
        """How it ended, which it does."""
        found: dict[str, Any] = until(
            lambda: (status := self.status(run_id))["status"] != "timeout" and status, f"the end of {run_id}", PATIENCE
        )
        return found

    def ask(self, session: str, text: str) -> Any:
        """Say something, and the answer."""
        status = self.ended(self.submit(session, text))
        assert status["status"] == "ok", status
        return status["output"]

    def events(self, run_id: str, after: int = 0) -> list[dict[str, Any]]:
        """All that is kept of a run that has ended."""
        with followed(self.spar.state, run_id, **{"Last-Event-ID": str(after)}) as events:
            return list(events)

    def transcript(self, session: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.spar("--json", "sessions", "transcript", session, "--limit", "1000").json
        return found

    def lines(self, name: str) -> list[str]:
        """What tools have left in a file."""
        path = self.spar.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def open(self, gate: str) -> None:
        (self.spar.folder / gate).touch()


class House(Talk):
    """A service for all tests, each with stories, a session and files of its own."""

    def __init__(self, spar: Spar, server: Any, stories: dict[str, Story]) -> None:
        super().__init__(spar, Service(spar).ready())
        self.server, self.stories, self.session, self.number = server, stories, "", 0

    def live_again(self) -> None:
        self.service.kill()
        self.service = Service(self.spar).ready()

    def told(self, **stories: Story) -> None:
        """Begin a test in which the model tells these stories."""
        self.stories.clear()
        self.stories.update(stories)
        self.number += 1
        self.session = f"room{self.number}"
        for name in ("book.txt", "paid.txt", "go", "go-one"):
            (self.spar.folder / name).unlink(missing_ok=True)

    @property
    def said(self) -> list[str]:
        """What people said in the session, once it rests."""
        until(lambda: not self.service.agent["open_runs"], "the end of the run", PATIENCE)
        return [entry["body"]["text"] for entry in self.transcript(self.session) if entry["kind"] == "user"]


@pytest.fixture(scope="module")
def talk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    stories: dict[str, Story] = {}
    with served(Novelist(stories)) as server:
        spar = Spar(tmp_path_factory.mktemp("house"))
        configured(spar, server.url)
        spar.edit(
            "recall = 0", f'recall = 0\nallowed_models = ["scripted", {{ name = "second", base_url = "{server.url}" }}]'
        )
        house = House(spar, server, stories)
        yield house
        house.service.kill()


@contextmanager
def followed(state: Path, run_id: str, **headers: str) -> Iterator[Iterator[dict[str, Any]]]:
    """The events of a run as they come, over a connection that breaks off when this is left."""
    with SocketConnection(state / "control.sock", PATIENCE) as channel:
        channel.request("GET", f"/v1/runs/{run_id}/events", headers=headers)
        with channel.getresponse() as response:
            assert response.status == 200, response.read()
            yield (json.loads(line[6:]) for line in response if line.startswith(b"data: "))


# -- what must hold of any of it


def is_terminal(event: dict[str, Any]) -> bool:
    return event["stream"] == "lifecycle" and event["data"].get("phase") in ("end", "error")


def written(events: list[dict[str, Any]]) -> str:
    """The answer as it stands after these events."""
    text = ""
    for event in events:
        if event["stream"] == "assistant" and "reset" in event["data"]:
            text = ("" if event["data"]["reset"] else text) + event["data"]["text"]
    return text


def check_events(events: list[dict[str, Any]]) -> None:
    """Numbers grow strictly, and the one terminal event is the last."""
    numbers = [event["seq"] for event in events]
    assert numbers == sorted(set(numbers)), numbers
    assert [is_terminal(event) for event in events] == [False] * (len(events) - 1) + [True], events


def check_transcript(entries: list[dict[str, Any]]) -> None:
    """Nothing torn, doubled or out of order: a run's messages, then what was done, then its one end; no call without
    what came of it, none twice."""
    numbers = [entry["seq"] for entry in entries]
    assert numbers == sorted(set(numbers)), numbers
    spoken = Counter(entry["body"]["id"] for entry in entries if entry["kind"] == "user")
    assert set(spoken.values()) <= {1}, spoken
    calls = [each for entry in entries if entry["kind"] == "turn" for each in entry["body"]["calls"]]
    made = Counter((each["call"]["_id"]) for each in calls if each["status"] not in ("skipped", "parked"))
    assert set(made.values()) <= {1}, made
    assert all(each["status"] for each in calls)
    runs: dict[str, list[str]] = {}
    for entry in entries:
        if entry["kind"] != "compaction":
            runs.setdefault(entry["run_id"], []).append(entry["kind"])
    for run_id, kinds in runs.items():
        assert kinds[0] == "user", (run_id, kinds)
        assert [kind == "end" for kind in kinds] == [False] * (len(kinds) - 1) + [True], (run_id, kinds)
