"""Readings of the process's memory and of the disk's free space, and the verdict on them.

`Pressure` judges readings and stores the verdict, so that reading it costs one attribute access. `spar.health.relief`
takes the readings and acts on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

MIB = 1024 * 1024
#: The least free space: so many bytes or that share of the disk, whichever is less, since small disks exist.
LEAST_FREE, LEAST_SHARE = 512 * MIB, 0.05
#: The share of a limit by which a reading must be below (memory) or above (disk) the limit before the alarm ends, so
#: that it does not flutter.
CLEARLY = 0.1
#: Readings in a row above the hard limit until the process ends. One big answer passes, and caches are cleared first.
HARD_READINGS = 3


class ResourceBounds(Struct, frozen=True):
    """Limits in bytes; 0: none. Without `min_free_disk` the lesser of `LEAST_FREE` and `LEAST_SHARE` of the disk."""

    memory_soft: int = 512 * MIB
    memory_hard: int = 1024 * MIB
    min_free_disk: int | None = None


class Pressure:
    """Verdict on the last reading. Written by the reader of memory and disk, read from any thread.

    Attributes: resident: bytes of memory that the process uses; free, total: bytes of the disk; shed: cache entries
    that were dropped so far; store: the memory's own report (`snapshot`).
    """

    __slots__ = ("_above_hard", "_refusal", "bounds", "free", "is_high", "resident", "shed", "store", "total")

    def __init__(self, bounds: ResourceBounds) -> None:
        self.bounds = bounds
        self.resident = self.free = self.total = self.shed = 0
        self.store: Mapping[str, Any] = {}
        self.is_high = False
        self._above_hard = 0
        self._refusal = ""

    def refusal(self) -> str:
        """Return why nothing new can be accepted now; "" if it can."""
        return self._refusal

    @property
    def is_too_high(self) -> bool:
        """Return whether memory has been above the hard limit for too long."""
        return self._above_hard >= HARD_READINGS

    @property
    def least_free(self) -> int:
        """Return the bytes that must be free on the disk."""
        least = self.bounds.min_free_disk
        return min(LEAST_FREE, int(self.total * LEAST_SHARE)) if least is None else least

    def take_memory(self, resident: int) -> None:
        """Judge a reading of the memory, in bytes."""
        self.resident, bounds = resident, self.bounds
        soft = bounds.memory_soft or bounds.memory_hard
        if soft and resident > soft:
            self.is_high = True
        elif resident <= soft * (1 - CLEARLY):
            self.is_high = False
        self._above_hard = self._above_hard + 1 if bounds.memory_hard and resident > bounds.memory_hard else 0

    def take_disk(self, free: int, total: int) -> None:
        """Judge a reading of the disk, in bytes."""
        self.free, self.total = free, total
        least = self.least_free
        if free < least:
            self._refusal = (
                f"the disk of the state directory has {mib(free)} free, less than {mib(least)} (service.min_free_disk);"
                " nothing new is accepted until there is room"
            )
        elif free >= least * (1 + CLEARLY):
            self._refusal = ""

    def snapshot(self) -> dict[str, Any]:
        """Return the readings in bytes, JSON-able; may be called from any thread."""
        return {
            "memory_bytes": self.resident,
            "memory_is_high": self.is_high,
            "disk_free_bytes": self.free,
            "disk_least_free_bytes": self.least_free,
            "refusal": self._refusal,
            "shed": self.shed,
        }


#: The pressure of an agent whose process is not watched: never any.
CALM = Pressure(ResourceBounds(0, 0, 0))


def mib(number: int) -> str:
    """Return a number of bytes as text for people."""
    return f"{number / MIB:.1f} MiB"
