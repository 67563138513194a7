"""What a run costs beside its model and its tool: one question, one call, one answer, all in memory.

Peers ask the model twice, once for the call and once for the answer; so does spar on the lines where it is beside them.
A model may also give the call and the answer in one request: that is the run of one request and one call whose cost is
bounded. Each agent is used for a few runs only, its past is short; what a long past costs has a line of its own.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from benchmarks.harness import Batch, Cost, Effort, Measured, frozen, timed
from benchmarks.table import Line, amount, compared
from planning.llm.loop import Requests
from planning.llm.planner import ModelPlanner
from planning.ports import Model, Request
from spar import Agent, tool

OWED, MOONSHOT = 400.0, 250.0  # microseconds of one request and one call
ROUNDS, RUNS, PAST = 9, 20, 100
#: The next cycle of a run begins at once: the pause between them is nobody's work.
AT_ONCE = {"agent": {"min_interval": 0.0}}

ONCE, TWICE, AFTER = "one request", "two requests", f"two requests, after {PAST} runs"
ALONE_ONCE, ALONE = f"{ONCE}, planning.Requests", f"{TWICE}, planning.Requests"
BY_HAND = "the model and the tool called by hand"
PYDANTIC_AI, OPENAI_AGENTS = "pydantic-ai Agent.run", "openai-agents Runner.run"
#: What is owed beside a peer.
BESIDE = {(ALONE, OPENAI_AGENTS): 0.12}
CALL = {"_tool": "look", "number": 1}
ANSWER = "done"

Run = Callable[[], Awaitable[object]]
Made = Callable[[], AbstractAsyncContextManager[Run]]


async def measure(effort: Effort) -> list[Line]:
    makers: dict[str, Made] = {
        ONCE: lambda: in_agent(at_once),
        ALONE_ONCE: lambda: alone(at_once),
        TWICE: lambda: in_agent(in_two()),
        AFTER: lambda: in_agent(in_two(), past=PAST),
        ALONE: lambda: alone(in_two()),
        PYDANTIC_AI: pydantic_ai,
        OPENAI_AGENTS: openai_agents,
    }
    measured = await played(makers, effort.at_most(1 if effort.is_quick else ROUNDS), 5 if effort.is_quick else RUNS)
    title = "run of one call in memory"
    return [
        *(
            amount(None, f"{title}, {name}", measured[name].cpu * 1e6, "µs", owed=OWED, moonshot=MOONSHOT, by="cpu")
            for name in (ONCE, ALONE_ONCE)
        ),
        *(
            compared(None, f"{title}, {own}", measured[own], BY_HAND, Measured(measured[own].limit), is_limit=True)
            for own in (TWICE, ALONE)
        ),
        *(
            compared(None, f"{title}, {own}", measured[own], peer, measured[peer], owed=BESIDE.get((own, peer)))
            for own in (TWICE, ALONE)
            for peer in (PYDANTIC_AI, OPENAI_AGENTS)
        ),
        compared(None, f"{title}, {AFTER}", measured[AFTER], TWICE, measured[TWICE], owed=1.15),
    ]


async def played(makers: dict[str, Made], effort: Effort, runs: int) -> dict[str, Measured]:
    """Each made anew in each round, which is on nobody's bill, and timed between two runs of the limit."""
    measured = {name: Measured() for name in makers}
    order = random.Random(1)
    with frozen():
        for _ in range(effort.rounds):
            for name in order.sample(list(makers), len(makers)):
                if measured[name].error:
                    continue
                try:
                    async with makers[name]() as run:
                        await run()  # what is made at the first is not on the bill
                        before = await timed(raw, 1000)
                        measured[name].own.append(await timed(batch_of(run), runs))
                        after = await timed(raw, 1000)
                except ImportError as error:
                    measured[name].error = f"not installed ({error.name})"
                    continue
                measured[name].limit.append(Cost((before.wall + after.wall) / 2, (before.cpu + after.cpu) / 2))
    return measured


def batch_of(run: Run) -> Batch:
    async def batch(runs: int) -> None:
        for _ in range(runs):
            await run()

    return batch


async def raw(runs: int) -> None:
    """The limit that all are put in relation to: the model and the tool, called by hand."""
    model = in_two()
    for _ in range(runs):
        first: Any = await model(Request())
        for call in first["calls"]:
            await looked(call["number"])
        await model(Request())


# -- the model and the tool


async def at_once(request: Request) -> dict[str, Any]:
    return {"calls": [dict(CALL)], "output": ANSWER}


def in_two() -> Model:
    turn = 0

    async def model(request: Request) -> dict[str, Any]:
        nonlocal turn
        turn += 1
        return {"calls": [dict(CALL)]} if turn % 2 else {"output": ANSWER}

    return model


async def looked(number: int) -> int:
    return number


# -- spar


@asynccontextmanager
async def in_agent(model: Model, past: int = 0) -> AsyncIterator[Run]:
    """As people use it: a message is submitted, and what became of it waited for."""
    async with Agent(
        plan=ModelPlanner(model), tools=[tool(effect="read")(look)], loop_interval="off", settings=AT_ONCE
    ) as agent:

        async def run() -> None:
            status = await agent.wait((await agent.submit("go")).run_id)
            if (status.status, status.output) != ("ok", ANSWER):
                raise RuntimeError(f"the run came back {status}")

        for _ in range(past):
            await run()
        yield run


@asynccontextmanager
async def alone(model: Model) -> AsyncIterator[Run]:
    """The loop of requests without an agent."""
    async with Requests(model, tools=[tool(effect="read")(look)]) as requests:

        async def run() -> None:
            answered = await requests.run([{"type": "text", "text": "go"}])
            if answered.output != ANSWER:
                raise RuntimeError(f"the run came back {answered}")

        yield run


async def look(number: int) -> int:
    """Look."""
    return await looked(number)


# -- peers, their models scripted as well


@asynccontextmanager
async def pydantic_ai() -> AsyncIterator[Run]:
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    def answer(messages: Any, about: Any) -> Any:
        return ModelResponse(parts=[ToolCallPart("look", {"number": 1}) if len(messages) == 1 else TextPart(ANSWER)])

    agent = Agent(FunctionModel(answer))
    agent.tool_plain(look)

    async def run() -> None:
        if (await agent.run("go")).output != ANSWER:
            raise RuntimeError("pydantic-ai came back with another answer")

    yield run


@asynccontextmanager
async def openai_agents() -> AsyncIterator[Run]:
    from agents import Agent, ModelResponse, Runner, Usage, function_tool, set_tracing_disabled
    from agents import Model as ModelOfTheirs
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    set_tracing_disabled(True)
    called = ResponseFunctionToolCall(call_id="c", name="look", arguments='{"number":1}', type="function_call", id="f")
    text = ResponseOutputText(text=ANSWER, type="output_text", annotations=[])
    message = ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[text])

    class Scripted(ModelOfTheirs):  # type: ignore[misc]
        async def get_response(self, system_instructions: Any, input: Any, *rest: Any, **others: Any) -> Any:
            is_called = any(isinstance(item, dict) and item.get("type") == "function_call_output" for item in input)
            return ModelResponse(output=[message if is_called else called], usage=Usage(), response_id=None)

        def stream_response(self, *rest: Any, **others: Any) -> Any:
            raise NotImplementedError

    agent = Agent(name="bench", model=Scripted(), tools=[function_tool(look)])

    async def run() -> None:
        if (await Runner.run(agent, "go")).final_output != ANSWER:
            raise RuntimeError("openai-agents came back with another answer")

    yield run
