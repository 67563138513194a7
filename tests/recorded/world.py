"""A running service with at least one row of each kind, the same in each recording, and the commands beside it."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, chdir, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from memory import Memory
from spar import Call, Experience, Perception, facts
from spar.cli.main import main
from spar.records.journal import Doubt, Item
from tests.process.conftest import Service, Spar, until

#: No time that anything may take is so short that it ends on a busy machine.
CONFIG = """\
[agent]
loop_interval = "off"
min_interval = 0

[agent.phases]
act = { timeout = "off" }

[runs]
limit = 30
timeout = 0

[[sensors]]
use = "messages"

[[sensors]]
use = "tests.recorded.parts:Alerts"
name = "alerts"

[[channels]]
use = "tests.recorded.parts:FolderChannel"
name = "folder"
options = { path = "line" }

[[senders.allow]]
senders = ["folder:alice", "folder:nobody"]
person = "Alice"

[perception.intents.restart_service]
examples = ["restart {service}", "please restart {service} now", "bounce {service}", "start {service} again"]

[plan]
use = "tests.recorded.parts:Planner"

[[tools]]
use = "tests.recorded.parts:pay"

[[tools]]
use = "tests.recorded.parts:measure"

[[tools]]
use = "tests.recorded.parts:rest"

[[notifiers]]
use = "log"
name = "ops"

[approval]
hold = 86400
expires = 86400

[budgets]
hour = { calls = "off", effects = "off", requests = "off", tokens = "off", money = "off" }

[service]
port = 0

[health]
blocked_after = 86400
slow_after = 86400
stalled_after = 86400
approval_after = 86400

