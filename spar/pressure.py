"""How much memory the process takes and how much room its disk has, and what is done when that runs short.

`Pressure` judges readings and remembers the verdict; asking it costs an attribute. `Relief` takes the readings, from
the watcher's thread every few seconds, and acts in the agent's: above the soft limit caches are given up, too long
above the hard one the process drains and ends, to be started again with its state intact; below the least free room of
the state directory nothing new is accepted until there is room again. Nothing here is on the way of a cycle.
"""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from spar.logs import get_logger
from spar.optional_ports import Sheddable, Watchable, offers

if TYPE_CHECKING:
    from spar.agent import Agent

log = get_logger("spar.pressure")

MIB = 1024 * 1024
#: Seconds between two readings.
LOOK_EVERY = 5.0
#: The least free room is so many bytes or that share of the disk, whichever is less: there are small disks, too.
LEAST_FREE, LEAST_SHARE = 512 * MIB, 0.05
#: What was too much is well again this far below (memory) or above (disk) its limit, so that it does not flutter.
CLEARLY = 0.1
#: Readings in a row above the hard limit until the process ends: one big answer passes, and caches are given up first.
HARD_READINGS = 3
#: Readings between two times that caches are given up.
SHED_READINGS = 12


class Bounds(Struct, frozen=True):
    """The limits, in bytes; 0: none. Without `min_free_disk` it is `LEAST_FREE` or `LEAST_SHARE` of the disk."""

    memory_soft: int = 512 * MIB
    memory_hard: int = 1024 * MIB
    min_free_disk: int | None = None


class Pressure:
    """What the last reading came to. Written by whoever takes the readings, read from any thread.

    Attributes: resident: bytes of memory the process takes; free, total: of the disk; shed: entries of caches that
    were given up so far; store: what the memory said of itself (`snapshot`).
    """

    __slots__ = ("_above_hard", "_refusal", "bounds", "free", "is_high", "resident", "shed", "store", "total")

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.resident = self.free = self.total = self.shed = 0
        self.store: Mapping[str, Any] = {}
        self.is_high = False
        self._above_hard = 0
        self._refusal = ""

    def refusal(self) -> str:
        """Why nothing new can be accepted now; "" while it can."""
        return self._refusal

    @property
    def is_too_high(self) -> bool:
        """Whether memory has been above the hard limit for too long."""
        return self._above_hard >= HARD_READINGS

    @property
    def least_free(self) -> int:
        """The bytes that must be free on the disk."""
        least = self.bounds.min_free_disk
        return min(LEAST_FREE, int(self.total * LEAST_SHARE)) if least is None else least

    def take_memory(self, resident: int) -> None:
        """Judge a reading of the memory."""
        self.resident, bounds = resident, self.bounds
        soft = bounds.memory_soft or bounds.memory_hard
        if soft and resident > soft:
            self.is_high = True
        elif resident <= soft * (1 - CLEARLY):
            self.is_high = False
        self._above_hard = self._above_hard + 1 if bounds.memory_hard and resident > bounds.memory_hard else 0

    def take_disk(self, free: int, total: int) -> None:
        """Judge a reading of the disk."""
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
        """The readings in bytes, JSON-able; safe from any thread."""
        return {
            "memory_bytes": self.resident,
            "memory_is_high": self.is_high,
            "disk_free_bytes": self.free,
            "disk_least_free_bytes": self.least_free,
            "refusal": self._refusal,
            "shed": self.shed,
        }


#: For an agent whose process nobody watches: never any.
CALM = Pressure(Bounds(0, 0, 0))


class Relief:
    """Takes the readings for one agent and acts on them.

    Args: folder: the state directory; give_up: asked in the agent's thread, once, to drain and end the process; more:
    what gives up caches beside the agent's parts; memory, room: where readings come from.
    """

    def __init__(
        self,
        agent: Agent,
        bounds: Bounds,
        folder: str,
        *,
        give_up: Callable[[], object],
        more: Iterable[Callable[[], int]] = (),
        memory: Callable[[], int] | None = None,
        room: Callable[[str], tuple[int, int]] | None = None,
    ) -> None:
        self._agent, self._folder, self._give_up, self._more = agent, folder, give_up, tuple(more)
        self._memory, self._room = memory or resident, room or disk_room
        self.pressure = agent.health.pressure = Pressure(bounds)
        self._until_shed = 0
        self._is_to_tidy = self._has_given_up = self._is_unreadable = False

    def look(self) -> None:
        """Take a reading and see to what it asks for; from any thread, raises nothing."""
        pressure, agent = self.pressure, self._agent
        if self._is_to_tidy:
            self._is_to_tidy = False
            tidy()
        pressure.take_memory(self._memory())
        if offers(agent.memory, Watchable):
            pressure.store = agent.memory.snapshot()
        try:
            pressure.take_disk(*self._room(self._folder))
            self._is_unreadable = False
        except OSError as error:  # it says nothing about how full it is; whoever writes there will find out
            if not self._is_unreadable:
                log.warning("disk cannot be read", agent=agent.name, reason=str(error))
            self._is_unreadable = True
        if pressure.is_high or pressure.refusal() or {"memory", "disk"} & set(agent.health.alerts):
            agent.requests.in_loop(self._see_to_it)

    def _see_to_it(self) -> None:
        """In the agent's thread: open and close alerts, give up caches, and in the end the process."""
        pressure, health = self.pressure, self._agent.health
        if refusal := pressure.refusal():
            health.alert("disk", refusal, severity="critical")
        else:
            health.recovered("disk")
        if not pressure.is_high:
            self._until_shed = 0
            health.recovered("memory")
            return
        taken, bounds = mib(pressure.resident), pressure.bounds
        limit = mib(bounds.memory_soft or bounds.memory_hard)
        alert = health.alert("memory", f"the process takes {taken} of memory, more than {limit}")
        if self._until_shed <= 0:
            self._until_shed, given_up = SHED_READINGS, self._shed()
            self._is_to_tidy = True
            health.step("shed", "caches", f"{given_up} entries given up at {taken}", alert.id)
        self._until_shed -= 1
        if pressure.is_too_high and not self._has_given_up:
            self._has_given_up = True
            reason = f"the process takes {taken} of memory, more than {mib(bounds.memory_hard)}, and gives nothing back"
            health.alert("memory", f"{reason}; it ends, to be started again", severity="critical")
            health.step("drain", "process", reason, alert.id)
            self._give_up()

    def _shed(self) -> int:
        """Have everybody give up what can be had again; how many entries that were."""
        agent, count = self._agent, 0
        parts = [agent.runs, agent.intake, agent.memory, *(module.part for module in agent.modules.values())]
        shedders = [part.shed for part in parts if offers(part, Sheddable)]
        for shed in (*shedders, *self._more):
            try:
                count += int(shed() or 0)
            except Exception as error:
                log.warning("cache not given up", agent=agent.name, part=repr(shed), reason=repr(error))
        self.pressure.shed += count
        return count


def resident() -> int:
    """Bytes of memory that this process takes; 0 where that cannot be told."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def disk_room(folder: str) -> tuple[int, int]:
    """Bytes that are free for this user on the folder's disk, and its size. Raises: OSError."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize


def tidy() -> None:
    """Give memory that was freed back to the system, as far as it can be; see malloc_trim(3)."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):  # another C library
        return


def mib(number: int) -> str:
    """A number of bytes for people."""
    return f"{number / MIB:.1f} MiB"
