"""Parts of the recorded service: a planner with a scripted model, tools, a sensor and a channel that read files."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from planning.llm.planner import ModelPlanner
from spar import Perception, tool
from spar.errors import PermanentError
from spar.ports.channel import ChannelContext, ChannelLimits, Incoming, Outgoing


@tool(effect="once", approval="ask", brings_untrusted=False)
async def pay(to: str, amount: int) -> str:
    """Pay somebody."""
    return f"paid {amount} to {to}"


@tool(effect="read", brings_untrusted=False)
async def measure(what: str) -> str:
    """Measure something."""
    if what == "nothing":
        raise ValueError("nothing cannot be measured")
    return f"{what}: 293 kelvin"


@tool(effect="read", brings_untrusted=False, timeout=86_400)
async def rest() -> str:
    """Wait until the run is aborted."""
    await asyncio.Event().wait()
    return ""


#: The call that the model makes first, by the first word of the message.
CALLS: dict[str, dict[str, Any]] = {
    "pay": {"_tool": "pay", "to": "baker", "amount": 30},
    "measure": {"_tool": "measure", "what": "hall"},
    "miss": {"_tool": "measure", "what": "nothing"},
    "rest": {"_tool": "rest"},
}


async def model(request: Any) -> Any:
    """Answer the last message: by a call first, by a sentence once there is a result."""
    own = request.turns[len(request.turns) - request.own :]
    text = "\n".join(turn.text for turn in own)
    if "[broken]" in text:
        raise PermanentError("the model refuses")
    name = next((name for name in CALLS if f"[{name}]" in text), "")
    if not name or any(turn.calls for turn in own):
        return {"output": f"done: {name or 'said'}"}
    return {"calls": [CALLS[name]]}


class Planner(ModelPlanner):
    """Planner whose model is `model`."""

    def __init__(self) -> None:
        super().__init__(model, recall=0)


class Alerts:
    """Sensor of the lines of a file: NAME STATUS SERVICE."""

    every = 0.05

    async def open(self, context: Any) -> None:
        self._context, self._read = context, int(context.cursor or 0)

    def poll(self) -> list[Perception]:
        path = Path("alerts.txt")
        lines = path.read_text().splitlines() if path.exists() else []
        alerts = []
        for number, line in enumerate(lines[self._read :], self._read):
            name, status, service = line.split(maxsplit=2)
            labels = {"alertname": name, "service": service}
            attributes = {"status": status, "severity": "error", "labels": labels}
            alerts.append(Perception(f"{name} is {status}", kind="alert", key=str(number), attributes=attributes))
        if alerts:
            self._read = len(lines)
            self._context.checkpoint(self._read)
        return alerts


class FolderChannel:
    """Channel between files of a folder, which delivers nothing to the address "nobody"."""

    limits = ChannelLimits()

    def __init__(self, path: Path) -> None:
        self._path = path

    async def receive(self, context: ChannelContext) -> None:
        context.ready()
        while True:
            for file in sorted(self._path.glob("*.in")):
                message = json.loads(file.read_text())
                await context.accept(Incoming(file.stem, message["from"], message["text"]))
                file.unlink()
            await asyncio.sleep(0.02)

    async def send(self, message: Outgoing) -> str:
        if message.address == "nobody":
            raise PermanentError("no such person")
        with (self._path / "sent").open("a") as sent:
            sent.write(f"{message.address}: {message.text}\n")
        return ""

    async def edit(self, reference: str, message: Outgoing) -> None:
        raise NotImplementedError

    async def typing(self, address: str) -> None:
        raise NotImplementedError
