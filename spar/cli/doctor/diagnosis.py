"""The result of a check of `spar doctor`, and the subject of all checks."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import psutil
from msgspec import Struct, field

from spar.config.factory import Parts
from spar.config.tables.settings import Loaded
from spar.ports.store import CareLine

State = Literal["ok", "warn", "bad"]


#: Result of `adjtimex` for a clock that is not synchronised: TIME_ERROR in adjtimex(2).
_TIME_ERROR: Final = 5


def is_clock_kept() -> bool:
    """Return whether a time service synchronises the clock, as the kernel knows; True if the kernel cannot be asked."""
    try:
        buffer = ctypes.create_string_buffer(512)  # struct timex with modes = 0: read only
        return int(ctypes.CDLL(None).adjtimex(buffer)) != _TIME_ERROR
    except (OSError, AttributeError):
        return True


def examined(name: str, found: str, *cases: tuple[object, State, str, str]) -> CareLine:
    """Return the diagnosis of the first case that holds, else that the thing is well.

    Args: found: the finding if it is well; cases: whether it holds, its state, its finding and its advice.
    """
    wrong = (CareLine(name, state, sentence, advice) for holds, state, sentence, advice in cases if holds)
    return next(wrong, CareLine(name, "ok", found))


class Subject(Struct, frozen=True):
    """Subject of the checks.

    Attributes:
        parts: The parts of the configuration.
        environ: The environment variables.
        process: The process id of the service; None: it does not run; 0: it runs, its id is unknown.
        proc: The folder of the kernel's process information.
        is_clock_kept: Returns whether a time service synchronises the clock.
        mounts: Returns the mounted file systems.
        free_memory: Returns the bytes of memory that programs can have.
    """

    parts: Parts
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    process: int | None = None
    proc: Path = Path("/proc")
    is_clock_kept: Callable[[], bool] = is_clock_kept
    mounts: Callable[[], Sequence[Any]] = partial(psutil.disk_partitions, all=True)
    free_memory: Callable[[], int] = lambda: psutil.virtual_memory().available

    @property
    def loaded(self) -> Loaded:
        return self.parts.loaded

    @property
    def state_dir(self) -> Path:
        return Path(self.parts.home.state)

    @property
    def workspace(self) -> Path:
        return Path(self.parts.home.workspace)


def nearest(folder: Path) -> Path:
    """Return the folder, or the nearest existing one above it."""
    return next(path for path in (folder, *folder.absolute().parents) if path.exists())


def number_in(path: Path) -> int | None:
    """Return the number in a file of the kernel; None if there is none."""
    try:
        return int(path.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None
