"""The files of the console: read once, under paths with the digest of all, so that browsers keep them."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import Final

from msgspec import Struct

_FOLDER: Final = Path(__file__).parent / "static"
_TYPES: Final = {
    ".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}  # fmt: skip
#: Headers of each page: it runs its own files only, asks its own origin only, and stands in no frame.
PAGE_HEADERS: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
#: The word of `index.html` that stands for the digest of all files.
_PLACE: Final = b"DIGEST"


class PageFile(Struct, frozen=True):
    """File of the console, with the headers of its answer."""

    content: bytes
    headers: dict[str, str]


def page_files() -> dict[str, PageFile]:
    """Return the files of the console by the paths at which they are served."""
    files = {path.relative_to(_FOLDER).as_posix(): path.read_bytes()
             for path in sorted(_FOLDER.rglob("*")) if path.suffix in _TYPES}  # fmt: skip
    digest = _digest(b"".join(name.encode() + b"\n" + content for name, content in files.items()))
    index = files.pop("index.html").replace(_PLACE, digest.encode())
    return {"/": _file("index.html", index, "no-cache")} | {
        f"/console/{digest}/{name}": _file(name, content, "public, max-age=31536000, immutable")
        for name, content in files.items()
    }


def _file(name: str, content: bytes, cache: str) -> PageFile:
    about = {"content-type": _TYPES[Path(name).suffix], "cache-control": cache, "etag": f'"{_digest(content)}"'}
    return PageFile(content, PAGE_HEADERS | about)


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=8).hexdigest()
