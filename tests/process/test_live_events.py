"""The live events of a service as seen from outside: server-sent events over the control socket."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from spar.operations.agent import WATCHERS
from tests.process.conftest import _Socket, until
from tests.process.test_run_streams import events_of, teller

__all__ = ["teller"]
pytestmark = pytest.mark.process


@contextmanager
def watched(state: Path, query: str = "", **headers: str) -> Iterator[Iterator[dict[str, Any]]]:
    """The events as they come."""
    with _Socket(state / "control.sock") as channel:
        channel.request("GET", f"/v1/events{query}", headers=headers)
        with channel.getresponse() as response:
            assert response.status == 200, response.read()
            assert response.headers["content-type"].startswith("text/event-stream")
            yield events_of(response)


def submitted(service: Any, message: str, session: str = "main") -> str:
    body = {"message": message, "session": session}
    run_id: str = service.api("/v1/runs", "POST", json=body).json()["run_id"]
    return run_id


def test_a_run_is_seen_as_it_happens_and_a_broken_connection_goes_on(teller: Any, spar: Any) -> None:
    with watched(spar.state) as events:
        run_id = submitted(teller, "look and wait", "talk")
        seen = []
        for event in events:
            seen.append(event)
            if event["type"] == "AssistantDelta":
                break
    (spar.folder / "go").touch()
    until(lambda: teller.api(f"/v1/runs/{run_id}").json()["status"] == "ok", "the end of the run")
    with watched(spar.state, **{"Last-Event-ID": str(seen[-1]["seq"])}) as events:
        for event in events:
            seen.append(event)
            if event["type"] == "RunEnded":
                break

    numbers = [event["seq"] for event in seen]
    assert numbers == sorted(set(numbers))
    mine = [event for event in seen if event["session"] == "talk"]
    names = [event["type"] for event in mine]
    wanted = ["RunAccepted", "RunStarted", "CallStarted", "CallCompleted", "AssistantDelta", "RunEnded"]
    assert {"LoopStarted", "PhaseStarted", "PhaseCompleted", "LoopCompleted"} <= set(names)
    assert [names.index(name) for name in wanted] == sorted(names.index(name) for name in wanted)
    text = "".join(event["data"]["text"] for event in mine if event["type"] == "AssistantDelta")
    ended = next(event for event in mine if event["type"] == "RunEnded")
    assert text == ended["data"]["reply"] == "once upon a time"
    assert ended["run_id"] == run_id
    assert "Gap" not in names


def test_a_restart_is_told_as_a_gap(teller: Any, spar: Any, start: Callable[..., Any]) -> None:
    with watched(spar.state, "?type=LoopCompleted") as events:
        last = next(events)["seq"]
    teller.kill()
    start().ready()
    with watched(spar.state, "?type=LoopCompleted", **{"Last-Event-ID": str(last)}) as events:
        gap, after = next(events), next(events)
    assert (gap["type"], gap["data"], after["type"]) == ("Gap", {"missed": None}, "LoopCompleted")
    assert last < gap["seq"] < after["seq"]


def test_a_stop_is_seen_and_no_watcher_holds_it_up(teller: Any, spar: Any) -> None:
    with watched(spar.state, "?type=StateChanged") as events:
        assert teller.api("/v1/agent:stop", "POST").status_code == 200
        assert next(events)["data"]["new"] == "stopping"
        assert teller.wait() == 0


def test_no_more_may_watch_than_there_are_connections_for(teller: Any, spar: Any) -> None:
    held = []
    for _ in range(WATCHERS):
        channel = _Socket(spar.state / "control.sock")
        channel.request("GET", "/v1/events")
        held.append((channel, channel.getresponse()))
    refused = teller.api("/v1/events")
    assert (refused.status_code, "clients watch the events already" in refused.json()["detail"]) == (503, True)
    for channel, response in held:
        response.close()
        channel.close()
