"""Ends process trees: the supervisor that stands between us and a program, and the sweep that stands in for it.

`supervise` is the supervisor, an interpreter of its own. It imports nothing but small modules of the standard library
(not even `signal`, whose enumerations cost 4 ms), because each launch waits for it. It is a *subreaper*: whatever the
program starts and abandons becomes its child, also after `setsid`, so it can freeze, kill and reap the whole tree. It
does so when the program ends, when it is told to, when the tree grows too large, and when the service dies, which it
learns from the control socket that closes. On that socket it says, a line each: `error ERRNO STEP` or `exit CODE` or
`signal NUMBER`, and `done` once nothing is left.

In namespaces there is one more process in between, the first of the new pids: the kernel ends all others with it.
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
"""The variable in a program's environment that says to which launch it belongs."""

_HUP, _INT, _KILL, _TERM, _CONTINUE, _STOP = 1, 2, 9, 15, 18, 19
_STANDARD = tuple(number for number in range(1, 32) if number not in (_KILL, _STOP))
_DEFAULT, _IGNORE, _SET_MASK = 0, 1, 2
_DEAF_TO = (_TERM, _INT, _HUP)  # a stopping service must not leave the tree behind
_DEATH_SIGNAL, _DUMPABLE, _SUBREAPER, _NO_NEW_PRIVS = 1, 4, 36, 38
_SOONER_FOR_MEMORY = 500  # when memory runs out the kernel shall take the program, not the service
_LOOK_EVERY = 100  # milliseconds between two looks at how crowded it is
_C = ctypes.CDLL(None)


def family(root: int) -> dict[int, int]:
    """Return the living descendants of a process, as `/proc` tells them at this moment, and when each was started."""
    parents: dict[int, tuple[int, int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib would double the supervisor's start
        if name.isdigit() and (found := _stat(int(name))):
            parent, _, started = found
            parents[int(name)] = parent, started
    tree, size = {root}, 0
    while len(tree) > size:
        size = len(tree)
        tree.update(pid for pid, (parent, _) in parents.items() if parent in tree)
    return {pid: parents[pid][1] for pid in tree - {root} if pid in parents}


def _stat(pid: int) -> tuple[int, int, int] | None:
    """Return parent, group and start (clock batches since boot) of a process; None when there is none any more."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:  # noqa: PTH123
            fields = stat.read().rpartition(b")")[2].split()
        return int(fields[1]), int(fields[2]), int(fields[19])
    except (OSError, ValueError, IndexError):
        return None


def send(processes: dict[int, int], number: int) -> None:
    """Signal processes, their groups first: a group is hit in one instant, and nothing in it can fork away.

    A number that meanwhile belongs to another process, one that was started later, is left in peace.
    """
    ours = os.getpgrp()
    alive = {pid: found[1] for pid, started in processes.items() if (found := _stat(pid)) and found[2] == started}
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
    """Kill what is left when a supervisor was killed or does not answer; False when something lives on.

    Its descendants are found by descent, those that lost it by the mark in their environment.
    """
    pause = 0.001
    while pause < 1.5:  # 1 ms, 2 ms, … 1.024 s: two seconds in all
        left = family(supervisor) | _marked(mark)
        send(left, _KILL)
        _kill(supervisor, _KILL)  # nobody has reaped it: the number is still its own
        if not left:
            return True
        time.sleep(pause)
        pause *= 2
    return False


def _marked(mark: str) -> dict[int, int]:
    wanted = f"{MARK}={mark}".encode()
    marked = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit() and (found := _stat(int(name))):
            try:
                with open(f"/proc/{name}/environ", "rb") as environ:  # noqa: PTH123
                    if wanted in environ.read().split(b"\0"):
                        marked[int(name)] = found[2]
            except OSError:
                pass  # it ended, or is another user's and so not of this launch
    return marked


def supervise() -> None:
    """Be the supervisor: `sys.argv` ends with the descriptors of the control socket and of the order."""
    control, order_at = int(sys.argv[-2]), int(sys.argv[-1])
    with open(order_at, "rb") as file:
        order = marshal.load(file)
    _C.prctl(_SUBREAPER, 1, 0, 0, 0)  # the abandoned come to us
    os.set_inheritable(control, False)
    for number in _DEAF_TO:
        _C.signal(number, ctypes.c_void_p(_IGNORE))

    def say(line: str) -> None:
        try:
            os.write(control, f"{line}\n".encode())
        except OSError:
            pass  # nobody listens any more

    me = os.getpid()
    first: Callable[[], None] = lambda: _become_program(order, say, me)  # noqa: E731
    try:
        if order["sandbox"]:
            from acting.sandbox.kernel import enter_namespaces

            enter_namespaces()
            first = lambda: _be_first(order, say)  # noqa: E731
    except OSError as error:
        say(f"error {error.errno} namespaces\ndone")
        os._exit(127)
    main = _begin(first)
    _C.prctl(_DUMPABLE, 0, 0, 0, 0)  # nobody reads our memory
    for descriptor in (0, 1, 2):
        os.close(descriptor)
    _go_first()
    _watch(main, control, order, say)
    _end_all()
    say("done")
    os._exit(0)


def _go_first() -> None:
    """Run before all that merely compute, so that a program that forks without end is seen and ended in time.

    Where nobody may (CAP_SYS_NICE), the limit of the user's processes holds, which is never held against root.
    """
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except (OSError, AttributeError):
        pass


def _begin(be: Callable[[], None]) -> int:
    """A child that does `be` and nothing else; it is the first to go when memory runs out."""
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


def _be_first(order: dict[str, Any], say: Callable[[str], None]) -> None:
    """Be the first process of a pid namespace: furnish it, begin the program, reap, and end with the program."""
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
            _tell(status, say)
            os._exit(0)


def _become_program(order: dict[str, Any], say: Callable[[str], None], parent: int) -> None:
    """Take over the program's place; returns only when that was not possible, and has said so."""
    step = "session"
    try:
        os.setsid()
        _C.prctl(_DEATH_SIGNAL, _KILL, 0, 0, 0)
        if os.getppid() != parent:
            return
        for number in _STANDARD:  # whoever started us in the background left some of them ignored
            _C.signal(number, ctypes.c_void_p(_DEFAULT))
        _C.sigprocmask(_SET_MASK, bytes(128), None)
        for limit, wanted in order["limits"]:
            most = resource.getrlimit(limit)[1]
            bound = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
            resource.setrlimit(limit, (bound, bound))
        os.umask(0o077)
        _C.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)  # what changes its user could outlive the kill
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


def _tell(status: int, say: Callable[[str], None]) -> None:
    code = os.waitstatus_to_exitcode(status)
    say(f"exit {code}" if code >= 0 else f"signal {-code}")


def _told_by_bwrap(report: int) -> str:
    """Return how the program ended inside of bwrap, from the lines of JSON that it wrote; an error when none did."""
    _, found, rest = os.pread(report, 4096, 0).rpartition(b'"exit-code": ')
    return f"exit {int(rest.split(b'}')[0])}" if found else "error 1 bwrap"


def _watch(main: int, control: int, order: dict[str, Any], say: Callable[[str], None]) -> None:
    """Wait until the program has ended or shall end; return how it ended."""
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
        # Also without news there may be abandoned dead to reap; without a pidfd only asking tells of the end.
        ready = {descriptor for descriptor, _ in wait.poll(_LOOK_EVERY if ended is not None else 20)}
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == main:
                    _judge(status, order, say)
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
            )  # others came: count anew only once it could be too large
        if is_over:
            if order["is_namespace"]:
                _kill(main, _KILL)  # the kernel ends all the others with it
            _end_all(main, lambda status: _judge(status, order, say))
            return


