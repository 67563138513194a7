"""The tables of the benchmark: what is judged, which limit stands beside, what a contender does, what changed since."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import call_peers, duties, history, profile, table
from benchmarks.__main__ import measured
from benchmarks.harness import Cost, Measured
from benchmarks.table import Line

ROOT = Path(__file__).parents[2]


def twice_as_dear() -> tuple[Measured, Measured]:
    """Return what costs twice the limit by processor time and ten times by wall time, as on a busy machine."""
    limit = [Cost(1.0, 1.0)] * 3
    return Measured([Cost(10.0, 2.0)] * 3, limit), Measured(limit, limit)


# -- what is judged


@pytest.mark.parametrize(("by", "reached"), [("cpu", "owed"), ("wall", "no")])
def test_a_goal_bounds_the_time_that_the_line_names(by: table.Judged, reached: str) -> None:
    own, limit = twice_as_dear()

    line = table.compared(1, "cycle", own, "raw", limit, is_limit=True, owed=3, by=by)

    assert (line.value, line.cpu, line.reached) == (10.0, 2.0, reached)


def test_an_amount_without_processor_time_is_judged_as_it_is() -> None:
    assert table.amount(8, "idle agent", 9.0, "kB", owed=8, by="cpu").reached == "no"


def test_llmcompiler_sleeps_and_is_therefore_judged_by_wall_time() -> None:
    assert call_peers.judged(call_peers.SCHEDULE) == "wall"
    assert call_peers.judged(call_peers.HAMILTON) == "cpu"


def test_what_is_owed_stands_beside_what_was_seen_where_it_is_missed() -> None:
    own, limit = twice_as_dear()
    lines = [
        table.compared(1, "cycle", own, "raw", limit, is_limit=True, owed=1.5),
        table.compared(2, "quiet", own, "raw", limit, is_limit=True, owed=2.5),
        table.compared(3, "kept", own, "raw", limit, is_limit=True, moonshot=1),
        table.compared(4, "flushed", own, "peer", Measured(error="not installed (peer)"), owed=1),
    ]

    said, *rows = table.missed(lines).split("\n\n")

    assert said == "1 of 2 owed figures are reached; these are not:"
    assert [cell.strip() for cell in rows[0].splitlines()[-1].strip("|").split("|")] == [
        "1", "cycle", "raw", "cpu", "2.00x", "≤ 1.50x",
    ]  # fmt: skip
    assert table.missed(lines[1:3]) == "1 of 1 owed figures are reached"


# -- limits


def test_a_row_without_a_limit_is_found_and_a_measure_of_our_own_by_its_name() -> None:
    lines = [
        Line(1, "cycle", "", "raw", is_limit=True),
        Line(1, "cycle", "", "peer"),
        Line(2, "quiet", "", "peer"),
        Line(None, "start: a million facts", "", "another"),
        Line(None, "run of one call, once", "", "peer"),
        Line(None, "run of one call, twice", "", "by hand", is_limit=True),
    ]

    assert table.without_limit(lines) == ["2", "start"]


# -- duties


def test_the_duties_of_each_contender_are_listed_with_their_meanings() -> None:
    text = duties.beside(duties.CONTENDERS)

    assert [name for name in duties.CONTENDERS if name not in text] == []
    assert [duty for duty, meaning in duties.DUTIES.items() if f"- {duty}: {meaning}" not in text] == []


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("LangGraph at its best: WAL + NORMAL", "LangGraph at its best"),
        ("raw group commit, FULL, 100 tasks", "raw group commit"),
        ("LLMCompiler aschedule", "LLMCompiler"),
        ("1,000 in a run", None),
    ],
)
def test_a_contender_is_known_by_the_beginning_of_its_name(name: str, key: str | None) -> None:
    assert duties.duties_of(name) == key


def test_every_peer_has_its_duties() -> None:
    names = [call_peers.SEND, call_peers.TOOL_NODE, call_peers.GRAPH, call_peers.SCHEDULE, call_peers.STREAMED]
    names += [call_peers.PYDANTIC_AI, call_peers.OPENAI_AGENTS, call_peers.HAMILTON]

    assert [name for name in names if duties.duties_of(name) is None] == []


def test_only_those_are_listed_that_were_measured() -> None:
    text = duties.beside(["raw anyio", "none stuck"])

    assert "raw anyio" in text
    assert "spar: call" in text
    assert "Hamilton" not in text


# -- history


def run_of(value: float, *, at: str = "2026-01-01T00:00:00Z", reached: str = "no", **about: Any) -> history.Run:
    line = {"row": 9, "measure": "call", "against": "raw", "unit": "x", "judged": value, "reached": reached}
    usual = {"python": "CPython 3.11", "loop": "asyncio", "quick": False, "load": "0.1", "commit": "abc", "at": at}
    return {"about": usual | about, "lines": [line]}


def test_runs_are_added_one_line_each(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "history.jsonl"

    history.append(file, run_of(6))
    history.append(file, run_of(3))

    assert len(file.read_text().splitlines()) == 2
    assert [run["lines"][0]["judged"] for run in history.read(file)] == [6, 3]


def test_a_line_that_is_no_run_is_named(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    file.write_text(json.dumps(run_of(6)) + "\n[]\n")

    with pytest.raises(ValueError, match=r"history\.jsonl:2 is no run of the benchmark"):
        history.read(file)


def test_the_newest_run_stands_beside_the_last_one_of_its_kind() -> None:
    runs = [run_of(6, at="first"), run_of(60, at="quick", quick=True), run_of(3, at="newest", reached="owed")]

    [line] = history.compared(runs).splitlines()[2:]

    assert [cell.strip() for cell in line.strip("|").split("|")] == [
        "9", "call", "raw", "6.00x", "3.00x", "-50%!", "no → owed", "first",
    ]  # fmt: skip


def test_a_line_that_no_earlier_run_has_stands_alone() -> None:
    runs = [run_of(6, python="CPython 3.12"), run_of(3)]

    [line] = history.compared(runs).splitlines()[2:]

    assert [cell.strip() for cell in line.strip("|").split("|")][3:6] == ["–", "3.00x", ""]


def test_what_the_least_work_cost_stands_beside_the_same_of_the_last_run_of_its_kind() -> None:
    slow, fast = {"loop_ns": 20.0, "commit_cpu_us": 50.0}, {"loop_ns": 10.0, "commit_cpu_us": 40.0, "commit_us": 900.0}

    text = history.machines([run_of(6, machine=slow), run_of(6, quick=True, machine=fast), run_of(3, machine=fast)])

    assert "a turn of a loop of Python 20 → 10 ns" in text
    assert "flushed (SQLite) 50 → 40 µs of processor time; the same 900 µs on the wall" in text
    assert history.machines([run_of(6, machine=slow), run_of(3)]) == "", "the newest run is of an older benchmark"


def test_one_run_has_nothing_to_stand_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["", str(file := tmp_path / "history.jsonl")])
    assert history.main() == 1
    history.append(file, run_of(6))
    assert history.main() == 1
    assert capsys.readouterr().err.count("`make bench ARGS=--json`") == 2


# -- profile


async def test_the_calls_of_a_row_are_counted_by_step() -> None:
    _, row = profile.ROWS["1"]

    profiled = await profile.profiled(row, 0.01)

    published = profiled.steps["publish events"]
    assert published.calls / profiled.units >= 8  # the events of four phases
    assert sum(step.calls for step in profiled.steps.values()) > published.calls
    assert profiled.loop > 0
    text = profile.rendered("row 1", profiled, 2)
    assert "| publish events" in text
    assert "bus.publish" in text


@pytest.mark.parametrize(
    ("file", "step"),
    [
        ("acting/run/checks.py", "prepare a call"),
        ("acting/run/batch.py", "schedule calls"),
        ("spar/bus/bus.py", "publish events"),
        ("benchmarks/counted.py", "the benchmark itself"),
    ],
)
def test_a_file_of_the_tree_is_part_of_a_step(file: str, step: str) -> None:
    assert profile.step_of(str(ROOT / file)) == step


def test_other_files_are_the_event_loops_or_the_libraries() -> None:
    assert profile.step_of("/usr/lib/python3.11/asyncio/events.py") == "event loop"
    assert profile.step_of("/usr/lib/python3.11/json/__init__.py") == "libraries"
    assert profile.step_of(str(ROOT / ".venv" / "lib" / "json.py")) == "libraries"


def test_each_step_is_of_files_that_exist() -> None:
    own = [beginning for beginning in profile.STEPS if "/" in beginning]

    assert [one for one in own if not (ROOT / one).is_dir() and not list(ROOT.glob(f"{one}*"))] == []


# -- when a measure breaks


def test_what_the_others_found_is_not_lost_with_a_measure_that_breaks(capsys: pytest.CaptureFixture[str]) -> None:
    async def measure(name: str) -> list[Line]:
        if name == "broken":
            raise ModuleNotFoundError("No module named 'peer'")
        return [table.amount(8, name, 9.0, "kB", owed=8, by="cpu")]

    lines, broken = measured(("one", "broken", "two"), measure, asyncio.run)

    assert ([line.measure for line in lines], broken) == (["one", "two"], ["broken"])
    assert "No module named 'peer'" in capsys.readouterr().err
