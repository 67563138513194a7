"""Anomalies in streams of numbers: NAB's standard profile, with the fixed default threshold and with the best one."""

from __future__ import annotations

import time
from math import log10
from pathlib import Path

from benchmarks.perception import nab
from benchmarks.perception.quality import Quality
from perception.stages.anomaly.judge import AnomalySettings
from perception.stages.anomaly.series import NumberSeries


def measure(data: Path) -> list[Quality]:
    """Raises: MissingDataError."""
    corpus = nab.corpus(data)
    began = time.process_time()
    rarities = {series.name: _rarities(series) for series in corpus}
    micros = (time.process_time() - began) / sum(len(series.times) for series in corpus) * 1e6
    opened = {series.name: _openings(series) for series in corpus}
    best, threshold = nab.best_score(corpus, rarities)
    halves = corpus[::2], corpus[1::2]
    held = [nab.score_at(halves[1 - i], rarities, nab.best_score(halves[i], rarities)[1]) for i in (0, 1)]
    baseline = nab.best_score(corpus, nab.published(data, "windowedGaussian"))[0]
    numenta = nab.best_score(corpus, nab.published(data, "numenta"))[0]
    return [
        Quality("NAB standard profile, default threshold, told once", nab.score_at(corpus, opened, 1.0), 55, 70,
                baseline, "windowedGaussian, best threshold", f"numenta with its best {numenta:.1f}"),
        Quality("NAB standard profile, best threshold", best, 60, 70, baseline, "windowedGaussian",
                f"threshold 1 in {10**threshold:,.0f}; {micros:.1f} us a point"),
        Quality("NAB, threshold of one half, scored on the other", sum(held) / 2, None, None,
                remark=f"every second file: {held[0]:.1f}, {held[1]:.1f}"),
    ]  # fmt: skip


def _rarities(series: nab.LabelledSeries) -> list[float]:
    """Return the rarity of each point that is told; 0 for the others."""
    told: list[float] = []
    one = NumberSeries()
    for at, value in zip(series.times, series.values, strict=True):
        before = one.told
        judged, _ = one.add(at, value, 9.0)
        told.append(judged.rarity if one.told == judged.rarity != before else 0.0)
    return told


def _openings(series: nab.LabelledSeries) -> list[float]:
    one, threshold = NumberSeries(), log10(AnomalySettings().rarity)
    return [
        float(one.add(at, value, threshold)[1] == "opened")
        for at, value in zip(series.times, series.values, strict=True)
    ]
