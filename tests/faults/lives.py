"""Has agents live and die: orders to a zygote, and the many lives of one case."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
from msgspec import Struct

from spar.failpoints import KILLED
from tests.faults.workloads.life import WITHIN
from tests.faults.world import World

ROOT = Path(__file__).parents[2]
_SIGKILL = 9


class Strike(Struct, frozen=True):
    """How a life is to end: at the `number`-th time that it reaches `label`, or killed from outside `after` seconds."""

    label: str = ""
    number: int = 1
    after: float | None = None

    def __str__(self) -> str:
        return f"{self.label}:{self.number}" if self.label else f"kill -9 after {(self.after or 0.0) * 1000:.1f} ms"


class Life(Struct, frozen=True):
    """How it ended: exit `code` (negative: a signal), after so many `seconds`, with so many processes `left` behind."""

    code: int
    seconds: float
    left: int = 0
    is_hung: bool = False

    @property
    def is_struck(self) -> bool:
        return not self.is_hung and self.code in (KILLED, -_SIGKILL)


class Zygote:
    """A warm process of the program in this tree that forks lives, one after another."""

    def __init__(self, root: Path = ROOT) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.zygote"],
            cwd=root,
            env=environ(root),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()

    def live(
        self, workload: str, folder: Path, strike: Strike | None = None, environ: Mapping[str, str] | None = None
    ) -> Life:
        """One life in this folder, with these variables beside those that it has."""
        more = {**(environ or {}), **({"SPAR_CRASH": str(strike)} if strike is not None and strike.label else {})}
        order = {
            "workload": workload,
            "folder": str(folder),
            "environ": more,
            "kill_after": None if strike is None else strike.after,
            "limit": WITHIN + 10.0,
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return msgspec.convert(self._answer(), Life)

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the zygote has died; what it said is on standard error")
        return json.loads(line)

    def __enter__(self) -> Zygote:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        try:
            self._process.wait(10.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10.0)


class Upgraded:
    """The first life of each case by an earlier program, all later ones by this one, which also has the last word."""

    def __init__(self, former: Zygote, present: Zygote) -> None:
        self._former, self._present = former, present

    def live(self, workload: str, folder: Path, strike: Strike | None, environ: Mapping[str, str]) -> Life:
        """One life in this folder, with these variables beside those that it has."""
        if World(folder).database.exists():
            return self._present.live(workload, folder, strike, environ)
        life = self._former.live(workload, folder, strike, environ)
        if life.is_struck or life.code != 0:
            return life
        unnoted = {name: value for name, value in environ.items() if name != "SPAR_CRASH_LOG"}
        return self._present.live(workload, folder, None, unnoted)


def environ(root: Path = ROOT) -> dict[str, str]:
    """The environment of a process that is to take this very tree, and to die only when it is told to."""
    path = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SPAR_")}
    return {**kept, "PYTHONPATH": path}
