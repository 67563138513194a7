"""Parts of an answer that a model's provider signed: they go back to it, and people read none of them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from memory import Memory
from spar import Agent
from spar.operations.history import CycleId, show_cycle
from spar.operations.memory import TranscriptsChoice, transcripts
from spar.operations.operation import Caller
from spar.operations.sessions import TranscriptChoice, transcript
from spar.testing import VirtualClock
from spar.types import Action, Perception

CALLER = Caller("ann")
THOUGHT = {"provider_name": "anthropic", "content": "they are the third to ask", "signature": "c2ln"}
SECRET = {**THOUGHT, "content": "the key is sk-ant-api03-" + "a1B2" * 20}


async def talked(tmp_path: Path, clock: VirtualClock, *signed: dict[str, Any]) -> Memory:
    """The memory of an agent that answered with these parts."""

    async def plan(perceptions: list[Perception]) -> Action:
        return Action(output="a green answer", signed=signed)

    memory = Memory(f"sqlite:///{tmp_path / 'm.db'}", ballast=0)
    async with Agent(plan=plan, memory=memory, clock=clock, loop_interval="off") as agent:
        await agent.wait((await agent.submit("hello")).run_id)
    return memory


async def signed_in(memory: Memory) -> list[Any]:
    return [entry.body["signed"] for entry in await memory.transcripts.read("main", "main") if "signed" in entry.body]


async def test_they_are_kept_for_the_provider_and_shown_to_nobody(tmp_path: Path, clock: VirtualClock) -> None:
    async with await talked(tmp_path, clock, THOUGHT) as memory:
        store: Any = SimpleNamespace(memory=memory, agent_name="main")
        entries = await transcript.run(store, TranscriptChoice(key="main"), CALLER)
        cycle = await show_cycle.run(store, CycleId(cycle_id="last"), CALLER)
        matches = await transcripts.run(store, TranscriptsChoice(q="green"), CALLER)
        assert await signed_in(memory) == [[THOUGHT]]

    assert [entry.kind for entry in entries] == ["user", "turn", "end"]
    assert cycle.action is not None
    assert cycle.action.output == "a green answer"
    assert matches
    assert "the third" not in repr((entries, cycle, matches))


async def test_one_with_a_secret_is_left_out_since_no_provider_takes_it_changed(
    tmp_path: Path, clock: VirtualClock
) -> None:
    async with await talked(tmp_path, clock, SECRET) as memory:
        assert await signed_in(memory) == []
