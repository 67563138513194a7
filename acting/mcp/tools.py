"""Tools of an MCP server, made from its definitions: names, terms and bounds. Pure, but for the call itself.

The server's annotations are pinned and otherwise ignored: they change no term. A tool's effect is `once` and its other
terms are the defaults, unless the configuration says otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from acting.mcp.pins import Definition, encoded, pin
from acting.tooling.context import ToolContext
from acting.tooling.tool_schema import object_schema
from spar.data import paths
from spar.data.json_safe import plain, whole
from spar.data.media import Medium
from spar.data.text import disarmed
from spar.errors import PermanentError, TooLargeError
from spar.protocols import Effect
from spar.protocols.tools import Approval

if TYPE_CHECKING:
    from mcp.types import CallToolResult

MOST_TOOLS = 200
"""Most tools of one server; no planner could choose from more."""
MOST_DEFINITION = 64 * 1024
"""Most bytes of one tool's definition."""
MOST_NAME = 128
"""Most characters of a tool's own name; the protocol recommends no more."""
_LONGEST_NAME = 64
_LONGEST_DESCRIPTION = 8000
_UNFIT = re.compile(r"[^A-Za-z0-9_-]")

Send = Callable[["RemoteTool", dict[str, Any], ToolContext], Awaitable[Any]]


class ToolPolicy(Struct, frozen=True):
    """The configured terms of a server's tools, by the server's names; `*` stands for all others."""

    allow: frozenset[str] = frozenset()
    effects: Mapping[str, Effect] = field(default_factory=dict)
    approval: Mapping[str, Approval] = field(default_factory=dict)
    safe: frozenset[str] = frozenset()
    trusted: frozenset[str] = frozenset()
    timeout: float = 60.0

    def allows(self, remote: str) -> bool:
        return not self.allow or remote in self.allow

    def named(self) -> set[str]:
        """Return every tool that the configuration names."""
        return {*self.allow, *self.effects, *self.approval, *self.safe, *self.trusted} - {"*"}


class RemoteTool:
    """A tool of a server. With `off`, the reason why it must not be called, each call fails with that reason."""

    def __init__(self, name: str, definition: Definition, policy: ToolPolicy, send: Send, off: str = "") -> None:
        remote = str(definition["name"])
        self.name, self.remote, self.off, self._send = name, remote, off, send
        #: Two tools with the same key are the same tool.
        self.key = (name, pin(definition), off)
        self.effect: Effect = "read" if off else _lookup(policy.effects, remote, "once")
        self.approval: Approval = "auto" if off else _lookup(policy.approval, remote, "auto")
        self.brings_untrusted = policy.trusted.isdisjoint((remote, "*"))
        self.safe_with_untrusted = not policy.safe.isdisjoint((remote, "*"))
        self.timeout = policy.timeout
        off_schema = object_schema(name, f"Switched off, do not call it: {disarmed(off)}", {})
        self.schema = {**off_schema, "additionalProperties": True} if off else _usable_schema(name, definition)

    async def __call__(self, /, *, _context: ToolContext, **params: Any) -> Any:
        """Return the result of the server's tool.

        Raises: like `connection.Link.call`; PermanentError when it is off.
        """
        if self.off:
            raise PermanentError(self.off)
        return await self._send(self, params, _context)


class OfferedTools(Struct, frozen=True):
    """The result of a listing: `tools`, and in `refused` the reason why another cannot be used, by its remote name."""

    tools: tuple[RemoteTool, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)


def offer(server: str, definitions: Mapping[str, Definition], off: Mapping[str, str], policy: ToolPolicy, send: Send, *,
          can_accept: bool = True) -> OfferedTools:  # fmt: skip
    """Return the tools that the policy allows, named `server__tool`. `off` has the reason for each that is off.

    Args: can_accept: whether people can accept the tools that are off; false when the file of pins is damaged.
    """
    tools: dict[str, RemoteTool] = {}
    refused: dict[str, str] = {}
    for remote, definition in definitions.items():
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
    for remote in sorted(policy.named() - set(definitions)):
        refused[remote] = "the configuration names it, but the server has no such tool"
    return OfferedTools(tuple(tools.values()), refused)


