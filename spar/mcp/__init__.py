"""Command `spar mcp`, with its server of the Model Context Protocol: operations of a running service as tools.

The server is a client of the service like any other: over the control socket, or over the port with a token. The
service checks scopes, limits and inputs, and writes the audit log.

    command    the command: serves; lists and accepts changed tools of other servers
    tools      the tools, made from the table of operations, and how a call becomes an operation
    serving    the protocol, by the SDK, over standard streams
    port       the same over streamable HTTP, for clients with a token
"""

from typing import Final

from spar.cli.main import Place

COMMAND: Final = Place(
    "spar.mcp.command:mcp", "Serve the agent by MCP; tools of MCP servers that changed.", group="Set up"
)
