"""Finder of calls in a plan that wait for one another in a circle, before any of them is carried out; pure.

A call waits for the calls that write the places that it reads: for the earlier ones in the plan; without an earlier
one, and where the place has no value yet, for the later ones. The executor finds circles as well, but call by call,
which is too late for a plan that people approve as a whole.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from planning.dataflow import paths_of
from spar.data.paths import BadReferenceError, Expression, Path, ValueTooLargeError, parse_write, references


def circle(calls: Sequence[dict[str, Any]], has: Callable[[Path, str | None], bool]) -> list[str]:
    """Return the ids of calls that wait for one another, in the order of the plan; [] for a plan without a circle.

    The last one closes the circle. A call that cannot be read is in no circle: it fails by itself.
    Args: calls: calls on the wire; has: tells whether a path has a value for an instance.
    """
    writers = _Writers(map(_written, calls))
    known = {call["_id"]: at for at, call in enumerate(calls) if isinstance(call.get("_id"), str)}
    instances = [instance if isinstance(instance := call.get("_instance"), str) else None for call in calls]
    waits: list[set[int]] = []
    for at, call in enumerate(calls):
        after = call.get("_after")
        named = after if isinstance(after, (list, tuple)) else ()
        waits_for = {known[name] for name in named if isinstance(name, str) and name in known}
        for expression in _read(call):
            for path in paths_of(expression):
                others = [
                    other for other in writers.of(path) if other != at and instances[other] in (None, instances[at])
                ]
                earlier = [other for other in others if other < at]
                waits_for.update(earlier or ([] if has(path, instances[at]) else others))
        waits.append(waits_for)
    return [str(calls[at].get("_id", at)) for at in _stuck(waits)]


class _Writers:
    """Index of writers by path."""

    def __init__(self, written: Iterable[Iterable[Path]]) -> None:
        self._at: defaultdict[Path, list[int]] = defaultdict(list)
        self._below: defaultdict[Path, list[int]] = defaultdict(list)
        for number, places in enumerate(written):
            for place in places:
                self._at[place].append(number)
                for length in range(1, len(place)):
                    self._below[place[:length]].append(number)

    def of(self, path: Path) -> set[int]:
        """Return the calls that write the path, a part of it, or a place above it."""
        writers = set(self._below.get(path, ()))
        for length in range(1, len(path) + 1):
            writers.update(self._at.get(path[:length], ()))
        return writers


def _stuck(waits: Sequence[set[int]]) -> list[int]:
    """Return the calls in circles: calls that wait for none, or that none waits for, are removed until none is left."""
    awaited_by: list[set[int]] = [set() for _ in waits]
    for at, others in enumerate(waits):
        for other in others:
            awaited_by[other].add(at)
    ends = (waits, awaited_by), (awaited_by, waits)
    gone: set[int] = set()
    for outward, inward in ends:
        left = [len(others - gone) for others in outward]
        free = [at for at, count in enumerate(left) if not count and at not in gone]
        while free:
            at = free.pop()
            gone.add(at)
            for other in inward[at]:
                left[other] -= 1
                if not left[other] and other not in gone:
                    free.append(other)
    return [at for at in range(len(waits)) if at not in gone]


def _written(call: dict[str, Any]) -> list[Path]:
    try:
        return list(paths_of(parse_write(call["_outputPath"])))
    except (KeyError, TypeError, BadReferenceError):
        return []


def _read(call: dict[str, Any]) -> list[Expression]:
    params = {key: value for key, value in call.items() if not key.startswith("_")}
    try:
        return [expression for expressions in references(params).values() for expression in expressions]
    except (BadReferenceError, ValueTooLargeError):
        return []
