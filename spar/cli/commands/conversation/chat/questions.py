"""Approvals of a run during a conversation: the call that would run is shown in full, and the person decides."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from spar.cli.commands.conversation.chat.conversation import Conversation
from spar.client.client import NotRunningError, ServiceError
from spar.data.text import printable
from spar.operations.fields import changed_params
from spar.operations.review import (
    ApprovalsChoice,
    DecisionBody,
    RecordId,
    decide,
    list_approvals,
    show_approval,
)

HOW: Final = "run it? y, n [WHY], e KEY=VALUE … or e {JSON} (other parameters)"


class Questions:
    """The approvals of a run that wait for the person's decision, the oldest first.

    Args: conversation: shows them, and says for how long a decision is sent again while no service answers.
    """

    def __init__(self, conversation: Conversation) -> None:
        self._conversation, self._client = conversation, conversation.client
        self._waiting: list[dict[str, Any]] = []

    @property
    def is_open(self) -> bool:
        return bool(self._waiting)

    def look(self, run_id: str) -> None:
        """Request the approvals of a run, and show the first one if it is new."""
        first = self._waiting[0]["id"] if self._waiting else ""
        self.find_new(run_id)
        if self.is_open and self._waiting[0]["id"] != first:
            self._show()

    def find_new(self, run_id: str) -> list[str]:
        """Request the approvals of a run; return the tools of the new ones."""
        try:
            rows = self._client.answer(list_approvals, ApprovalsChoice("pending"))
        except ServiceError:
            return []  # requested again once the service is back
        of_run = [row for row in reversed(rows) if row.get("run_id") == run_id]
        known = {row["id"] for row in self._waiting}
        new = [row for row in of_run if row["id"] not in known]
        ids = {row["id"] for row in of_run}
        self._waiting = [*(row for row in self._waiting if row["id"] in ids), *new]
        return [str(row["call"]["tool"]) for row in new]

    def leave(self, run_id: str) -> None:
        """Forget the approvals of a run that is over, and say how those are decided that still wait: an answer may come
        before the decision, and the call is then made in a later cycle."""
        if self._waiting:
            self.find_new(run_id)
        for row in self._waiting:
            self._conversation.note(f"{row['call']['tool']} still waits: spar approvals approve {row['id']}, or deny")
        self._waiting = []

    def _show(self) -> None:
        """Show the first approval in full."""
        try:
            shown = self._client.answer(show_approval, RecordId(self._waiting[0]["id"]))
        except ServiceError:
            return
        self._conversation.tell(printable(shown["text"]))
        self._conversation.tell_how(HOW)

    def answer(self, line: str) -> bool:
        """Send a line as the answer to the first approval; return False if it is no answer or is refused."""
        question = self._waiting[0]
        word, _, rest = line.strip().partition(" ")
        body = partial(DecisionBody, question["id"], question["digest"])
        match word.lower():
            case "y" | "yes":
                decision = body("approve")
            case "n" | "no":
                decision = body("deny", rest.strip())
            case "e" | "edit" if rest:
                texts = [rest.strip()] if rest.lstrip().startswith("{") else rest.split()
                try:
                    decision = body("edit", params=changed_params(question["call"]["params"], texts))
                except ValueError as error:
                    self._conversation.note(f"{error}; {HOW}")
                    return False
            case _:
                self._conversation.tell_how(HOW)
                return False
        try:
            asked = self._conversation
            self._client.answer(decide, decision, patience=asked.patience, lost=asked.note_lost)
        except NotRunningError:
            raise
        except ServiceError as error:  # somebody else has answered, or the parameters do not fit the tool
            self._conversation.note(str(error))
            return False
        self._waiting = self._waiting[1:]
        if self._waiting:
            self._show()
        return True
