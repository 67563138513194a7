"""The pictures of states show what the tables and the drawn histories say now."""

from __future__ import annotations

import re

from spar.agent.lifecycle import FOLLOWS
from spar.records.approvals import TRANSITIONS
from spar.types import CALL_STATUSES
from tests.docs import states
from tests.docs.overview import KINDS

TEXT = states.PAGE.read_text()


def arrows(title: str) -> set[tuple[str, str]]:
    """Return the arrows of the picture under a heading."""
    picture = TEXT.partition(f"## {title}\n")[2].partition("```mermaid\n")[2].partition("```")[0]
    return set(re.findall(r"^    (\S+) --> ([^\s:]+)", picture, re.M))


def test_the_page_is_what_the_code_says_now() -> None:
    assert states.text() == TEXT, "run `make docs`"


def test_a_table_of_transitions_is_drawn_whole() -> None:
    for title, follows in (("Agent", FOLLOWS), ("Approval", TRANSITIONS)):
        drawn = {pair for pair in arrows(title) if pair[0] != states.NOTHING}
        assert drawn == {(state, after) for state, states in follows.items() for after in states}


def test_each_end_of_a_call_and_each_fact_is_on_the_page() -> None:
    ends = {after for _, after in arrows("Call")}

    assert set(CALL_STATUSES) <= ends
    assert [kind for kind in KINDS if not re.search(rf"\b{kind}\b", TEXT)] == []
