"""The description of a program to start, and the order for its supervisor: limits, sandbox, and the approved file.

The order goes to the supervisor through files in memory, not on its command line, which every user can read.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import functools
import hashlib
import os
import resource
import threading
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from shutil import which
from typing import Any, ClassVar

from msgspec import Struct, field

from acting.process.supervisor import MARK, tasks
from acting.sandbox.spec import SandboxSpec, bwrap_words, call_filter, confinement
from spar.data.bounded import BoundedDict
from spar.errors import PermanentError

_PLAIN_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MOST_HASHES = 256  # files whose hash is remembered


def environment(
    names: Iterable[str], *, workspace: str | None = None, source: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the named variables that are set in `source` (by default the service's own), and always a `PATH`.

    The `PATH` loses relative entries. A `workspace` becomes `HOME`, and the `PATH` loses its folders, because a tool
    could have put a program there.
    """
    variables = os.environ if source is None else source
    chosen = {name: variables[name] for name in names if name in variables}
    parts = [part for part in variables.get("PATH", "").split(":") if part.startswith("/")]
    if workspace is not None:
        chosen["HOME"] = workspace
        parts = [part for part in parts if not Path(part).is_relative_to(workspace)]
    return {**chosen, "PATH": ":".join(parts) or _PLAIN_PATH}


def find_program(name: str, env: Mapping[str, str]) -> str | None:
    """Return the file of a program by its name and the environment's `PATH`, or None."""
    return which(name, path=env.get("PATH", _PLAIN_PATH))


