"""The dashboard that `spar observe dashboard` prints: made from the metrics, all of them, and nothing else."""

from __future__ import annotations

import json
import re

from spar.observe.shipped import shipped
from tests.docs import reference
from tests.docs.dashboard import NOT_SHOWN, ROWS, dashboard

METRICS = set(re.findall(r"^- `(spar_\w+)", reference.metrics_page(), re.M))


def test_the_shipped_dashboard_is_what_the_table_says_now() -> None:
    assert shipped("dashboard.json") == dashboard(), "out of date, run `make docs`"


def test_every_metric_has_a_panel_or_a_reason() -> None:
    queries = " ".join(query for panels in ROWS.values() for panel in panels for query, _ in panel.queries)
    shown = {re.sub(r"_(bucket|sum|count)$", "", name) for name in re.findall(r"spar_\w+", queries)}
    assert shown | set(NOT_SHOWN) == METRICS
    assert not shown & set(NOT_SHOWN)


def test_panels_have_numbers_of_their_own_and_fit_the_page() -> None:
    board = json.loads(shipped("dashboard.json"))
    numbers = [panel["id"] for panel in board["panels"]]
    assert len(set(numbers)) == len(numbers) > 40
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in board["panels"])
    assert [each["name"] for each in board["templating"]["list"]] == ["datasource", "job", "agent"]
