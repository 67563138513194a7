"""A server on loopback that answers by path, and sensors that ask it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from spar.clock import SystemClock
from spar.protocols import SensorContext
from spar.types import Perception


class Server:
    """Answers by path with whatever a test puts there, and remembers the requests."""

    def __init__(self) -> None:
        self.answers: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.url = ""

    def put(self, path: str, body: str | bytes, status: str = "200 OK", **headers: str) -> None:
        raw = body.encode() if isinstance(body, str) else body
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(raw)}", "Connection: close"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.answers[path] = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + raw

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            self.requests.append(request)
            path = request.split(" ")[1]
            missing = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            writer.write(self.answers.get(path) or self.answers.get(path.partition("?")[0]) or missing)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    found = Server()
    listening = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    yield found
    listening.close()
    await asyncio.sleep(0)


class Asked:
    """A sensor that is polled, with the cursor that it leaves."""

    def __init__(self) -> None:
        self.cursor: Any = None
        self.reported: list[dict[str, Any]] = []

    async def open(self, sensor: Any) -> Any:
        await sensor.open(
            SensorContext(
                "asked", SystemClock(), lambda perception: True, cursor=self.cursor, checkpoint=self._save,
                report=lambda name, **fields: self.reported.append(fields),
            )
        )  # fmt: skip
        return sensor

    def _save(self, cursor: Any) -> None:
        self.cursor = cursor


@pytest.fixture
def asked() -> Asked:
    return Asked()


def texts(perceptions: list[Perception]) -> list[str]:
    return [each.text for each in perceptions]
