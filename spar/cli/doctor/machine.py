"""Checks of the machine: file system, clock, time zone, limits and memory, as the kernel reports them."""

from __future__ import annotations

import fcntl
import os
import resource
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from spar.cli.doctor.diagnosis import Diagnosis, Subject, bad, nearest, number_in, ok, warn

MIB: Final = 1 << 20
#: File systems over a network, and those that a program serves: SQLite cannot rely on their locks and flushes.
NETWORK: Final = frozenset({
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "beegfs", "fuse.sshfs",
    "fuse.s3fs", "davfs",
})  # fmt: skip
VOLATILE: Final = frozenset({"tmpfs", "ramfs"})
#: Least number of folders that one user should be able to watch, and of files that a process should be able to open.
LEAST_WATCHES, LEAST_FILES = 8_192, 1_024


def file_system(subject: Subject) -> Iterator[Diagnosis]:
    """Check the file system of the database: its kind, a lock and a flush."""
    folder = nearest(subject.state_dir)
    kind, mount = mount_of(folder, subject.proc)
    if kind in NETWORK or kind.startswith("fuse."):
        yield bad("file system", f"{folder} is on {kind} ({mount}), whose locks and flushes a database cannot trust",
                  "set service.state_dir to a folder on a disk of this machine")  # fmt: skip
        return
    if kind in VOLATILE:
        yield warn("file system", f"{folder} is on {kind} ({mount}), which is empty after a restart of the machine",
                   "set service.state_dir to a folder on a disk")  # fmt: skip
        return
    trouble = _trouble_with(folder)
    if trouble:
        yield bad("file system", f"{folder} on {kind or 'an unknown file system'} cannot {trouble}",
                  "set service.state_dir to a folder on a disk of this machine")  # fmt: skip
    else:
        yield ok("file system", f"{kind or 'unknown'}, locks and flushes")


def mount_of(folder: Path, proc: Path) -> tuple[str, str]:
    """Return the kind and the mount point of the file system of a folder; "" if unknown."""
    mount, longest = ("", ""), -1
    here = folder.resolve()
    try:
        lines = (proc / "self/mountinfo").read_text(errors="replace").splitlines()
    except OSError:
        return mount
    for line in lines:
        left, dash, right = line.partition(" - ")
        fields = left.split(" ")
        if not dash or len(fields) < 5:
            continue
        mount_point = fields[4].replace("\\040", " ").replace("\\011", "\t")
        if here.is_relative_to(mount_point) and len(mount_point) >= longest:  # a later mount covers an earlier one
            mount, longest = (right.split(" ")[0], mount_point), len(mount_point)
    return mount


def _trouble_with(folder: Path) -> str:
    """Return what cannot be done with a file in a folder, "" if everything can or the folder cannot be written."""
    if not os.access(folder, os.W_OK | os.X_OK):
        return ""  # the check of the folders reports that
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            for step, words in (
                (lambda: file.write(b"x"), "be written"),
                (file.flush, "be written"),
                (lambda: fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB), "lock a file"),
                (lambda: os.fsync(file.fileno()), "flush a file"),
            ):
                try:
                    step()
                except OSError as error:
                    return f"{words}: {error.strerror}"
    except OSError as error:
        return f"hold a new file: {error.strerror}"
    return ""


def clock(subject: Subject) -> Iterator[Diagnosis]:
    """Check that the clock is synchronised, and that the machine has a time zone if a schedule needs one."""
    if not subject.is_clock_kept():
        yield warn("clock kept",
                   "nothing keeps the clock of this machine right: schedules, budgets and links expire wrongly",
                   "start a time service: timedatectl set-ntp true, or install chrony")  # fmt: skip
    else:
        yield ok("clock kept", "synchronised")
    names = [part.options.get("timezone") for part in subject.loaded.settings.sensors]
    zone = subject.environ.get("TZ") or Path("/etc/localtime").exists()
    if "local" in names and not zone:
        yield warn("time zone", "a schedule goes by local time, and this machine has no time zone: its hours are UTC",
                   'name one: timezone = "Europe/Berlin" in its options, or timedatectl set-timezone')  # fmt: skip
    else:
        yield ok("time zone", time.strftime("%Z (UTC%z)"))


