"""Launcher of programs: starts them and ends their whole process tree. Only this module of the acting phase does so.

`kill(); wait()` is not enough: a grandchild that holds the pipe keeps the reader waiting, and one that called `setsid`
has left the process group. So a small supervisor process (`supervisor`), an interpreter without site-packages, stands
between the service and the program. It ends the whole tree when the program ends, when the service asks, when the tree
grows too large, and when the service dies. If a program kills its own supervisor, a mark in the environment shows the
processes that are left. Only a program that also removes the mark escapes, and in a sandbox it can do neither.

Every program gets: a session of its own, `no_new_privs`, umask 077, no core dump, limits of files, default signals,
only the descriptors 0 to 2, and only the named environment variables. That is level 0; with a `sandbox` (made by
`process/detect`) the program runs at level 1 or 2. On an idle machine `true` takes 14 ms at level 0, 24 at level 1, 27
at level 2, and 3 without a supervisor. There are no shell strings here, and the list of allowed programs is the tool's.
A process runs in real time, so its deadlines are those of the event loop.
"""

from __future__ import annotations

import errno
import fcntl
import marshal
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import IO

import anyio

from acting.process.program import ApprovedFile, Program, hide_memory, lent_file, order
from acting.process.supervisor import MARK, sweep
from acting.process.supervisor import __file__ as REAPER
from spar.clock import SystemClock
from spar.errors import PermanentError, TransientError
from spar.ids import new_id
from spar.ports.services import ProgramEnd
from spar.threads import Threads

KILL_GRACE = 2.0
"""Seconds for the supervisor to kill its tree; then `sweep` does it, and after as many more the launcher gives up."""
_PIPE_BYTES = 256 * 1024
_CHUNK = 64 * 1024
_MOST_LEFT = 4 << 20
# Imports the supervisor from its package without running `__init__`: so Python compiles it once, not at each launch.
_SUPERVISOR = (
    "import sys, types; package = types.ModuleType('acting'); package.__path__ = [sys.argv[1]];"
    "sys.modules['acting'] = package; from acting.process.supervisor import supervise; supervise()"
)
#: The words that begin the command of an interpreter without site-packages; its program comes next, as text.
ISOLATED = (sys.executable, "-I", "-S", "-c")
_OWN_FOLDER = str(Path(REAPER).absolute().parents[1])
_NOT_NOW = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ETXTBSY)


class Process:
    """A running program: raw, non-blocking descriptors of its pipes, its status, and a way to end it."""

    __slots__ = ("_control", "_is_over", "_lines", "_mark", "_popen", "_unfinished", "stderr", "stdin", "stdout")

    def __init__(self, popen: subprocess.Popen[bytes], control: socket.socket, mark: str) -> None:
        self._popen, self._control, self._mark = popen, control, mark
        self._lines: list[tuple[str, ...]] = []
        self._unfinished = b""
        self._is_over = False
        control.setblocking(False)
        self.stdin, self.stdout, self.stderr = map(_prepare_pipe, (popen.stdin, popen.stdout, popen.stderr))

    @property
    def status(self) -> tuple[int | None, int | None] | None:
        """Return `(exit, signal)` of the program, one of them None; None while it runs.

        Raises: PermanentError when it could not be started, TransientError when a later start may succeed.
        """
        for word, *rest in self._lines:
            if word == "error":
                raise _start_error(int(rest[0]), rest[1])
            if word in ("exit", "signal"):
                return (int(rest[0]), None) if word == "exit" else (None, int(rest[0]))
        return None

    async def wait(self) -> None:
        """Wait until the program itself has ended. There is no status when its supervisor was killed.

        Raises: like `status`.
        """
        while self.status is None and await self._read_reports():
            pass

    async def end(self) -> bool:
        """Kill the whole tree and wait until it is gone, at most 3 × `KILL_GRACE`.

        Return False if a process is left.
        """
        is_clean = False
        with anyio.CancelScope(shield=True):
            try:
                self._control.shutdown(socket.SHUT_WR)
                self._popen.send_signal(signal.SIGCONT)  # a program may have stopped its supervisor
            except OSError:
                pass
            with anyio.move_on_after(KILL_GRACE):
                while await self._read_reports():
                    pass
            is_clean = ("done",) in self._lines
            if not is_clean:
                is_clean = await Threads("launcher", SystemClock()).run(sweep, self._popen.pid, self._mark)
            with anyio.move_on_after(KILL_GRACE):
                while self._popen.poll() is None:  # noqa: ASYNC110 - it is about to end
                    await anyio.sleep(0.001)
        return is_clean and self._popen.returncode is not None

    async def _read_reports(self) -> bool:
        """Read the supervisor's next lines. Return False at the end of its reports."""
        if self._is_over:
            return False
        await anyio.wait_readable(self._control)
        try:
            chunk = self._control.recv(4096)
        except BlockingIOError:
            return True
        except OSError:
            chunk = b""
        self._is_over = not chunk
        *lines, self._unfinished = (self._unfinished + chunk).split(b"\n")
        self._lines += [tuple(line.decode("ascii").split(" ")) for line in lines]
        return not self._is_over

    async def write(self, content: bytes) -> None:
        """Write to the program's standard input. Raises: OSError when the program has closed it."""
        unsent = memoryview(content)
        while unsent and self.stdin is not None:
            await anyio.wait_writable(self.stdin)
            with suppress(BlockingIOError):
                unsent = unsent[os.write(self.stdin, unsent[:_CHUNK]) :]

    def close_stdin(self) -> None:
        """Close the program's standard input."""
        self.stdin = None
        _close(self._popen.stdin)

    def close(self) -> None:
        """Close every descriptor. Call `end` first."""
        self._control.close()
        _close(self._popen.stdin, self._popen.stdout, self._popen.stderr)
        if self._popen.returncode is None:  # stuck in a system call: a thread reaps it when the call returns
            threading.Thread(target=self._popen.wait, name="spar-reaper", daemon=True).start()


