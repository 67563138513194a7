from __future__ import annotations

import json
import tarfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from benchmarks.perception import nab
from benchmarks.perception.__main__ import main
from benchmarks.perception.anomalies import openings
from benchmarks.perception.grouping import accuracy
from benchmarks.perception.quality import Quality, rendered


def small_loghub(folder: Path) -> Path:
    """Two systems with a few lines each, in loghub's files."""
    for system, words in (("Alpha", "worker {0} started job {0}"), ("Beta", "disk {0} of node {0} is full")):
        home = folder / "loghub" / system
        home.mkdir(parents=True)
        lines = [words.format(i) if i % 3 else f"shutdown of unit {i}" for i in range(30)]
        (home / f"{system}_2k.log").write_text("\n".join(f"12:00:{i:02d} INFO {line}" for i, line in enumerate(lines)))
        rows = [f"{i},{line},{'E1' if i % 3 else 'E2'}" for i, line in enumerate(lines)]
        (home / f"{system}_2k.log_structured.csv").write_text("\n".join(["LineId,Content,EventId", *rows]))
    return folder


def test_the_table_is_printed_and_written_for_data_in_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["--data", str(small_loghub(tmp_path)), "--only", "throughput", "--json", str(tmp_path / "lines.json")])

    assert "| raw lines/s, whole pipeline, one core |" in capsys.readouterr().out
    assert json.loads((tmp_path / "lines.json").read_text())[0]["owed"] == 20_000


def test_a_measure_without_its_data_says_which_files_it_misses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["--data", str(tmp_path), "--only", "throughput"])

    assert f"not measured: no */*_2k.log_structured.csv in {tmp_path}/loghub" in capsys.readouterr().out


def test_an_unknown_measure_is_refused_with_those_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--data", str(tmp_path), "--only", "smell"])

    assert "no measure named 'smell'; known: grouping, anomalies" in capsys.readouterr().err


def test_a_goal_is_a_lower_bound() -> None:
    assert Quality("m", 0.8, 0.75, 0.85).reached == "owed"
    assert Quality("m", 0.85, 0.75, 0.85).reached == "moonshot"
    assert Quality("m", 0.7, 0.75, 0.85).reached == "no"
    assert "| no " in rendered([Quality("m", 0.7, 0.75, 0.85, 0.5, "a baseline")])


def test_distinct_things_are_counted_once_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events, rules = tmp_path / "webhooks" / "payload-examples", tmp_path / "awesome-prometheus-alerts" / "_data"
    events.mkdir(parents=True)
    rules.mkdir(parents=True)
    for number, action in enumerate(("opened", "closed", "opened")):
        (events / f"{number}.json").write_text(json.dumps({"action": action, "issue": {"number": 7}}))
    (rules / "rules.yml").write_text(
        '- name: A\n  description: "Disk is full"\n- name: B\n  description: Disk is gone\n'
    )

    main(["--data", str(tmp_path), "--only", "distinct"])

    shown = capsys.readouterr().out
    assert shown.count("2 of 2") == 2


def test_the_groups_of_small_systems_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--data", str(small_loghub(tmp_path)), "--only", "grouping"])

    assert "| log grouping accuracy, 16 systems      | 1 " in capsys.readouterr().out


# -- the fast scorer says what NAB's own says, and the stage of anomalies reaches on a part of NAB what it owes


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
