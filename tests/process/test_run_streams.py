"""A run followed from outside: as server-sent events and on the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from spar.operations.runs import FOLLOWERS
from spar.service import exit_codes as exits
from tests.ports import SocketConnection
from tests.process.conftest import PATIENCE, Service, Spar, until

pytestmark = pytest.mark.process

#: A planner that looks, then writes an answer in pieces; before the last it waits for a file to be there.
PARTS = '''
import asyncio, pathlib
from spar import Action, Call, tool
from spar.events import AssistantDelta

@tool(effect="read")
async def look(at: str) -> str:
    """Look."""
    return at

class Teller:
    def attach(self, host):
        self.events = host.events

    async def plan(self, perceptions, context):
        run = context.run
        if run is None:
            return None
        if run.number == 1 and "look" in run.goal:
            return Action(calls=(Call("look", {"at": "here"}),))
        for piece in ("once", " upon"):
            self.events.publish(AssistantDelta(run_id=run.id, text=piece))
        while "wait" in run.goal and not pathlib.Path("go").exists():
            await asyncio.sleep(0.01)
        self.events.publish(AssistantDelta(run_id=run.id, text=" a time"))
        return Action(output="once upon a time")
'''
CONFIG = """
[agent]
loop_interval = 0.05

[[sensors]]
use = "messages"

[plan]
use = "mine:Teller"

[[tools]]
use = "mine:look"

[service]
port = 0
"""


@pytest.fixture(scope="module")
def telling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    spar = Spar(tmp_path_factory.mktemp("teller"))
    (spar.folder / "mine.py").write_text(PARTS)
    spar.write(CONFIG)
    service = Service(spar).ready()
    yield service
    service.kill()


@pytest.fixture
def teller(telling: Service) -> Iterator[Service]:
    """The service of all tests; what waits goes on behind each."""
    yield telling
    (go := telling.spar.folder / "go").touch()
    until(lambda: not telling.agent["open_runs"], "the end of what waited")
    go.unlink()


@pytest.fixture
def spar(teller: Service) -> Spar:
    return teller.spar


@contextmanager
def followed(state: Path, run_id: str, **headers: str) -> Iterator[Iterator[dict[str, Any]]]:
    """The events of a run as they come."""
    with SocketConnection(state / "control.sock", PATIENCE) as channel:
        channel.request("GET", f"/v1/runs/{run_id}/events", headers=headers)
        with channel.getresponse() as response:
            assert response.status == 200, response.read()
            assert response.headers["content-type"].startswith("text/event-stream")
            yield events_of(response)


def events_of(response: Any) -> Iterator[dict[str, Any]]:
    fields: dict[str, str] = {}
    for line in response:
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name:
            fields[name] = value
        elif "data" in fields:
            event = json.loads(fields["data"])
            assert (fields["id"], fields["event"]) == (str(event["seq"]), event.get("stream") or event["type"])
            yield event
            fields = {}


def submitted(service: Any, message: str) -> str:
    run_id: str = service.api("/v1/runs", "POST", json={"message": message}).json()["run_id"]
    return run_id


def written(events: list[dict[str, Any]]) -> str:
    return "".join(event["data"].get("text", "") for event in events)


def test_a_run_is_followed_while_it_goes_on_and_again_from_anywhere(teller: Any, spar: Any) -> None:
    run_id = submitted(teller, "look and wait")

    seen: list[dict[str, Any]] = []
    with followed(spar.state, run_id) as events:
        for event in events:
            seen.append(event)
            if written(seen) == "once upon":  # it came before the run was over
                break
        assert teller.api(f"/v1/runs/{run_id}").json()["status"] == "timeout"
        (spar.folder / "go").touch()
        seen += events

    with followed(spar.state, run_id) as events:
        again = list(events)
    with followed(spar.state, run_id, **{"Last-Event-ID": str(seen[3]["seq"])}) as events:
        rest = list(events)
    assert [event["data"]["phase"] for event in seen if event["stream"] == "tool"][-1] == "result"
    assert seen[-1]["data"]["phase"] == "end"
    assert seen[-1]["data"]["output"] == written(seen) == written(again) == "once upon a time"
    assert [event["seq"] for event in rest] == [each["seq"] for each in again if each["seq"] > seen[3]["seq"]]
    assert teller.api(f"/v1/runs/{run_id}").json()["status"] == "ok"


def test_no_more_may_follow_than_there_are_connections_for(teller: Any, spar: Any) -> None:
    run_id = submitted(teller, "wait")
    held = []
    for _ in range(FOLLOWERS):
        channel = SocketConnection(spar.state / "control.sock", PATIENCE)
        channel.request("GET", f"/v1/runs/{run_id}/events")
        held.append((channel, channel.getresponse()))

    refused = teller.api(f"/v1/runs/{run_id}/events")

    assert [response.status for _, response in held] == [200] * FOLLOWERS
    assert (refused.status_code, "clients follow runs already" in refused.json()["detail"]) == (503, True)
    assert teller.agent["state"] == "running", "everything else is still answered"
    for channel, response in held:
        response.close()
        channel.close()


def test_the_command_line_sends_follows_aborts_and_shows_the_transcript(teller: Any, spar: Any) -> None:
    told = spar("send", "--follow", "--session", "talk", "look and tell")
    assert (told.code, told.out) == (0, "once upon a time\n")
    assert told.err.splitlines() == ["look …", "look: ok"]

    run_id = spar("send", "--no-wait", "wait").out.strip()
    aborted = spar("runs", "abort", run_id)
    followed = spar("--json", "runs", "follow", run_id)
    assert (aborted.code, aborted.out) == (0, f"{run_id}: aborted\n")
    events = [json.loads(line) for line in followed.out.splitlines()]
    assert (followed.code, events[-1]["data"]["error"]) == (exits.FAILED, "aborted")
    rest = spar("--json", "runs", "follow", run_id, "--after", str(events[-2]["seq"])).out
    assert [json.loads(line) for line in rest.splitlines()] == events[-1:]
    assert "stopped\n" in spar("runs", "follow", run_id).err
    assert spar("runs", "follow", "nothing").code == exits.FAILED

    shown = spar("sessions", "transcript", "talk")
    assert shown.code == 0
    assert [line.split()[3] for line in shown.out.splitlines()[1:]] == ["user", "turn", "turn", "end"]
    assert "look: ok" in shown.out
    assert "talk" in spar("sessions", "transcripts").out
    assert spar("sessions", "transcript", "nowhere").code == exits.FAILED
