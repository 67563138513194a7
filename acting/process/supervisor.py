"""Supervisor of a program: ends its process tree; and `sweep`, which does so when the supervisor was killed.

`supervise` runs in an interpreter of its own, between the service and the program. It imports only small modules of the
standard library (not even `signal`, whose enumerations cost 4 ms), because each launch waits for it. The supervisor is
a *subreaper*: processes that the program starts and abandons become its children, also after `setsid`, so it can
freeze, kill and reap the whole tree. It does so when the program ends, when the service closes the control socket (or
dies, which closes the socket too), and when the tree grows too large. It writes lines to that socket: `error ERRNO
STEP` or `exit CODE` or `signal NUMBER`, and `done` once no process is left.

In a sandbox of namespaces there is one more process in between, the first of the pid namespace: when it ends, the
kernel kills all others in there.
"""

from __future__ import annotations

import ctypes
import marshal
import os
import resource
import select
import sys
import time

TYPE_CHECKING = False  # `typing` itself would cost each launch three milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MARK = "SPAR_LAUNCH"
"""The environment variable that marks the processes of one launch."""

_HUP, _INT, _KILL, _TERM, _CONTINUE, _STOP = 1, 2, 9, 15, 18, 19
_STANDARD = tuple(number for number in range(1, 32) if number not in (_KILL, _STOP))
_DEFAULT, _IGNORE, _SET_MASK = 0, 1, 2
_DEAF_TO = (_TERM, _INT, _HUP)  # a stopping service must not leave the tree behind
_DEATH_SIGNAL, _DUMPABLE, _SUBREAPER, _NO_NEW_PRIVS = 1, 4, 36, 38
_SOONER_FOR_MEMORY = 500  # `oom_score_adj`: when memory runs out, the kernel kills the program before the service
_LOOK_EVERY = 100  # milliseconds between two counts of the processes
_C = ctypes.CDLL(None)


