"""Checks of the machine: file system, clock, time zone, limits and memory, as the kernel reports them; the subject and
the results of all checks."""

from __future__ import annotations

import ctypes
import fcntl
import math
import os
import resource
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import psutil
from msgspec import Struct, field

from spar.config.tables.settings import Loaded
from spar.parts.factory import Parts
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


MIB: Final = 1 << 20
#: File systems over a network, and those that a program serves: SQLite cannot rely on their locks and flushes.
NETWORK: Final = frozenset({
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "beegfs", "fuse.sshfs",
    "fuse.s3fs", "davfs",
})  # fmt: skip
VOLATILE: Final = frozenset({"tmpfs", "ramfs"})
#: Least number of folders that one user should be able to watch, and of files that a process should be able to open.
LEAST_WATCHES, LEAST_FILES = 8_192, 1_024


def file_system(subject: Subject) -> Iterator[CareLine]:
    """Check the file system of the database: its kind, a lock and a flush."""
    folder = nearest(subject.state_dir)
    kind, mount = mount_of(folder, subject.mounts())
    is_network, is_volatile = kind in NETWORK or kind.startswith("fuse."), kind in VOLATILE
    trouble = "" if is_network or is_volatile else _trouble_with(folder)
    place, disk = f"{folder} is on {kind} ({mount})", "set service.state_dir to a folder on a disk of this machine"
    yield examined(
        "file system", f"{kind or 'unknown'}, locks and flushes",
        (is_network, "bad", f"{place}, whose locks and flushes a database cannot trust", disk),
        (is_volatile, "warn", f"{place}, which is empty after a restart of the machine", disk),
        (trouble, "bad", f"{folder} on {kind or 'an unknown file system'} cannot {trouble}", disk),
    )  # fmt: skip


def mount_of(folder: Path, mounts: Sequence[Any]) -> tuple[str, str]:
    """Return the kind and the mount point of the file system of a folder; "" if unknown."""
    here = folder.resolve()
    around = [(mount.fstype, mount.mountpoint) for mount in mounts if here.is_relative_to(mount.mountpoint)]
    # Of the mounts at one place the last one covers the others.
    return max(reversed(around), key=lambda mount: len(mount[1]), default=("", ""))


def _trouble_with(folder: Path) -> str:
    """Return what cannot be done with a file in a folder, "" if everything can or the folder cannot be written."""
    if not os.access(folder, os.W_OK | os.X_OK):
        return ""  # the check of the folders reports that
    step = "hold a new file"
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            step = "be written"
            file.write(b"x")
            file.flush()
            step = "lock a file"
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            step = "flush a file"
            os.fsync(file.fileno())
    except OSError as error:
        return f"{step}: {error.strerror}"
    return ""


def clock(subject: Subject) -> Iterator[CareLine]:
    """Check that the clock is synchronised, and that the machine has a time zone if a schedule needs one."""
    yield examined(
        "clock kept", "synchronised",
        (not subject.is_clock_kept(), "warn",
         "nothing keeps the clock of this machine right: schedules, budgets and links expire wrongly",
         "start a time service: timedatectl set-ntp true, or install chrony"),
    )  # fmt: skip
    is_local = "local" in [part.options.get("timezone") for part in subject.loaded.settings.sensors]
    zone = subject.environ.get("TZ") or Path("/etc/localtime").exists()
    yield examined(
        "time zone", time.strftime("%Z (UTC%z)"),
        (is_local and not zone, "warn",
         "a schedule goes by local time, and this machine has no time zone: its hours are UTC",
         'name one: timezone = "Europe/Berlin" in its options, or timedatectl set-timezone'),
    )  # fmt: skip


def watches(subject: Subject) -> Iterator[CareLine]:
    """Check how many folders one user may watch, if a sensor watches folders."""
    limit = number_in(subject.proc / "sys/fs/inotify/max_user_watches")
    if limit is not None and any(part.use == "directory" for part in subject.loaded.settings.sensors):
        yield examined(
            "watches", f"{limit} folders",
            (limit < LEAST_WATCHES, "warn",
             f"one user may watch {limit} folders on this machine; larger trees are looked through instead",
             f"echo fs.inotify.max_user_watches={LEAST_WATCHES * 8} | "
             "sudo tee /etc/sysctl.d/90-spar.conf && sudo sysctl --system"),
        )  # fmt: skip


def open_files(subject: Subject) -> Iterator[CareLine]:
    """Check how many files the process of the service may open, or one that would be started here."""
    whose, process = "a process started here", 0
    if subject.process:
        with suppress(OSError):
            resource.prlimit(subject.process, resource.RLIMIT_NOFILE)
            whose, process = f"process {subject.process}", subject.process
    soft = resource.prlimit(process, resource.RLIMIT_NOFILE)[0]
    limit = 1 << 30 if soft == resource.RLIM_INFINITY else soft
    yield examined(
        "open files", f"{whose} may open {limit}",
        (limit < LEAST_FILES, "warn",
         f"{whose} may open {limit} files; connections and programs of tools need more",
         f"raise it: ulimit -n {LEAST_FILES * 4}, or LimitNOFILE={LEAST_FILES * 4} by systemctl edit spar"),
    )  # fmt: skip


def memory(subject: Subject) -> Iterator[CareLine]:
    """Compare the free memory, and the limit of the container, with the memory limits of the service."""
    bounds = subject.loaded.settings.service
    allowed, free = allowed_memory(subject.proc) or math.inf, subject.free_memory()
    yield examined(
        "memory", f"{free // MIB} MiB free",
        (bounds.memory_hard and allowed < bounds.memory_hard, "bad",
         f"this container allows {allowed / MIB:.0f} MiB, less than service.memory_hard "
         f"({bounds.memory_hard // MIB} MiB): it is killed before it can drain",
         f"allow more, or set service.memory_hard below {allowed / MIB:.0f} MiB"),
        (free < bounds.memory_soft and subject.process is None, "warn",
         f"{free // MIB} MiB are free, less than service.memory_soft ({bounds.memory_soft // MIB} MiB)",
         "end what takes it, or set service.memory_soft and memory_hard lower"),
    )  # fmt: skip


def allowed_memory(proc: Path) -> int | None:
    """Return the memory limit of the control group (v2) of this process in bytes, None without a limit."""
    root = proc.parent / "sys/fs/cgroup"
    try:
        group = (proc / "self/cgroup").read_text().strip().rpartition("::")[2]
    except OSError:
        return None
    return min(filter(None, (number_in(folder / "memory.max") for folder in (root / group.lstrip("/"), root))),
               default=None)  # fmt: skip


def permissions_of(path: Path) -> int:
    """Return the permission bits of a file, 0 if it does not exist."""
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return 0