def _prepare_pipe(pipe: IO[bytes] | None) -> int | None:
    if pipe is None:
        return None
    os.set_blocking(pipe.fileno(), False)
    try:
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    except OSError:
        pass  # this user's limit of pipe memory is reached; smaller pipes are only slower
    return pipe.fileno()


def _close(*pipes: IO[bytes] | None) -> None:
    for pipe in pipes:
        try:
            if pipe is not None:
                pipe.close()
        except OSError:
            pass


_STEPS = {
    "folder": "the program's working folder cannot be used",
    "namespaces": "the program could not be given namespaces of its own",
    "rights": "the program's rights could not be taken from it",
    "bwrap": "bubblewrap could not set up the program's sandbox or start it",
}


def _start_error(number: int, step: str) -> Exception:
    reason = os.strerror(number).lower()
    if number in _NOT_NOW:
        return TransientError(f"the program could not be started just now: {reason}")
    if step in _STEPS:
        return PermanentError(f"{_STEPS[step]}: {reason}")
    if number == errno.ENOEXEC:
        return PermanentError("the file is no program: it has neither a known format nor a '#!' line")
    return PermanentError(f"the program could not be started: {reason}")


@asynccontextmanager
async def launch(program: Program, *, with_stdin: bool = False) -> AsyncIterator[Process]:
    """Start a program. On leaving, its whole process tree is dead and reaped, also after a cancellation.

    Raises: PermanentError or TransientError (also from `Process.wait`) when it cannot be started.
    """
    if sys.platform != "linux":
        raise PermanentError(f"programs can be started on Linux only, this is {sys.platform}")
    hide_memory()
    mark = new_id()
    with ExitStack() as lent:
        ours, theirs = socket.socketpair()
        lent.callback(theirs.close)
        try:
            approved = ApprovedFile(program) if program.digest else None
            if approved is not None:
                lent.callback(approved.close)
                await Threads("program", SystemClock()).run(approved.open)
            instructions, descriptors = order(program, mark, lent, approved)
            passed_descriptors = (theirs.fileno(), *descriptors, lent_file(marshal.dumps(instructions), lent))
            popen = subprocess.Popen(  # noqa: ASYNC220 - about a millisecond, as in asyncio's own
                [*ISOLATED, _SUPERVISOR, _OWN_FOLDER, str(passed_descriptors[0]), str(passed_descriptors[-1])],
                stdin=subprocess.PIPE if with_stdin else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env={MARK: mark},
                cwd="/",
                pass_fds=passed_descriptors,
                start_new_session=True,
            )
        except BaseException as error:
            ours.close()
            if not isinstance(error, (OSError, ValueError)):
                raise
            kind = TransientError if getattr(error, "errno", None) in _NOT_NOW else PermanentError
            raise kind(f"{program.path!r} could not be started: {error}") from error
    process = Process(popen, ours, mark)
    try:
        yield process
    finally:
        try:
            await process.end()
        finally:
            process.close()


