"""A program to be started, and that written down for the supervisor: limits, sandbox, and the very file that is meant.

What the supervisor must know goes through files in memory, not over its command line, which everybody may read.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import functools
import hashlib
import os
import resource
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from shutil import which
from typing import Any, ClassVar

from msgspec import Struct, field

from acting.process.supervisor import MARK, tasks
from acting.sandbox.spec import SandboxSpec, bwrap_words, call_filter, confinement
from spar.data.bounded import BoundedDict
from spar.errors import ConfigError, PermanentError
from spar.protocols import Home

_PLAIN_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MOST_HASHES = 256  # files whose hash is remembered


def environment(
    names: Iterable[str], *, workspace: str | None = None, source: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The named variables of `source` (ours by default) that are set, and a `PATH` in any case.

    The `PATH` loses relative entries. With a `workspace` that is `HOME`, and the `PATH` loses what lies in it, because
    a tool could have put a program there.
    """
    found = os.environ if source is None else source
    chosen = {name: found[name] for name in names if name in found}
    parts = [part for part in found.get("PATH", "").split(":") if part.startswith("/")]
    if workspace is not None:
        chosen["HOME"] = workspace
        parts = [part for part in parts if not Path(part).is_relative_to(workspace)]
    return {**chosen, "PATH": ":".join(parts) or _PLAIN_PATH}


def find_program(name: str, env: Mapping[str, str]) -> str | None:
    """The file that a program's name means on the environment's `PATH`, or None."""
    return which(name, path=env.get("PATH", _PLAIN_PATH))


def refuse_own_folders(home: Home, workspace: str, readable: Sequence[str]) -> None:
    """Refuse to give the files that the service lives by to its tools. Raises: ConfigError."""
    own = {"state": home.state, "configuration": home.config, "Python": sys.prefix}
    for what, folder in own.items():
        if Path(folder).resolve().is_relative_to(workspace):
            raise ConfigError(f"the workspace {workspace!r} must not hold the service's {what} {folder!r}")
    for given in readable:
        for what in ("state", "configuration"):
            mine = Path(own[what]).resolve()
            if mine.is_relative_to(given) or (what == "state" and Path(given).is_relative_to(mine)):
                raise ConfigError(
                    f"readable {given!r} and the service's {what} {own[what]!r} must not lie in one another",
                    path=("readable",),
                )


class Program(Struct, frozen=True):
    """A program to start: `path` is the file, `argv` what it is told, its own name first.

    It may open `files` files at once, write files of at most `file_bytes` bytes, and consist of about `processes`
    processes; each of them may use `cpu` seconds of processor time and `memory` bytes of address space (0: no limit).
    `sandbox` confines it. With a `digest`, the SHA-256 in hexadecimal of the file, that very content is executed: a
    script and what lies in the workspace as a sealed copy, another file by the descriptor through which it was read.
    """

    path: str
    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str] = field(default_factory=dict)
    files: int = 1024
    file_bytes: int = 1 << 30
    processes: int = 1024
    cpu: int = 0
    memory: int = 0
    sandbox: SandboxSpec | None = None
    digest: str = ""


@functools.cache
def hide_memory() -> None:
    """Keep other processes of the same user out of ours: `/proc/PID/environ`, `mem` and `fd`, `ptrace`, core dumps.

    Root with all its capabilities gets in all the same. The price: our own `/proc/self/environ` is closed to us too,
    and a debugger or profiler of the same user cannot attach.
    """
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE


