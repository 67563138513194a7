"""Commands beside a service of another version: recorded answers of earlier builds, and what a later one may change."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

import pytest

from spar.cli.blocks import plain
from spar.cli.commands.status import read_status, status_blocks
from spar.client import AsyncClient
from spar.top.app import Top
from spar.top.facts import Picture
from spar.top.panels import health_of
from tests.process.conftest import Answer, Spar, in_one_process
from tests.servers.recorded import BUILDS, Recording, answering, recording

RUN_EVENTS = "GET /v1/runs/RUN/events"
STATUS = "GET /v1/status"


def later(build: Recording) -> Recording:
    """Return the answers of a service that has come on: fields, kinds of events and streams that nobody knows yet."""

    def grown(value: Any) -> Any:
        if isinstance(value, list):
            return [*map(grown, value)]
        if not isinstance(value, dict) or not value:
            return value
        known = {key: grown(inner) for key, inner in value.items()}
        return {**known, "later": next(iter(known.values()))}

    answers = copy.deepcopy(build)
    for answer in answers.values():
        answer["body"] = grown(answer["body"])
    status = answers[STATUS]["body"]
    status["version"] = "9.0"
    status["agent"] = status.pop("agents")[0]
    status["agent"]["modules"]["dream"] = {"use": "Dreams"}
    events = answers[RUN_EVENTS]["body"].split("\n\n")
    strange = {
        "run_id": "RUN",
        "seq": 4294967299,
        "stream": "dreams",
        "at": "2026-05-04T03:02:01Z",
        "data": {"phase": "deep"},
    }
    answers[RUN_EVENTS]["body"] = "\n\n".join([*events[:3], f"event: dreams\ndata: {json.dumps(strange)}", *events[3:]])
    return answers


VERSIONS = (*BUILDS, "later")


def of_version(name: str) -> Recording:
    return later(recording("second_build")) if name == "later" else recording(name)


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[Answer]]]:
    """What status, doctor and chat say beside each version."""
    commands = ((["status"], b""), (["doctor"], b""), (["chat"], b"note: again\n/status\n"))
    with ExitStack() as stack:
        spars = [Spar(tmp_path_factory.mktemp(name)) for name in VERSIONS]
        for name, spar in zip(VERSIONS, spars, strict=True):
            stack.enter_context(answering(spar.state, of_version(name)))
        said = in_one_process([(spar, *command) for spar in spars for command in commands])
        yield {name: said[3 * number : 3 * number + 3] for number, name in enumerate(VERSIONS)}


@pytest.mark.process
@pytest.mark.parametrize("name", VERSIONS)
def test_status_doctor_and_chat_work_beside_another_version(name: str, answers: dict[str, list[Answer]]) -> None:
    version = of_version(name)[STATUS]["body"]["version"]
    status, doctor, chat = answers[name]
    for answer in (status, doctor, chat):
        assert "Traceback" not in answer.out + answer.err, answer
    assert status.code == chat.code == 0, (status, chat)
    assert f"spar {version}, process" in status.out
    assert "session" in status.out
    assert "main: resting" in status.out
    assert "Noted: again" in chat.out
    assert "agent main: running" in chat.out
    assert "level 2 of 2" in doctor.out
    assert ("9.0" in doctor.out) == (version == "9.0")


@pytest.mark.process
@pytest.mark.parametrize("name", VERSIONS)
async def test_top_shows_another_version(spar: Spar, name: str) -> None:
    build = of_version(name)
    with answering(spar.state, build):
        app = Top(AsyncClient(spar.state))
        async with app.run_test(size=(140, 40)) as pilot:

            def screen() -> str:
                return "\n".join(strip.text for strip in app.screen._compositor.render_strips())

            await pilot.press("1")  # the lists, behind the loop
            for _ in range(1000):
                await pilot.pause(0.02)
                if "day.calls" in screen():
                    break
            assert "main running" in screen()
            assert "day.calls" in screen()
            assert ("does not say" in screen()) == (build["GET /v1/sessions"]["status"] == 404)


@pytest.mark.process
def test_a_command_says_that_the_service_has_no_such_route(spar: Spar) -> None:
    with answering(spar.state, recording("first_build")):
        answer = spar("sessions", "list")
    assert answer.code == 69
    assert "the service has no GET /v1/sessions: " in answer.err
    assert "0.1.0" in answer.err
    assert "restart the service" in answer.err


@pytest.mark.process
def test_a_command_names_a_field_that_an_answer_lacks(spar: Spar) -> None:
    answers = recording("second_build")
    del answers["POST /v1/runs"]["body"]["run_id"]
    answers[STATUS]["body"]["version"] = "9.0"
    with answering(spar.state, answers):
        answer = spar("send", "note: again")
    assert answer.code == 69
    assert "the service's answer has no 'run_id': it runs version 9.0, this command is of version 0.1.0" in answer.err


def fields(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each field of a JSON value."""
    if path:
        yield path
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from fields(inner, (*path, key))


def busy() -> dict[str, Any]:
    """Return a status in which each list has an entry."""
    status: dict[str, Any] = recording("second_build")[STATUS]["body"]
    status["agent"] = agent = status.pop("agents")[0]
    at = "2026-05-04T03:02:01Z"
    agent["lanes"].append(
        {**agent["lanes"][0], "session": "ada", "cycle": "18eae70d5ca4", "phase": "plan", "phase_seconds": 2.5}
    )
    agent["alerts"] = [{"kind": "slow", "severity": "critical", "message": "m", "since": at, "session": "ada"}]
    agent["models"] = [{"model": "openai:gpt-5", "state": "open", "reason": "r", "wait": 3.0}]
    agent["channels"] = {"mail": {"receiving": {"state": "down", "last_error": "e"}, "waiting": 1, "undelivered": 2,
                                  "sending": {"state": "ok", "last_error": None}}}  # fmt: skip
    agent["health"]["steps"] = [{"at": at, "step": "restart", "part": "plan", "reason": "r"}]
    agent["waiting_for_models"], agent["approvals"]["pending"], agent["recovery"]["in_doubt"] = 2, 1, 1
    return status


def shown(status: Any) -> str:
    """Return all that commands show of a status."""

    picture = Picture(lambda: 100.0, lambda: datetime.now(UTC))
    picture.take_whole(0.0, status)
    assert picture.service is not None
    health = [text for _, text, _ in health_of(picture.service.agent)]
    return "\n".join([*map(plain, status_blocks(status)), *health])


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def test_a_status_of_which_any_one_field_is_absent_is_shown() -> None:
    whole = busy()
    lines = len(shown(whole).splitlines())
    assert read_status(whole)[1] == []
    for path in [*fields(whole)]:
        if isinstance(path[-1], str):
            inner = at(whole, path[:-1])
            value = inner.pop(path[-1])
            # An absence is told or shows less.
            assert read_status(whole)[1] or len(shown(whole).splitlines()) >= lines - 3, path
            inner[path[-1]] = value


@pytest.mark.parametrize("other", [None, "x", 7, [], {}, ["x"], {"x": "x"}])
def test_a_status_of_which_any_one_field_has_another_type_is_shown(other: Any) -> None:
    whole = busy()
    shown(other)
    for path in [*fields(whole)]:
        if path[:2] != ("agent", "modules") or len(path) < 4:  # what a module says of itself is its own
            inner = at(whole, path[:-1])
            value, inner[path[-1]] = inner[path[-1]], other
            shown(whole)
            inner[path[-1]] = value
