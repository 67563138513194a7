"""Anomalies in streams of numbers: NAB's standard profile, with the default threshold."""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.perception import nab
from benchmarks.perception.quality import Quality
from perception.stages.anomaly.series import NumberSeries


def measure(data: Path) -> list[Quality]:
    """Raises: MissingDataError."""
    corpus = nab.corpus(data)
    began = time.process_time()
    opened = {series.name: openings(series) for series in corpus}
    micros = (time.process_time() - began) / sum(len(series.times) for series in corpus) * 1e6
    baseline = nab.best_score(corpus, nab.published(data, "windowedGaussian"))[0]
    numenta = nab.best_score(corpus, nab.published(data, "numenta"))[0]
    return [
        Quality("NAB standard profile, default threshold, told once", nab.score_at(corpus, opened, 1.0), 55, 70,
                baseline, "windowedGaussian, best threshold",
                f"numenta with its best {numenta:.1f}; {micros:.1f} us a point"),
    ]  # fmt: skip


def openings(series: nab.LabelledSeries) -> list[float]:
    """Return 1 for each point of a series at which the stage tells of an anomaly, else 0."""
    one = NumberSeries()
    return [float(one.add(at, value)[1] == "opened") for at, value in zip(series.times, series.values, strict=True)]
