"""References and output paths of the call protocol, as far as a rule has to understand them; pure.

`†state.a.b` names a place; `||` separates alternatives and `&&` binds tighter. A string that begins with `††` is
plain text whose first dagger is doubled. Nothing is resolved here: that is the actor's work.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

DAGGER = "†"
_ATOM = re.compile(r"†[A-Za-z_][\w-]*(?:\.[^\s.|&]+)*")


def is_reference(text: str) -> bool:
    """Whether the actor would read this string as a reference."""
    return text.startswith(DAGGER) and not text.startswith(DAGGER * 2)


def escape(value: Any) -> Any:
    """The value with every string in it doubled at its first dagger, so that foreign text never becomes a reference.

    Lists and objects are copied on the way, so a call never shares them with a perception.
    """
    if isinstance(value, str):
        return DAGGER + value if value.startswith(DAGGER) else value
    if isinstance(value, Mapping):
        return {key: escape(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [escape(item) for item in value]
    return value


def alternatives(text: str) -> tuple[tuple[str, ...], ...]:
    """The places that a reference names: a tuple of alternatives, each the places that it needs together.

    Raises: ValueError when it cannot be read.
    """
    found = tuple(tuple(atom.strip() for atom in part.split("&&")) for part in text.split("||"))
    for atom in (atom for part in found for atom in part):
        if not _ATOM.fullmatch(atom):
            raise ValueError(f"{atom!r} is not a place such as '†state.kept'")
    return found


def places(text: str) -> tuple[str, ...]:
    """All places that a reference or an output path names."""
    return tuple(atom for part in alternatives(text) for atom in part)


def overlap(one: str, other: str) -> bool:
    """Whether two places are the same or one holds the other."""
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")


def can_be_read(reference: str, written: Collection[str]) -> bool:
    """Whether some alternative of the reference needs no place in state that nobody writes."""
    return any(
        all(not _in_state(atom) or any(overlap(atom, place) for place in written) for atom in part)
        for part in alternatives(reference)
    )


def reads_any(reference: str, written: Collection[str]) -> bool:
    """Whether the reference may read something that was written at these places."""
    return any(overlap(atom, place) for atom in places(reference) for place in written)


def state_places(reference: str) -> tuple[str, ...]:
    """The places in state that a reference names; only these are written by the calls of a rule."""
    return tuple(atom for atom in places(reference) if _in_state(atom))


def references_in(value: Any) -> Iterator[str]:
    """Every reference in a nested value, in order."""
    if isinstance(value, str):
        if is_reference(value):
            yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from references_in(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from references_in(item)


def colliding(groups: Sequence[Collection[str]]) -> set[int]:
    """Which groups of places overlap with another group; the work is proportional to the number of path segments."""
    at: defaultdict[str, set[int]] = defaultdict(set)
    below: defaultdict[str, set[int]] = defaultdict(set)
    for number, group in enumerate(groups):
        for place in group:
            at[place].add(number)
            for prefix in _prefixes(place):
                below[prefix].add(number)
    found: set[int] = set()
    for place, owners in at.items():
        met = owners | below.get(place, set())
        if len(met) > 1:
            found |= met
    return found


def _prefixes(place: str) -> Iterator[str]:
    head = place.rpartition(".")[0]
    while head:
        yield head
        head = head.rpartition(".")[0]


def _in_state(atom: str) -> bool:
    return atom == "†state" or atom.startswith("†state.")
