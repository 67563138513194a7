"""The same cycle by other means: the raw loop that nothing can beat, and the libraries that people would use instead.

Each function returns the batches of one library by contender's name; it raises ImportError where that is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict

import anyio.lowlevel

from benchmarks.harness import Batch

PHASES = ("sense", "plan", "act", "reflect")


async def sense() -> int:
    return 1


async def plan(value: int) -> int:
    return value


async def act(value: int) -> int:
    return value


async def reflect(value: int) -> int:
    return value


async def raw(cycles: int) -> None:
    """The limit: four awaits and one turn for everybody else."""
    for _ in range(cycles):
        await reflect(await act(await plan(await sense())))
        await anyio.lowlevel.checkpoint()


def py_trees() -> dict[str, Batch]:
    """A tick of a sequence of four leaves; nothing is awaited, told or counted."""
    from py_trees.behaviour import Behaviour
    from py_trees.common import Status
    from py_trees.composites import Sequence
    from py_trees.trees import BehaviourTree

    class Leaf(Behaviour):  # type: ignore[misc]
        def update(self) -> Any:
            return Status.SUCCESS

    tree = BehaviourTree(Sequence("cycle", memory=True, children=[Leaf(name) for name in PHASES]))
    tree.setup()

    async def batch(cycles: int) -> None:
        for _ in range(cycles):
            tree.tick()

    return {"py_trees tick": batch}


class State(TypedDict):
    left: int


def four_nodes(*, leads_back: bool, checkpointer: Any = None) -> Any:
    """LangGraph's cycle, compiled; `leads_back`: its last edge leads to the first node until nothing is `left`."""
    from langgraph.graph import END, START, StateGraph

    async def node(state: State) -> State:
        return {"left": state["left"]}

    async def last(state: State) -> State:
        return {"left": state["left"] - 1}

    built = StateGraph(State)
    for name in PHASES:
        built.add_node(name, last if name == "reflect" else node)
    for one, next_one in zip((START, *PHASES), PHASES, strict=False):
        built.add_edge(one, next_one)
    if leads_back:
        built.add_conditional_edges("reflect", lambda state: "sense" if state["left"] > 0 else END, ["sense", END])
    else:
        built.add_edge("reflect", END)
    return built.compile(checkpointer=checkpointer)


def langgraph() -> dict[str, Batch]:
    """Four nodes without a checkpointer: one invocation a cycle, and one invocation whose last edge leads back."""
    once, ever = four_nodes(leads_back=False), four_nodes(leads_back=True)

    async def per_cycle(cycles: int) -> None:
        for _ in range(cycles):
            await once.ainvoke({"left": 1})

    async def self_loop(cycles: int) -> None:
        await ever.ainvoke({"left": cycles}, {"recursion_limit": 5 * cycles + 10})

    return {"LangGraph ainvoke": per_cycle, "LangGraph self-loop": self_loop}


#: By library: what makes its batches, and what they are called.
SOURCES: tuple[tuple[Callable[[], dict[str, Batch]], tuple[str, ...]], ...] = (
    (py_trees, ("py_trees tick",)),
    (langgraph, ("LangGraph ainvoke", "LangGraph self-loop")),
)


def installed() -> tuple[dict[str, Batch], dict[str, str]]:
    """The peers that can run, and why the others cannot."""
    batches: dict[str, Batch] = {}
    reasons: dict[str, str] = {}
    for source, contenders in SOURCES:
        try:
            batches |= source()
        except ImportError as error:
            reasons |= dict.fromkeys(contenders, f"not installed ({error.name})")
    return batches, reasons
