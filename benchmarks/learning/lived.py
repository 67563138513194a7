"""The lives that a measure needs, each in a process of its own: by mode and seed, a first and a second one.

The second process goes on with the memory of the first one. With memory on it is a copy of that memory; turned off or
only observing it is a copy of the same, so that what was learnt is there and the switch alone decides.
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from benchmarks.learning.gain import MODES, Gain

#: A life as it was printed: a line for each episode.
Life = Sequence[dict[str, Any]]


@dataclass(frozen=True)
class Lives:
    """The first and the second lives in one world, by mode; one for each seed."""

    first: dict[str, list[Life]]
    second: dict[str, list[Life]]

    def gain(self, measure: str, count: Callable[[Life], float], **terms: Any) -> Gain:
        """Return the line of a measure that is counted of each life. Args: terms: the other fields of the line."""
        figures = [count(life) for life in self.first["on"]]
        return Gain(
            measure,
            seen={mode: fmean(map(count, lives)) for mode, lives in self.first.items()},
            again={mode: fmean(map(count, lives)) for mode, lives in self.second.items()},
            spread=(min(figures), max(figures)),
            error=stdev(figures) / math.sqrt(len(figures)) if len(figures) > 1 else None,
            **terms,
        )


def lived(
    world: str,
    data: Path,
    seeds: Sequence[int],
    modes: Sequence[str] = MODES,
    again: Sequence[str] = MODES,
    others: int | None = None,
) -> Lives:
    """Live in a world with each mode and seed.

    Args: again: the modes of the second process; others: how many of the seeds are lived with other modes than `on`,
    None for all.
    """
    first: dict[str, list[Life]] = {mode: [] for mode in modes}
    second: dict[str, list[Life]] = {mode: [] for mode in again}
    for number, seed in enumerate(seeds):
        with tempfile.TemporaryDirectory() as folder:
            for mode in modes:
                if mode == "on" or others is None or number < others:
                    print(".", end="", file=sys.stderr, flush=True)
                    first[mode].append(_life(world, data, mode, seed, Path(folder) / f"{mode}.db", 0))
            for mode in again:
                memory = Path(folder) / f"{mode}-again.db"
                for kept in _files(Path(folder) / "on.db"):
                    shutil.copy(kept, f"{memory}{kept.name.removeprefix('on.db')}")
                second[mode].append(_life(world, data, mode, seed, memory, 1))
    return Lives(first, second)


def _files(database: Path) -> Iterator[Path]:
    yield from (path for path in database.parent.glob(f"{database.name}*") if "ballast" not in path.name)


def _life(world: str, data: Path, mode: str, seed: int, memory: Path, life: int) -> Life:
    given = {"world": world, "data": str(data), "learning": mode, "seed": seed, "memory": f"sqlite:///{memory}",
             "life": life}  # fmt: skip
    command = [sys.executable, "-m", "benchmarks.learning.life", json.dumps(given)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=3_600)
    if done.returncode:
        raise RuntimeError(f"{command} ended with {done.returncode}:\n{done.stderr[-3_000:]}")
    found: Life = json.loads(done.stdout)
    return found
