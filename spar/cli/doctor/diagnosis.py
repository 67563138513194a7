"""A diagnosis of the doctor, and what is examined."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct, field

from spar.config.factory import Parts
from spar.config.load import Loaded

State = Literal["ok", "warn", "bad"]


#: `adjtimex` answers so when nobody keeps the clock: TIME_ERROR in adjtimex(2).
_NOT_KEPT: Final = 5


def is_clock_kept() -> bool:
    """Return whether the kernel knows of a time service that keeps the clock; True where it cannot be asked."""
    try:
        room = ctypes.create_string_buffer(512)  # struct timex with modes = 0: read only
        return int(ctypes.CDLL(None).adjtimex(room)) != _NOT_KEPT
    except (OSError, AttributeError):
        return True


class Diagnosis(Struct, frozen=True):
    """One line: what was looked at, how it is, what was found, and what to do about it ("" where it is well)."""

    name: str
    state: State
    found: str
    advice: str = ""


class Subject(Struct, frozen=True):
    """Subject of an examination: the parts of a configuration, its environment, the process of the service (None: it
    does not run, 0: not known which), where the kernel tells of itself, and whether it knows of a time service."""

    parts: Parts
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    process: int | None = None
    proc: Path = Path("/proc")
    is_clock_kept: Callable[[], bool] = is_clock_kept

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
    """Return the folder, or the nearest one above it that is there."""
    return next(each for each in (folder, *folder.absolute().parents) if each.exists())


def number_in(path: Path) -> int | None:
    """Return the number that a file of the kernel holds; None where there is none."""
    try:
        return int(path.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None
