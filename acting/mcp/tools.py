"""Makes tools of what an MCP server offers: names, terms and bounds. Pure, but for the call itself.

Nothing that the server says of itself decides anything: its annotations are pinned and otherwise ignored. A tool's
effect is `once` and its terms are the plainest, unless the configuration says otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Struct, field

from acting.mcp.pins import Definition, encoded, pin
from acting.tooling.tool_context import ToolContext
from spar.data.text import disarmed
from spar.errors import PermanentError
from spar.protocols import Effect
from spar.protocols.tools import Approval

MOST_TOOLS = 200
"""Tools of one server; more of them no planner could choose from."""
MOST_DEFINITION = 64 * 1024
"""Bytes of one tool's definition."""
MOST_NAME = 128
"""Characters of a tool's own name; the protocol recommends no more."""
_LONGEST_NAME = 64
_LONGEST_DESCRIPTION = 8000
_UNFIT = re.compile(r"[^A-Za-z0-9_-]")

Send = Callable[["RemoteTool", dict[str, Any], ToolContext], Awaitable[Any]]


class ToolPolicy(Struct, frozen=True):
    """The configured terms of a server's tools, by their own names; `*` stands for all that are not named."""

    allow: frozenset[str] = frozenset()
    effects: Mapping[str, Effect] = field(default_factory=dict)
    approval: Mapping[str, Approval] = field(default_factory=dict)
    safe: frozenset[str] = frozenset()
    timeout: float = 60.0

    def allows(self, remote: str) -> bool:
        return not self.allow or remote in self.allow

    def named(self) -> set[str]:
        """Every tool that the configuration names."""
        return {*self.allow, *self.effects, *self.approval, *self.safe} - {"*"}


class RemoteTool:
    """A tool of a server. With `off` it only says why it must not be called."""

    def __init__(self, name: str, definition: Definition, policy: ToolPolicy, send: Send, off: str = "") -> None:
        remote = str(definition["name"])
        self.name, self.remote, self.off, self._send = name, remote, off, send
        #: Two tools with one key are the same tool.
        self.key = (name, pin(definition), off)
        self.effect: Effect = "read" if off else _either(policy.effects, remote, "once")
        self.approval: Approval = "auto" if off else _either(policy.approval, remote, "auto")
        self.brings_untrusted = True
        self.safe_with_untrusted = remote in policy.safe or "*" in policy.safe
        self.timeout = policy.timeout
        self.schema = _closed(name, off) if off else _open(name, definition)

    async def __call__(self, /, *, _context: ToolContext, **params: Any) -> Any:
        """Return the result of the server's tool. Raises: like `McpServer.send`; PermanentError when it is off."""
        if self.off:
            raise PermanentError(self.off)
        return await self._send(self, params, _context)


class OfferedTools(Struct, frozen=True):
    """The result of a listing: the tools, and those that cannot be one, with the reason."""

    tools: tuple[RemoteTool, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)


def offer(server: str, found: Mapping[str, Definition], off: Mapping[str, str], policy: ToolPolicy, send: Send, *,
          can_accept: bool = True) -> OfferedTools:  # fmt: skip
    """The tools among `found` that the policy allows, named `server__tool`; those in `off` say why they are.

    Args: can_accept: whether people can accept those that are off; not where the file of the accepted is damaged.
    """
    tools: dict[str, RemoteTool] = {}
    refused: dict[str, str] = {}
    for remote, definition in found.items():
        if not policy.allows(remote):
            continue
        name = name_of(server, remote)
        if reason := unusable(definition):
            refused[remote] = reason
        elif name in tools:
            refused[remote] = f"{name!r} is already the name of its tool {tools[name].remote!r}"
        else:
            why = off.get(remote, "")
            hint = f"; look at it and accept it with: spar mcp accept {server} {_quoted(remote)}" if can_accept else ""
            sentence = f"tool {remote!r} of server {server!r} is switched off: {why}{hint}" if why else ""
            tools[name] = RemoteTool(name, definition, policy, send, sentence)
    for remote in sorted(policy.named() - set(found)):
        refused[remote] = "the configuration names it, but the server has no such tool"
    return OfferedTools(tuple(tools.values()), refused)


def name_of(server: str, remote: str) -> str:
    """Return the name by which calls know a tool: at most 64 of `A-Za-z0-9_-`."""
    return f"{server}__{_UNFIT.sub('_', remote)}"[:_LONGEST_NAME]


def server_name(name: str) -> str:
    """A server's name as it begins the names of its tools; `__` stands between the two and nowhere before."""
    return re.sub("_{2,}", "_", _UNFIT.sub("_", name))[:32].strip("_") or "mcp"


def is_small(definition: Definition) -> bool:
    """Return whether this is small enough to be looked at any further."""
    return len(definition["name"]) <= MOST_NAME and len(encoded(definition)) <= MOST_DEFINITION


def unusable(definition: Definition) -> str:
    """Why this cannot be a tool here, or ""."""
    schema = definition.get("inputSchema")
    if not isinstance(schema, Mapping) or schema.get("type", "object") != "object":
        return "its parameters are no object"
    if not isinstance(schema.get("properties", {}), Mapping) or not isinstance(schema.get("required", []), list):
        return "its schema cannot be read"
    reserved = [name for name in schema.get("required", []) if str(name).startswith("_")]
    return f"it requires {reserved[0]!r:.80}, and names that begin with '_' are the calls' own" if reserved else ""


def _open(name: str, definition: Definition) -> dict[str, Any]:
    schema = dict(definition["inputSchema"])
    properties = {key: value for key, value in schema.get("properties", {}).items() if not key.startswith("_")}
    schema.pop("$schema", None)
    schema["type"] = "object"
    schema["description"] = disarmed(str(definition.get("description") or ""))[:_LONGEST_DESCRIPTION]
    promised = definition.get("outputSchema")
    output = {"_output": promised} if isinstance(promised, Mapping) else {}
    schema["properties"] = {"_tool": {"const": name}, **properties, **output}
    schema["required"] = ["_tool", *schema.get("required", [])]
    return schema


def _closed(name: str, why: str) -> dict[str, Any]:
    return {
        "type": "object",
        "description": f"Switched off, do not call it: {disarmed(why)}",
        "properties": {"_tool": {"const": name}},
        "required": ["_tool"],
        "additionalProperties": True,
    }


def _either(table: Mapping[str, Any], remote: str, default: Any) -> Any:
    return table.get(remote, table.get("*", default))


def _quoted(remote: str) -> str:
    return remote if re.fullmatch(r"[\w.-]+", remote) else f"'{disarmed(remote)}'"
