"""Starts of `spar …` as forks of a warm process: all that a start is but what is made once in a process.

`Forked` is a `subprocess.Popen` for `python -m spar …`, `python FILE.py …` and `python -c …`. One template for each
process of pytest has imported what the commands import, compiled patterns and models, and tried the sandbox of the
machine, which is most of a start. It has opened nothing, and has one thread and no loop. For each start it makes a
child whose parent is pytest (CLONE_PARENT), so that pytest waits for it and signals it as any child. The child gets
arguments, environment, folder, session and standard streams as Popen would give them, and runs the module, the file or
the code as the interpreter does.

Where a fork would not be the same, the interpreter is started: for another interpreter or options of it, for other
variables of the interpreter or the locale, for code that runs before the program, for a shell, and anywhere but on
Linux. Limits and namespaces are those that pytest had at the first start; `/proc/PID/cmdline` is the template's. Tests
about the start itself, about a pipe that closes, and most of test_probes.py start their processes from scratch.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import ctypes
import fcntl
import gc
import importlib
import io
import os
import pickle
import platform
import runpy
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from spar import failpoints
from spar.cli.main import main as run_command
from spar.errors import ConfigError
from tests.alone import wait_until_alone

ROOT = Path(__file__).parents[2]
#: The number of clone(2) on this machine; None where there is none.
CLONE = {"x86_64": 56, "aarch64": 220}.get(platform.machine()) if sys.platform == "linux" else None
_CLONE_PARENT, _CLONE_CHILD_CLEARTID, _CLONE_CHILD_SETTID = 0x8000, 0x200000, 0x1000000
_PR_GET_TID_ADDRESS = 40
#: Variables that are read when the interpreter or a library starts, and those among them that a fork follows.
_READ_AT_START = ("PYTHON", "LD_", "LC_", "LANG", "MALLOC_", "GLIBC_", "OTEL_", "LOGURU_")
_FOLLOWED = ("PYTHONPATH",)
#: Modules that a service imports late.
_LATE = (
    "spar.agent.submission", "spar.steps.steps", "spar.chat.screen", "spar.top.app",
    "spar.config.toml_lines", "spar.console.pages", "spar.health.models",
    "spar.journal.cycle_log", "spar.journal.failed_work", "spar.journal.restart",
    "spar.runs.outbox", "spar.bus.run_log",
    "spar.server.front", "spar.server.routes.console", "spar.service.process", "spar.session.session_hooks",
    "memory.care.opening", "memory.engine.session", "memory.journal.journal", "memory.postgres.cluster.writing",
    "memory.postgres.store", "memory.sqlite.connection",
    "memory.sqlite.full_text", "memory.sqlite.writer", "anyio._backends._asyncio", "apscheduler.triggers.cron", "apsw",
    "docstring_parser", "encodings.idna", "genai_prices.data", "httpcore", "httpx", "jsonschema_rs", "mcp", "openai",
    "openai.lib._chat_completion_resources", "openai.lib._response_resources",
    "opentelemetry.exporter.otlp.proto.http.trace_exporter", "psutil", "pydantic_ai.direct",
    "pydantic_ai.models.openai", "pydantic_ai.providers.openai", "re2", "spar.agent.hosting", "spar.evals.reading",
    "spar.journal.in_memory", "uvicorn.lifespan.off", "yaml",
)  # fmt: skip


class Forked(subprocess.Popen[bytes]):
    """Process that runs `python -m spar …`, `python FILE.py …` or `python -c …`, forked where that is the same."""

    def _execute_child(self, *given: Any) -> None:
        (args, executable, preexec_fn, close_fds, pass_fds, folder, environ, _, _, shell, *rest) = given
        pipes, (_, gid, gids, uid, umask, is_new_session, process_group) = rest[:6], rest[6:]
        environ = dict(os.environ if environ is None else environ)
        is_usual = (
            args[0] == sys.executable
            and (args[1:3] == ["-m", "spar"] or args[1] == "-c" or os.fsdecode(args[1]).endswith(".py"))
            and close_fds and not (pass_fds or shell) and preexec_fn in (None, take_terminal)
            and (executable, gid, gids, uid, umask, process_group) == (*(None,) * 4, -1, -1)
            and _read_at_start(environ) == _read_at_start(clean_environ())
        )  # fmt: skip
        if CLONE is None or not is_usual:
            super()._execute_child(*given)  # type: ignore[misc]
            return
        streams = [number if end == -1 else end for number, end in enumerate((pipes[0], pipes[3], pipes[5]))]
        at = os.open(folder or ".", os.O_PATH | os.O_DIRECTORY)
        try:
            order = [os.fsdecode(word) for word in args[1:]], environ, is_new_session, preexec_fn is not None
            self.pid = _template().fork(order, [*streams, at])
        finally:
            os.close(at)
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


def take_terminal() -> None:
    """Make the terminal that of the new session, so that Ctrl-C is a signal."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _read_at_start(environ: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name.startswith(_READ_AT_START) and name not in _FOLLOWED}


