"""What a run costs in function calls of the project's own, when no feature is used that it does not need."""

import gc
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from planning.llm.planner import ModelPlanner
from planning.ports import Request
from spar import Agent, tool
from spar.testing import VirtualClock

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = tuple(f"{ROOT / name}/" for name in ("acting", "memory", "perception", "planning", "reflection", "spar"))
WARM, RUNS = 5, 10
#: Calls of one run of one request and one call in memory: 991 were measured, and 3 % more.
MOST_CALLS = 1_020


@tool(effect="read")
async def look(number: int) -> int:
    """Look."""
    return number


async def model(request: Request) -> dict[str, Any]:
    return {"calls": [{"_tool": "look", "number": 1}], "output": "done"}


@pytest.mark.unobserved
async def test_a_run_of_one_request_and_one_call_makes_no_more_function_calls_than_it_needs() -> None:
    clock = VirtualClock()
    settings = {"agent": {"min_interval": 0.0}}
    planner = ModelPlanner(model)
    counted: Counter[str] = Counter()

    def count(frame: FrameType, event: str, arg: Any) -> None:
        code = frame.f_code
        # A comprehension is a function of its own in some versions of Python only.
        if event == "call" and not code.co_name.startswith("<") and code.co_filename.startswith(PACKAGES):
            counted[f"{code.co_filename.removeprefix(f'{ROOT}/')} {code.co_qualname}"] += 1

    async with Agent(plan=planner, tools=[look], loop_interval="off", settings=settings, clock=clock) as agent:

        async def run() -> None:
            status = await agent.wait((await agent.submit("go")).run_id)
            assert (status.status, status.output) == ("ok", "done")

        for _ in range(WARM):  # what is made at the first run only is not part of what each costs
            await run()
        before, collects = sys.getprofile(), gc.isenabled()
        gc.disable()  # a collector that comes when it likes calls what was given back to it
        sys.setprofile(count)
        try:
            for _ in range(RUNS):
                await run()
        finally:
            sys.setprofile(before)
            if collects:
                gc.enable()
    calls = counted.total() / RUNS
    most = "\n".join(f"{number / RUNS:6.1f} {name}" for name, number in counted.most_common(25))
    assert calls <= MOST_CALLS, f"a run makes {calls:.0f} calls, most of them of\n{most}"
