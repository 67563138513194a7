"""What a restart of today forgets: the state before a stop beside the state that recovery builds by hand.

Each row of `FORGOTTEN` is a difference that nobody is told of. Once recovery folds facts, the table is empty.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins

from memory import Memory
from spar import Action, Agent, Call, Context, Perception, tool
from spar.agent.parts import AgentParts
from spar.state.apply import Ledger
from spar.testing import VirtualClock

#: What differs in the state of each session after a stop and a start, by session and path.
FORGOTTEN: dict[tuple[str, str], str] = {
    ("crowded", "dropped"): "gists of dropped messages: the next run is not told of them",
}


@tool(effect="read")
async def look(what: str) -> str:
    return what


class Planner:
    """Looks once for each run, and then hangs. In its first life it fails once for the session "failing", and for what
    is pushed, and waits for its provider in the session "deferred"; in its second it hangs, so that what it was given
    stays as it is."""

    def __init__(self, clock: VirtualClock, *, is_first: bool) -> None:
        self._clock, self._is_first, self._has_failed = clock, is_first, False

    async def plan(self, perceptions: list[Perception], context: Context) -> Action | None:
        if self._is_first and context.run is None:
            raise ConnectionError("no plan now")
        if self._is_first and context.session == "failing" and not self._has_failed:
            self._has_failed = True
            raise ConnectionError("no plan now")
        if self._is_first and context.session == "deferred":
            return Action(deferred="the provider asks to wait", next_look=100.0)
        if self._is_first and context.session != "failing" and context.run is not None and context.run.number == 1:
            return Action([Call("look", {"what": "here"})], next_look=0.0)
        await self._clock.sleep(1e6)
        return None


#: Field that is not compared: accepted work is in hand as the journal has it, and that of a cycle that a stop cuts off
#: is not in hand any more.
IN_HAND = "items"
#: The messages and their modes that each session gets, a twentieth of a second apart.
SENT: dict[str, tuple[tuple[str, str], ...]] = {
    "working": (("one", "followup"),),
    "failing": (("one", "followup"),),
    "deferred": (("one", "followup"),),
    "steered": (("one", "followup"), ("two", "steer")),
    "collected": (("one", "followup"), ("two", "collect"), ("three", "collect")),
    "crowded": (("one", "followup"), ("two", "followup"), ("three", "followup"), ("four", "followup")),
}


def _flat(value: Any, path: str = "") -> dict[str, Any]:
    if isinstance(value, dict) and value:
        return {k: v for name, item in value.items() for k, v in _flat(item, f"{path}.{name}".strip(".")).items()}
    return {path: value}


def _of(ledger: Ledger, key: str, names: dict[str, str]) -> dict[str, Any]:
    """Return the state of a session by path; its runs have the texts of their messages as names."""
    state = to_builtins(ledger.state_of(key))
    text = json.dumps(state)
    for run_id, name in names.items():
        text = text.replace(run_id, name)
    return _flat(json.loads(text))


async def test_what_a_restart_forgets_is_known(
    tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledgers: list[Ledger] = []
    make = AgentParts.ledger_of
    assert make is not None

    def kept(parts: AgentParts, name: str) -> Ledger:
        ledgers.append(make(parts, name))
        return ledgers[-1]

    monkeypatch.setattr(AgentParts, "ledger_of", kept)
    names: dict[str, str] = {}
    differences: set[tuple[str, str]] = set()
    for is_first in (True, False):
        memory = Memory(f"sqlite:///{tmp_path / 'memory.db'}")
        settings = {"runs": {"cap": 2, "drop": "summarize", "quiet": 60.0, "limit": 8}}
        planner = Planner(clock, is_first=is_first)
        agent = Agent(plan=planner, memory=memory, tools=[look], clock=clock, loop_interval="off", settings=settings)
        await agent.start()
        if is_first:
            for session, messages in SENT.items():
                for text, mode in messages:
                    receipt = await agent.submit(text, session=session, mode=mode)
                    names[receipt.run_id] = text
                    await clock.sleep(0.05)
            await agent.accept(Perception("pushed", session="pushed", id="pushed"))
        await clock.sleep(1.0)
        await agent.stop(0.0)
    for key in (*SENT, "pushed"):
        before, after = (_of(ledger, key, names) for ledger in ledgers)
        for path in sorted({*before, *after}):
            if before.get(path) != after.get(path) and not path.startswith(IN_HAND):
                differences.add((key, path))
    assert differences == FORGOTTEN.keys()
