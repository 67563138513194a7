"""Reader of a feed (RSS, Atom), from standard input to standard output; it runs as a separate process.

A feed is untrusted, and the patterns of the library that reads it may run for ever and block the interpreter
meanwhile. So it runs outside the service, with limits of time and memory. Declarations of entities are refused before,
because a few lines of them may expand to gigabytes.
"""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from typing import Any, Final

import msgspec

from spar.decoding import decode
from spar.errors import ConfigError, TransientError

#: Bounds of reading: seconds, bytes of memory, entries.
SECONDS: Final = 20
_MEMORY: Final = 1 << 30
MOST_ENTRIES: Final = 1000
_LONGEST: Final = 64 * 1024
_ENTITY = re.compile(rb"<!ENTITY", re.IGNORECASE)


class FeedEntry(msgspec.Struct, frozen=True):
    """One entry of a feed, unchanged."""

    id: str = ""
    link: str = ""
    title: str = ""
    html: str = ""
    author: str = ""
    published: str = ""


class FeedContents(msgspec.Struct, frozen=True):
    """Entries of a feed, their total number, the feed's title, and its problem, if it has one."""

    entries: tuple[FeedEntry, ...] = ()
    count: int = 0
    title: str = ""
    problem: str = ""
    is_feed: bool = True


def check_library() -> None:
    """Check that the library is installed. Raises: ConfigError."""
    from importlib.util import find_spec

    if find_spec("feedparser") is None:
        raise ConfigError("feeds need feedparser: pip install 'spar-agent[feeds]'")


def read_feed(body: bytes, content_type: str, url: str) -> FeedContents:
    """Return the entries of a feed. Blocks. Raises: TransientError when it is not a feed, or cannot be read in time."""
    if _ENTITY.search(body.replace(b"\0", b"")):  # also in encodings of two bytes
        raise TransientError(f"{url} declares entities, which no feed needs: it is not read")
    command = [sys.executable, "-I", "-m", __name__, content_type[:200]]
    try:
        done = subprocess.run(
            command, input=body, capture_output=True, timeout=SECONDS + 10, check=False, cwd="/", env={}
        )
    except subprocess.TimeoutExpired:
        raise TransientError(f"{url} could not be read within {SECONDS + 10} s") from None
    try:
        contents = decode(done.stdout, FeedContents) if done.returncode == 0 else None
    except msgspec.DecodeError:
        contents = None
    if contents is None:
        last_lines = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or [f"exit {done.returncode}"]
        raise TransientError(f"{url} could not be read as a feed: {last_lines[0]:.300}")
    if not contents.is_feed:
        raise TransientError(f"{url} is no feed{f': {contents.problem}' if contents.problem else ''}")
    return contents


def main() -> None:
    """Read the feed and write its entries."""
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    import feedparser

    kind = sys.argv[1] if len(sys.argv) > 1 else ""
    # Pass a stream, because the library may take bytes or text as the name of a file and open it.
    parsed = feedparser.parse(sys.stdin.buffer, response_headers={"content-type": kind} if kind else {})
    entries = [_entry(item) for item in parsed.entries[:MOST_ENTRIES]]
    problem = str(parsed.get("bozo_exception", ""))[:300] if parsed.get("bozo") else ""
    is_feed = bool(parsed.get("version")) or bool(entries)
    title = _text(parsed.feed.get("title"))
    feed = FeedContents(tuple(entries), len(parsed.entries), title, problem, is_feed)
    sys.stdout.buffer.write(msgspec.json.encode(feed))


def _entry(item: Any) -> FeedEntry:
    contents = [content.get("value", "") for content in item.get("content") or ()]
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
