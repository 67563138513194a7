"""What a conversation tells beside its answers: calls that wait still, and notes in the middle of an answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from spar.chat.conversation import HOW, Conversation
from spar.chat.lines import Lines
from spar.cli.printer import RunPrinter


class Talk(Conversation):
    """A conversation with a service that has these approvals."""

    def __init__(self, *approvals: dict[str, Any]) -> None:
        self.approvals, self.notes = list(approvals), list[str]()
        client: Any = SimpleNamespace(answer=self.answered)
        super().__init__(client, "main", "steer", {}, RunPrinter())

    def answered(self, operation: Any, given: Any) -> Any:
        return {"text": "the call"} if operation.name == "approvals show" else self.approvals

    def put_note(self, text: str) -> None:
        self.notes.append(text)

    def put_text(self, text: str) -> None:
        self.notes.append(text)


@pytest.mark.parametrize("is_decided", [False, True])
async def test_a_call_that_waits_beyond_its_run_is_named_with_the_command_that_decides(is_decided: bool) -> None:
    talk = Talk({"id": "a1", "run_id": "r", "call": {"tool": "pay"}},
                {"id": "a2", "run_id": "other", "call": {"tool": "pay"}})  # fmt: skip
    talk.current = "r"
    await talk.ask("r")
    assert [row["id"] for row in talk.waiting] == ["a1"]
    assert talk.notes.pop(0) == "the call"
    talk.notes.clear()

    if is_decided:  # elsewhere
        talk.approvals.clear()
    talk.current = ""
    await talk.ask("r")

    assert talk.notes == ([] if is_decided else ["pay still waits: spar approvals approve a1, or deny"])
    assert not talk.waiting


@pytest.mark.parametrize(("is_terminal", "out"), [(True, "the \nbaker is paid\n"), (False, "the baker is paid\n")])
def test_a_note_breaks_the_line_of_an_answer_only_where_both_are_seen(
    is_terminal: bool, out: str, capsys: pytest.CaptureFixture[str]
) -> None:
    anything: Any = SimpleNamespace(is_terminal=is_terminal, as_json=False)
    lines = Lines(anything, anything, anything, "main", "steer", {})

    lines.printer.show({"stream": "assistant", "data": {"text": "the ", "reset": False}})
    lines.put_note("pay waits")
    lines.printer.show({"stream": "assistant", "data": {"text": "baker is paid", "reset": False}})
    lines.printer.show({"stream": "lifecycle", "data": {"phase": "end", "output": "the baker is paid"}})

    assert capsys.readouterr() == (out, "pay waits\n")


@pytest.mark.parametrize(("approvals", "out"), [
    ([], "the baker is paid"),
    ([{"id": "a1", "run_id": "r", "call": {"tool": "pay"}}], f"the \nthe call\n{HOW}\nbaker is paid"),
])  # fmt: skip
async def test_a_look_at_what_waits_breaks_the_line_of_an_answer_only_for_a_question(
    approvals: list[dict[str, Any]], out: str, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal: Any = SimpleNamespace(is_terminal=True, as_json=False)
    client: Any = SimpleNamespace(answer=Talk(*approvals).answered)
    lines = Lines(terminal, client, terminal, "main", "steer", {})
    lines.current = "r"

    lines.printer.show({"stream": "assistant", "data": {"text": "the ", "reset": False}})
    await lines.ask("r")  # as after a restart of the service
    lines.printer.show({"stream": "assistant", "data": {"text": "baker is paid", "reset": False}})

    assert capsys.readouterr().out == out
