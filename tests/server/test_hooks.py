"""What is posted to hooks over real HTTP: answered when it is on disk, bounded, and nothing told to strangers."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from memory import Memory
from perception import Sense
from perception.sensors.webhook.proof import Signing
from perception.sensors.webhook.sensor import WebhookSensor
from spar import Agent, Perception
from spar.agent.submission import SOURCE_LIMIT
from spar.config.load import load
from spar.errors import ConfigError
from spar.protocols import SensorSpec
from spar.server.front import Front
from spar.server.routes import hooks
from spar.service.app import Service
from spar.service.metrics import Metrics
from tests.waiting import until

TOKEN = "0123456789abcdef0123456789abcdef"
BEARER = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}


class Door:
    """A running agent with two hooks, its HTTP port, and what its cycles saw."""

    def __init__(self, agent: Agent, front: Front, seen: list[str], sensors: dict[str, WebhookSensor]) -> None:
        self.agent, self.front, self.seen, self.sensors = agent, front, seen, sensors

    async def post(self, name: str = "alerts", body: Any = None, **given: Any) -> httpx.Response:
        headers = given.pop("headers", BEARER)
        content = given.pop("content", json.dumps({"n": 1} if body is None else body))
        url = f"http://127.0.0.1:{self.front.port}/hooks/{name}"
        async with httpx.AsyncClient(trust_env=False, verify=False, timeout=30) as client:
            return await client.post(url, content=content, headers=headers, **given)


@asynccontextmanager
async def open_door(folder: Path, host: str = "127.0.0.1", *, has_memory: bool = True,
                    **options: Any) -> AsyncIterator[Door]:  # fmt: skip
    seen: list[str] = []

    async def plan(perceptions: list[Perception]) -> None:
        seen.extend(perception.text for perception in perceptions)

    sensors = {
        "alerts": WebhookSensor(token=TOKEN, **options),
        "signed": WebhookSensor(secret=TOKEN, signing=Signing(timestamp_header="X-Time")),
        "open": WebhookSensor(unauthenticated=True),
    }
    sense = Sense([SensorSpec(name, sensor) for name, sensor in sensors.items()])
    memory = Memory.open(f"sqlite:///{folder}/m.db") if has_memory else None
    agent = Agent(sense=sense, plan=plan, loop_interval="off", memory=memory)
    front = Front(Service(load(None, environ={}), agent), folder, host, 0, with_probes=True)
    async with agent:
        front.open()
        try:
            yield Door(agent, front, seen, sensors)
        finally:
            await asyncio.to_thread(front.close)


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    async with open_door(tmp_path) as found:
        yield found


async def test_what_is_posted_is_perceived_once(door: Door) -> None:
    headers = {**BEARER, "idempotency-key": "one"}

    first = await door.post(body={"n": 1}, headers=headers)
    again = await door.post(body={"n": 1}, headers=headers)

    assert (first.status_code, first.json()) == (202, {"accepted": 1, "known": 0})
    assert (again.status_code, again.json()) == (200, {"accepted": 0, "known": 1})
    await until(lambda: door.seen)
    assert [json.loads(each) for each in door.seen] == [{"n": 1}]


@pytest.mark.parametrize("has_memory", [True, False])
async def test_a_signed_post_is_taken_once_whatever_its_other_headers_say(tmp_path: Path, has_memory: bool) -> None:
    body, at = b'{"n": 1}', str(int(time.time()))
    code = hmac.new(TOKEN.encode(), at.encode() + b"." + body, hashlib.sha256).hexdigest()
    headers = {"x-signature": f"sha256={code}", "x-time": at, "content-type": "application/json"}
    statuses = list[int]()
    for _ in range(2):  # the second time as another process
        async with open_door(tmp_path, has_memory=has_memory) as door:
            for key in ("one", "two", "three"):
                posted = await door.post("signed", content=body, headers={**headers, "idempotency-key": key})
                statuses.append(posted.status_code)

    assert statuses == [202, 200, 200, *([200] * 3 if has_memory else [202, 200, 200])]


async def test_refusals_tell_a_stranger_nothing(door: Door) -> None:
    cases = {
        "no token": (await door.post(headers={"content-type": "application/json"}), 401),
        "no such hook": (await door.post("nowhere"), 404),
        "too large": (await door.post(content=b"x" * 300_000), 413),
        "streamed too large": (await door.post(content=_pieces(40)), 413),
        "what is it": (await door.post(headers={**BEARER, "content-type": "image/png"}), 415),
        "packed": (await door.post(headers={**BEARER, "content-encoding": "gzip"}), 415),
        "broken": (await door.post(content=b"{"), 400),
        "deep": (await door.post(content=b"[" * 90_000), 400),
        "a web page": (await door.post("open", headers={**BEARER, "origin": "https://evil.example"}), 403),
        "another name": (await door.post("open", headers={**BEARER, "host": "evil.example"}), 403),
    }

    for what, (answer, status) in cases.items():
        assert answer.status_code == status, what
        assert answer.headers["content-type"] == "application/problem+json", what
        assert answer.json()["status"] == status, what
        for secret in (TOKEN, "Traceback", "perception", "spar.", str(door.front.port)):
            assert secret not in answer.text, what
    assert cases["no token"][0].headers["www-authenticate"] == "Bearer"
    counts = door.sensors["alerts"].requests
    assert {name: counts[name] for name in ("unauthorized", "too_large", "unsupported", "malformed")} == {
        "unauthorized": 1, "too_large": 2, "unsupported": 2, "malformed": 2,
    }  # fmt: skip
    text = Metrics(lambda: [door.agent], "0").render()[0].decode()
    assert 'spar_hook_requests_total{agent="main",hook="alerts",outcome="unauthorized"} 1.0' in text


async def _pieces(number: int) -> AsyncIterator[bytes]:
    for _ in range(number):
        yield b"x" * 10_000


async def test_without_a_token_only_this_machine_may_post(door: Door, tmp_path: Path) -> None:
    assert (await door.post("open", headers={"content-type": "text/plain"}, content=b"hello")).status_code == 202
    other = tmp_path / "other"
    other.mkdir()
    async with open_door(other, host="0.0.0.0") as wide:
        assert (await wide.post("open")).status_code == 403
        assert (await wide.post("alerts")).status_code == 202


def test_an_open_hook_on_an_open_port_is_refused_at_the_start(tmp_path: Path) -> None:
    from spar.parts.factory import Parts

    text = '[[sensors]]\nuse = "webhook"\noptions = { unauthenticated = true }\n[service]\nhost = "0.0.0.0"\n'
    (tmp_path / "config.toml").write_text(text)

    with pytest.raises(ConfigError, match=r"unauthenticated.*anybody could post to it: service.host = '0.0.0.0'"):
        Parts(load(tmp_path / "config.toml", environ={})).sensors()
    (tmp_path / "config.toml").write_text(text.replace("0.0.0.0", "::1"))
    assert len(Parts(load(tmp_path / "config.toml", environ={})).sensors()) == 1


async def test_a_flood_is_refused_and_touches_no_other_hook_and_no_message(door: Door) -> None:
    await door.agent.pause()
    sense: Any = door.agent.setup.modules["sense"].part
    hook = sense.webhook("alerts")
    for number in range(SOURCE_LIMIT):
        await hook.take([Perception(str(number), source="alerts")])

    refused = await door.post()

    assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")
    assert (await door.post("open", headers={"content-type": "text/plain"}, content=b"x")).status_code == 202
    receipt = await door.agent.submit("are you there?")
    assert receipt.run_id
    await door.agent.resume()
    await until(lambda: len(door.seen) > SOURCE_LIMIT)
    assert (await door.post()).status_code == 202  # there is room again


async def test_too_many_requests_at_once_are_told_to_come_again(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "MOST_AT_ONCE", 2)
    may_end, in_hand = asyncio.Event(), list[int]()
    sensor, take = door.sensors["alerts"], door.sensors["alerts"].take

    async def slow(perceptions: Any) -> Any:
        in_hand.append(1)
        await may_end.wait()
        return await take(perceptions)

    monkeypatch.setattr(sensor, "take", slow)
    first = [asyncio.create_task(door.post()) for _ in range(2)]
    await until(lambda: len(in_hand) == 2)
    third = await door.post()
    may_end.set()

    assert (third.status_code, third.headers["retry-after"]) == (429, "1")
    assert [(await each).status_code for each in first] == [202, 202]
    assert (await door.post()).status_code == 202


async def test_what_goes_wrong_inside_is_not_told(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(request: Any) -> Any:
        raise RuntimeError(f"the secret is {TOKEN}")

    monkeypatch.setattr(door.sensors["alerts"], "read", broken)

    answer = await door.post()

    assert (answer.status_code, answer.json()["detail"]) == (500, "this could not be taken")


async def test_while_the_agent_stops_a_sender_is_told_to_come_again(tmp_path: Path) -> None:
    async with open_door(tmp_path) as door:
        await door.agent.stop()

        answer = await door.post()

        assert (answer.status_code, answer.headers["retry-after"]) == (503, "10")
