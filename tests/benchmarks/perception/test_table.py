from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.perception.__main__ import main
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
