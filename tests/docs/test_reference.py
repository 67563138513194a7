"""The pages of `docs/reference/` that `make docs` writes say what the code says now."""

from __future__ import annotations

import re

import pytest

from spar import events
from tests.docs import reference


@pytest.mark.parametrize("name", reference.PAGES)
def test_a_generated_page_is_what_the_code_says_now(name: str) -> None:
    assert reference.difference(name, (reference.FOLDER / name).read_text()) == ""


def test_a_difference_names_the_file_and_the_line() -> None:
    page = reference.exit_codes().replace("124", "125")

    line = page.splitlines().index(next(line for line in page.splitlines() if "125" in line)) + 1
    assert f"docs/reference/exit-codes.md:{line} is out of date" in reference.difference("exit-codes.md", page)
    assert reference.difference("exit-codes.md", reference.exit_codes() + "more\n").endswith("code: (end of the page)")


def test_every_event_says_in_a_line_of_its_own_what_it_tells() -> None:
    assert [each.__name__ for each in reference.event_classes() if not each.__doc__] == []
    assert events.LoopStarted in reference.event_classes()


def test_every_exit_code_has_its_meaning() -> None:
    assert {number for _, number in reference.exit_names()} == set(reference.exits.MEANINGS)


def test_every_route_says_what_it_does() -> None:
    assert [line for line in reference.http().splitlines() if line.endswith("|  |")] == []


def test_the_labels_that_a_page_names_are_those_of_the_metric() -> None:
    rows = re.findall(r"^\| `(spar_\w+)` \| \w+ \| [\w ]+ \| ([^|]*) \|", reference.metrics_page(), re.M)
    labels = {name: set(re.findall(r"\w+", names)) for name, names in rows}
    pages = [page.read_text() for page in reference.FOLDER.parent.rglob("*.md")]
    named = {found for page in pages for found in re.findall(r"`(spar_\w+)\{([\w,]+)\}`", page)}

    assert len(named) > 15
    assert [(name, names) for name, names in sorted(named) if not set(names.split(",")) <= labels[name]] == []
