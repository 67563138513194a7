"""Numbers in pages written by hand: each sentence holds the figure that the code works with."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from acting.repetition import DENIED, MISSING, REPEATED, Detector
from acting.run.runtime import Limits
from spar import Agent, __version__
from spar.bus.subscriptions import FAILURES_UNTIL_OFF, HANDLER_WITHIN, PROBE_AFTER
from spar.data.paths import MAX_DEPTH, MAX_PATHS, MAX_SEGMENTS, MAX_VALUES
from spar.errors import NoRoomError
from spar.health.alerts import KINDS, NEVER_SLOW_CURRENT, SLOW_FACTOR
from spar.health.judge import CLEARLY
from spar.health.ladder import STEPS
from spar.hooks import POINTS
from spar.server.problems import STATUS_OF
from spar.service import exit_codes as exits
from spar.service.agent_metrics import HEALTH, PER_AGENT
from spar.service.metrics import Metrics

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
WORDS = {
    1: "once", 2: "second", 3: "third", 4: "fourth", 5: "five", 6: "six", 8: "eighth", 10: "ten", 60: "a minute",
    600: "ten minutes", 0.1: "a tenth", 1_000_000: "a million",
}  # fmt: skip


def end_of(detector: Detector) -> int:
    """Return with which repetition the run ends."""
    return detector.warn_at + detector.warnings


@pytest.mark.parametrize(
    ("page", "sentence", "number"),
    [
        ("plans", r"calls at once in a run \| # \(", Limits().max_parallel),
        ("plans", r"one result \| # MiB", Limits().largest_result >> 20),
        ("plans", r"paths in a reference \| # \|", MAX_PATHS),
        ("plans", r"segments in a path \| # \|", MAX_SEGMENTS),
        ("plans", r"depth of parameters \| # \|", MAX_DEPTH),
        ("plans", r"values in parameters \| # \|", MAX_VALUES),
        ("plans", r"in a result are ignored \| the # time \|", REPEATED.warn_at),
        ("plans", r"whatever happens in between \| from the # time on", MISSING.warn_at),
        ("plans", r"from the second time on \| the # time \|\n\| the same call denied", end_of(MISSING)),
        ("plans", r"not decided in time \| the # time; no approval", DENIED.warn_at),
        ("plans", r"no approval is requested again \| the # time", end_of(DENIED)),
        ("health", r"reported while it runs, a plan after # \|", NEVER_SLOW_CURRENT),
        ("health", r"or # times the usual", SLOW_FACTOR),
        ("health", r"no memory could be freed, and the process ends with # \|", exits.UNFINISHED),
        ("health", r"`service.memory_soft`; .* \| use is # below the limit", CLEARLY),
        ("health", r"`service.min_free_disk` \| free room is # above the limit", CLEARLY),
        ("health", r"ends the process with #\.", exits.GAVE_UP),
        ("health", r"handler\s+is\s+turned\s+off\s+if\s+it\s+fails\s+#\s+times\s+in\s+a\s+row", FAILURES_UNTIL_OFF),
        ("health", r"takes\s+more\s+than\s+#\s+seconds\s+for\s+one\s+event", HANDLER_WITHIN),
        ("health", r"It\s+is\s+tried\s+again\s+after\s+#;", PROBE_AFTER),
        ("health", r"over HTTP #\)", dict(STATUS_OF)[NoRoomError]),
    ],
)
def test_a_number_in_a_page_is_the_one_of_the_code(page: str, sentence: str, number: float) -> None:
    text = (REFERENCE / f"{page}.md").read_text()
    shown = {f"{number:g}", f"{number:,.0f}", WORDS.get(number, "")} - {""}

    found = re.search(sentence.replace("#", r"([\w,. ]+?)"), text)

    assert found is not None, sentence
    assert found[1] in shown


def test_the_table_of_hooks_has_no_point_that_is_not_there() -> None:
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", (REFERENCE / "hooks.md").read_text(), re.M)

    assert sorted(point for row in rows for point in re.findall(r"`(\w+)`", row)) == sorted(POINTS)


# -- the table of bounds in the documents: what it names is there, and what it counts by is told


DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "reference" / "bounds.md").read_text()
ROWS = re.findall(r"^- (.+?) \(((?:`[\w.]+:\w+`(?:, )?)+)\): (.+?)(?:; `(\w+)`)?$", TEXT, re.M)


def metrics() -> set[str]:
    page = Metrics(lambda: [Agent()], __version__).render()[0].decode()
    there = {family.name for family in text_string_to_metric_families(page)}
    return {name.removesuffix("_total") for name in there}


def test_every_line_is_read() -> None:
    assert len(ROWS) == sum(line.startswith("- ") for line in TEXT.splitlines())
    assert len(ROWS) > 20


@pytest.mark.parametrize(("what", "bounds"), [(row[0], row[1]) for row in ROWS], ids=lambda text: text[:40])
def test_what_bounds_something_is_there_and_above_zero(what: str, bounds: str) -> None:
    for module, name in re.findall(r"`([\w.]+):(\w+)`", bounds):
        assert getattr(importlib.import_module(module), name) > 0, what


def test_every_metric_that_is_named_is_there() -> None:
    pages = [page.read_text() for page in DOCS.rglob("*.md")]
    named = {name.removesuffix("_total") for page in pages for name in re.findall(r"`(spar_\w+)", page)}
    of_agents = {name.removesuffix("_total") for _, name, *_ in (*PER_AGENT, *HEALTH)}
    assert named - metrics() - of_agents - {"spar_approvals"} == set()


def test_alerts_and_steps_are_all_explained() -> None:
    text = (DOCS / "reference" / "health.md").read_text()

    assert [kind for kind in KINDS if f"| `{kind}` |" not in text] == []
    assert [step for step in STEPS if step != "other" and f"`{step}`" not in text] == []


def test_counters_end_as_counters_do() -> None:
    assert [name for kind, name, *_ in HEALTH if (kind == "counter") != name.endswith("_total")] == []
