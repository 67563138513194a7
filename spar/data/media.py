"""Names of images, sound and other blobs inside of values, which replace them where values are shown. Pure.

Tools return such data as MCP does: `{"type": "image", "mimeType": "image/png", "data": base64}`, or a resource with a
`blob`; or as a data URL. A reference returns all of it; people, events, logs and the text of a request get its kind and
size, `[image image/png, 200000 bytes]`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

KINDS: Final = frozenset({"image", "audio", "video", "blob", "file"})
_TYPES: Final = ("mimeType", "mime_type", "media_type")
_SHORT: Final = 64  # characters of a text that is shown as it is
_LONGEST_TYPE: Final = 100
_MOST: Final = 100_000  # values looked through for media


class Medium(Struct, frozen=True):
    """Image, sound or other blob: `kind` as its tool says, `mime` type ("" if not stated), base64 `data`."""

    kind: str
    mime: str
    data: str

    @property
    def size(self) -> int:
        """Return the number of bytes of the decoded data."""
        return max(0, len(self.data) * 3 // 4 - self.data[-2:].count("="))

    @property
    def name(self) -> str:
        """Return the text that replaces it where values are shown."""
        mime = self.mime[:_LONGEST_TYPE]
        type_text = mime if mime.isascii() and mime.isprintable() and mime else "of no stated type"
        return f"[{self.kind} {type_text}, {self.size} bytes]"


def medium_of(value: Any) -> Medium | None:
    """Return the medium that an object or text holds; None for any other value."""
    if isinstance(value, str):
        return _of_url(value) if len(value) > _SHORT and value[:5] == "data:" else None
    if not isinstance(value, Mapping):
        return None
    kind, data = value.get("type"), value.get("data")
    if not (isinstance(kind, str) and kind in KINDS and isinstance(data, str)):
        kind, data = "resource", value.get("blob")
        if not isinstance(data, str):
            return None
    mime = next((stated_type for key in _TYPES if isinstance(stated_type := value.get(key), str)), "")
    return Medium(kind, mime, data)


def media_in(value: Any) -> Iterator[Medium]:
    """Yield the media inside a value, in order of depth, among its first 100,000 parts."""
    level, count = [value], 0
    while level and count < _MOST:
        below: list[Any] = []
        for item in level[: _MOST - count]:
            medium = medium_of(item)
            if medium is not None:
                yield medium
            elif isinstance(item, Mapping):
                below.extend(item.values())
            elif isinstance(item, (list, tuple)):
                below.extend(item)
        count += len(level)
        level = below


def _of_url(text: str) -> Medium | None:
    """Return the medium that a data URL holds."""
    head, comma, _ = text[5 : 5 + 2 * _LONGEST_TYPE].partition(",")
    if not comma or not head.endswith(";base64"):
        return None
    mime = head.partition(";")[0]
    kind = mime.partition("/")[0]
    return Medium(kind if kind in KINDS else "blob", mime, text[5 + len(head) + 1 :])
