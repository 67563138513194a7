"""Store of messages and errors of ended detached calls, until the next batch of their session takes them."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from spar.types import Fault

MOST_BYTES: Final = 64 << 20  # of all sessions together; four of the largest results


class _Entry(Struct):
    session: str
    is_error: bool
    data: dict[str, Any]
    size: int


class LateMessages(Struct):
    """Store of messages and errors by session, of at most `limit` bytes together.

    Beyond that the oldest are dropped and counted: `tell` is called with the session and a fault, and the session's
    next batch gets an error with the count.
    """

    tell: Callable[[str, Fault], object]
    limit: int = MOST_BYTES
    #: The numbers of each session's entries until they are taken; a session whose entries were all dropped stays here.
    sessions: dict[str, deque[int]] = field(default_factory=dict)
    _entries: OrderedDict[int, _Entry] = field(default_factory=OrderedDict)
    _count: int = 0
    _dropped: dict[str, int] = field(default_factory=dict)
    _size: int = 0

    def add(self, session: str, data: dict[str, Any], *, is_error: bool = False) -> None:
        """Store a message or an error until the session's next batch."""
        entry = _Entry(session, is_error, data, len(msgspec.json.encode(data)))
        self._count += 1
        self._entries[self._count] = entry
        self.sessions.setdefault(session, deque()).append(self._count)
        self._size += entry.size
        while self._size > self.limit and self._entries:
            self._drop(self._entries.popitem(last=False)[1])

    def take(self, session: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Remove and return the errors and the messages for a session, oldest first."""
        entries = [self._entries.pop(number) for number in self.sessions.pop(session, ())]
        self._size -= sum(entry.size for entry in entries)
        errors = [entry.data for entry in entries if entry.is_error]
        if number := self._dropped.pop(session, 0):
            errors.insert(0, {"call": None, "error": {"kind": "dropped", "message": _sentence(number, self.limit)}})
        return errors, [entry.data for entry in entries if not entry.is_error]

    def _drop(self, entry: _Entry) -> None:
        """Count an entry that was dropped, the oldest of its session."""
        self._size -= entry.size
        self.sessions[entry.session].popleft()
        number = self._dropped[entry.session] = self._dropped.get(entry.session, 0) + 1
        self.tell(entry.session, Fault("dropped", _sentence(number, self.limit), "act", "act", retryable=False))


def _sentence(number: int, limit: int) -> str:
    waited = f"more than {limit} bytes waited for a next cycle"
    return f"{number} messages or errors of detached calls were dropped: {waited}"
