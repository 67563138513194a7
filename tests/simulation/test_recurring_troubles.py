"""The shipped rules, which name one tool for each call: memory keeps them from a call that is known to fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from spar.agent.agent import build_agent
from spar.config.load import load
from spar.parts.registry import Registry
from spar.testing import VirtualClock
from spar.types import Action, Learning, Perception

CONFIG = Path(__file__).parents[2] / "config.toml"


async def load_is_high(folder: Path, learning: Learning, clock: VirtualClock, times: int) -> list[Action]:
    """Tell the shipped rules of a high load each quarter of an hour, where no note can be written."""
    (folder / "config.toml").write_text(CONFIG.read_text())
    (folder / "workspace" / "notes.md").mkdir(parents=True)
    loaded = load(folder / "config.toml", environ={}, overrides={"memory.learning": learning, "memory.ballast": "0"})
    agent = build_agent(loaded, clock=clock, registry=Registry(allow_plugins=False))
    told = Perception("load is high", source="host", kind="host.load", attributes={"level": "high"}, trust="trusted")
    decided = []
    for _ in range(times):
        action = await agent.step_plan([told])
        assert action is not None
        decided.append(action)
        await agent.step_act()
        await agent.step_reflect()
        await agent.step_sense()  # the next chain begins, in a cycle of its own
        await clock.advance(900.0)
    await agent.stop()
    return decided


@pytest.mark.parametrize("learning", ["on", "observe", "off"])
async def test_the_shipped_rules_make_no_call_again_that_is_known_to_fail_and_say_why(
    learning: Learning, clock: VirtualClock, tmp_path: Path
) -> None:
    decided = await load_is_high(tmp_path, learning, clock, 5 if learning == "on" else 3)
    called = [[call.tool for call in action.calls] for action in decided]
    told = "note failed 2 times in this situation with these parameters"
    assert called[:2] == [["note", "notify"]] * 2
    if learning == "on":
        assert called[2:] == [["notify"], ["note", "notify"], ["notify"]], "left out, for longer each time"
        assert f"by memory instead of note: {told}" in decided[2].reason
    else:
        assert called[2:] == [["note", "notify"]]
        assert (told in decided[2].reason) is (learning == "observe")
