"""Commands for tools of MCP servers that changed: list those that wait for acceptance, and accept them."""

from __future__ import annotations

from typing import Any

import click

from spar.cli.blocks import styled, table
from spar.cli.context import Options, fail, refusals, show
from spar.service import exit_codes as exits


@click.group()
def mcp() -> None:
    """Look at tools of MCP servers that changed, and accept them."""


@mcp.command("list")
@click.pass_obj
def list_servers(options: Options) -> None:
    """List the configured servers, with their tools that are switched off until they are accepted.

    \b
    Example:
      spar mcp list
    """
    from spar.errors import SparError

    try:
        waiting_of = {name: server.waiting() for name, server in _servers(options).items()}
    except SparError as error:
        fail(str(error))
    rows = [row for name, waiting in waiting_of.items() for row in _rows(name, waiting)]
    heads = ("server", "state", "tool", "why it waits to be accepted")
    show(options, waiting_of, table(heads, rows) if rows else "no MCP server is configured")


@mcp.command()
@click.argument("server")
@click.argument("tools", nargs=-1)
@click.pass_obj
def accept(options: Options, server: str, tools: tuple[str, ...]) -> None:
    """Accept tools of SERVER in their present form: the named ones, or all that wait. A running service notices it.

    \b
    Examples:
      spar mcp accept git
      spar mcp accept git git_log
    """
    from spar.errors import SparError

    servers = _servers(options)
    if server not in servers:
        fail(f"no MCP server named {server!r}; known: {', '.join(servers) or 'none'}", exits.USAGE)
    try:
        accepted: dict[str, str] = servers[server].accept(tools)
    except LookupError as error:
        fail(str(error.args[0]), exits.USAGE)
    except SparError as error:
        fail(str(error))
    text = "\n".join(f"accepted {tool}: {why}" for tool, why in accepted.items())
    show(options, {"server": server, "accepted": accepted}, text or f"nothing of {server} waits to be accepted")


def _rows(server: str, waiting: dict[str, str]) -> list[tuple[str, ...]]:
    if not waiting:
        return [(server, styled("nothing waits", "good"), "", "")]
    return [(server, styled("waits", "warn"), tool, why) for tool, why in waiting.items()]


def _servers(options: Options) -> dict[str, Any]:
    """Return the configured sources of tools that need acceptance, by name. Sources that cannot be built end the
    command."""
    from spar.config.factory import Parts
    from spar.ports.optional import AcceptsTools, offers

    loaded = options.load()
    with refusals():
        tools = Parts(loaded).tools()
    return {tool.name: tool for tool in tools if offers(tool, AcceptsTools)}