def order(
    program: Program, mark: str, lent: ExitStack, approved: ApprovedFile | None = None
) -> tuple[dict[str, Any], list[int]]:
    """Return the order for the supervisor, and the descriptors that it must be given, which `lent` closes.

    Raises: OSError or ValueError when the program cannot be started like this.
    """
    granted = (program.sandbox.workspace, *program.sandbox.readable) if program.sandbox else ()
    for word in (program.path, program.cwd, *program.argv, *program.env, *program.env.values(), *granted):
        if "\0" in word:  # bubblewrap would read on behind it
            raise ValueError("embedded null byte")
    spec, descriptors, path = program.sandbox, [], program.path
    argv, env = list(program.argv), {**program.env, MARK: mark}
    limits = [(resource.RLIMIT_CORE, 0), (resource.RLIMIT_NOFILE, program.files)]
    limits += [(resource.RLIMIT_FSIZE, program.file_bytes)]
    limits += [(resource.RLIMIT_CPU, program.cpu)] if program.cpu else []
    limits += [(resource.RLIMIT_AS, program.memory)] if program.memory else []
    # In users of its own the limit counts the program's processes alone, elsewhere all of the user; never root's.
    others = 0 if spec is not None and spec.level == 1 else tasks()
    limits += [(resource.RLIMIT_NPROC, others + program.processes)]
    told: dict[str, Any] = {"cwd": os.fsencode(program.cwd), "processes": program.processes}
    told |= {"sandbox": None, "report": None, "is_namespace": spec is not None}
    if approved is not None:
        descriptors.append(approved.descriptor)
        path = f"/proc/self/fd/{descriptors[0]}"
    if spec is not None and spec.level == 1:
        told["sandbox"] = confinement(spec, program.path, processes=program.processes)
        if told["sandbox"] is None:
            raise ValueError("this machine has no Landlock or no filter of system calls")
    elif spec is not None:
        filter_, report = call_filter(), lent_file(b"", lent)
        filter_at = None if filter_ is None else lent_file(filter_, lent)
        words = bwrap_words(spec, program.path, cwd=program.cwd, env=env, filter_at=filter_at, report_at=report)
        words_at = lent_file(b"".join(os.fsencode(word) + b"\0" for word in words), lent)
        descriptors += [each for each in (report, filter_at, words_at) if each is not None]
        argv = ["bwrap", "--args", str(words_at), "--", path, *argv[1:]]
        path, env, told["report"] = spec.bwrap, {}, report
    told |= {"path": os.fsencode(path), "argv": [os.fsencode(word) for word in argv], "limits": limits}
    told["env"] = {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
    return told, descriptors


def lent_file(content: bytes, lent: ExitStack) -> int:
    """A file in memory that holds `content`, to be read from its beginning."""
    descriptor = os.memfd_create("spar")
    lent.callback(os.close, descriptor)
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


class ApprovedFile:
    """The file of a program that was approved, found to have the digest: `descriptor` is open until `close`.

    `open` blocks as long as the file takes to be read. The hash of a file outside of the workspace is remembered as
    long as path, size, times, inode and device of it stay the same; a script and what lies in the workspace, where
    programs of the agent may write, is read each time, and executed as a sealed copy of what was read.
    """

    _hashes: ClassVar[BoundedDict[tuple[str | int, ...], str]] = BoundedDict(_MOST_HASHES)
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, program: Program) -> None:
        self._program = program
        self._own = threading.Lock()
        self._lent = ExitStack()
        self._is_closed = False
        self.descriptor = -1

    def open(self) -> None:
        """Open and hash the file. For a thread. Raises: OSError; PermanentError when it is not the one approved."""
        with ExitStack() as lent:
            descriptor = self._opened(lent)
            with self._own:
                if not self._is_closed:
                    self.descriptor, self._lent = descriptor, lent.pop_all()

    def close(self) -> None:
        """Close it, also while a thread still opens it. Idempotent."""
        with self._own:
            self._is_closed = True
            self._lent.close()

    def _opened(self, lent: ExitStack) -> int:
        program = self._program
        opened = os.open(program.path, os.O_RDONLY | os.O_CLOEXEC)
        lent.callback(os.close, opened)
        workspace = program.sandbox.workspace if program.sandbox else program.cwd
        is_ours = Path(os.path.realpath(program.path)).is_relative_to(workspace)
        with open(opened, "rb", closefd=False) as file:
            is_copied = is_ours or os.pread(opened, 2, 0) == b"#!"
            content = file.read() if is_copied else b""
            found = hashlib.sha256(content).hexdigest() if is_copied else self._hash(opened, file)
        if found != program.digest:
            raise PermanentError(
                f"{program.path!r} is not the file any more that was approved: its content has changed"
            )
        return _sealed(content, lent) if is_copied else opened

    def _hash(self, opened: int, file: Any) -> str:
        about = os.fstat(opened)
        key = (self._program.path, about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino, about.st_dev)
        with self._lock:
            found = self._hashes.get(key)
        if found is None:
            found = hashlib.file_digest(file, "sha256").hexdigest()
            with self._lock:
                self._hashes[key] = found
        return found


def _sealed(content: bytes, lent: ExitStack) -> int:
    for flags in (os.MFD_ALLOW_SEALING | 0x10, os.MFD_ALLOW_SEALING):  # MFD_EXEC is asked for since Linux 6.3
        try:
            copy = os.memfd_create("spar-program", flags)
            break
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
    lent.callback(os.close, copy)
    view = memoryview(content)
    while view:
        view = view[os.write(copy, view) :]
    fcntl.fcntl(
        copy, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
    )
    return copy
