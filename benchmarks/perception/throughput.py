"""Raw lines a second through the whole pipeline, on one core."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

from benchmarks.perception import streams
from benchmarks.perception.quality import Quality
from perception import Pipeline
from spar.types import Perception

BATCH = 1_000
ROUNDS = 3


def measure(data: Path) -> list[Quality]:
    """Raises: MissingDataError."""
    of_system = {system: streams.raw_lines(data, system) for system in streams.systems(data)}
    speeds = {system: median(_speed(lines) for _ in range(ROUNDS)) for system, lines in of_system.items()}
    slowest = min(speeds, key=speeds.__getitem__)
    every = sum(map(len, of_system.values())) / sum(len(lines) / speeds[name] for name, lines in of_system.items())
    return [
        Quality("raw lines/s, whole pipeline, one core", every, 20_000, 50_000,
                remark=f"16 systems; the slowest is {slowest}: {speeds[slowest]:,.0f}"),
    ]  # fmt: skip


def _speed(lines: list[str]) -> float:
    pipeline = Pipeline()
    batches = [
        [Perception(line, source="log", kind="log.line") for line in lines[start : start + BATCH]]
        for start in range(0, len(lines), BATCH)
    ]
    began = time.process_time()
    for batch in batches:
        pipeline.process(batch)
    return len(lines) / max(time.process_time() - began, 1e-9)
