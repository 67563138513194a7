"""The picture of how it works shows the decisions and facts of the code."""

from __future__ import annotations

import re

from tests.docs import overview

TEXT = overview.PAGE.read_text()


def test_the_picture_is_what_the_code_says_now() -> None:
    assert overview.text(TEXT) == TEXT, "run `make docs`"


def test_each_fact_is_in_the_picture_and_each_decision_has_its_facts() -> None:
    picture = overview.picture()

    assert [kind for kind in overview.KINDS if not re.search(rf"\b{kind}\b", picture)] == []
    assert "WorkTaken" in overview.decided()["next_step"]
    without = [name for name, kinds in overview.decided().items() if not kinds]
    assert without == ["slots"]  # they say what to do


def test_each_fact_that_the_page_names_is_one() -> None:
    named = set(re.findall(r"`((?:[A-Z][a-z]+){2,})`", TEXT))

    assert named <= {"Fact", *overview.KINDS}
    assert len(named) > 10
