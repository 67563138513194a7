"""Port of an embedder: a model that turns texts into vectors, near each other if the texts mean nearly the same.

It knows neither memory nor intents. A caller that stores vectors stores the `fingerprint` with them, because vectors of
two models cannot be compared. `embed` blocks for milliseconds a text: call it in a thread. It downloads nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Protocol, runtime_checkable


@runtime_checkable
class Embedder(Protocol):
    """Model that embeds texts; safe from any thread."""

    @property
    def dimension(self) -> int:
        """Return the number of elements of a vector."""
        ...

    @property
    def fingerprint(self) -> str:
        """Return the digest of the model: vectors of another model are not comparable."""
        ...

    def embed(self, texts: Sequence[str], /) -> Sequence[array[float]]:
        """Return a vector of unit length for each text, as 32-bit floats.

        Raises: SparError when the model cannot be loaded.
        """
        ...
