"""The port of an embedder: texts as vectors, near each other where the texts mean nearly the same.

It knows no memory and no intents. Whoever keeps vectors keeps the `fingerprint` beside them, as those of two models
cannot be compared. `embed` blocks for milliseconds a text: call it in a thread. It downloads nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Protocol, runtime_checkable


@runtime_checkable
class Embedder(Protocol):
    """A model that embeds texts; safe from any thread."""

    @property
    def dimension(self) -> int:
        """Return how many numbers a vector has."""
        ...

    @property
    def fingerprint(self) -> str:
        """Return the digest of the model: vectors of another one are not comparable."""
        ...

    def embed(self, texts: Sequence[str], /) -> Sequence[array[float]]:
        """Return a vector of unit length for each text, as 32-bit floats. Raises: SparError when the model cannot be
        loaded."""
        ...
