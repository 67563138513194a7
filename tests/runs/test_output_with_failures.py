"""An answer that comes together with failed calls: asked once more, then it stands, with the errors."""

from __future__ import annotations

from typing import Any

import pytest

from spar import Action, Agent, Call, Context
from spar.testing import VirtualClock


def broken() -> None:
    raise OSError("the device is gone")


@pytest.mark.parametrize(
    ("second", "output"),
    [(None, "I tried"), (Action(output="it failed"), "it failed")],
    ids=["nothing more to say", "a better answer"],
)
async def test_an_answer_beside_a_failed_call_stands_unless_a_better_one_follows(
    clock: VirtualClock, second: Action | None, output: str
) -> None:
    requests: list[int] = []

    async def plan(perceptions: Any, context: Context) -> Action | None:
        assert context.run is not None
        requests.append(context.run.number)
        return Action([Call("broken")], output="I tried") if len(requests) == 1 else second

    async with Agent(plan=plan, tools=[broken], clock=clock, loop_interval="off") as agent:
        receipt = await agent.submit("try it")
        status = await agent.wait(receipt.run_id)

    assert (status.status, status.output, requests) == ("ok", output, [1, 2])
    assert status.errors[0]["error"]["message"] == "the device is gone"