class Program(Struct, frozen=True):
    """A program to start: `path` is the file, `argv` its arguments with its own name first.

    It may open `files` files at once, write files of at most `file_bytes` bytes, and consist of about `processes`
    processes; each of them may use `cpu` seconds of processor time and `memory` bytes of address space (0: no limit).
    `sandbox` confines it. With a `digest`, the SHA-256 of the file in hexadecimal, exactly that content is executed: a
    script or a file in the workspace from a sealed copy, another file by the descriptor through which it was read.
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
    """Hide this process's memory from other processes of the same user: `/proc/PID/environ`, `mem`, `fd`, `ptrace`.

    Core dumps are off too. Root with all its capabilities can still read it. The price: this process cannot read its
    own `/proc/self/environ`, and a debugger or profiler of the same user cannot attach.
    """
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE


def order(
    program: Program, mark: str, lent: ExitStack, approved: ApprovedFile | None = None
) -> tuple[dict[str, Any], list[int]]:
    """Return the order for the supervisor, and the descriptors that it must inherit; `lent` closes them.

    Raises: OSError or ValueError when the program cannot be started in this way.
    """
    granted = (program.sandbox.workspace, *program.sandbox.readable) if program.sandbox else ()
    for word in (program.path, program.cwd, *program.argv, *program.env, *program.env.values(), *granted):
        if "\0" in word:  # bubblewrap would take the text after it as another argument
            raise ValueError("embedded null byte")
    spec, descriptors, path = program.sandbox, [], program.path
    argv, env = list(program.argv), {**program.env, MARK: mark}
    limits = [(resource.RLIMIT_CORE, 0), (resource.RLIMIT_NOFILE, program.files)]
    limits += [(resource.RLIMIT_FSIZE, program.file_bytes)]
    limits += [(resource.RLIMIT_CPU, program.cpu)] if program.cpu else []
    limits += [(resource.RLIMIT_AS, program.memory)] if program.memory else []
    # In a user namespace the limit counts only the program's processes, elsewhere all of the user's; it never binds
    # root.
    others = 0 if spec is not None and spec.level == 1 else tasks()
    limits += [(resource.RLIMIT_NPROC, others + program.processes)]
    instructions: dict[str, Any] = {"cwd": os.fsencode(program.cwd), "processes": program.processes}
    instructions |= {"sandbox": None, "report": None, "is_namespace": spec is not None}
    if approved is not None:
        descriptors.append(approved.descriptor)
        path = f"/proc/self/fd/{descriptors[0]}"
    if spec is not None and spec.level == 1:
        instructions["sandbox"] = confinement(spec, program.path, processes=program.processes)
        if instructions["sandbox"] is None:
            raise ValueError("this machine has no Landlock or no filter of system calls")
    elif spec is not None:
        filter_, report = call_filter(), lent_file(b"", lent)
        filter_at = None if filter_ is None else lent_file(filter_, lent)
        words = bwrap_words(spec, program.path, cwd=program.cwd, env=env, filter_at=filter_at, report_at=report)
        words_at = lent_file(b"".join(os.fsencode(word) + b"\0" for word in words), lent)
        descriptors += [descriptor for descriptor in (report, filter_at, words_at) if descriptor is not None]
        argv = ["bwrap", "--args", str(words_at), "--", path, *argv[1:]]
        path, env, instructions["report"] = spec.bwrap, {}, report
    instructions |= {"path": os.fsencode(path), "argv": [os.fsencode(word) for word in argv], "limits": limits}
    instructions["env"] = {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
    return instructions, descriptors


def lent_file(content: bytes, lent: ExitStack) -> int:
    """Return the descriptor of a file in memory that holds `content`, positioned at its beginning; `lent` closes it."""
    descriptor = os.memfd_create("spar")
    lent.callback(os.close, descriptor)
    _fill(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


class ApprovedFile:
    """The file of an approved program, checked against its digest: `descriptor` is open until `close`.

    `open` blocks while it reads the file. The hash of a file outside of the workspace is remembered while its path,
    size, times, inode and device stay the same. A script, or a file in the workspace, where the agent's programs may
    write, is read each time, and executed from a sealed copy.
    """

    _hashes: ClassVar[BoundedDict[tuple[str | int, ...], str]] = BoundedDict(_MOST_HASHES)
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, program: Program) -> None:
        self._program = program
        self._open_lock = threading.Lock()
        self._lent = ExitStack()
        self._is_closed = False
        self.descriptor = -1

    def open(self) -> None:
        """Open and hash the file; this blocks.

        Raises: OSError; PermanentError when its content is not the approved one.
        """
        with ExitStack() as lent:
            descriptor = self._open_checked(lent)
            with self._open_lock:
                if not self._is_closed:
                    self.descriptor, self._lent = descriptor, lent.pop_all()

    def close(self) -> None:
        """Close the file, also while a thread still opens it. Idempotent."""
        with self._open_lock:
            self._is_closed = True
            self._lent.close()

    def _open_checked(self, lent: ExitStack) -> int:
        program = self._program
        opened = os.open(program.path, os.O_RDONLY | os.O_CLOEXEC)
        lent.callback(os.close, opened)
        workspace = program.sandbox.workspace if program.sandbox else program.cwd
        is_ours = Path(os.path.realpath(program.path)).is_relative_to(workspace)
        with open(opened, "rb", closefd=False) as file:
            is_copied = is_ours or os.pread(opened, 2, 0) == b"#!"
            content = file.read() if is_copied else b""
            digest = hashlib.sha256(content).hexdigest() if is_copied else self._hash(opened, file)
        if digest != program.digest:
            raise PermanentError(
                f"{program.path!r} is not the file any more that was approved: its content has changed"
            )
        return _sealed_copy(content, lent) if is_copied else opened

    def _hash(self, opened: int, file: Any) -> str:
        about = os.fstat(opened)
        key = (self._program.path, about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino, about.st_dev)
        with self._lock:
            digest = self._hashes.get(key)
        if digest is None:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            with self._lock:
                self._hashes[key] = digest
        return digest


def _sealed_copy(content: bytes, lent: ExitStack) -> int:
    for flags in (os.MFD_ALLOW_SEALING | 0x10, os.MFD_ALLOW_SEALING):  # MFD_EXEC is known since Linux 6.3
        try:
            copy = os.memfd_create("spar-program", flags)
            break
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
    lent.callback(os.close, copy)
    _fill(copy, content)
    seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
    fcntl.fcntl(copy, fcntl.F_ADD_SEALS, seals)
    return copy


def _fill(descriptor: int, content: bytes) -> None:
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content)
