"""The same graphs by other means: what people use today to carry out the calls of a plan.

Each function makes the contenders of one library for graphs of no-op calls (`independents`, `chains`) or for a
layered graph (`layered`). LLMCompiler is no package: its checkout lies at `CHECKOUT`, or where `LLMCOMPILER` says. Its
scheduling unit is used as it is, with its prints off. The model-shaped ones (ToolNode, pydantic-ai, openai-agents) do
more than carry calls out: they make a message of each, and for a chain resend the history with each turn.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypedDict

from benchmarks.graphs import CarryOut, Dependencies, Layered, Work, batch_of, chain, makespan_of, nothing
from benchmarks.harness import Batch
from benchmarks.table import Judged

TURNS = 50
#: Where docs/explanation/performance.md says to put the checkout of LLMCompiler.
CHECKOUT = Path(__file__).parents[1] / ".cache" / "LLMCompiler"

SEND, TOOL_NODE, GRAPH = "LangGraph Send", "LangGraph ToolNode", "LangGraph, a node per call"
SCHEDULE, STREAMED = "LLMCompiler schedule", "LLMCompiler aschedule"
PYDANTIC_AI, OPENAI_AGENTS, HAMILTON = "pydantic-ai", "openai-agents", "Hamilton"


def independents(graph: Dependencies) -> tuple[dict[str, Batch], dict[str, str]]:
    """Calls that need nothing of one another. Returns contenders, and why others are missing."""
    return gathered(
        {
            (SCHEDULE, STREAMED): lambda: {name: batch_of(run, graph) for name, run in llmcompiler().items()},
            (SEND,): lambda: {SEND: batch_of(langgraph_send(len(graph)), graph)},
            (TOOL_NODE,): lambda: {TOOL_NODE: batch_of(langgraph_tools(), graph)},
            (PYDANTIC_AI,): lambda: {PYDANTIC_AI: batch_of(pydantic_ai(len(graph), 1), graph)},
            (OPENAI_AGENTS,): lambda: {OPENAI_AGENTS: batch_of(openai_agents(len(graph), 1), graph)},
            (HAMILTON,): lambda: {HAMILTON: batch_of(hamilton(graph), graph)},
        }
    )


def chains() -> tuple[dict[str, Batch], dict[str, str]]:
    """Calls that each need the one before; fewer of them where a library takes milliseconds for each."""
    short = chain(TURNS)
    return gathered(
        {
            (STREAMED,): lambda: {STREAMED: batch_of(llmcompiler()[STREAMED], short)},
            (GRAPH,): lambda: {GRAPH: batch_of(langgraph_graph(chain(4 * TURNS)), chain(4 * TURNS))},
            (PYDANTIC_AI,): lambda: {PYDANTIC_AI: batch_of(pydantic_ai(1, TURNS), short)},
            (OPENAI_AGENTS,): lambda: {OPENAI_AGENTS: batch_of(openai_agents(1, TURNS), short)},
            (HAMILTON,): lambda: {HAMILTON: batch_of(hamilton(chain(4 * TURNS)), chain(4 * TURNS))},
        }
    )


def layered(graph: Layered, *, with_langgraph: bool) -> tuple[dict[str, Batch], dict[str, str]]:
    """LangGraph waits for a whole layer before the next one, and takes minutes for ten thousand nodes."""

    def by_nodes() -> dict[str, Batch]:
        return {GRAPH: makespan_of(langgraph_graph(graph.dependencies, graph.sleep), graph)}

    sources: dict[tuple[str, ...], Callable[[], dict[str, Batch]]] = {
        (SCHEDULE,): lambda: {SCHEDULE: makespan_of(llmcompiler()[SCHEDULE], graph)}
    }
    return gathered(sources | ({(GRAPH,): by_nodes} if with_langgraph else {}))


def gathered(
    sources: Mapping[tuple[str, ...], Callable[[], dict[str, Batch]]],
) -> tuple[dict[str, Batch], dict[str, str]]:
    batches: dict[str, Batch] = {}
    reasons: dict[str, str] = {}
    for names, source in sources.items():
        try:
            batches |= source()
        except ImportError as error:
            reasons |= dict.fromkeys(names, f"not installed ({error.name or error})")
        except Exception as error:  # another version of it than was asked for
            reasons |= dict.fromkeys(names, f"cannot run: {type(error).__name__}: {error}"[:120])
    return batches, reasons


def judged(name: str) -> Judged:
    """Return which time counts beside a contender: LLMCompiler sleeps between its looks, the others only compute."""
    return "wall" if name in (SCHEDULE, STREAMED) else "cpu"


# -- LLMCompiler


def scheduling_unit() -> Any:
    """The module of its scheduling unit. Raises: ImportError without a checkout."""
    root = os.environ.get("LLMCOMPILER") or str(CHECKOUT)
    if not Path(root, "src", "llm_compiler").is_dir():
        raise ImportError(name=f"no checkout of LLMCompiler in {root}")
    if root not in sys.path:
        sys.path.append(root)
    try:
        importlib.import_module("src.utils.logger_utils").LOG_ENABLED = False  # its prints are no part of the price
        return importlib.import_module("src.llm_compiler.task_fetching_unit")
    except ImportError as error:
        raise ImportError(name=f"LLMCompiler in {root}: {error}") from error


def task_of(unit: Any, number: int, needed: tuple[int, ...], work: Work) -> Any:
    async def tool(*values: Any) -> int:
        return await work(number)

    return unit.Task(number, "work", tool, [f"${other}" for other in needed], needed)


def llmcompiler() -> dict[str, CarryOut]:
    """All tasks at once, and task after task from a queue."""
    unit = scheduling_unit()

    def tasks(graph: Dependencies, work: Work) -> list[Any]:
        return [task_of(unit, number, needed, work) for number, needed in enumerate(graph)]

    async def schedule(graph: Dependencies, work: Work) -> None:
        fetching = unit.TaskFetchingUnit()
        fetching.set_tasks({task.idx: task for task in tasks(graph, work)})
        await fetching.schedule()

    async def aschedule(graph: Dependencies, work: Work) -> None:
        queue: asyncio.Queue[Any] = asyncio.Queue()
        for task in tasks(graph, work):
            queue.put_nowait(task)
        queue.put_nowait(None)
        await unit.TaskFetchingUnit().aschedule(queue, None)

    return {SCHEDULE: schedule, STREAMED: aschedule}


# -- LangGraph


def langgraph_send(calls: int) -> CarryOut:
    """One node, sent to once for each call."""
    import operator

    from langgraph.graph import END, START, StateGraph
    from langgraph.types import Send

    State = TypedDict("State", {"done": Annotated[list, operator.add]})  # type: ignore[type-arg]  # noqa: UP013

    async def one(state: Any) -> Any:
        return {"done": [await nothing(state["number"])]}

    built = StateGraph(State)
    built.add_node("one", one)
    built.add_conditional_edges(
        START, lambda state: [Send("one", {"number": number}) for number in range(calls)], ["one"]
    )
    built.add_edge("one", END)
    compiled = built.compile()

    async def carry_out(graph: Dependencies, work: Work) -> None:
        await compiled.ainvoke({"done": []})

    return carry_out


def langgraph_tools() -> CarryOut:
    """One message of a model with all tool calls in it."""
    from langchain_core.messages import AIMessage
    from langchain_core.tools import tool
    from langgraph.graph import END, START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode

    @tool
    async def act(number: int) -> int:
        "Do nothing."
        return await nothing(number)

    built = StateGraph(MessagesState)
    built.add_node("tools", ToolNode([act]))
    built.add_edge(START, "tools")
    built.add_edge("tools", END)
    compiled = built.compile()

    async def carry_out(graph: Dependencies, work: Work) -> None:
        calls = [
            {"name": "act", "args": {"number": number}, "id": str(number), "type": "tool_call"}
            for number in range(len(graph))
        ]
        await compiled.ainvoke({"messages": [AIMessage("", tool_calls=calls)]})

    return carry_out


def langgraph_graph(dependencies: Dependencies, work: Work = nothing) -> CarryOut:
    """A node for each call, an edge for each dependency; compiled beforehand."""
    from langgraph.graph import END, START, StateGraph

    State = TypedDict("State", {"done": Annotated[dict, lambda old, new: {**old, **new}]})  # type: ignore[type-arg]  # noqa: UP013

    def node_of(number: int) -> Callable[[Any], Any]:
        async def node(state: Any) -> Any:
            return {"done": {number: await work(number)}}

        return node

    built = StateGraph(State)
    for number in range(len(dependencies)):
        built.add_node(f"n{number}", node_of(number))
    needed_by_others = {other for needed in dependencies for other in needed}
    for number, needed in enumerate(dependencies):
        sources: Any = [f"n{other}" for other in needed] or START
        built.add_edge(sources[0] if len(needed) == 1 else sources, f"n{number}")
        if number not in needed_by_others:
            built.add_edge(f"n{number}", END)
    compiled = built.compile()

    async def carry_out(graph: Dependencies, work: Work) -> None:
        await compiled.ainvoke({"done": {}}, {"recursion_limit": len(dependencies) + 10})

    return carry_out


# -- agents of model libraries, their model a function


def pydantic_ai(width: int, turns: int) -> CarryOut:
    """So many turns of a model, each with so many tool calls."""
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel
    from pydantic_ai.usage import UsageLimits

    def answer(messages: Any, info: Any) -> Any:
        turn = (len(messages) - 1) // 2
        if turn >= turns:
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(
            parts=[ToolCallPart("act", {"number": number}, tool_call_id=f"{turn}-{number}") for number in range(width)]
        )

    agent = Agent(FunctionModel(answer))

    @agent.tool_plain
    async def act(number: int) -> int:
        return await nothing(number)

    async def carry_out(graph: Dependencies, work: Work) -> None:
        await agent.run("go", usage_limits=UsageLimits(request_limit=None))

    return carry_out


def openai_agents(width: int, turns: int) -> CarryOut:
    """The same, tracing off."""
    from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool, set_tracing_disabled
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    set_tracing_disabled(True)

    class Scripted(Model):  # type: ignore[misc]
        async def get_response(self, system_instructions: Any, input: Any, *rest: Any, **others: Any) -> Any:
            kinds = [item.get("type") for item in input if isinstance(item, dict)] if isinstance(input, list) else []
            turn = kinds.count("function_call_output") // width
            output: list[Any]
            if turn < turns:
                output = [
                    ResponseFunctionToolCall(
                        call_id=f"{turn}-{number}",
                        name="act",
                        arguments=f'{{"number":{number}}}',
                        type="function_call",
                        id=f"f{turn}-{number}",
                    )
                    for number in range(width)
                ]
            else:
                text = ResponseOutputText(text="done", type="output_text", annotations=[])
                output = [
                    ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[text])
                ]
            return ModelResponse(output=output, usage=Usage(), response_id=None)

        def stream_response(self, *rest: Any, **others: Any) -> Any:
            raise NotImplementedError

    @function_tool
    async def act(number: int) -> int:
        return await nothing(number)

    agent = Agent(name="bench", model=Scripted(), tools=[act])

    async def carry_out(graph: Dependencies, work: Work) -> None:
        await Runner.run(agent, "go", max_turns=turns + 5)

    return carry_out


# -- Hamilton


def hamilton(dependencies: Dependencies) -> CarryOut:
    """A module with a function for each call, as its users write it; dependencies are parameters' names."""
    from hamilton import async_driver

    lines = []
    for number, needed in enumerate(dependencies):
        parameters = ", ".join(f"n{other}: int" for other in needed)
        lines.append(f"async def n{number}({parameters}) -> int:\n    return {number}\n")
    module = types.ModuleType(f"benchmarks_hamilton_{len(dependencies)}")
    sys.modules[module.__name__] = module
    exec("\n".join(lines), module.__dict__)
    for value in list(module.__dict__.values()):
        if isinstance(value, types.FunctionType):
            value.__module__ = module.__name__
    needed_by_others = {other for needed in dependencies for other in needed}
    wanted = [f"n{number}" for number in range(len(dependencies)) if number not in needed_by_others]
    drivers: list[Any] = []

    async def carry_out(graph: Dependencies, work: Work) -> None:
        if not drivers:
            drivers.append(await async_driver.Builder().with_modules(module).build())
        await drivers[0].raw_execute(wanted)

    return carry_out
