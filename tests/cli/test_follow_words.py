"""What is told of a run that is followed: its answer once, and how it ended."""

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


def test_an_answer_that_a_note_interrupts_is_not_printed_again(capsys: pytest.CaptureFixture[str]) -> None:
    printer = RunPrinter()
    piece = {"text": "the ", "reset": False}

    printer.show({"stream": "assistant", "data": piece})
    printer.show({"stream": "verbose", "data": {"line": "pay started"}})
    printer.show({"stream": "assistant", "data": piece | {"text": "baker is paid"}})
    printer.show({"stream": "lifecycle", "data": {"phase": "end", "output": "the baker is paid"}})

    assert capsys.readouterr() == ("the \nbaker is paid\n", "pay started\n")
