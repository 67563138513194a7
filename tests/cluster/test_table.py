"""The table says what is wrong, what is still owed, and what is good enough."""

from __future__ import annotations

import sys

import pytest

from tests.cluster import __main__ as command
from tests.cluster.speed import Speed
from tests.cluster.table import Line, counted, figures, timed, written
from tests.cluster.takeover import Counts


@pytest.mark.parametrize("kind", ["lost", "doubled", "silent", "stale"])
def test_what_was_lost_doubled_silent_or_stale_is_wrong(kind: str) -> None:
    assert counted("kill", Counts(tried=3, accepted=9)).verdict == "ok"
    assert counted("kill", Counts(tried=3, accepted=9, **{kind: 1})).verdict == "WRONG"  # type: ignore[arg-type]


def test_a_figure_that_is_not_good_enough_is_still_owed() -> None:
    assert timed("takeover", [0.2] * 19 + [9.0], 1.0, 0.3).verdict == "ok"
    assert timed("takeover", [0.2] * 18 + [9.0] * 2, 1.0, 0.3).verdict == "owed"
    assert timed("takeover", [], 1.0, 0.3).verdict == "owed"
    assert [line.verdict for line in figures(Speed([0.5, 0.6, 0.9], 100.0, 101.0, 9_999.0))] == ["ok", "owed", "ok"]


def test_only_what_is_wrong_fails_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    owed, wrong = Line("slow", "2 s", "1 s", is_owed=True), Line("kill", "lost 1", "0", is_wrong=True)
    for lines, code in (([owed], 0), ([owed, wrong], 1)):
        monkeypatch.setattr(command, "table", lambda *given, lines=lines: lines)
        monkeypatch.setattr(sys, "argv", ["tests.cluster", "--short"])
        assert command.main() == code
        assert capsys.readouterr().out.splitlines()[1:] == written(lines).splitlines()[1:]
