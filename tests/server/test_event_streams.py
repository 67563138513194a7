"""Streams of many clients: each event is encoded once, and all together ask the agent at a bounded rate."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from spar import Agent
from spar.events import StateChanged
from spar.operations.operation import Stream
from spar.server import event_streams
from spar.service.feed import Feed


async def test_five_hundred_clients_encode_an_event_once_and_rest_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded, rests = list[Any](), list[float]()
    encode, sleep = event_streams.encode, asyncio.sleep
    monkeypatch.setattr(event_streams, "encode", lambda event: encoded.append(event) or encode(event))

    async def rest(seconds: float) -> None:
        rests.append(seconds)
        await sleep(0)

    monkeypatch.setattr(event_streams.asyncio, "sleep", rest)
    async with Agent(loop_interval="off") as agent:
        feed = Feed(agent.events, agent.core.clock, lambda: [], str)
        readers = [feed.read(None, frozenset({StateChanged}), None) for _ in range(500)]
        agent.events.publish(StateChanged(old="a", new="b"))

        async def first(reader: Any) -> bytes:
            stream = Stream(reader, lambda event: str(event.type))
            async with aclosing(event_streams.frames(agent, stream, lambda: True, lambda: 500)) as frames:
                assert b"retry" in await anext(frames)
                frame = await anext(frames)
                asyncio.get_running_loop().call_soon(reader.close)
                assert [rest async for rest in frames] == []
                return frame

        answers = await asyncio.gather(*map(first, readers))
    assert len(set(answers)) == 1
    assert b"event: StateChanged" in answers[0]
    assert len(encoded) == 1
    assert [seconds for seconds in rests if seconds] == [500 * event_streams.REST] * 500
