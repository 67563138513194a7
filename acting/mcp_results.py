"""What an MCP server answered to a call, as a value that a plan can use. Pure.

Structured content is taken where there is some; else the texts, joined. Pictures, sound and other blobs are named by
kind and size and left out: no part of a plan can read them, and they are large.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from acting.tools import visible
from spar.plain import plain

if TYPE_CHECKING:
    from mcp.types import CallToolResult

_LONGEST_ERROR = 2000


def value_of(result: CallToolResult, limit: int) -> Any:
    """The value of at most about `limit` bytes."""
    if "structured_content" in result.model_fields_set and result.structured_content is not None:
        return plain(result.structured_content, limit)
    return plain("\n".join(_texts(result.content)), limit)


def error_of(result: CallToolResult) -> str:
    """What the tool says of its failure."""
    said = visible("\n".join(_texts(result.content))).strip()
    return plain(said, _LONGEST_ERROR) or "it does not say why"


def _texts(blocks: Sequence[Any]) -> Iterable[str]:
    for block in blocks:
        kind = getattr(block, "type", "")
        if kind == "text":
            yield block.text
        elif kind == "resource" and hasattr(block.resource, "text"):
            yield block.resource.text
        elif kind == "resource":
            yield _named("resource", block.resource.mime_type, block.resource.blob)
        elif kind == "resource_link":
            yield f"[link to {visible(str(block.uri))[:500]}]"
        else:
            yield _named(kind or "something unknown", getattr(block, "mime_type", None), getattr(block, "data", ""))


def _named(kind: str, mime: str | None, encoded: str) -> str:
    size = len(encoded) * 3 // 4 - encoded[-2:].count("=")
    return f"[{kind} {visible(mime or 'of no stated type')[:100]}, {size} bytes, left out]"
