"""What commands and routes answer is what `answers/` says: a change of behaviour is seen in the diff of that folder."""

from __future__ import annotations

import re
from difflib import unified_diff
from itertools import islice

import pytest

from tests.recorded.commands import INDEPENDENT, leaves
from tests.recorded.record import FOLDER, answers
from tests.recorded.routes import ROUTES, name_of

pytestmark = pytest.mark.process

NAMES = sorted(str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.*"))


@pytest.fixture(scope="module")
def recorded() -> dict[str, str]:
    return answers()


def test_each_answer_has_its_file(recorded: dict[str, str]) -> None:
    assert sorted(recorded) == NAMES, "record them anew: .venv/bin/python -m tests.recorded"


@pytest.mark.parametrize("name", NAMES)
def test_what_is_answered_is_what_was_recorded(recorded: dict[str, str], name: str) -> None:
    before, now = (FOLDER / name).read_text().splitlines(), recorded.get(name, "").splitlines()
    difference = "\n".join(islice(unified_diff(before, now, "recorded", "now", lineterm=""), 60))
    assert not difference, f"if it is meant, record it anew: .venv/bin/python -m tests.recorded\n{difference}"


def test_no_command_is_missing_with_a_service_or_without_one() -> None:
    words = {group: _recorded_words(group) for group in ("running", "changes", "alone")}
    for leaf in leaves():
        with_service = words["running"] + words["changes"]
        assert any(each[: len(leaf)] == leaf for each in with_service), f"spar {' '.join(leaf)}, with a service"
        is_alone = any(each[: len(leaf)] == leaf for each in words["alone"])
        assert is_alone or leaf in INDEPENDENT, f"spar {' '.join(leaf)}, without a service"


#: Operations other than reads that leave no entry: a message has its origin, and a tried example is not stored.
NOT_AUDITED = {"runs submit", "examples try", "config check", "stops attach"}
#: What leaves its entry elsewhere: behind that list, in test_breakpoints.py, and in tests/cluster/test_services.py.
AUDITED_ELSEWHERE = {
    "agent.stop",
    "breakpoint.change",
    "breakpoint.go",
    "breakpoint.detach",
    "node.drain",
    "approval.decide",
}  # whose entries have the names of decisions


def test_each_operation_that_changes_something_has_left_an_entry() -> None:
    changing = {operation.name: operation.audit for operation in ROUTES if operation.method != "GET"}
    assert {name for name, rule in changing.items() if rule is None} == NOT_AUDITED
    listed = (FOLDER / "changes" / "audit.txt").read_text()
    of_decisions = {f"approval.{decision}" for decision in ("approve", "deny", "edit", "replace")}
    assert [action for action in of_decisions if f"  {action}  " not in listed] == []
    missing = {rule.action for rule in changing.values() if rule is not None and f"  {rule.action}  " not in listed}
    assert missing == AUDITED_ELSEWHERE


def test_no_route_is_missing() -> None:
    for file in ("scopes.txt", "wrong_inputs.txt"):
        names = {line.partition("  ")[0] for line in (FOLDER / file).read_text().splitlines()}
        assert names == {name_of(route) for route in ROUTES}, file


def _recorded_words(group: str) -> list[tuple[str, ...]]:
    """Return the words of each recorded command."""
    texts = (file.read_text() for file in (FOLDER / group).glob("*.txt"))
    return [tuple(words.split()) for text in texts for words in re.findall(r"^\$ spar (.+)  \[\d+\]$", text, re.M)]
