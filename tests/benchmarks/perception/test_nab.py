"""The fast scorer says what NAB's own says, and the stage of anomalies reaches on a part of NAB what it owes.

`nab_part.tar.xz` has the series of traffic and of advertisements (github.com/numenta/NAB, MIT, see its LICENSE.txt);
`python -m benchmarks.perception` scores all 58 series, of which 55 is owed.
"""

from __future__ import annotations

import json
import tarfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from benchmarks.perception import nab
from benchmarks.perception.anomalies import openings
from benchmarks.perception.grouping import accuracy

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def small_nab(folder: Path, size: int = 200) -> Path:
    """One series of `size` points, with a window from point 100 to point 120."""
    moments = [(BEGIN + timedelta(minutes=5 * i)).strftime("%Y-%m-%d %H:%M:%S") for i in range(size)]
    home = folder / "NAB" / "data" / "made"
    home.mkdir(parents=True)
    rows = [f"{moment},{9 if i == 110 else 1}" for i, moment in enumerate(moments)]
    (home / "one.csv").write_text("\n".join(["timestamp,value", *rows]))
    (folder / "NAB" / "labels").mkdir()
    windows = {"made/one.csv": [[f"{moments[100]}.000000", f"{moments[120]}.000000"]]}
    (folder / "NAB" / "labels" / "combined_windows.json").write_text(json.dumps(windows))
    return folder


def detections(*places: int, size: int = 200) -> dict[str, list[float]]:
    return {"made/one.csv": [float(i in places) for i in range(size)]}


def test_nothing_detected_is_zero_and_the_first_point_of_each_window_a_hundred(tmp_path: Path) -> None:
    corpus = nab.corpus(small_nab(tmp_path))

    assert nab.score_at(corpus, detections(), 1.0) == 0.0
    assert nab.score_at(corpus, detections(100), 1.0) == pytest.approx(100)


def test_a_later_detection_counts_less_a_second_one_nothing_and_a_false_one_takes(tmp_path: Path) -> None:
    corpus = nab.corpus(small_nab(tmp_path))
    late = nab.score_at(corpus, detections(118), 1.0)

    assert 50 < late < 90
    assert nab.score_at(corpus, detections(118, 119), 1.0) == late
    assert nab.score_at(corpus, detections(118, 60), 1.0) == pytest.approx(late - 100 * 0.11 / 2)
    assert nab.score_at(corpus, detections(118, 3), 1.0) == late  # in the beginning nothing counts


def test_the_best_threshold_is_found(tmp_path: Path) -> None:
    corpus = nab.corpus(small_nab(tmp_path))
    scores = {"made/one.csv": [0.9 if i == 100 else 0.5 if i == 60 else 0.0 for i in range(200)]}

    assert nab.best_score(corpus, scores) == (pytest.approx(100), 0.9)


def test_on_traffic_and_advertisements_the_stage_scores_what_it_scored(tmp_path: Path) -> None:
    with tarfile.open(Path(__file__).with_name("nab_part.tar.xz")) as part:
        part.extractall(tmp_path, filter="data")
    corpus = nab.corpus(tmp_path)

    assert (len(corpus), sum(len(series.windows) for series in corpus)) == (13, 28)
    # 67.1 were reached where the whole corpus reached 55.5.
    assert nab.score_at(corpus, {series.name: openings(series) for series in corpus}, 1.0) >= 66


def test_grouping_accuracy_counts_lines_of_groups_that_are_exactly_an_event() -> None:
    assert accuracy([1, 1, 2, 2], ["a", "a", "b", "b"]) == 1.0
    assert accuracy([1, 1, 2, 3], ["a", "a", "b", "b"]) == 0.5
    assert accuracy([1, 1, 1, 1], ["a", "a", "a", "b"]) == 0.0
