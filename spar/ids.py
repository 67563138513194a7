"""Identifiers that are unique and sort by the time they were made.

Sixteen hexadecimal digits of nanoseconds since 1970 (monotonic within a process, so that a clock that
is set back does not reorder them), four of a counter, six of the process.
"""

from __future__ import annotations

import itertools
import os
import secrets
import time

_OFFSET = time.time_ns() - time.monotonic_ns()
_count = itertools.count().__next__
_tail = secrets.token_hex(3)


def new_id() -> str:
    """A new identifier, 26 characters of `[0-9a-f]`; safe from any thread; costs under a microsecond."""
    return f"{(time.monotonic_ns() + _OFFSET) << 16 | (_count() & 0xFFFF):020x}{_tail}"


def _reseed() -> None:
    global _tail
    _tail = secrets.token_hex(3)


os.register_at_fork(after_in_child=_reseed)
