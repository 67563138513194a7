"""Data flow between the calls of rules: reads of what another call writes, and writes to one place; pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence

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
    """Which groups of places overlap with another group; the work is proportional to the number of path segments."""
    at: defaultdict[Path, set[int]] = defaultdict(set)
    below: defaultdict[Path, set[int]] = defaultdict(set)
    for number, group in enumerate(groups):
        for place in group:
            at[place].add(number)
            for length in range(1, len(place)):
                below[place[:length]].add(number)
    found: set[int] = set()
    for place, owners in at.items():
        met = owners | below.get(place, set())
        if len(met) > 1:
            found |= met
    return found
