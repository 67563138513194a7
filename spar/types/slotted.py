"""Classes of mutable values whose fields are written often."""

from __future__ import annotations

from typing import TypeVar

from msgspec import Struct

S = TypeVar("S", bound=Struct)


def slotted(kind: type[S]) -> type[S]:
    """Let the fields of a mutable Struct be written like those of any class with slots, in a third of the time.

    What msgspec does besides is for the garbage collector, which does not look at the class (`gc=False`) or knows its
    objects from the beginning, since they hold containers. A subclass has to be slotted again.
    """
    kind.__setattr__, kind.__delattr__ = object.__setattr__, object.__delattr__  # type: ignore[method-assign]
    return kind