def family(root: int) -> dict[int, int]:
    """Return the living descendants of a process by `/proc`, each with its start (clock ticks since boot)."""
    parents: dict[int, tuple[int, int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib would double the supervisor's start
        if name.isdigit() and (stat := _stat(int(name))):
            parent, _, started = stat
            parents[int(name)] = parent, started
    tree, size = {root}, 0
    while len(tree) > size:
        size = len(tree)
        tree.update(pid for pid, (parent, _) in parents.items() if parent in tree)
    return {pid: parents[pid][1] for pid in tree - {root} if pid in parents}


def _stat(pid: int) -> tuple[int, int, int] | None:
    """Return parent, group and start (clock ticks since boot) of a process; None when it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:  # noqa: PTH123
            fields = stat.read().rpartition(b")")[2].split()
        return int(fields[1]), int(fields[2]), int(fields[19])
    except (OSError, ValueError, IndexError):
        return None


def send(processes: dict[int, int], number: int) -> None:
    """Signal processes, their groups first: a group gets the signal at once, so that no member can fork away.

    A pid that now belongs to another process (its start differs) gets no signal.
    """
    ours = os.getpgrp()
    alive = {pid: stat[1] for pid, started in processes.items() if (stat := _stat(pid)) and stat[2] == started}
    for group in {group for group in alive.values() if group > 1 and group != ours}:
        _kill(-group, number)
    for pid in alive:
        _kill(pid, number)


def _kill(target: int, number: int) -> None:
    try:
        os.kill(target, number)
    except OSError:
        pass


def sweep(supervisor: int, mark: str) -> bool:
    """Kill what is left of the tree of a supervisor that was killed or does not answer. Return False if some live on.

    Descendants of the supervisor are found by their parents, the others by the mark in their environment.
    """
    pause = 0.001
    while pause < 1.5:  # 1 ms, 2 ms, … 1.024 s: two seconds in all
        left = family(supervisor) | _marked(mark)
        send(left, _KILL)
        _kill(supervisor, _KILL)  # not reaped yet: the pid still belongs to it
        if not left:
            return True
        time.sleep(pause)
        pause *= 2
    return False


def _marked(mark: str) -> dict[int, int]:
    wanted = f"{MARK}={mark}".encode()
    marked = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit() and (stat := _stat(int(name))):
            try:
                with open(f"/proc/{name}/environ", "rb") as environ:  # noqa: PTH123
                    if wanted in environ.read().split(b"\0"):
                        marked[int(name)] = stat[2]
            except OSError:
                pass  # it has ended, or belongs to another user and so not to this launch
    return marked


def supervise() -> None:
    """Run the supervisor; `sys.argv` ends with the descriptors of the control socket and of the order."""
    control, order_at = int(sys.argv[-2]), int(sys.argv[-1])
    with open(order_at, "rb") as file:
        order = marshal.load(file)
    _C.prctl(_SUBREAPER, 1, 0, 0, 0)  # abandoned processes become our children
    os.set_inheritable(control, False)
    for number in _DEAF_TO:
        _C.signal(number, ctypes.c_void_p(_IGNORE))

    def say(line: str) -> None:
        try:
            os.write(control, f"{line}\n".encode())
        except OSError:
            pass  # the service is gone

    me = os.getpid()
    first: Callable[[], None] = lambda: _become_program(order, say, me)  # noqa: E731
    try:
        if order["sandbox"]:
            from acting.sandbox.kernel import enter_namespaces

            enter_namespaces()
            first = lambda: _run_first_process(order, say)  # noqa: E731
    except OSError as error:
        say(f"error {error.errno} namespaces\ndone")
        os._exit(127)
    main = _fork(first)
    _C.prctl(_DUMPABLE, 0, 0, 0, 0)  # other processes cannot read our memory
    for descriptor in (0, 1, 2):
        os.close(descriptor)
    _raise_priority()
    _watch(main, control, order, say)
    _end_all()
    say("done")
    os._exit(0)


def _raise_priority() -> None:
    """Get real-time priority, so that a program that forks without end is noticed and ended in time.

    Without the right to do so (CAP_SYS_NICE), the limit of the user's processes helps; it does not bind root.
    """
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except (OSError, AttributeError):
        pass


def _fork(be: Callable[[], None]) -> int:
    """Fork a child that runs `be` and nothing else, with a higher score for the kernel's out-of-memory killer."""
    try:
        ours = os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
        before = os.read(ours, 16)
        os.pwrite(ours, b"%d" % max(_SOONER_FOR_MEMORY, int(before)), 0)
    except OSError:
        ours, before = -1, b""
    child = os.fork()
    if child == 0:
        try:
            be()
        finally:
            os._exit(127)
    if ours >= 0:
        try:
            os.pwrite(ours, before, 0)
        except OSError:
            pass
        os.close(ours)
    return child


def _run_first_process(order: dict[str, Any], say: Callable[[str], None]) -> None:
    """Run as the first process of a pid namespace: mount its files, start the program, reap, and end with it."""
    from acting.sandbox.kernel import furnish

    _C.prctl(_DEATH_SIGNAL, _KILL, 0, 0, 0)
    _C.prctl(_DUMPABLE, 0, 0, 0, 0)
    try:
        furnish(order["sandbox"])
    except OSError as error:
        say(f"error {error.errno} namespaces")
        return
    program = os.fork()
    if program == 0:
        _become_program(order, say, 1)
        os._exit(127)
    for descriptor in (0, 1, 2):
        os.close(descriptor)
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == program:
            _report_status(status, say)
            os._exit(0)


def _become_program(order: dict[str, Any], say: Callable[[str], None], parent: int) -> None:
    """Replace this process by the program. Return only when that failed, after reporting the error."""
    step = "session"
    try:
        os.setsid()
        _C.prctl(_DEATH_SIGNAL, _KILL, 0, 0, 0)
        if os.getppid() != parent:
            return
        for number in _STANDARD:  # a shell that starts the service in the background leaves some of them ignored
            _C.signal(number, ctypes.c_void_p(_DEFAULT))
        _C.sigprocmask(_SET_MASK, bytes(128), None)
        for limit, wanted in order["limits"]:
            most = resource.getrlimit(limit)[1]
            bound = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
            resource.setrlimit(limit, (bound, bound))
        os.umask(0o077)
        _C.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)  # a process that changes its user could not be killed
        step = "folder"
        os.chdir(order["cwd"])
        if order["sandbox"]:
            from acting.sandbox.kernel import give_up_rights

            step = "rights"
            give_up_rights(order["sandbox"])
        step = "program"
        os.execve(order["path"], order["argv"], order["env"])
    except OSError as error:
        say(f"error {error.errno} {step}")


def _report_status(status: int, say: Callable[[str], None]) -> None:
    code = os.waitstatus_to_exitcode(status)
    say(f"exit {code}" if code >= 0 else f"signal {-code}")


def _bwrap_status(report: int) -> str:
    """Return how the program ended inside of bubblewrap, by the JSON that it wrote; an error without such a line."""
    _, separator, tail = os.pread(report, 4096, 0).rpartition(b'"exit-code": ')
    return f"exit {int(tail.split(b'}')[0])}" if separator else "error 1 bwrap"


def _watch(main: int, control: int, order: dict[str, Any], say: Callable[[str], None]) -> None:
    """Wait until the program ends or has to be ended, and report how it ended."""
    try:
        ended = os.pidfd_open(main)
    except (OSError, AttributeError):
        ended = None
    wait = select.poll()
    for source in (control, ended):
        if source is not None:
            wait.register(source, select.POLLIN)
    most: int = order["processes"]
    crowd = tasks() + most
    while True:
        # The timeout is for abandoned processes that have ended and must be reaped; without a pidfd, for the program
        # too.
        ready = {descriptor for descriptor, _ in wait.poll(_LOOK_EVERY if ended is not None else 20)}
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == main:
                    _report_end(status, order, say)
                    return
                if pid == 0:
                    break
        except ChildProcessError:
            return
        is_over = control in ready
        if not is_over and tasks() > crowd:
            size = _size(main, most)
            is_over, crowd = (
                size > most,
                tasks() + most - size,
            )  # other programs have started: count again only when this one could be too large
        if is_over:
            if order["is_namespace"]:
                _kill(main, _KILL)  # the kernel then kills all others in the namespace
            _end_all(main, lambda status: _report_end(status, order, say))
            return


def _size(main: int, most: int) -> int:
    """Stop the program and count its processes; let it go on unless they are more than `most`."""
    for target in (-main, main):
        _kill(target, _STOP)
    size = len(family(os.getpid()))
    if size <= most:
        for target in (-main, main):
            _kill(target, _CONTINUE)
    return size


def tasks() -> int:
    """Return the number of threads on this machine: a cheap sign that the program may have grown."""
    try:
        with open("/proc/loadavg", "rb") as file:  # noqa: PTH123
            return int(file.read().split()[3].partition(b"/")[2])
    except (OSError, ValueError, IndexError):
        return 0


def _report_end(status: int, order: dict[str, Any], say: Callable[[str], None]) -> None:
    """Report the end of our first child, which may be another process than the program."""
    report = order["report"]
    if report is not None and os.WIFEXITED(status):
        say(_bwrap_status(report))
    elif not (order["sandbox"] and status == 0):  # else the first process of the namespace has reported it
        _report_status(status, say)


def _end_all(main: int = 0, judge: Callable[[int], None] = lambda status: None) -> None:
    """Kill and reap every descendant; `judge` gets the status of `main`."""
    me, pause = os.getpid(), 0.001
    while True:
        try:
            while (dead := os.waitpid(-1, os.WNOHANG))[0]:
                if dead[0] == main:
                    judge(dead[1])
        except ChildProcessError:
            return
        frozen: dict[int, int] = {}
        for _ in range(50):  # freeze before killing: otherwise a process that forks quickly escapes
            fresh = {pid: started for pid, started in family(me).items() if pid not in frozen}
            if not fresh:
                break
            send(fresh, _STOP)
            frozen |= fresh
        send(frozen, _KILL)
        time.sleep(pause)
        pause = min(pause * 2, 0.1)
