"""Data flow between the calls of rules: reads of what another call writes, and writes to one place; pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from spar.data.dataflow import PathIndex
from spar.data.paths import Expression, Path, overlaps


def paths_of(expression: Expression) -> Iterator[Path]:
    """All places that a reference or an output path names."""
    for together in expression.alternatives:
        yield from together


def in_state(path: Path) -> bool:
    """Return whether a place is one that only the calls of a rule write."""
    return path[0] == "state"


def can_be_read(reference: Expression, written: Collection[Path]) -> bool:
    """Return whether some alternative of the reference needs no place in state that nobody writes."""
    return any(
        all(not in_state(path) or any(overlaps(path, place) for place in written) for path in together)
        for together in reference.alternatives
    )


def reads_any(reference: Expression, written: Collection[Path]) -> bool:
    """Return whether the reference may read something that was written at these places."""
    return any(overlaps(path, place) for path in paths_of(reference) for place in written)


def colliding(groups: Sequence[Collection[Path]]) -> set[int]:
    """Return which groups of places overlap with another group; the work is proportional to the number of segments."""
    index = PathIndex[int](lambda one, other: one if one == other else _SEVERAL)
    for number, group in enumerate(groups):
        for place in group:
            index.add(place, number)
    return {number for number, group in enumerate(groups) if any(index.over(place) != number for place in group)}


_SEVERAL: Final = -1  # in the place of the only group
