"""What is counted of lives, and the table and the plot that are made of it."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.learning import measures
from benchmarks.learning.__main__ import parsed
from benchmarks.learning.gain import Gain, rendered
from benchmarks.learning.lived import Lives
from benchmarks.learning.page import BEGIN, END, curves_of, written
from benchmarks.learning.plot import drawn, smoothed


def episode(*steps: tuple[str, str, bool], success: bool = True, regret: float = 0.0) -> dict[str, object]:
    return {"success": success, "reward": float(success), "regret": regret, "steps": [list(step) for step in steps]}


def test_a_known_failure_is_repeated_where_it_failed_before_and_never_worked() -> None:
    life = [
        episode(("disk", "restart", True)),
        episode(("disk", "restart", True)),
        episode(("service", "restart", False)),
        episode(("service", "restart", True)),
        episode(("port", "restart", True)),
    ]
    assert measures.repeated(life) == 1


def test_a_repaired_tool_is_in_use_again_from_the_task_on_from_which_it_is_taken_mostly() -> None:
    taken = ["way_2"] * 10 + ["way_1"] + ["way_2"] * 9 + ["way_1"] * 10
    life = [episode(("task", tool, False)) for tool in taken]
    assert measures.in_use_again(life, repaired=10) == 11
    assert measures.in_use_again(life[:20], repaired=10) == float("inf")


def test_calls_are_counted_by_the_occurrence_of_a_trouble() -> None:
    life = [
        episode(("disk", "a", True), ("disk", "b", False)),
        episode(("port", "a", False)),
        episode(("disk", "b", False)),
    ]
    assert measures.calls_of_occurrence(1)(life) == 1.5
    assert measures.calls_of_occurrence(2)(life) == 1.0


def test_a_figure_is_judged_by_its_bound_whichever_way_it_goes() -> None:
    assert Gain("a", 0.5, 0.8, seen={"on": 0.9}).reached == "moonshot"
    assert Gain("a", 0.5, 0.8, seen={"on": 0.4}).reached == "no"
    assert Gain("a", 8, seen={"on": 3.0}, is_less_better=True).reached == "owed"
    assert Gain("a", seen={"on": 3.0}).reached == ""


def test_a_table_has_each_mode_of_both_processes() -> None:
    line = Gain("right", 0.94, seen={"on": 0.97, "off": 0.33, "observe": 0.33}, again={"on": 0.99, "off": 0.3})
    assert [cell.strip() for cell in rendered([line]).splitlines()[-1].split("|")][1:-1] == [
        "right", "", "0.94", "0.97, 0.33, 0.33", "0.99, 0.3", "owed", "",
    ]  # fmt: skip


def test_a_gain_is_the_mean_of_the_seeds_and_tells_their_spread() -> None:
    lives = Lives({"on": [[episode()], [episode(success=False)]]}, {})
    gain = lives.gain("right", measures.share, owed=0.4)
    assert (gain.seen, gain.spread, gain.error, gain.reached) == ({"on": 0.5}, (0.0, 1.0), 0.5, "owed")
    assert "0 to 1 ± 0.5" in rendered([gain])


def test_only_the_generated_part_of_the_page_is_written_and_the_plot_beside_it(tmp_path: Path) -> None:
    page = tmp_path / "learning.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    life = [episode(("a", "b", False))] * 40
    lives = Lives({mode: [life] for mode in ("on", "off", "observe")}, {})
    written([Gain("right", seen={"on": 1.0})], curves_of({"alerts": lives}), page)
    text = page.read_text()
    assert text.startswith(f"before\n{BEGIN}\n")
    assert text.endswith(f"{END}\nafter\n")
    assert "old" not in text
    assert "| right" in text
    root = ElementTree.parse(tmp_path / "learning.svg").getroot()
    assert len(re.findall("polyline", ElementTree.tostring(root, "unicode"))) == 3


def test_a_curve_is_the_mean_of_lives_over_the_last_values() -> None:
    assert smoothed([[0.0, 1.0, 1.0, 0.0]], 2) == [0.0, 0.5, 1.0, 0.5]
    assert smoothed([[0.0, 1.0], [1.0, 1.0]], 1) == [0.5, 1.0]
    ElementTree.fromstring(drawn({"a & b": {"on": [0.0, 1.0]}}))


def test_only_measures_that_there_are_can_be_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert parsed(["--data", "x", "--only", "alerts,lake"]).only == ["alerts", "lake"]
    with pytest.raises(SystemExit):
        parsed(["--data", "x", "--only", "alarms"])
    assert "no measure named 'alarms'" in capsys.readouterr().err
