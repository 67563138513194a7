"""The model that benchmarks stream from, in a process of its own: it shares no event loop with what is measured.

The name of the model that is asked for says what it answers: `first/native`, or `plan/a chain of 4/1/0.3` (the way, the
shape, how many times faster than in life, seconds to the first token). Which turn it is it reads from the request.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.model_shapes import FIRST, FOUND, SECOND, SHAPES, Shape
from tests.servers.llm import LlmServer
from tests.servers.llm_replies import Reply
from tests.servers.llm_requests import Asked, content_of

ROOT = Path(__file__).parents[1]


def script(asked: Asked) -> Reply:
    way, name, *more = asked.body["model"].split("/")
    now = content_of(asked.messages[-1])  # what comes before is the past of the session
    if way == "first":
        return SECOND[name] if FOUND in now else FIRST[name]
    shape = Shape.of(SHAPES[name], faster=float(more[0]), thought=float(more[1]))
    if way == "plan":
        return shape.answer() if FOUND in now else shape.plan()
    turns = [[number] for number in shape.calls] if way == "turns" else shape.layers
    match = re.search(r"turn (\d+)", now)
    turn = int(match[1]) if match else 0
    return shape.written(*turns[turn]) if turn < len(turns) else shape.answer()


@contextmanager
def serving() -> Iterator[str]:
    """The base URL of a server that runs for as long as the block."""
    command = [sys.executable, "-m", "benchmarks.model_server"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def asked_of(url: str) -> list[dict[str, Any]]:
    """All that the server has been asked so far, with the times of its steps."""
    with urllib.request.urlopen(f"{url}/asked", timeout=30) as response:
        requests: list[dict[str, Any]] = json.load(response)
    return requests


async def _main() -> None:
    async with LlmServer(script) as server:
        sys.stdout.write(server.url + "\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main())