def _size(main: int, most: int) -> int:
    """Return the number of the program's processes; it stands still meanwhile, and afterwards too if above `most`."""
    for target in (-main, main):
        _kill(target, _STOP)
    size = len(family(os.getpid()))
    if size <= most:
        for target in (-main, main):
            _kill(target, _CONTINUE)
    return size


def tasks() -> int:
    """Return the number of threads on this machine: cheap to ask, and a reason to look who they are."""
    try:
        with open("/proc/loadavg", "rb") as file:  # noqa: PTH123
            return int(file.read().split()[3].partition(b"/")[2])
    except (OSError, ValueError, IndexError):
        return 0


def _judge(status: int, order: dict[str, Any], say: Callable[[str], None]) -> None:
    """Tell of the end of our first child, which may not be the program itself."""
    report = order["report"]
    if report is not None and os.WIFEXITED(status):
        say(_told_by_bwrap(report))
    elif not (order["sandbox"] and status == 0):  # else the first process in there has told
        _tell(status, say)


def _end_all(main: int = 0, judge: Callable[[int], None] = lambda status: None) -> None:
    """Kill and reap every descendant; `judge` hears how `main` ended."""
    me, pause = os.getpid(), 0.001
    while True:
        try:
            while (dead := os.waitpid(-1, os.WNOHANG))[0]:
                if dead[0] == main:
                    judge(dead[1])
        except ChildProcessError:
            return
        frozen: dict[int, int] = {}
        for _ in range(50):  # freeze before killing, or what forks quickly enough is never caught up with
            fresh = {pid: started for pid, started in family(me).items() if pid not in frozen}
            if not fresh:
                break
            send(fresh, _STOP)
            frozen |= fresh
        send(frozen, _KILL)
        time.sleep(pause)
        pause = min(pause * 2, 0.1)
