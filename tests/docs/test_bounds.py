"""The table of bounds in the documents: what it names is there, and what it counts by is told."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from spar import Agent, __version__
from spar.health.alerts import KINDS
from spar.health.ladder import STEPS
from spar.service.agent_metrics import PER_AGENT
from spar.service.health_metrics import HEALTH
from spar.service.metrics import Metrics

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


def test_what_something_is_counted_by_is_a_metric() -> None:
    counted = {row[3].removesuffix("_total") for row in ROWS if row[3]}
    of_agents = {name.removesuffix("_total") for _, name, *_ in (*PER_AGENT, *HEALTH)}
    assert counted - metrics() - of_agents - {"spar_approvals"} == set()


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
