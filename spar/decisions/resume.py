"""Resumption of what an earlier process left: interrupted cycles, and calls that continued without one."""

from __future__ import annotations

from typing import Final, Literal

from spar.records.journal import MOST_ATTEMPTS, Unfinished

#: What becomes of an interrupted cycle: it continues under its own id; its work is dealt with again piece by piece; it
#: is over, as a person had begun it.
Resumption = Literal["continue", "split", "over"]
#: What becomes of a call that was on its way when the process ended: a person decides, it is made again, or nothing.
AFTER_EFFECT: Final[dict[str, Literal["doubt", "again", "nothing"]]] = {
    "once": "doubt",
    "idempotent": "again",
}


def resumption(cycle: Unfinished, attempts: int, *, has_run: bool) -> Resumption:
    """Return what becomes of an interrupted cycle.

    Args: attempts: how often a process died with it or its work; has_run: its run is open, or it has none.
    """
    if cycle.is_stepped:
        return "over"
    if cycle.action is None or attempts >= MOST_ATTEMPTS:
        return "split"
    return "continue" if has_run else "over"