[log]
file = "spar.log"
"""
#: Variables of the environment in which commands are recorded.
ENVIRON = {"COLUMNS": "80", "LINES": "24", "NO_COLOR": "1", "TZ": "UTC", "SHELL": "/bin/bash", "TERM": "dumb"}
#: Files that commands are given.
FILES = {
    "lines.txt": "".join(f"2026-11-24 10:00:0{second} disk sda{second} is full\n" for second in range(5)),
    "more.jsonl": '{"situation": "the rain comes in", "id": "e9"}\n',
    "wrong.jsonl": "no JSON\n",
}
ROOT = Path(__file__).parents[2]


class Answer(NamedTuple):
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


class World:
    """A service in a folder of its own, and the rows that commands are given, by name.

    `ids` are the ids of rows: `{pay1}` in the words of a command stands for one.
    """

    def __init__(self, folder: Path) -> None:
        self.spar = Spar(folder)
        self.spar.write(CONFIG)
        self.spar.environ |= ENVIRON | {"PYTHONPATH": str(ROOT)}
        self.folder, self.ids = folder, dict[str, str]()
        (folder / "line").mkdir()
        self.service: Service | None = None
        self.run_ids: dict[str, str] = {}

    # -- its beginning and its end

    def begin(self) -> None:
        """Write the rows of a former life, start the service, and seed the rest."""
        self.spar.state.mkdir()
        asyncio.run(_former_life(f"sqlite:///{self.spar.state / 'memory.db'}"))
        self.service = Service(self.spar)
        self.service.ready()
        for name, text in FILES.items():
            (self.folder / name).write_text(text)

    def end(self) -> None:
        if self.service is not None:
            self.service.kill()

    # -- commands

    def run(self, *words: str, folder: Path | None = None, stdin: str = "") -> Answer:
        """Run a command in this process, in the folder of the service or in another one."""
        with _streams(stdin) as (out, err), chdir(folder or self.folder):
            try:
                main([word.format_map(self.ids) for word in words])
            except SystemExit as ended:
                code = ended.code if isinstance(ended.code, int) else 1
        return Answer(code, out.getvalue(), err.getvalue())

    # -- requests

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Return the answer of the control API."""
        given = {} if body is None else {"json": body}
        answer = self.service.api(path.format_map(self.ids), method, **given)
        assert answer.status_code < 300, (path, answer.text)
        return answer.json()

    def settle(self) -> None:
        """Wait until no session has anything to do, but those that wait for a person, and the one that rests."""

        def is_at_rest() -> bool:
            agent = self.ask("GET", "/v1/status")["agent"]
            left_alone = {"resting", *(row["session"] for row in self.ask("GET", "/v1/approvals"))}
            is_busy = any(
                (lane["cycle"] or lane["waiting"]) and lane["session"] not in left_alone for lane in agent["lanes"]
            )
            open_runs = self.ask("GET", "/v1/runs?open=true")
            is_done = not is_busy and all(run["session"] in left_alone for run in open_runs)
            return is_done or agent["state"] == "paused"

        until(lambda: is_at_rest() and is_at_rest(), "rest")

    def alone(self) -> Path:
        """Return a folder with the same configuration and a copy of the store, but without a service."""
        folder = self.folder / "alone"
        (folder / "state").mkdir(parents=True)
        (folder / "config.toml").write_text(self.spar.config.read_text())
        answer = self.run("memory", "backup", str(folder / "state" / "memory.db"))
        assert answer.code == 0, answer
        return folder

    def say(self, text: str, session: str = "main", *, waits: bool = True) -> str:
        """Send a message, wait for the end of its run, and return the id of the run."""
        run_id: str = self.ask("POST", "/v1/runs", {"message": text, "session": session})["run_id"]
        if waits:
            until(lambda: self.ask("GET", f"/v1/runs/{run_id}/wait?timeout=5")["status"] != "timeout", text)
            self.settle()
        return run_id

    # -- what the service keeps

    def seed(self) -> None:
        """Make at least one row of each kind, one after another, so that each recording has them in the same order."""
        ids = self.ids
        ids["said"] = self.say("hello")
        ids["measured"] = self.say("[measure] the hall", "hall")
        ids["missed"] = self.say("[miss] what is not there", "hall")
        ids["failed"] = self.say("[broken]", "broken")
        ids["resting"] = self.say("[rest]", "resting", waits=False)
        until(lambda: self._lane("resting")["phase"] == "act", "the call that rests")
        ids["resting2"] = self.say("wait behind it", "resting", waits=False)
        for number in range(1, 12):
            self.say(f"[pay] the baker, {number}", session := f"pay{number}", waits=False)
            ids[session] = until(lambda session=session: self._approval(session)["id"], "an approval")
            self.settle()
        self._decide("pay10", "deny", reason="not today")
        self._decide("pay11", "approve", grant_for=3600)
        self.settle()
        ids["grant"] = self.ask("GET", "/v1/grants")[0]["id"]
        ids["asked"] = next(row["run_id"] for row in self.ask("GET", "/v1/approvals?status=denied"))
        self.ask("PATCH", "/v1/sessions/hall", {"title": "The hall", "defaults": {"verbose": True}})
        self._hear("a", "alice", "hello there")
        self._hear("b", "nobody", "are you there?")
        until(lambda: [row["state"] for row in self._failed()] == ["failed"], "what was not delivered")
        self._hear("c", "nobody", "are you there now?")
        until(lambda: [row["state"] for row in self._failed()] == ["failed"] * 2, "what was not delivered")
        ids["undelivered2"], ids["undelivered"] = (
            row["id"] for row in sorted(self._failed(), key=lambda row: row["id"])
        )
        for name, sender in (("d", "mallory"), ("e", "trudy")):
            self._hear(name, sender, "let me in")
        ids["code1"], ids["code2"] = until(self._codes, "the codes of two who wait")
        self.ask("POST", "/v1/senders:deny", {"sender": "folder:eve"})
        (self.folder / "alerts.txt").write_text("Down firing shop\n")
        until(lambda: self.ask("GET", "/v1/incidents"), "an incident")
        self.settle()
        with (self.folder / "alerts.txt").open("a") as file:
            file.write("Full firing disk\n")
        until(lambda: len(self.ask("GET", "/v1/incidents")) == 2, "another incident")
        self.ask(
            "POST", "/v1/examples:teach", {"what": "intent", "text": "the shop is slow", "label": "restart_service"}
        )
        for name, scopes in (("dashboard", ["read"]), ("chat-bot", ["read", "operate"])):
            self.ask("POST", "/v1/tokens", {"name": name, "scopes": scopes})
        self.settle()
        ids["cycle"] = self.ask("GET", "/v1/cycles?session=hall")[0]["cycle_id"]
        ids["words"] = "the shop is slow today"
        ids["call"] = '{"_tool":"measure","what":"door"}'
        ids["params"] = '{"to":"baker","amount":4}'
        ids["example"] = self.ask("GET", "/v1/examples")["taught"][0]["id"]

    def _hear(self, name: str, sender: str, text: str) -> None:
        """Let a message arrive on the channel, and wait until it was answered."""
        whole = self.folder / "line" / f"{name}.new"
        whole.write_text(json.dumps({"from": sender, "text": text}))
        whole.rename(file := whole.with_suffix(".in"))
        until(lambda: not file.exists(), f"message {name} accepted")
        self.settle()

    def _codes(self) -> list[str]:
        """Return the codes that two unknown senders were given."""
        codes = re.findall(r"\b[A-Z0-9]{4}-[A-Z0-9]{4}\b", (self.folder / "line" / "sent").read_text())
        return codes if len(codes) == 2 else []

    def _failed(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.ask("GET", "/v1/deliveries")
        return rows

    def _approval(self, session: str) -> dict[str, Any]:
        (row,) = (row for row in self.ask("GET", "/v1/approvals") if row["session"] == session)
        return dict(row)

    def _lane(self, session: str) -> dict[str, Any]:
        lanes = self.ask("GET", "/v1/status")["agent"]["lanes"]
        (lane,) = (lane for lane in lanes if lane["session"] == session)
        return dict(lane)

    def _decide(self, name: str, decision: str, **more: Any) -> None:
        row = self.ask("GET", f"/v1/approvals/{self.ids[name]}")
        self.ask("POST", f"/v1/approvals/{row['id']}", {"digest": row["digest"], "decision": decision, **more})
        until(lambda: self.ask("GET", f"/v1/runs/{row['run_id']}/wait?timeout=5")["status"] != "timeout", name)


async def _former_life(url: str) -> None:
    """Write what a process that died has left: calls in doubt, dead letters, experiences."""
    async with Memory(url) as memory:
        for number in range(1, 5):
            call = Call("pay", {"to": "baker", "amount": number}, id=f"pay{number}")
            memory.journal.append(
                facts.CallDoubted(
                    session="main", doubt=Doubt(f"c{number}/pay", call, f"c{number}", why="the process died")
                ),
                "main",
            )
            memory.journal.append(
                facts.PutAside(
                    session="main",
                    item=Item(f"letter{number}", Perception("x", id=f"letter{number}")),
                    reason="it failed",
                ),
                "main",
            )
        await memory.journal.safe()
        for id, situation, success in (("e1", "the disk is full", True), ("e2", "the shop is slow", False),
                                       ("e3", "the door is open", None)):  # fmt: skip
            await memory.store(Experience(situation, "look", "seen", success, id=id, session="former", key=situation))


@contextmanager
def _streams(stdin: str) -> Iterator[tuple[io.TextIOWrapper, io.TextIOWrapper]]:
    """Put files in the place of the standard streams."""
    with ExitStack() as stack:
        given = stack.enter_context(tempfile.TemporaryFile("w+"))
        given.write(stdin)
        given.seek(0)
        kept = sys.stdin, sys.stdout, sys.stderr
        out, err = Stream(), Stream()
        sys.stdin, sys.stdout, sys.stderr = given, out, err
        try:
            yield out, err
        finally:
            sys.stdin, sys.stdout, sys.stderr = kept


class Stream(io.TextIOWrapper):
    """Text that was written to a standard stream."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8")

    def getvalue(self) -> str:
        self.flush()
        return self.buffer.getvalue().decode()  # type: ignore[attr-defined]


@contextmanager
def recorded_environ(home: Path) -> Iterator[None]:
    """Give the commands the same environment on each machine."""
    kept = dict(os.environ)
    for name in [name for name in os.environ if name.startswith(("SPAR_", "XDG_", "PYTHON")) or name == "CI"]:
        del os.environ[name]
    os.environ |= {**ENVIRON, "HOME": str(home), "PATH": str(home / "bin"), "USER": "root"}
    time.tzset()
    try:
        yield
    finally:
        os.environ.clear()
        os.environ |= kept
        time.tzset()


@contextmanager
def seeded() -> Iterator[World]:
    """A service with its rows, from its beginning to its end."""
    with tempfile.TemporaryDirectory(prefix="spar-recorded-") as name, recorded_environ(Path(name)):
        world = World(Path(name).resolve())
        try:
            world.begin()
            world.seed()
            yield world
        finally:
            world.end()