def name_of(server: str, remote: str) -> str:
    """Return the name of a tool in calls: at most 64 characters of `A-Za-z0-9_-`."""
    return f"{server}__{_UNFIT.sub('_', remote)}"[:_LONGEST_NAME]


def server_name(name: str) -> str:
    """Return a server's name as the prefix of its tools' names. It has no `__`, which separates it from the tool."""
    return re.sub("_{2,}", "_", _UNFIT.sub("_", name))[:32].strip("_") or "mcp"


def is_small(definition: Definition) -> bool:
    """Return whether a definition is within the bounds of its size."""
    return len(definition["name"]) <= MOST_NAME and len(encoded(definition)) <= MOST_DEFINITION


def unusable(definition: Definition) -> str:
    """Return why a definition cannot be used as a tool, or ""."""
    schema = definition.get("inputSchema")
    if not isinstance(schema, Mapping) or schema.get("type", "object") != "object":
        return "its parameters are no object"
    if not isinstance(schema.get("properties", {}), Mapping) or not isinstance(schema.get("required", []), list):
        return "its schema cannot be read"
    reserved = [name for name in schema.get("required", []) if str(name).startswith("_")]
    return f"it requires {reserved[0]!r:.80}, and names that begin with '_' are the calls' own" if reserved else ""


def _usable_schema(name: str, definition: Definition) -> dict[str, Any]:
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


def _lookup(table: Mapping[str, Any], remote: str, default: Any) -> Any:
    return table.get(remote, table.get("*", default))


def _quoted(remote: str) -> str:
    return remote if re.fullmatch(r"[\w.-]+", remote) else f"'{disarmed(remote)}'"


_LONGEST_ERROR = 2000


def value_of(result: CallToolResult, limit: int) -> Any:
    """Return the value of a server's answer: the structured content where there is some, else the joined texts.

    An answer with pictures, sound or other blobs becomes the list of all its parts, as a Python tool would return them:
    a reference gives their data, while people and models see the names of the media (`spar.data.media`).
    Raises: TooLargeError when it takes more than `limit` bytes as JSON.
    """
    try:
        if "structured_content" in result.model_fields_set and result.structured_content is not None:
            return whole(result.structured_content, limit)
        parts = [_part(block) for block in result.content]
        if all(isinstance(part, str) for part in parts):
            return whole("\n".join(parts), limit)
        return whole([{"type": "text", "text": part} if isinstance(part, str) else part for part in parts], limit)
    except paths.ValueTooLargeError as error:
        raise TooLargeError(f"its result is too large: {error}; max_output of the server allows {limit}") from None


def _part(block: Any) -> Any:
    """Return a block as text; a picture, a sound or another blob as an object that holds its data."""
    kind = getattr(block, "type", "")
    if kind in ("image", "audio") and isinstance(getattr(block, "data", None), str):
        return {"type": kind, "mimeType": block.mime_type or "", "data": block.data}
    if kind == "resource" and not hasattr(block.resource, "text"):
        return {"type": "resource", "mimeType": block.resource.mime_type or "", "blob": block.resource.blob}
    return next(iter(_texts([block])), "")


def error_of(result: CallToolResult) -> str:
    """Return the tool's own message about its failure."""
    message = disarmed("\n".join(_texts(result.content))).strip()
    return plain(message, _LONGEST_ERROR) or "it does not say why"


def _texts(blocks: Sequence[Any]) -> Iterable[str]:
    for block in blocks:
        kind = getattr(block, "type", "")
        if kind == "text":
            yield block.text
        elif kind == "resource" and hasattr(block.resource, "text"):
            yield block.resource.text
        elif kind == "resource":
            yield _media_name("resource", block.resource.mime_type, block.resource.blob)
        elif kind == "resource_link":
            yield f"[link to {disarmed(str(block.uri))[:500]}]"
        else:
            yield _media_name(
                kind or "something unknown", getattr(block, "mime_type", None), getattr(block, "data", "")
            )


def _media_name(kind: str, mime: str | None, encoded: str) -> str:
    return Medium(kind, mime or "", encoded if isinstance(encoded, str) else "").name