def watches(subject: Subject) -> Iterator[Diagnosis]:
    """Check how many folders one user may watch, if a sensor watches folders."""
    settings = subject.loaded.settings
    limit = number_in(subject.proc / "sys/fs/inotify/max_user_watches")
    if limit is None or not any(part.use == "directory" for part in settings.sensors):
        return
    if limit < LEAST_WATCHES:
        yield warn("watches",
                   f"one user may watch {limit} folders on this machine; larger trees are looked through instead",
                   f"echo fs.inotify.max_user_watches={LEAST_WATCHES * 8} | "
                   "sudo tee /etc/sysctl.d/90-spar.conf && sudo sysctl --system")  # fmt: skip
    else:
        yield ok("watches", f"{limit} folders")


def open_files(subject: Subject) -> Iterator[Diagnosis]:
    """Check how many files the process of the service may open, or one that would be started here."""
    limit = _of_process(subject) if subject.process else None
    whose = f"process {subject.process}" if limit is not None else "a process started here"
    if limit is None:
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        limit = 1 << 30 if soft == resource.RLIM_INFINITY else soft
    if limit < LEAST_FILES:
        yield warn("open files", f"{whose} may open {limit} files; connections and programs of tools need more",
                   f"raise it: ulimit -n {LEAST_FILES * 4}, or LimitNOFILE={LEAST_FILES * 4} by "
                   "systemctl edit spar")  # fmt: skip
    else:
        yield ok("open files", f"{whose} may open {limit}")


def _of_process(subject: Subject) -> int | None:
    """Return how many files the process of the service may open, None if it cannot be read."""
    try:
        text = (subject.proc / str(subject.process) / "limits").read_text()
    except OSError:
        return None
    line = next((line for line in text.splitlines() if line.startswith("Max open files")), "")
    soft = line[len("Max open files") :].split()[:1]
    return int(soft[0]) if soft and soft[0].isdigit() else None


def memory(subject: Subject) -> Iterator[Diagnosis]:
    """Compare the free memory, and the limit of the container, with the memory limits of the service."""
    bounds = subject.loaded.settings.service
    allowed = allowed_memory(subject.proc)
    if allowed is not None and bounds.memory_hard and allowed < bounds.memory_hard:
        yield bad("memory",
                  f"this container allows {allowed // MIB} MiB, less than service.memory_hard "
                  f"({bounds.memory_hard // MIB} MiB): it is killed before it can drain",
                  f"allow more, or set service.memory_hard below {allowed // MIB} MiB")  # fmt: skip
        return
    free = _available(subject.proc)
    if free is not None and free < bounds.memory_soft and subject.process is None:
        yield warn("memory",
                   f"{free // MIB} MiB are free, less than service.memory_soft ({bounds.memory_soft // MIB} MiB)",
                   "end what takes it, or set service.memory_soft and memory_hard lower")  # fmt: skip
    elif free is not None:
        yield ok("memory", f"{free // MIB} MiB free")


def allowed_memory(proc: Path) -> int | None:
    """Return the memory limit of the control group of this process in bytes, None without a limit."""
    root = proc.parent / "sys/fs/cgroup"
    try:
        lines = (proc / "self/cgroup").read_text().splitlines()
    except OSError:
        return None
    limits = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        name = "memory.max" if not controllers else "memory.limit_in_bytes"
        top = root if not controllers else root / "memory"
        if not controllers or "memory" in controllers.split(","):
            for folder in (top / path.lstrip("/"), top):
                limit = number_in(folder / name)
                if limit is not None and limit < 1 << 50:  # cgroup v1 writes a very large number for "no limit"
                    limits.append(limit)
    return min(limits, default=None)


def _available(proc: Path) -> int | None:
    """Return the available memory in bytes, None if unknown."""
    try:
        lines = (proc / "meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


def permissions_of(path: Path) -> int | None:
    """Return the permission bits of a file, None if it does not exist."""
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return None
