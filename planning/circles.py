"""Whether the calls of a plan wait for one another in a circle, found before any of them is carried out; pure.

An edge leads from who writes a place to who reads it, in the order of the plan: earlier writers feed a reader; later
ones only where there is no earlier one, and no value. The executor finds the same out call by call, too late for a
plan that somebody approves as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from planning.flow import paths_of
from spar.paths import BadReferenceError, Expression, Path, TooLargeError, overlaps, parse_write, references


def circle(calls: Sequence[dict[str, Any]], has: Callable[[Path, str | None], bool]) -> list[str]:
    """The ids of calls that wait for one another, in order; none for a plan that can be carried out.

    Args: calls: wire dicts; has: whether something stands at a path, as an instance sees it.
    What cannot be read is no part of any circle: it fails by itself.
    """
    written = [_written(call) for call in calls]
    known = {call["_id"]: at for at, call in enumerate(calls) if isinstance(call.get("_id"), str)}
    instances = [each if isinstance(each := call.get("_instance"), str) else None for call in calls]
    waits: list[set[int]] = []
    for at, call in enumerate(calls):
        after = call.get("_after")
        named = after if isinstance(after, (list, tuple)) else ()
        found = {known[each] for each in named if isinstance(each, str) and each in known}
        for expression in _read(call):
            for path in paths_of(expression):
                writers = [
                    other
                    for other, places in enumerate(written)
                    if other != at
                    and instances[other] in (None, instances[at])
                    and any(overlaps(place, path) for place in places)
                ]
                earlier = [other for other in writers if other < at]
                found.update(earlier or ([] if has(path, instances[at]) else writers))
        waits.append(found)
    return [str(calls[at].get("_id", at)) for at in _stuck(waits)]


def _stuck(waits: list[set[int]]) -> list[int]:
    """Those that are in a circle: what is left when whoever waits for nobody, or nobody waits for, is taken away."""
    left = set(range(len(waits)))
    while left:
        awaited = {other for at in left for other in waits[at] & left}
        free = {at for at in left if at not in awaited or not waits[at] & left}
        if not free:
            break
        left -= free
    return sorted(left)


def _written(call: dict[str, Any]) -> list[Path]:
    try:
        return list(paths_of(parse_write(call["_outputPath"])))
    except (KeyError, TypeError, BadReferenceError):
        return []


def _read(call: dict[str, Any]) -> list[Expression]:
    params = {key: value for key, value in call.items() if not key.startswith("_")}
    try:
        return [expression for found in references(params).values() for expression in found]
    except (BadReferenceError, TooLargeError):
        return []
