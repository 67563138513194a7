"""Commands for MCP: serve the agent to other programs; list tools of servers that changed, and accept them."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import click

from spar.cli.blocks import styled, table
from spar.cli.context import Options, fail, refusals, show
from spar.client.async_client import AsyncClient
from spar.data.text import unknown
from spar.errors import ConfigError, SparError
from spar.parts.factory import Parts
from spar.ports.any_part import has
from spar.ports.phases import OptionalTool
from spar.service import exit_codes as exits
from spar.service.token_rows import SCOPES


@click.group()
def mcp() -> None:
    """Serve the agent to programs that speak MCP; look at tools of MCP servers that changed, and accept them."""


@mcp.command("list")
@click.pass_obj
def list_servers(options: Options) -> None:
    """List the configured servers, with their tools that are switched off until they are accepted.

    \b
    Example:
      spar mcp list
    """
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
    servers = _servers(options)
    if server not in servers:
        fail(unknown("MCP server named", server, servers), exits.USAGE)
    try:
        accepted: dict[str, str] = servers[server].accept(tools)
    except LookupError as error:
        fail(str(error.args[0]), exits.USAGE)
    except SparError as error:
        fail(str(error))
    text = "\n".join(f"accepted {tool}: {why}" for tool, why in accepted.items())
    show(options, {"server": server, "accepted": accepted}, text or f"nothing of {server} waits to be accepted")


@mcp.command()
@click.option("--http", "port", type=click.IntRange(0, 65535), help="Serve streamable HTTP on this port (0: any).")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address of that port.")
@click.option("--allow-host", "names", multiple=True, help="A further host name of its requests, as of a proxy.")
@click.option("--url", help="The port of the service; default: its control socket, with --http as configured.")
@click.option("--token-env", metavar="NAME", help="The variable with the token for --url, over standard streams.")
@click.option("--scopes", default="read,operate", show_default=True, help="The scopes that tools may need.")
@click.pass_obj
def serve(options: Options, port: int | None, host: str, names: tuple[str, ...], url: str | None,
          token_env: str | None, scopes: str) -> None:  # fmt: skip
    """Serve the running agent as tools: over standard streams, or over HTTP.

    Over standard streams it acts as you, or with --url by a token. Over HTTP each request has a token
    of its own (Authorization: Bearer), whose scopes hold.

    \b
    Examples:
      spar mcp serve
      spar mcp serve --scopes read,operate,approve
      spar mcp serve --url http://127.0.0.1:8420 --token-env TOKEN
      spar mcp serve --http 8421
    """
    wanted = [word.strip() for word in scopes.split(",")]
    if unknown := [word for word in wanted if word not in SCOPES]:
        fail(f"--scopes {unknown[0]!r}: must be of {', '.join(SCOPES)}", exits.USAGE)
    allowed = [scope for scope in SCOPES if scope in wanted]
    try:
        import spar.mcp.serving as serving
    except ImportError:
        fail("spar mcp serve needs the MCP library: pip install 'spar-agent[mcp]'", exits.UNAVAILABLE)
    if port is None:
        if bool(url) != bool(token_env):
            fail("--url and --token-env go together", exits.USAGE)
        if token_env and not os.environ.get(token_env):
            fail(f"--token-env {token_env!r}: no such variable, or it is empty", exits.USAGE)
        client = AsyncClient(url or options.state_dir(), token=os.environ[token_env] if token_env else "")
        asyncio.run(serving.serve_streams(client, allowed))
        return
    if token_env:
        fail("--token-env is for standard streams: over HTTP each request has its own token", exits.USAGE)
    from spar.mcp.port import serve_port

    settings = options.load("service").settings.service
    url = url or f"http://{settings.host}:{settings.port}"
    try:
        asyncio.run(serve_port(url, host, port, names, allowed, lambda address: click.echo(address, err=True)))
    except ConfigError as error:
        fail(str(error), exits.UNAVAILABLE)


def _rows(server: str, waiting: dict[str, str]) -> list[tuple[str, ...]]:
    if not waiting:
        return [(server, styled("nothing waits", "good"), "", "")]
    return [(server, styled("waits", "warn"), tool, why) for tool, why in waiting.items()]


def _servers(options: Options) -> dict[str, Any]:
    """Return the configured sources of tools that need acceptance, by name. Sources that cannot be built end the
    command."""
    loaded = options.load()
    with refusals():
        tools = Parts(loaded).tools()
    return {tool.name: tool for tool in tools if has(tool, OptionalTool.name, OptionalTool.accept)}
