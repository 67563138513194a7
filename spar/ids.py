"""Identifiers that are unique and sort by the time they were made.

An identifier has sixteen hexadecimal digits of nanoseconds since 1970 (monotonic within a process, so that a clock that
is set back does not reorder them), four of a counter, six of the process. Identifiers of calls are made by the thousand
and written by models, so they are short: a count within the process, and fourteen digits of the process.
"""

from __future__ import annotations

import itertools
import os
import time

_OFFSET = time.time_ns() - time.monotonic_ns()
_count = itertools.count().__next__
_call_count = itertools.count(1).__next__
_tail, _process = os.urandom(3).hex(), os.urandom(7).hex()


def new_id() -> str:
    """Return a new identifier, 26 characters of `[0-9a-f]`; safe from any thread; costs under a microsecond."""
    return ((time.monotonic_ns() + _OFFSET) << 16 | (_count() & 0xFFFF)).to_bytes(10).hex() + _tail


def new_call_id() -> str:
    """Return a new identifier of a call; safe from any thread; costs a fifth of a microsecond."""
    return f"c{_call_count()}-{_process}"


def _reseed() -> None:
    global _tail, _process
    _tail, _process = os.urandom(3).hex(), os.urandom(7).hex()


os.register_at_fork(after_in_child=_reseed)
