"""Reads a feed (RSS, Atom) from standard input and writes its entries to standard output; a process of its own.

A feed is a stranger's, and the library that reads it looks at it with patterns that may take for ever and hold the
interpreter meanwhile. So it runs beside the service, with limits of time and memory, and declarations of entities, of
which a few lines may unfold to gigabytes, are refused before.
"""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from typing import Any, Final

import msgspec

from spar.errors import ConfigError, TransientError

#: Seconds, and bytes of memory, that reading may take; entries that are read.
SECONDS: Final = 20
_MEMORY: Final = 1 << 30
MOST_ENTRIES: Final = 1000
_LONGEST: Final = 64 * 1024
_ENTITY = re.compile(rb"<!ENTITY", re.IGNORECASE)


class FeedEntry(msgspec.Struct, frozen=True):
    """One entry of a feed, as it says it."""

    id: str = ""
    link: str = ""
    title: str = ""
    html: str = ""
    author: str = ""
    published: str = ""


class FeedContents(msgspec.Struct, frozen=True):
    """The entries of a feed, how many it has, its title, and what is wrong with it, if anything."""

    entries: tuple[FeedEntry, ...] = ()
    count: int = 0
    title: str = ""
    problem: str = ""
    is_feed: bool = True


def check_library() -> None:
    """Raises: ConfigError when the library is missing."""
    from importlib.util import find_spec

    if find_spec("feedparser") is None:
        raise ConfigError("feeds need feedparser: pip install 'spar-agent[feeds]'")


def read_feed(body: bytes, content_type: str, url: str) -> FeedContents:
    """Return the entries of a feed. Blocks. Raises: TransientError for what is no feed, or cannot be read in time."""
    if _ENTITY.search(body.replace(b"\0", b"")):  # in any encoding of two bytes, too
        raise TransientError(f"{url} declares entities, which no feed needs: it is not read")
    command = [sys.executable, "-I", "-m", __name__, content_type[:200]]
    try:
        done = subprocess.run(
            command, input=body, capture_output=True, timeout=SECONDS + 10, check=False, cwd="/", env={}
        )
    except subprocess.TimeoutExpired:
        raise TransientError(f"{url} could not be read within {SECONDS + 10} s") from None
    try:
        found = msgspec.json.decode(done.stdout, type=FeedContents) if done.returncode == 0 else None
    except msgspec.DecodeError:
        found = None
    if found is None:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or [f"exit {done.returncode}"]
        raise TransientError(f"{url} could not be read as a feed: {said[0]:.300}")
    if not found.is_feed:
        raise TransientError(f"{url} is no feed{f': {found.problem}' if found.problem else ''}")
    return found


def main() -> None:
    """Read and write."""
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    import feedparser

    kind = sys.argv[1] if len(sys.argv) > 1 else ""
    # As a stream: bytes and texts the library takes for the name of a file, too, and opens it.
    parsed = feedparser.parse(sys.stdin.buffer, response_headers={"content-type": kind} if kind else {})
    entries = [_entry(each) for each in parsed.entries[:MOST_ENTRIES]]
    problem = str(parsed.get("bozo_exception", ""))[:300] if parsed.get("bozo") else ""
    is_feed = bool(parsed.get("version")) or bool(entries)
    title = _text(parsed.feed.get("title"))
    found = FeedContents(tuple(entries), len(parsed.entries), title, problem, is_feed)
    sys.stdout.buffer.write(msgspec.json.encode(found))


def _entry(item: Any) -> FeedEntry:
    contents = [each.get("value", "") for each in item.get("content") or ()]
    html = max([*contents, _text(item.get("summary"))], key=len, default="")
    published = _text(item.get("published") or item.get("updated"))
    return FeedEntry(
        _text(item.get("id")), _text(item.get("link")), _text(item.get("title")), html[:_LONGEST],
        _text(item.get("author")), published,
    )  # fmt: skip


def _text(value: object) -> str:
    text = value if isinstance(value, str) else ""
    return text[:4000].encode("utf-8", "replace").decode()


if __name__ == "__main__":
    main()
