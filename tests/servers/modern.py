"""An MCP server by the SDK, which speaks its newest protocol: over standard streams, or over HTTP on a loopback port.

Usage: modern.py [PORT]. `grow` adds a tool and says so; `count` reports its progress; `typed` returns what it promises.
"""

from __future__ import annotations

import sys

import anyio
from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("modern", version="2")


@server.tool()
async def grow(context: Context) -> str:
    """Add a tool."""

    def grown() -> str:
        return "grown"

    server.add_tool(grown)
    await context.notify_tools_changed()
    return "it grew"


@server.tool()
async def count(to: int, context: Context) -> int:
    """Count up to a number."""
    for number in range(to):
        await context.report_progress(number, to)
        await anyio.sleep(0.15)
    return to


if len(sys.argv) > 1:
    server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
else:
    server.run("stdio")
