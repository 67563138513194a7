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

from typing import TYPE_CHECKING

from spar.lazy import lazy

if TYPE_CHECKING:
    from acting.executor import Executor as Executor
    from acting.tooling.context import ToolContext as ToolContext

__all__, __getattr__ = lazy(__name__, {"acting.executor": "Executor", "acting.tooling.context": "ToolContext"})
