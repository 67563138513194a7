"""Conversion of an MCP server's answer to a call into a value that a plan can use. Pure.

The value is the structured content where there is some, else the joined texts. An answer with pictures, sound or other
blobs becomes the list of all its parts, as a Python tool would return them: a reference gives their data, while people
and models see the names of the media (`spar.data.media`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from spar.data import paths
from spar.data.json_safe import plain, whole
from spar.data.media import Medium
from spar.data.text import disarmed
from spar.errors import TooLargeError

if TYPE_CHECKING:
    from mcp.types import CallToolResult

_LONGEST_ERROR = 2000


def value_of(result: CallToolResult, limit: int) -> Any:
    """Return the whole value. Raises: TooLargeError when it takes more than `limit` bytes as JSON."""
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
