"""The worlds that are lived in, each by its name: the environment, how many episodes, and settings of its own."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.environments import (
    AlertsAndRemedies,
    DriftingTools,
    Environment,
    FrozenLake,
    SimulatedHost,
    TextsToTools,
)
from benchmarks.environments.textworld_env import TextWorldEnvironment

#: A tool that does best, does nothing for a hundred tasks, and is repaired.
BROKEN_AND_REPAIRED = [(0.95, 0.5, 0.3), (0.0, 0.5, 0.3), (0.95, 0.5, 0.3), (0.95, 0.5, 0.3)]


@dataclass(frozen=True)
class World:
    """A world: `make(data, seed)` returns its environment; `is_new_again`: a second life draws something else."""

    make: Callable[[Path, int], Environment]
    episodes: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    is_new_again: bool = False


def _texts(data: Path, seed: int) -> Environment:
    return TextsToTools.of_clinc(data / "oos-eval")


def coins(seed: int) -> TextWorldEnvironment:
    """Make a game of TextWorld: ten rooms in a row and ten dead ends. Its file is deleted when the process ends."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return TextWorldEnvironment.coin_collector(Path(folder), level=110, seed=seed, most_steps=50)


WORLDS: Mapping[str, World] = {
    "texts": World(_texts, 1_000, is_new_again=True),
    "texts-vectors": World(_texts, 1_000, {"vectors": {"use": "minilm"}}, is_new_again=True),
    "fixed-200": World(lambda _, seed: DriftingTools(200), 200),
    "drift-200": World(lambda _, seed: DriftingTools(200, 3), 200),
    "drift-1000": World(lambda _, seed: DriftingTools(1_000, 3), 1_000),
    "repaired": World(lambda _, seed: DriftingTools(400, 4, reliabilities=BROKEN_AND_REPAIRED), 400),
    "alerts": World(lambda _, seed: AlertsAndRemedies(), 600),
    "host": World(lambda _, seed: SimulatedHost(), 60),
    "lake": World(lambda _, seed: FrozenLake(most_steps=25, order=seed), 100),
    "coins": World(lambda _, seed: coins(seed), 40),
}
