"""Relief of a process that uses too much memory, or whose disk is nearly full.

`Relief` takes readings every few seconds in the watchdog's thread, and acts in the agent's thread. Above the soft limit
of memory, caches are cleared. Too long above the hard limit, the process drains its work and ends, to be restarted with
its state intact. Below the least free space on the disk of the state directory, nothing new is accepted until there is
room again. None of this is in the path of a cycle.
"""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from msgspec import Struct

from spar.health.health import Health
from spar.health.judge import Pressure, ResourceBounds, mib
from spar.loop.core import Core, Requests
from spar.observe.logs import get_logger
from spar.ports.any_part import Sheddable, Watchable, offers

log = get_logger("spar.pressure")

#: Seconds between two readings.
LOOK_EVERY = 5.0
#: Readings between two clearings of the caches.
SHED_READINGS = 12


def resident() -> int:
    """Return the bytes of memory that this process uses; 0 if unknown."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def disk_room(folder: str) -> tuple[int, int]:
    """Return the free bytes for this user on the folder's disk, and its size. Raises: OSError."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize


class Resources(Struct, frozen=True):
    """Resources of a process: their bounds, and the sources of readings of memory, disk and store.

    `folder` is the state directory. `store` is the memory, which may report its own state.
    """

    bounds: ResourceBounds
    folder: str
    store: object = None
    memory: Callable[[], int] = resident
    room: Callable[[str], tuple[int, int]] = disk_room


class Relief:
    """Reader of the resources for one agent, and the actions on these readings.

    Args: parts: the parts that may have caches to clear; give_up: called once, in the agent's thread, to drain and end
    the process.
    """

    def __init__(self, core: Core, health: Health, requests: Requests, resources: Resources, *,
                 parts: Callable[[], Iterable[object]], give_up: Callable[[], object]) -> None:  # fmt: skip
        self._core, self._health, self._requests, self._resources = core, health, requests, resources
        self._parts, self._give_up = parts, give_up
        self.pressure = health.pressure = Pressure(resources.bounds)
        self._until_shed = 0
        self._is_to_tidy = self._has_given_up = self._is_unreadable = False

    def look(self) -> None:
        """Take a reading and start the necessary actions. May be called from any thread; raises nothing."""
        pressure, resources = self.pressure, self._resources
        if self._is_to_tidy:
            self._is_to_tidy = False
            tidy()
        pressure.take_memory(resources.memory())
        if offers(resources.store, Watchable):
            pressure.store = resources.store.snapshot()
        try:
            pressure.take_disk(*resources.room(resources.folder))
            self._is_unreadable = False
        except OSError as error:  # the room is unknown; writers to that disk will report errors
            if not self._is_unreadable:
                log.warning("disk cannot be read", agent=self._core.name, reason=str(error))
            self._is_unreadable = True
        if pressure.is_high or pressure.refusal or {"memory", "disk"} & set(self._health.alerts):
            self._requests.in_loop(self._act)

    def _act(self) -> None:
        """In the agent's thread: open and close alerts, clear caches, and at last end the process."""
        pressure, health = self.pressure, self._health
        if refusal := pressure.refusal:
            health.judge.alert("disk", refusal, severity="critical")
        else:
            health.recovered("disk")
        if not pressure.is_high:
            self._until_shed = 0
            health.recovered("memory")
            return
        used, bounds = mib(pressure.resident), pressure.bounds
        limit = mib(bounds.memory_soft or bounds.memory_hard)
        alert = health.judge.alert("memory", f"the process takes {used} of memory, more than {limit}")
        if self._until_shed <= 0:
            self._until_shed, given_up = SHED_READINGS, self._shed()
            self._is_to_tidy = True
            health.judge.ladder.step("shed", "caches", f"{given_up} entries given up at {used}", alert.id)
        self._until_shed -= 1
        if pressure.is_too_high and not self._has_given_up:
            self._has_given_up = True
            reason = f"the process takes {used} of memory, more than {mib(bounds.memory_hard)}, and gives nothing back"
            health.judge.alert("memory", f"{reason}; it ends, to be started again", severity="critical")
            health.judge.ladder.step("drain", "process", reason, alert.id)
            self._give_up()

    def _shed(self) -> int:
        """Clear the caches of all parts; return how many entries were dropped."""
        count = 0
        for part in self._parts():
            try:
                count += int(part.shed() or 0) if offers(part, Sheddable) else 0
            except Exception as error:
                log.warning("cache not given up", agent=self._core.name, part=repr(part), reason=repr(error))
        self.pressure.shed += count
        return count


def tidy() -> None:
    """Return freed memory to the system, as far as possible; see malloc_trim(3)."""
    gc.unfreeze()
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):  # another C library
        return
