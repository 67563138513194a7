"""Has agents live and die: orders to a zygote, and the many lives of one case."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

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


class Order(Struct, frozen=True):
    """A life to be had in this folder, with these variables beside those that it has."""

    workload: str
    folder: Path
    strike: Strike | None = None
    environ: Mapping[str, str] = {}

    @property
    def variables(self) -> dict[str, str]:
        label = {"SPAR_CRASH": str(self.strike)} if self.strike is not None and self.strike.label else {}
        return {**self.environ, **label}


class Starter(ABC):
    """Has lives begin and end."""

    @abstractmethod
    def live(self, order: Order, following: Order | None = None) -> Life:
        """One life. Args: following: the one that is to take over from it; it may begin before this one ends."""

    def settle(self) -> None:
        """Wait for the end of all that has begun."""


class Zygote(Starter):
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

    def live(self, order: Order, following: Order | None = None) -> Life:
        """One life."""
        line = {
            "workload": order.workload,
            "folder": str(order.folder),
            "environ": order.variables,
            "kill_after": None if order.strike is None else order.strike.after,
            "limit": WITHIN + 10.0,
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(line) + "\n")
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


class Upgraded(Starter):
    """The first life of each case by an earlier program, all later ones by this one, which also has the last word."""

    def __init__(self, former: Zygote, present: Zygote) -> None:
        self._former, self._present = former, present

    def live(self, order: Order, following: Order | None = None) -> Life:
        """One life."""
        if World(order.folder).database.exists():
            return self._present.live(order)
        life = self._former.live(order)
        if life.is_struck or life.code != 0:
            return life
        unnoted = {name: value for name, value in order.environ.items() if name != "SPAR_CRASH_LOG"}
        return self._present.live(replace(order, strike=None, environ=unnoted))


class Standby(Starter):
    """Lives of which each begins while the one before still lives, stands by, and takes its database over.

    Args: zygotes: two.
    """

    def __init__(self, zygotes: Sequence[Zygote]) -> None:
        self._zygotes = deque(zygotes)
        self._pool = ThreadPoolExecutor(len(zygotes))
        self._begun: Begun | None = None
        self._ended = 0.0

    def live(self, order: Order, following: Order | None = None) -> Life:
        """One life; the following one begins as soon as this one works. Its seconds are those after the one before."""
        current = self._begun or self._begin(order)
        self._begun = None
        if following is not None:
            while not current.end.done() and _starts(order) <= current.starts:
                time.sleep(0.005)
            self._begun = self._begin(following)
        life, ended = current.end.result()
        seconds, self._ended = min(life.seconds, ended - self._ended), ended
        return replace(life, seconds=seconds)

    def settle(self) -> None:
        """Wait for the life that has begun and is not needed."""
        if self._begun is not None:
            self._begun.end.result()
            self._begun = None

    def _begin(self, order: Order) -> Begun:
        self._zygotes.rotate()
        zygote = self._zygotes[0]
        return Begun(_starts(order), self._pool.submit(lambda: (zygote.live(order), time.monotonic())))


class Begun(NamedTuple):
    """Life that has begun: how many in its world had started to work before it, and its end with the time of that."""

    starts: int
    end: Future[tuple[Life, float]]


def _starts(order: Order) -> int:
    return sum(line["told"] == "started" for line in World(order.folder).marks.read())


def environ(root: Path = ROOT) -> dict[str, str]:
    """The environment of a process that is to take this very tree, and to die only when it is told to."""
    path = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SPAR_")}
    return {**kept, "PYTHONPATH": path}
