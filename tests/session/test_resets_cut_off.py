"""A reset in the middle of a run, with more that waits: a death at each of its steps leaves all of it or nothing.

What a process leaves that dies at a step is what stands on disk then: the folder is copied there, and the second life
of the agent begins with the copy. Each life is one of `life`.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from memory.care.integrity import verify
from spar import Action, Agent, Call, Context, Perception, failpoints, tool

#: Where the first life is cut off in the middle of a reset, and whether the reset is there afterwards.
STEPS = {"session.reset_told": False, "session.reset": False, "session.reset_kept": True}
RUNS = ("first", "long", "waiting", "steered", "other")


def _lines(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


async def life(folder: Path, which: str) -> dict[str, Any]:
    """Say some things and reset, in the middle of a call ("begin") or of a plan ("plan"); or let everything come to its
    end ("end"), and return what is so."""
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


def ends_of(folder: Path, which: str) -> dict[str, dict[str, Any]]:
    """Return what is so after a second life, by the step at which the first one was cut off."""
    left: dict[str, Path] = {}

    def keep(label: str) -> None:
        if label in STEPS and label not in left:
            left[label] = shutil.copytree(folder / "first", folder / label)

    (folder / "first").mkdir()
    failpoints.armed.append(keep)
    try:
        asyncio.run(life(folder / "first", which))
    finally:
        failpoints.armed.remove(keep)
    assert not [each for each in left.values() if (each / "promised").exists()]
    return {label: asyncio.run(life(each, "end")) for label, each in left.items()}


def check(found: dict[str, Any], *, is_reset: bool, doubts: int) -> None:
    """All of a reset has happened, or nothing of it."""
    assert found["verified"] == []
    assert found["open"] == 0
    assert found["first"] == ["ok", ""]
    assert found["other"] == ["ok", ""]
    assert found["after"] == []
    ends = {name: found[name] for name in ("long", "waiting", "steered")}
    if is_reset:
        assert list(ends.values()) == [["error", "reset"]] * 3
        assert found["ordinal"] == 2
        assert found["kinds"].count("reset") == 1
        assert found["read"] == []
    else:
        assert "reset" not in {error for _, error in ends.values()}
        assert found["ordinal"] == 1
        assert "reset" not in found["kinds"]
        assert found["read"][:2] == ["first", "long"]
    assert found["doubts"] == doubts  # nobody knows what became of the call that was cut off


@pytest.mark.parametrize(("which", "doubts"), [("begin", 1), ("plan", 0)])
def test_cut_off_at_each_step_of_a_reset_all_of_it_is_there_or_nothing(tmp_path: Path, which: str, doubts: int) -> None:
    ends = ends_of(tmp_path, which)

    assert ends.keys() == STEPS.keys()
    for label, found in ends.items():
        check(found, is_reset=STEPS[label], doubts=doubts)
        if which == "plan":  # what was being planned is planned again only without the reset
            assert (found["planned"].count("long") == 1) == STEPS[label], label