class Capture:
    """The beginning and the end of a stream, in about `limit` bytes, and the count of the bytes between."""

    __slots__ = ("_head", "_keep", "_tail", "total")

    def __init__(self, limit: int) -> None:
        self._keep = max(1, limit // 2)
        self._head, self._tail = bytearray(), bytearray()
        self.total = 0

    def add(self, chunk: bytes) -> None:
        self.total += len(chunk)
        room = self._keep - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:]
        if len(self._tail) > 2 * self._keep:
            del self._tail[: -self._keep]

    @property
    def omitted(self) -> int:
        return max(0, self.total - 2 * self._keep)

    def read(self) -> bytes:
        """Return the stored bytes, with a line in place of the missing ones that says how many they are."""
        if not self.omitted:
            return bytes(self._head + self._tail)
        return bytes(self._head) + f"\n… {self.omitted} bytes left out …\n".encode() + bytes(self._tail[-self._keep :])


async def run(
    program: Program, *, stdin: bytes | None = None, timeout: float, max_output: int = 256 * 1024
) -> ProgramEnd:
    """Run a program to its end, for at most `timeout` seconds, and keep at most `max_output` bytes of each stream.

    Raises: PermanentError or TransientError when it cannot be started. A program that fails raises nothing.
    """
    began = anyio.current_time()
    out, err = Capture(max_output), Capture(max_output)
    async with launch(program, with_stdin=stdin is not None) as process:
        failure: PermanentError | TransientError | None = None
        async with anyio.create_task_group() as pipes:
            pipes.start_soon(_collect, process.stdout, out)
            pipes.start_soon(_collect, process.stderr, err)
            if stdin is not None:
                pipes.start_soon(_feed, process, stdin)
            with anyio.move_on_after(timeout) as limit:
                try:
                    await process.wait()
                except (PermanentError, TransientError) as error:
                    failure = error  # raised outside of the group, which would wrap it
            await process.end()
            pipes.cancel_scope.cancel()
        if failure is not None:
            errors = err.read().decode("utf-8", "replace").strip().splitlines()  # bubblewrap's: no program ran
            raise type(failure)(f"{failure} ({errors[-1][:200]})") if errors else failure
        for pipe, capture in ((process.stdout, out), (process.stderr, err)):
            most = capture.total + _MOST_LEFT
            while capture.total < most and (chunk := _take(pipe)):
                capture.add(chunk)  # the bytes left in the pipe; not to its end, which a surviving process may delay
        ended = process.status or (None, None)
    level, duration = program.sandbox.level if program.sandbox else 0, anyio.current_time() - began
    omitted = out.omitted + err.omitted
    return ProgramEnd(*ended, out.read(), err.read(), omitted, limit.cancelled_caught, level, duration)


async def _collect(pipe: int | None, capture: Capture) -> None:
    async for chunk in chunks(pipe):
        capture.add(chunk)


async def chunks(pipe: int | None) -> AsyncIterator[bytes]:
    """Yield the bytes that come through a pipe, with pauses: a flood must leave the event loop time for other work."""
    while pipe is not None:
        await anyio.wait_readable(pipe)
        chunk = _take(pipe)
        if chunk == b"":
            return
        if chunk is not None:
            yield chunk
            if len(chunk) >= _CHUNK:
                await anyio.sleep(0.001)


def _take(pipe: int | None) -> bytes | None:
    """Return the bytes in a pipe; `b""` at its end, None when it is empty now."""
    try:
        return b"" if pipe is None else os.read(pipe, _CHUNK)
    except BlockingIOError:
        return None
    except OSError:
        return b""


async def _feed(process: Process, content: bytes) -> None:
    with suppress(OSError):  # the program closed its input
        await process.write(content)
    process.close_stdin()
