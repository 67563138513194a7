"""Words for the end of a run: one that people have ended themselves has not failed."""

from __future__ import annotations

import pytest

from spar.cli.printer import RunPrinter, failure_line
from spar.runs.ends import CALLED_OFF


@pytest.mark.parametrize("error", CALLED_OFF)
def test_a_run_that_people_ended_is_told_as_stopped(error: str) -> None:
    assert failure_line(error).startswith("stopped")


def test_any_other_is_told_as_failed_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    event = {"stream": "lifecycle", "data": {"phase": "error", "error": "no\x1b[31m route"}}

    RunPrinter().show(event)

    assert capsys.readouterr().err == "the run failed: no\\x1b[31m route\n"
