"""The picture of how it works shows the decisions and facts of the code."""

from __future__ import annotations

import re

from spar import facts
from tests.docs import overview

TEXT = overview.PAGE.read_text()


def test_the_picture_is_what_the_code_says_now() -> None:
    assert overview.text(TEXT) == TEXT, "run `make docs`"


def test_each_fact_is_in_the_picture_and_each_decision_has_its_facts() -> None:
    picture = overview.picture()

    assert [kind for kind in facts.__all__ if kind != "Fact" and not re.search(rf"\b{kind}\b", picture)] == []
    assert "WorkTaken" in overview.decided()["take"]
    without = [name for name, kinds in overview.decided().items() if not kinds]
    assert without == ["next_step", "reset", "slots"]  # they say what to do


def test_each_fact_that_the_page_names_is_one() -> None:
    named = set(re.findall(r"`((?:[A-Z][a-z]+){2,})`", TEXT))

    assert named <= set(facts.__all__)
    assert len(named) > 10
