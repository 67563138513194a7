"""A channel of somebody else in a service that is killed at any moment: nothing is lost, nothing answered twice."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.process.conftest import Service, Spar, until

pytestmark = pytest.mark.process

CHANNEL = '''
import asyncio, json
from pathlib import Path
from spar.errors import PermanentError, TransientError
from spar.ports.channel import ChannelLimits, Incoming

class FolderChannel:
    """Reads messages from files of a folder, and deletes each that is accepted; writes what it sends into one file."""

    limits = ChannelLimits()

    def __init__(self, path: Path) -> None:
        self._path = path

    async def receive(self, context):
        context.ready()
        while True:
            for file in sorted(self._path.glob("*.in")):
                said = json.loads(file.read_text())
                accepted = await context.accept(Incoming(file.stem, said["from"], said["text"]))
                with (self._path / "acks").open("a") as acks:
                    acks.write(f"{file.stem} {accepted.status}\\n")
                file.unlink()
            await asyncio.sleep(0.02)

    async def send(self, message):
        if (self._path / "down").exists():
            raise TransientError("the line is down")
        if message.address == "nobody":
            raise PermanentError("no such person")
        with (self._path / "sent").open("a") as sent:
            sent.write(json.dumps({"id": message.id, "to": message.address, "text": message.text}) + "\\n")
        await asyncio.sleep(0.01)
        return ""

    async def edit(self, reference, message):
        raise NotImplementedError

    async def typing(self, address):
        raise NotImplementedError
'''

CONFIG = """
[agent]
loop_interval = "off"

[[channels]]
use = "mine:FolderChannel"
name = "folder"
options = { path = "line" }

[[senders.allow]]
senders = ["folder:alice", "folder:bob", "folder:nobody"]

[[rules]]
name = "echo"
when = { kind = "message" }
answer = "heard: {content:.200}"

[log]
format = "json"
"""


class Line:
    """The other side of the channel."""

    def __init__(self, spar: Spar) -> None:
        self.path = spar.folder / "line"
        self.path.mkdir()
        (spar.folder / "mine.py").write_text(CHANNEL)
        spar.write(CONFIG)

    def say(self, id: str, who: str, text: str) -> None:
        whole = self.path / f"{id}.new"
        whole.write_text(json.dumps({"from": who, "text": text}))
        whole.rename(self.path / f"{id}.in")

    def sent(self) -> list[dict[str, Any]]:
        path = self.path / "sent"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def waiting(self) -> list[Path]:
        return list(self.path.glob("*.in"))


def test_killed_while_it_answers_it_answers_each_message_once(spar: Spar, start: Callable[..., Service]) -> None:
    line, chance = Line(spar), random.Random(7)
    service = start().ready()
    for said in range(1, 37):
        line.say(f"{said:04}", chance.choice(["alice", "bob"]), f"message {said}")
    until(lambda: {"alice", "bob"} <= {each["to"] for each in line.sent()}, "an answer to each")
    time.sleep(chance.uniform(0.0, 0.3))
    service.kill()
    service = start().ready()

    def ids() -> dict[str, str]:
        return {each["id"]: each["text"] for each in line.sent()}

    until(lambda: len(ids()) >= said and not line.waiting(), f"{said} answers")
    time.sleep(1.0)  # what would come twice comes now
    assert sorted(ids().values()) == sorted(f"heard: message {number}" for number in range(1, said + 1))
    again = sum(Counter(each["id"] for each in line.sent()).values()) - said
    assert again <= 1, "at most the one that was being sent"
    transcripts: list[dict[str, Any]] = spar("--json", "sessions", "transcripts").json
    assert {each["session"] for each in transcripts} == {"folder:alice", "folder:bob"}
    assert service.stop() == 0
