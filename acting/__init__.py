"""ACT: executes a plan as a graph of calls.

    async with Executor([weather, note]) as executor:
        result = await executor.run([Call("weather", {"city": "Oslo"}, output_path="†state.weather"),
                                     Call("note", {"text": "†state.weather"})])

    executor    the public class `Executor`: holds the tools, runs calls
    programs    runs programs for other phases
    notifiers   ways to notify people: log, desktop, web hook
    repetition  notices that a run makes no progress, warns the planner, then ends the run
    sameness    digests of calls, to find repeated ones; pure

    run/        one batch of calls, and one call in it
    graph/      which call may start; pure
    tooling/    tools, their parameters and schemas
    approvals/  policy, taint, and approvals by people
    mcp/        tools of MCP servers
    process/    programs as child processes
    sandbox/    sandboxes for programs
    tools/      the built-in tools

Importing this package loads none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from acting.executor import Executor
    from acting.tooling.context import ToolContext

__all__ = ["Executor", "ToolContext"]

_HOMES = {"Executor": "acting.executor", "ToolContext": "acting.tooling.context"}


def __getattr__(name: str) -> Any:
    if home := _HOMES.get(name):
        from importlib import import_module

        return getattr(import_module(home), name)
    raise AttributeError(f"module 'acting' has no attribute {name!r}; known: {', '.join(_HOMES)}")
