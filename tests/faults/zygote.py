"""A process that has run all workloads and forks one child per order: starting an agent costs milliseconds then.

It reads orders as JSON lines from standard input and answers each with a line when the child has ended. It has one
thread while it forks: what a fork finds half done in another thread stays half done. What a child leaves behind becomes
its child (it is a subreaper), however it got away, and is counted and ended.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import os
import select
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from spar import failpoints as crash
from tests.alone import wait_until_alone
from tests.faults.workloads import SWEPT, WORKLOADS
from tests.faults.world import World

_PR_SET_CHILD_SUBREAPER = 36
_GRACE = 2.0  # seconds in which what a killed process left must have gone by itself
_WARM = 60.0


def main() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    _warm_up()
    wait_until_alone("a zygote")
    gc.collect()
    gc.freeze()  # a collection in a child would write to all of it, and so copy it
    _say({"ready": True})
    for line in sys.stdin:
        _say(obey(json.loads(line)))


def _say(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def obey(order: dict[str, Any]) -> dict[str, Any]:
    """One life: {workload, folder, environ, kill_after, limit} to {code, seconds, left, is_hung}.

    `code` is negative for a signal. `kill_after` is when it is killed from outside, None never.
    """
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        _live(order["workload"], Path(order["folder"]), order["environ"])
    kill_after, limit = order.get("kill_after"), order["limit"]
    is_over = _ended(pid, limit if kill_after is None else kill_after)
    is_hung = False
    if not is_over:
        is_hung = kill_after is None
        os.kill(pid, signal.SIGKILL)
    seconds = time.monotonic() - began
    _, status = os.waitpid(pid, 0)
    return {"code": os.waitstatus_to_exitcode(status), "seconds": seconds, "left": _left_behind(), "is_hung": is_hung}


def _ended(pid: int, within: float) -> bool:
    file = os.pidfd_open(pid)
    try:
        return bool(select.select([file], [], [], within)[0])
    finally:
        os.close(file)


def _left_behind() -> int:
    """How many processes outlived the child for longer than they may; none when this returns."""
    deadline = time.monotonic() + _GRACE
    while time.monotonic() < deadline:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return 0
        if pid == 0:
            time.sleep(0.002)
    left = {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}
    for pid in left:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return len(left)


def _live(workload: str, folder: Path, environ: dict[str, str]) -> None:
    code = 70
    try:
        os.setsid()
        out = os.open(folder / "out", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for number, file in enumerate((nothing, out, out)):
            os.dup2(file, number)
        os.closerange(3, 1024)
        os.environ.update(environ)
        crash.arm(os.environ)
        asyncio.run(WORKLOADS[workload].main(World(folder)))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _warm_up() -> None:
    """Run every workload once: so everything is imported, and what a process makes once is made."""
    for name in SWEPT:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(asyncio.wait_for(WORKLOADS[name].main(World(Path(folder))), _WARM))


if __name__ == "__main__":
    main()
