"""Who wrote where last, to tell when two calls wrote to one place without knowing of each other. Pure."""

from __future__ import annotations

from spar.data.paths import Path

_GROWING = frozenset({"push", "concat"})  # adding to an array takes nothing away from the other one


class Writes:
    """The last write at and below each path, with the moment (a count) at which it was made."""

    __slots__ = ("_at", "_below", "_last")

    def __init__(self) -> None:
        self._at: dict[Path, tuple[str, str, int]] = {}
        self._below: dict[Path, tuple[str, str, int]] = {}
        self._last = -1

    def is_after(self, moment: int) -> bool:
        """Whether anything was noted since."""
        return self._last > moment

    def note(
        self, path: Path, id: str, method: str, *, began: int, now: int, instance: str | None = None
    ) -> str | None:
        """Note a write by the call `id` that began at `began`; the id of a call whose write it never saw, or None.

        What is written for different instances, or for one and for all, stands in different places.
        """
        if instance is not None:
            path = (f"†{instance}", *path)  # no kind begins so
        rival = self._rival(path, method, began) if self._last > began else None
        entry = (id, method, now)
        self._at[path] = self._below[path] = entry
        for length in range(1, len(path)):
            self._below[path[:length]] = entry
        self._last = now
        return rival

    def _rival(self, path: Path, method: str, began: int) -> str | None:
        known = [self._below.get(path), *(self._at.get(path[:length]) for length in range(1, len(path)))]
        for entry in known:
            if entry and entry[2] > began and not (method in _GROWING and entry[1] in _GROWING):
                return entry[0]
        return None
