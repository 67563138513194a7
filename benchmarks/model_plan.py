"""How long a plan takes from the question to the answer: spar, and the other ways of working with the same model.

    spar            a whole agent: each call begins when it is written and what it needs has ended
    plan, then act  the plan is read to its end, then carried out by the countdown of `benchmarks.graphs`
    layer a turn    an answer holds all calls that need nothing of one another; they are awaited together
    call a turn     one call an answer

All but spar are the model's stream and nothing else: they validate nothing, tell nobody and keep nothing. An answer
begins at once, which favours those who ask for many; two shapes are also measured with a model that takes 0.3 s to its
first token. The least possible is when each call begins with its last byte and the last of what it needs.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from benchmarks import graphs
from benchmarks.harness import Effort
from benchmarks.model_run import AT_ONCE
from benchmarks.model_server import serving
from benchmarks.model_shapes import FOUND, SHAPES, Shape
from benchmarks.table import Line, number, shown
from planning.llm.planner import ModelPlanner
from planning.llm.provider import ProviderModel
from planning.ports import Request
from planning.prompt.schema import compose_schema
from spar import Agent, tool

ROUNDS = 2
THOUGHT = 0.3  # seconds to the first token
#: How much faster than in life a quick run is.
HASTE = 10.0
Work = Callable[[int], Awaitable[int]]
Play = Callable[[], Awaitable[object]]

SPAR, PLAN_FIRST, LAYERS, TURNS = "spar", "plan, then act", "a layer a turn", "a call a turn"
THINKING = ("4 at once, then one", "a tree of 12")
WAYS = {SPAR: "plan", PLAN_FIRST: "plan", LAYERS: "layers", TURNS: "turns"}
NEEDS = {"type": "array", "items": {"type": "string"}}
SCHEMA = compose_schema(
    [{"type": "object", "properties": {"_tool": {"const": "work"}, "number": {"type": "integer"}, "needs": NEEDS}}],
    activities=["work"],
)


async def measure(effort: Effort) -> list[Line]:
    plans = [*((name, 0.0) for name in SHAPES), *((name, THOUGHT) for name in THINKING)]
    faster, rounds = (HASTE, 1) if effort.is_quick else (1.0, ROUNDS)
    lines: list[Line] = []
    with serving() as url:
        for name, thought in plans[-1:] if effort.is_quick else plans:
            shape = Shape.of(SHAPES[name], faster=faster, thought=thought)
            took = await played(url, f"{name}/{faster:g}/{thought:g}", shape, rounds)
            title = f"plan of {len(shape.needs)} calls: {name}"
            lines += lines_of(f"{title}, {thought:g} s to the first token" if thought else title, shape, took)
    return lines


async def played(url: str, name: str, shape: Shape, rounds: int) -> dict[str, list[float]]:
    """Seconds of each way in each round; `name` is what the server knows the plan by."""
    took: dict[str, list[float]] = {way: [] for way in WAYS}
    order = random.Random(1)
    for _ in range(rounds):
        for way in order.sample(list(WAYS), len(WAYS)):
            model = ProviderModel(f"{WAYS[way]}/{name}", base_url=url, mode="native")
            made: list[int] = []
            try:
                async with PLAYERS[way](model, shape, made) as play:
                    began = time.perf_counter()
                    await play()
                    took[way].append(time.perf_counter() - began)
            finally:
                await model.aclose()
            if sorted(made) != list(shape.calls):
                raise RuntimeError(f"{way} made the calls {sorted(made)} of {len(shape.needs)} of {name!r}")
    return took


def lines_of(title: str, shape: Shape, took: dict[str, list[float]]) -> list[Line]:
    own = took[SPAR]

    def line(against: str, others: list[float], *, is_limit: bool = False) -> Line:
        ratios = [one / other for one, other in zip(own, others, strict=True)]
        spread = f"{shown(min(ratios))}–{shown(max(ratios))}"
        spar, other = (f"{number(statistics.median(each))} s" for each in (own, others))
        return Line(None, title, spar, against, other, statistics.median(ratios), "x", spread, is_limit=is_limit)

    return [
        *(line(way, times) for way, times in took.items() if way != SPAR),
        line("the least possible", [shape.least] * len(own), is_limit=True),
    ]


# -- the ways


def working(shape: Shape, made: list[int]) -> Work:
    """The tool, whoever calls it; a call whose needs have not been met is an error."""

    async def work(call: int) -> int:
        if not set(shape.needs[call]) <= set(made):
            raise RuntimeError(f"call {call} began before what it needs: {shape.needs[call]}, {made}")
        await asyncio.sleep(shape.seconds[call])
        made.append(call)
        return call

    return work


@asynccontextmanager
async def spar(model: ProviderModel, shape: Shape, made: list[int]) -> AsyncIterator[Play]:
    run = working(shape, made)

    @tool
    async def work(number: int, needs: list[str] | None = None) -> str:
        return f"{FOUND} {await run(number)}"

    async with Agent(plan=ModelPlanner(model), tools=[work], loop_interval="off", settings=AT_ONCE) as agent:

        async def play() -> None:
            status = await agent.wait((await agent.submit("work it out")).run_id, timeout=120)
            if status.status != "ok":
                raise RuntimeError(f"the run came back {status.status}: {status.error}")

        await warmed(model)
        yield play


@asynccontextmanager
async def plan_first(model: ProviderModel, shape: Shape, made: list[int]) -> AsyncIterator[Play]:
    async def play() -> None:
        calls = await calls_of(model, "plan it")
        if len(calls) != len(shape.needs):
            raise RuntimeError(f"{len(calls)} calls of {len(shape.needs)} were planned")
        await graphs.task_per_call(shape.needs, working(shape, made))
        await calls_of(model, f"{FOUND} all")

    await warmed(model)
    yield play


@asynccontextmanager
async def in_turns(model: ProviderModel, shape: Shape, made: list[int]) -> AsyncIterator[Play]:
    """As many turns as the model takes; what an answer calls runs at once."""

    async def play() -> None:
        work = working(shape, made)
        turn = 0
        while calls := await calls_of(model, f"turn {turn}"):
            await asyncio.gather(*(work(call["number"]) for call in calls))
            turn += 1

    await warmed(model)
    yield play


PLAYERS: dict[str, Any] = {SPAR: spar, PLAN_FIRST: plan_first, LAYERS: in_turns, TURNS: in_turns}


async def calls_of(model: ProviderModel, text: str) -> list[Any]:
    """One request: the calls of its answer, once it is complete."""
    pieces = [piece async for piece in await model(Request(schema=SCHEMA, texts=(text,)))]
    return [piece for piece in pieces if isinstance(piece, dict) and "_tool" in piece]


async def warmed(model: ProviderModel) -> None:
    """The library is imported and the connection made before the clock runs."""
    await calls_of(model, f"{FOUND} all, turn 99")
