"""The approvals of a run that is over are not left in silence."""

from __future__ import annotations

from typing import Any

import pytest

from spar.cli.commands.conversation.chat.conversation import Questions


class Talk:
    """A conversation, and the client of a service that has these approvals."""

    def __init__(self, *approvals: dict[str, Any]) -> None:
        self.client, self.approvals, self.notes = self, list(approvals), list[str]()

    def answer(self, operation: Any, given: Any) -> Any:
        return {"text": "the call"} if operation.name == "approvals show" else self.approvals

    def note(self, text: str) -> None:
        self.notes.append(text)

    def tell(self, text: str) -> None: ...
    def tell_how(self, text: str) -> None: ...


@pytest.mark.parametrize("is_decided", [False, True])
def test_a_call_that_waits_beyond_its_run_is_named_with_the_command_that_decides(is_decided: bool) -> None:
    talk: Any = Talk({"id": "a1", "run_id": "r", "call": {"tool": "pay"}},
                     {"id": "a2", "run_id": "other", "call": {"tool": "pay"}})  # fmt: skip
    questions = Questions(talk)
    questions.look("r")
    assert questions.is_open

    if is_decided:  # elsewhere
        talk.approvals.clear()
    questions.leave("r")

    assert talk.notes == ([] if is_decided else ["pay still waits: spar approvals approve a1, or deny"])
    assert not questions.is_open
