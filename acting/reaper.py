"""Ends process trees: the supervisor that stands between us and a program, and the sweep that stands in for it.

Run as a script this file is the supervisor. It imports nothing but small modules of the standard library, because
each launch waits for it. It is a *subreaper*: whatever the program starts and abandons becomes its child, also
after `setsid`, so it can freeze, kill and reap the whole tree. It does so when the program ends, when it is told
to, and when the service dies, which it learns from the control socket that closes. On that socket it says, a line
each: `error ERRNO STEP` or `exit CODE` or `signal NUMBER`, and `done` once nothing is left.
"""

from __future__ import annotations

import ctypes
import os
import resource
import select
import signal
import sys
import time

MARK = "SPAR_LAUNCH"
"""The variable in a program's environment that says to which launch it belongs."""


def family(root: int) -> set[int]:
    """The living descendants of a process, as `/proc` tells them at this moment."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib would double the supervisor's start
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as stat:  # noqa: PTH123
                    parents[int(name)] = int(stat.read().rpartition(b")")[2].split()[1])
            except (OSError, IndexError):
                pass  # it ended meanwhile
    found, size = {root}, 0
    while len(found) > size:
        size = len(found)
        found.update(pid for pid, parent in parents.items() if parent in found)
    return found - {root}


def send(pids: set[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:
            pass


def sweep(supervisor: int, mark: str) -> bool:
    """Kill what is left when a supervisor was killed or does not answer; False when something lives on.

    Its descendants are found by descent, those that lost it by the mark in their environment.
    """
    pause = 0.001
    while pause < 1.5:  # 1 ms, 2 ms, … 1.024 s: two seconds in all
        left = family(supervisor) | _marked(mark)
        send(left | {supervisor}, signal.SIGKILL)
        if not left:
            return True
        time.sleep(pause)
        pause *= 2
    return False


def _marked(mark: str) -> set[int]:
    wanted = f"{MARK}={mark}".encode()
    found = set()
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            try:
                with open(f"/proc/{name}/environ", "rb") as environ:  # noqa: PTH123
                    if wanted in environ.read().split(b"\0"):
                        found.add(int(name))
            except OSError:
                pass  # it ended, or is another user's and so not of this launch
    return found


def supervise() -> None:
    """Be the supervisor: started as `python -I -S reaper.py CONTROL CWD CTYPE FILES FILE_BYTES PATH ARGV…`."""
    control, cwd, keeps_ctype, files, file_bytes, path = int(sys.argv[1]), *sys.argv[2:7]
    argv, me, is_over = sys.argv[7:], os.getpid(), False
    prctl = ctypes.CDLL(None).prctl
    prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: the abandoned come to us
    prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE: nobody reads our memory
    os.set_inheritable(control, False)
    deaf_to = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # a stopping service must not leave the tree behind
    for number in deaf_to:
        signal.signal(number, signal.SIG_IGN)

    def say(line: str) -> None:
        try:
            os.write(control, f"{line}\n".encode())
        except OSError:
            pass  # nobody listens any more

    def become_program() -> None:
        step = "session"
        try:
            os.setsid()
            prctl(1, 9, 0, 0, 0)  # PR_SET_PDEATHSIG
            prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS: what changes its user could outlive the kill
            if os.getppid() != me:
                return
            for number in (*deaf_to, signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            for name, wanted in (("CORE", 0), ("NOFILE", int(files)), ("FSIZE", int(file_bytes))):
                limit = getattr(resource, f"RLIMIT_{name}")
                most = resource.getrlimit(limit)[1]
                bound = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
                resource.setrlimit(limit, (bound, bound))
            os.umask(0o077)
            if keeps_ctype == "no":
                os.environ.pop("LC_CTYPE", None)  # the interpreter puts it there
            step = "folder"
            os.chdir(cwd)
            step = "program"
            os.execve(path, argv, os.environ)
        except OSError as error:
            say(f"error {error.errno} {step}")
        finally:
            os._exit(127)

    main = os.fork()
    if main == 0:
        become_program()
    for descriptor in (0, 1, 2):
        os.close(descriptor)

    def reap() -> bool:
        """Whether there is still a child; says how the program ended when it was among the dead."""
        nonlocal is_over
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == main:
                is_over = True
                code = os.waitstatus_to_exitcode(status)
                say(f"exit {code}" if code >= 0 else f"signal {-code}")

    try:
        ended = os.pidfd_open(main)
    except (OSError, AttributeError):
        ended = None
    wait = select.poll()
    for source in (control, ended):
        if source is not None:
            wait.register(source, select.POLLIN)
    while not is_over:
        # Also without news there may be abandoned dead to reap; without a pidfd only asking tells of the end.
        ready = {descriptor for descriptor, _ in wait.poll(1000 if ended is not None else 20)}
        if not reap() or control in ready:
            break

    frozen: set[int] = set()
    pause = 0.001
    while reap():
        for _ in range(50):  # freeze before killing, or what forks quickly enough is never caught up with
            fresh = family(me) - frozen
            if not fresh:
                break
            send(fresh, signal.SIGSTOP)
            frozen |= fresh
        send(frozen, signal.SIGKILL)
        frozen.clear()
        time.sleep(pause)
        pause = min(pause * 2, 0.1)
    say("done")
    os._exit(0)


if __name__ == "__main__":
    supervise()
