"""ACT: executes what a plan decided, as a graph of calls.

    async with Executor([weather, note]) as executor:
        result = await executor.run([Call("weather", {"city": "Oslo"}, output_path="†state.weather"),
                                     Call("note", {"text": "†state.weather"})])

`executor` is the face, `tick` one run of calls, `graph` and `paths` decide (pure), `launch` carries out,
`approvals` asks, `tools/` has what comes in the box. Importing this package loads none of them.
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
