"""The benchmark still runs, says what it found in one table and says whether a goal was reached. No time is judged."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import graphs, history, model_shapes, streamed, table
from benchmarks.__main__ import _measure, measured
from benchmarks.calling import Calls, contender, reading, writing
from benchmarks.harness import QUICK
from tests.process.template import Forked, clean_environ

ROOT = Path(__file__).parents[2]


def bench(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", *arguments]
    environment = {**os.environ, **variables}
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, env=environment)


#: What is measured by one process: the first costs first.
MEASURES = (
    "firsts,sessions,cycle,accounting,calls,chain,growth,makespan,streamed,model_call,model_plan,model_run,prompts"
)
#: What starts commands of spar and watches them: here forks, since their start is no part of what is measured.
SEEN = ("chatted", "watched")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bench") / "bench.json"


@pytest.fixture(scope="module")
def lines(kept: Path) -> list[dict[str, str]]:
    """The lines of the table of figures, which stands between empty lines, after what the machine costs."""
    pytest.importorskip("openai", reason="the library of models (spar-agent[llm]) is not installed")
    done = bench("--quick", "--only", MEASURES, "--json", str(kept), LLMCOMPILER="nowhere")
    assert done.returncode == 0, done.stderr
    return read(done.stdout.split("\n\n")[1])


@pytest.fixture(scope="module")
def seen() -> list[dict[str, str]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", Forked)
        patch.setattr(os, "environ", clean_environ())
        found, broken = measured(SEEN, lambda name: _measure(name, QUICK), asyncio.run)
    assert not broken
    return read(table.rendered(found))


def read(text: str) -> list[dict[str, str]]:
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    return [dict(zip(rows[0], row, strict=True)) for row in rows[2:]]


def of_rows(lines: list[dict[str, str]], *rows: str) -> list[dict[str, str]]:
    return [line for line in lines if line["row"] in rows]


def test_the_cycle_is_measured_and_told_in_one_table(lines: list[dict[str, str]], kept: Path) -> None:
    head = list(lines[0])
    assert head[:2] == ["row", "measure"]
    assert head[-2:] == ["moonshot", "reached"]
    cycles = of_rows(lines, "1", "2", "16")
    assert {line["row"] for line in cycles} == {"1", "2", "16"}
    judged = [line for line in cycles if line["against"] == "limit: raw anyio"]
    assert {line["by"] for line in judged} == {"cpu"}
    assert len(judged) == 2
    assert all(row["ratio"].endswith("x") and row["reached"] in ("moonshot", "owed", "no") for row in judged)
    [run] = history.read(kept)
    assert len(run["lines"]) == len(lines)


def test_a_peer_that_is_not_installed_has_a_line_that_says_so(tmp_path: Path) -> None:
    """Hides a peer behind a folder that cannot be imported from, as on a machine that lacks it."""
    (tmp_path / "py_trees.py").write_text("raise ImportError('hidden', name='py_trees')\n")
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from benchmarks import peers; print(peers.installed()[1])"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert "'py_trees tick': 'not installed (py_trees)'" in done.stdout, done.stderr


def test_the_executor_is_measured_beside_its_limits_and_a_peer_that_is_missing_is_named(
    lines: list[dict[str, str]],
) -> None:
    calls = of_rows(lines, "9", "10", "11", "12", "13")
    raw = [line for line in calls if line["against"].startswith("limit: raw ") and line["ratio"].endswith("x")]
    assert {line["row"] for line in raw} == {"9", "10", "11", "12", "13"}
    assert {line["reached"] for line in raw if line["owed"]} <= {"moonshot", "owed", "no"}
    missing = [line for line in lines if line["against"].startswith("LLMCompiler")]
    assert {line["row"] for line in missing} == {"9", "10", "11", "13"}
    assert {line["other"] for line in missing} == {"not installed (no checkout of LLMCompiler in nowhere)"}


@pytest.mark.parametrize("carry_out", [graphs.task_per_call, graphs.inline, graphs.anyio_group])
async def test_a_limit_makes_each_call_once_and_after_what_it_needs(carry_out: graphs.CarryOut) -> None:
    graph = graphs.Layered.of(60, 6).dependencies
    made: list[int] = []

    async def work(number: int) -> int:
        assert all(needed in made for needed in graph[number])
        await asyncio.sleep(0)
        made.append(number)
        return number

    await carry_out(graph, work)
    assert sorted(made) == list(range(60))


def test_the_longest_path_of_a_graph_is_what_its_slowest_way_takes() -> None:
    assert graphs.Layered(((), (), (0, 1), (2,), (1,)), (0.1, 0.3, 0.2, 0.1, 0.5)).critical_path == pytest.approx(0.8)


@pytest.mark.parametrize(("graph", "form"), [(graphs.chain(50), reading), (graphs.chain(50), writing)])
async def test_spar_is_given_the_same_dependencies_as_the_limit(graph: graphs.Dependencies, form: Calls) -> None:
    made: list[int] = []

    async def work(number: int) -> int:
        for _ in range(50 - number):  # whoever does not wait for the one before would be done before it
            await asyncio.sleep(0)
        made.append(number)
        return number

    await contender(form, listeners=True)(graph, work)
    assert made == list(range(50))


@pytest.mark.parametrize("title", streamed.MODES)
async def test_a_streamed_call_is_timed_from_when_it_could_start(title: str) -> None:
    mode = replace(streamed.MODES[title].shortened(), takes=0.002)
    found = await streamed.played({"raw": streamed.raw, "spar": streamed.spar}, mode, 1)
    about = sum(bool(mode.needs(number)) for number in range(mode.calls)) or mode.calls
    assert {name: len(rounds[0]) for name, rounds in found.items()} == {"raw": about, "spar": about}
    assert all(0 < latency < 1 for rounds in found.values() for latency in rounds[0])


def test_planning_by_a_model_is_measured_beside_other_ways_of_working_with_it(lines: list[dict[str, str]]) -> None:
    first = [line for line in lines if line["measure"].startswith("first call of a streamed plan")
             and line["against"].startswith("limit: ")]  # fmt: skip
    assert [line["measure"].partition(", ")[2] for line in first] == [
        "native, p50", "native, p95", "structured, p50", "structured, p95",
    ]  # fmt: skip
    ways = [line["against"] for line in lines if line["measure"].startswith("plan of 12 calls")]
    assert ways == ["plan, then act", "a layer a turn", "a call a turn", "limit: the least possible"]
    runs = [line for line in lines if line["measure"].startswith("run of one call in memory")]
    assert {line["against"] for line in runs} >= {"pydantic-ai Agent.run", "openai-agents Runner.run"}
    judged = [line for line in (*first, *runs) if line["owed"] and not line["other"].startswith("not installed")]
    assert {line["reached"] for line in judged} <= {"moonshot", "owed", "no"}
    assert len(judged) >= 6


@pytest.mark.parametrize(
    ("measures", "by"),
    [
        (
            ("tool made from a function", "first call of http", "first turn of a model after the start", "message"),
            "cpu",
        ),
        (("request of a long conversation",), "cpu"),
        (("first word of an answer in spar chat", "typed key in spar chat during an answer"), ""),
        (("event in spar top, ten a second", "processor of spar top, ten events a second"), ""),
    ],
)
def test_what_is_owed_to_people_and_once_is_measured(
    lines: list[dict[str, str]], seen: list[dict[str, str]], measures: tuple[str, ...], by: str
) -> None:
    """What is paid once, what many sessions cost, composing a request, chat and top at a terminal."""
    owed = [line for line in lines + seen if line["owed"] and line["measure"].startswith(measures) and not line["row"]]
    assert len(owed) == len(measures)
    assert all(line["seen"] for line in owed)
    assert not by or {line["by"] for line in owed} == {by}


@pytest.mark.parametrize("name", model_shapes.SHAPES)
def test_a_plan_can_take_no_less_than_its_longest_way_and_its_tokens(name: str) -> None:
    shape = model_shapes.Shape.of(model_shapes.SHAPES[name])
    written = (model_shapes.events_of(shape.plan()) + model_shapes.events_of(shape.answer())) / shape.rate
    ends: list[float] = []
    for number in shape.calls:
        ends.append(shape.seconds[number] + max((ends[other] for other in shape.needs[number]), default=0.0))
    assert shape.least >= max(written, max(ends))
    assert shape.least <= written + max(ends)
    assert [number for layer in shape.layers for number in sorted(layer)] == list(shape.calls)


def test_the_first_call_ends_with_the_step_that_closes_it() -> None:
    for reply in model_shapes.FIRST.values():
        steps = list(reply.steps)  # type: ignore[arg-type]
        until = model_shapes.last_step(reply, 0)
        said = "".join(
            delta.get("content") or delta["tool_calls"][0]["function"]["arguments"]
            for delta in (step["delta"] for step in steps[1 : until + 1])
        )
        assert said.count("}") == 1
        assert said.rindex("}") >= len(said) - 4
