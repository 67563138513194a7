"""Data flow between the calls of a plan: reads of places that another call writes, and writes to one place. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from spar.data.paths import Expression, Path, PathIndex, overlaps


def paths_of(expression: Expression) -> Iterator[Path]:
    """Yield all places that a reference or an output path names."""
    for together in expression.alternatives:
        yield from together


def in_state(path: Path) -> bool:
    """Return whether a place lies in `state`, which only calls write."""
    return path[0] == "state"


def can_be_read(reference: Expression, written: Collection[Path]) -> bool:
    """Return whether an alternative of the reference needs only places in `state` that are written."""
    return any(
        all(not in_state(path) or any(overlaps(path, place) for place in written) for path in together)
        for together in reference.alternatives
    )


def reads_any(reference: Expression, written: Collection[Path]) -> bool:
    """Return whether the reference may read a value that is written at these places."""
    return any(overlaps(path, place) for path in paths_of(reference) for place in written)


def colliding(groups: Sequence[Collection[Path]]) -> set[int]:
    """Return the indexes of the groups that overlap with another group, in time linear in the number of segments."""
    index = PathIndex[int](lambda first, second: first if first == second else _SEVERAL)
    for number, group in enumerate(groups):
        for place in group:
            index.add(place, number)
    return {number for number, group in enumerate(groups) if any(index.over(place) != number for place in group)}


_SEVERAL: Final = -1  # stored instead of the index of a group if several groups have the place