def runs_here(environ: dict[str, str]) -> bool:
    """Return whether a command with these variables does the same in the process of pytest."""
    with contextlib.suppress(RuntimeError):
        return not asyncio.get_running_loop()  # a command has a loop of its own
    return (
        _read_at_start(environ) == _read_at_start(clean_environ())
        and not any(name.startswith("SPAR_CRASH") for name in environ)
        and threading.current_thread() is threading.main_thread()
    )


class Typed(io.BytesIO):
    """Standard input that says that it is a terminal, and is typed into."""

    def isatty(self) -> bool:
        return True


def run_here(words: list[str], folder: str, environ: dict[str, str], stdin: bytes = b"", *,
             is_typed: bool = False) -> tuple[int, bytes, bytes]:  # fmt: skip
    """Run one command in this process, and return its exit code, its output and its errors.

    Beginning a process for each would take longer than all that they do.
    """
    standard = sys.stdin, sys.stdout, sys.stderr
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", how) for how in ("surrogateescape", "backslashreplace"))
    before, path, modules, threshold = dict(os.environ), sys.path[:], set(sys.modules), gc.get_threshold()
    try:
        with contextlib.chdir(folder):
            os.environ.clear()
            os.environ.update(environ)
            sys.path[:0] = [folder]
            importlib.invalidate_caches()
            sys.stdin = io.TextIOWrapper((Typed if is_typed else io.BytesIO)(stdin), "utf-8", "surrogateescape")
            sys.stdout, sys.stderr = out, err
            run_command(words)
    except SystemExit as end:
        code = end.code
    finally:
        sys.stdin, sys.stdout, sys.stderr = standard
        os.environ.clear()
        os.environ.update(before)
        sys.path[:] = path
        for name in sys.modules.keys() - modules:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(folder):
                del sys.modules[name]
        gc.set_threshold(*threshold)
    out.flush()
    err.flush()
    assert isinstance(code, int), code
    return code, out.buffer.getvalue(), err.buffer.getvalue()


def run_all() -> None:
    """Run the commands that standard input says, each in its folder, and print what each said."""
    answers, orders = sys.stdout.buffer, pickle.load(sys.stdin.buffer)
    pickle.dump([run_here(*order) for order in orders], answers)


def clean_environ() -> dict[str, str]:
    """Return our environment without what changes how spar or Python behave."""
    others = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SPAR_"))}
    return {**others, "PYTHONUTF8": "1"}


