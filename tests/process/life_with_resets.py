"""One life of an agent whose session begins anew in the middle of a run, with more that waits; run as a process.

`python life_with_resets.py FOLDER begin|plan|end`: the first life says some things and resets, in the middle of a call
or of a plan; it is told by `SPAR_CRASH` where to die. The second one lets everything come to its end, and prints what
is so.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from memory import Memory
from memory.care.integrity import verify
from spar import Action, Agent, Call, Context, Perception, tool

RUNS = ("first", "long", "waiting", "steered", "other")


def _lines(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


async def life(folder: Path, which: str) -> dict[str, Any]:
    is_first = which != "end"
    planned: list[str] = []

    @tool(effect="once")
    async def work(what: str) -> str:
        with (folder / "done.txt").open("a") as file:
            file.write(f"{what}\n")
        if what == "long" and is_first:
            await asyncio.sleep(60)
        return f"did {what}"

    async def plan(perceptions: Sequence[Perception], context: Context) -> Action | None:
        if context.run is None:
            return None
        planned.append(context.run.goal)
        with (folder / "planned.txt").open("a") as file:
            file.write(f"{context.run.goal}\n")
        if which == "plan" and context.run.goal == "long":
            await asyncio.sleep(60)
        if context.run.messages or not context.run.goal.startswith("long"):
            return Action(output=f"heard {context.run.goal}")
        return Action((Call("work", {"what": context.run.goal}),))

    memory = Memory(f"sqlite:///{folder / 'memory.db'}", ballast=0)
    agent = Agent(plan=plan, tools=[work], memory=memory, loop_interval=0.01)
    async with agent:
        if is_first:
            await agent.wait((await agent.submit("first", session="alice", idempotency_key="first")).run_id)
            await agent.submit("long", session="alice", idempotency_key="long")
            while "long" not in (planned if which == "plan" else _lines(folder / "done.txt")):
                await asyncio.sleep(0.005)
            await agent.submit("waiting", session="alice", idempotency_key="waiting")
            await agent.submit("steered", session="alice", idempotency_key="steered", mode="steer")
            await agent.submit("other", session="bob", idempotency_key="other")
            await agent.reset("alice", by="tom")
            (folder / "promised").touch()
            await agent.stop(1.0)
            return {}
        await asyncio.sleep(0.3)
        found: dict[str, Any] = {"ordinal": (await agent.conversations.records.get("alice")).ordinal}
        for name in RUNS:
            receipt = await agent.submit(name, session="bob" if name == "other" else "alice", idempotency_key=name)
            status = await agent.wait(receipt.run_id, 10)
            found[name] = [status.status, status.error]
        entries = await agent.memory.transcripts.tail("main", "alice", 1_000)
        found["kinds"] = [entry.kind for entry in entries]
        found["read"] = [entry.body.get("text") for entry in await agent.conversations.transcripts.read("alice")
                         if entry.kind == "user"]  # fmt: skip
        found["planned"] = _lines(folder / "planned.txt")
        found["open"] = agent.runs.open
        found["doubts"] = len(await agent.recovery.restart.doubts.list())
        await agent.reset("alice")  # once more: also of what was never reset
        found["after"] = [entry.kind for entry in await agent.conversations.transcripts.read("alice")]
    found["verified"] = [str(finding) for finding in verify(str(folder / "memory.db")).findings]
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(life(Path(sys.argv[1]), sys.argv[2]))))
