"""One reply on its way to the client: OpenAI's chat completions over HTTP/1.1, streamed as server-sent events or whole.

Every step is a chunk of its own, so what is cut is cut exactly there. A client that does not stream gets the same
steps put together, at the end.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import time
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from http.client import responses
from typing import Any

from tests.servers.llm_replies import Cut, Reply, Step
from tests.servers.llm_requests import KEPT, Asked

LONGEST = 600.0  # seconds of silence, or of an answer that has no end, should nobody hang up
CREATED = 1_700_000_000


class Answer:
    """One reply on its way: the head when it is due, then each step in a chunk of its own."""

    def __init__(self, reply: Reply, asked: Asked, writer: asyncio.StreamWriter) -> None:
        self._reply, self._asked, self._writer = reply, asked, writer
        self._identity = f"chatcmpl-{asked.number}"
        self._merged: dict[str, Any] = {"message": {"role": "assistant", "content": None}, "finish_reason": None}
        self._usage: Any = None

    async def give(self) -> Cut:
        for step in self._reply.before:
            if isinstance(step, Cut):
                return await self._cut(step)
            await self._carry_out(step)
        self._asked.status = self._reply.status
        if (body := self._reply.body) is not None:
            await self._whole(body)
            return Cut.END
        if self._asked.is_streamed:
            await self._write(self._head("text/event-stream", "transfer-encoding: chunked"))
        async for step in self._paced():
            if isinstance(step, Cut):
                return await self._cut(step)
            await self._carry_out(step)
            if len(self._asked.times) < KEPT:
                self._asked.times.append(time.perf_counter())
        return await self._cut(Cut.CLOSE)  # a script that does not say how it ends

    async def _paced(self) -> AsyncIterator[Step]:
        """The steps at the reply's rate: each event is due at its own time, so lateness does not add up."""
        loop, sent = asyncio.get_running_loop(), 0
        began = loop.time()
        async for step in _each(self._reply.steps):
            if loop.time() > began + LONGEST:
                return
            if self._reply.rate is not None and isinstance(step, Mapping):
                sent += 1
                await asyncio.sleep(began + sent / self._reply.rate - loop.time())
            yield step

    async def _carry_out(self, step: Step) -> None:
        if isinstance(step, Mapping):
            await self._event(step)
        elif isinstance(step, bytes):
            await self._chunk(step)
        elif isinstance(step, float | int):
            await asyncio.sleep(step)

    async def _event(self, step: Mapping[str, Any]) -> None:
        if not self._asked.is_streamed:
            self._merge(step)
            return
        event: dict[str, Any] = {
            "id": self._identity,
            "object": "chat.completion.chunk",
            "created": CREATED,
            "model": self._asked.body.get("model"),
            "choices": [],
        }
        if "usage" in step:
            if not self._asked.wants_usage:
                return
            event["usage"] = step["usage"]
        else:
            event["choices"] = [{"index": 0, "finish_reason": None, **step}]
        await self._chunk(f"data: {json.dumps(event)}\n\n".encode())

    def _merge(self, step: Mapping[str, Any]) -> None:
        """What a client that does not stream gets at the end."""
        self._usage = step.get("usage", self._usage)
        self._merged["finish_reason"] = step.get("finish_reason") or self._merged["finish_reason"]
        message, delta = self._merged["message"], step.get("delta", {})
        if delta.get("content"):
            message["content"] = (message["content"] or "") + delta["content"]
        for part in delta.get("tool_calls", ()):
            calls = message.setdefault("tool_calls", [])
            if part["index"] == len(calls):
                calls.append({"id": part["id"], "type": "function", "function": {"name": "", "arguments": ""}})
            for key, piece in part["function"].items():
                calls[part["index"]]["function"][key] += piece

    async def _chunk(self, payload: bytes) -> None:
        if self._asked.is_streamed:
            await self._write(b"%x\r\n%s\r\n" % (len(payload), payload))

    async def _whole(self, body: bytes) -> None:
        await self._write(self._head("application/json", f"content-length: {len(body)}") + body)

    async def _cut(self, how: Cut) -> Cut:
        if how is Cut.END and self._asked.is_streamed:
            await self._write(b"0\r\n\r\n")
        elif how is Cut.END:
            completion = {"id": self._identity, "object": "chat.completion", "created": CREATED}
            choice = {"index": 0, **self._merged}
            said = {**completion, "model": self._asked.body.get("model"), "choices": [choice], "usage": self._usage}
            await self._whole(json.dumps(said).encode())
        elif how is Cut.RESET:
            linger = struct.pack("ii", 1, 0)  # closed with unsent data dropped, and told so by RST
            self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self._writer.transport.abort()
        elif how is Cut.HANG:
            await asyncio.sleep(LONGEST)
        return how

    def _head(self, kind: str, framing: str) -> bytes:
        status = self._reply.status
        phrase = responses.get(status, "Overloaded")
        headers = {"content-type": kind, "x-request-id": f"req_{self._asked.number}", **self._reply.headers}
        lines = [f"HTTP/1.1 {status} {phrase}", *(f"{name}: {value}" for name, value in headers.items()), framing]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")

    async def _write(self, payload: bytes) -> None:
        """With no more in the buffer than the transport allows: an endless answer waits for its reader."""
        if not self._reply.byte_wait:
            self._writer.write(payload)
            await self._writer.drain()
            return
        for place in range(len(payload)):
            self._writer.write(payload[place : place + 1])
            await asyncio.sleep(self._reply.byte_wait)


async def _each(steps: Any) -> AsyncIterator[Step]:
    if isinstance(steps, AsyncIterable):
        async for step in steps:
            yield step
        return
    for step in steps:
        yield step