class _Template:
    """The warm process, as pytest has it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._channel, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", __name__, str(theirs.fileno())]
            self._process = subprocess.Popen(command, cwd=ROOT, env=clean_environ(), pass_fds=[theirs.fileno()])
        atexit.register(self._close)

    def fork(self, order: object, files: list[int]) -> int:
        """Start a child with these files as its standard streams and its folder, and return its number."""
        text = pickle.dumps(order)
        with self._lock:
            socket.send_fds(self._channel, [struct.pack("I", len(text))], files)
            self._channel.sendall(text)
            answer = self._channel.recv(4)
        if not answer:
            raise RuntimeError(f"the template has ended with {self._process.wait()}")
        number: int = struct.unpack("I", answer)[0]
        return number

    def _close(self) -> None:
        self._channel.close()
        self._process.wait()


@cache
def _template() -> _Template:
    return _Template()


# -- in the template


def main() -> None:
    is_interrupted_by = signal.signal(signal.SIGINT, signal.SIG_IGN)
    codes: list[int] = []
    atexit.register(_leave, codes)  # the first that is registered is called last
    _warm_up()
    arguments = _serve(socket.socket(fileno=int(sys.argv[1])))
    if arguments is not None:
        signal.signal(signal.SIGINT, is_interrupted_by)
        sys.argv[1:] = arguments[2 if arguments[0] in ("-m", "-c") else 1 :]
        try:
            if arguments[0] == "-m":
                runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
            elif arguments[0] == "-c":
                sys.modules["__main__"] = ModuleType("__main__")
                exec(arguments[1], vars(sys.modules["__main__"]))
            else:
                runpy.run_path(arguments[0], run_name="__main__")
        except SystemExit as end:
            codes += [end.code or 0] if isinstance(end.code, int | None) else []
            raise
        codes.append(0)


def _warm_up() -> None:
    """Import what the commands import, and have made what a process makes once: models, patterns, its sandbox."""
    from starlette.routing import compile_path

    from acting.process.detect import offered
    from acting.process.program import environment, find_program
    from perception.stages.intent import IntentSettings, recognise
    from spar.agent.agent import build_agent
    from spar.cli.main import grouped
    from spar.config.load import load
    from spar.server.routes.applications import served
    from spar.types import Perception

    gc.disable()
    for place in (place for group in grouped().values() for place in group.values()):
        for target in (place.target or "spar.cli.nouns", *place.commands.values()):
            importlib.import_module(target.partition(":")[0])
    for name in _LATE:
        with contextlib.suppress(ImportError):  # an extra that is not installed here
            importlib.import_module(name)
    for group in entry_points().groups:
        for entry in entry_points(group=group) if group.startswith("spar.") else ():
            with contextlib.suppress(ImportError):
                entry.load()
    loaded = load(ROOT / "config.toml", environ={"SPAR_SERVICE__PORT": "0"})
    build_agent(loaded)
    for operation in served():
        compile_path(operation.path)
    recognise(IntentSettings(), [Perception("?")])
    offered(find_program("bwrap", environment((), workspace="")))
    wait_until_alone("a template")
    gc.collect()
    gc.freeze()


def _leave(codes: list[int]) -> None:
    """Leave with the exit code, if there is one, before the interpreter takes itself apart: for that it writes to each
    of its strings, and a fork would copy all of them."""
    with contextlib.suppress(OSError, ValueError):  # the interpreter says what is wrong with a stream
        sys.stdout.flush()
        sys.stderr.flush()
        for code in codes:
            os._exit(code & 0xFF)


def _serve(channel: socket.socket) -> list[str] | None:
    """Fork until pytest has ended; return the arguments in each child, None in the template."""
    while True:
        head, files, _, _ = socket.recv_fds(channel, 4, 4)
        if not head:
            return None
        text, (size,) = b"", struct.unpack("I", head)
        while len(text) < size:
            text += channel.recv(size - len(text))
        number = _fork()
        if number == 0:
            channel.detach()
            return _become(*pickle.loads(text), files)
        for file in files:
            os.close(file)
        channel.sendall(struct.pack("I", number))


def _fork() -> int:
    """Fork as os.fork does, but a child of our parent.

    The flags are those of the C library's fork(3): its record of the thread gets the child's number.
    """
    python, libc, thread = ctypes.pythonapi, ctypes.PyDLL(None), ctypes.c_void_p()
    libc.prctl(_PR_GET_TID_ADDRESS, ctypes.byref(thread), 0, 0, 0)
    flags = _CLONE_PARENT | _CLONE_CHILD_CLEARTID | _CLONE_CHILD_SETTID | signal.SIGCHLD
    python.PyOS_BeforeFork()
    # One of the last two is that record, the other is not read; which of them differs between machines.
    number: int = libc.syscall(ctypes.c_long(CLONE or 0), ctypes.c_long(flags), None, None, thread, thread)
    if number == 0:
        python.PyOS_AfterFork_Child()
    else:
        python.PyOS_AfterFork_Parent()
    return number


def _become(
    arguments: list[str], environ: dict[str, str], is_new_session: bool, takes_terminal: bool, files: list[int]
) -> list[str]:
    """Do what Popen and the interpreter do for a new process; return its arguments."""
    for number, file in enumerate(files[:3]):
        os.dup2(file, number)
    os.fchdir(files[3])
    os.closerange(3, 1 << 20)
    if is_new_session:
        os.setsid()
    if takes_terminal:
        take_terminal()
    os.environ.clear()
    os.environ.update(environ)
    time.tzset()
    with contextlib.suppress(ConfigError):
        failpoints.arm(environ)
    folders = filter(None, environ.get("PYTHONPATH", "").split(os.pathsep))
    first = Path.cwd() if arguments[0] in ("-m", "-c") else Path(arguments[0]).parent
    sys.path[:1] = [str(first), *folders]  # for the template's own folder
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        errors, buffering = ("backslashreplace", 1) if name == "stderr" else ("surrogateescape", -1)
        stream = open(number, "w" if number else "r", buffering, "utf-8", errors, "\n", closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    gc.enable()
    return arguments


if __name__ == "__main__":
    main()
