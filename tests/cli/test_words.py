"""Words of `spar top`: any text is made harmless, and what is large costs what is shown of it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spar.cli.printer import harmless, harmless_lines, lasted, number, of_event
from spar.data.text import is_hidden
from spar.events.table import LiveEvent
from spar.operations.agent import BudgetRow
from spar.top.facts import Picture
from spar.top.panels import LISTS

HOSTILE = "[red]x[/] \x1b[31m\x1b]0;title\x07 \u202eevil\u2066 \x9b2J \u200bzero"


@given(st.text() | st.just(HOSTILE))
def test_nothing_that_is_shown_is_hidden_or_moves_the_cursor(text: str) -> None:
    for shown in (harmless(text), *harmless_lines(text)):
        assert not any(is_hidden(sign) for sign in shown if sign != " ")
        assert "\n" not in shown
    assert len(harmless(text, 20)) <= 20


def test_a_word_of_a_megabyte_is_cut_and_says_so() -> None:
    assert harmless("x" * 1_000_000, 10) == "xxxxxxxxx…"
    assert harmless("\x1b" * 1_000_000, 12) == "\\u{1b}\\u{1b…"
    assert harmless({"a": [1, None, "b"]}) == '{"a": [1, null, "b"]}'


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(None, ""), (-1, "0.0 s"), (0.34, "0.3 s"), (93, "93 s"), (600, "10 m"), (7200, "2 h"), (9e5, "10 d")],
)
def test_durations_are_short(seconds: float | None, said: str) -> None:
    assert lasted(seconds) == said


def test_numbers_are_short() -> None:
    assert [number(each) for each in (0, 999, 1234, 34_000_000)] == ["0", "999", "1.2k", "34M"]


@pytest.mark.parametrize(("ratio", "signs"), [(0, "░░░"), (0.01, "█░░"), (0.5, "██░"), (7, "███")])
def test_the_bar_of_a_budget_has_its_share(ratio: float, signs: str) -> None:
    row = BudgetRow("hour.calls", 1, 2, ratio, 0, None)
    pieces = LISTS["budgets"].pieces(row, 35, Picture(lambda: 0.0, lambda: datetime.now(UTC)))
    assert "".join(text for text, _ in pieces[-2:]) == signs


def test_events_are_said_in_a_line_and_unknown_ones_too() -> None:
    def event(name: str, /, **data: object) -> LiveEvent:
        return LiveEvent(1, name, datetime.now(UTC), "main", "s", "", "r1", data)

    assert of_event(event("RunEnded", status="ok", error="", reply="hi\nthere")) == ("run r1 ok: hi there", "good")
    assert of_event(event("RunEnded", status="error", error="no")) == ("run r1 error: no", "bad")
    assert of_event(event("CallFailed", phase="error", call="c", tool="pay", status="timeout", error="late")) == (
        "✗ pay: timeout: late", "bad",
    )  # fmt: skip
    assert of_event(event("Novelty", what="\x1b[2J{session}", count=3)) == ("Novelty: \\u{1b}[2J{session} 3", "quiet")
    assert of_event(event("Gap", missed=None)) == ("some events were missed", "warn")
    assert of_event(event("AssistantDelta", text="x", reset=False)) == ("", "")
    assert of_event(event("HealthAlert", kind="{x.__class__}", message="%s")) == ("alert {x.__class__}: %s", "bad")
