"""ACT: executes what a plan decided, as a graph of calls.

    async with Executor([weather, note]) as executor:
        result = await executor.run([Call("weather", {"city": "Oslo"}, output_path="†state.weather"),
                                     Call("note", {"text": "†state.weather"})])

`executor` is the face. One run of calls: `tick` brings together `reading` (what was handed over), `graph` (what is
ready; pure), `gate` (what policy, hooks and people say), `hands` (who does it), `launch` (one call) and `ledger` (what
it leaves behind). `catalog` and `entries` know the tools, `desk` and `parked` what waits for people, `guard` runs that
turn in circles, `sandbox` and `launcher` programs, `mcp` tools of servers; `tools/` has what comes in the box.
Importing this package loads none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from acting.executor import Executor
    from acting.tool_context import ToolContext

__all__ = ["Executor", "ToolContext"]

_HOMES = {"Executor": "acting.executor", "ToolContext": "acting.tool_context"}


def __getattr__(name: str) -> Any:
    if home := _HOMES.get(name):
        from importlib import import_module

        return getattr(import_module(home), name)
    raise AttributeError(f"module 'acting' has no attribute {name!r}; known: {', '.join(_HOMES)}")
