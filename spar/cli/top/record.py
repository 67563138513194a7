"""Screen of one record that waits for a person: its full text, and the answer to it.

Answers use the same routes as `spar approvals`, `spar calls` and `spar dead`. An answer to an approval has the digest
of the shown call; if the stored call is another one by then, the service refuses the answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, ClassVar
from urllib.parse import quote

from msgspec import Struct
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, Static, TextArea

from spar.cli.top.facts import WaitingRow
from spar.cli.top.link import AwayError, DeclinedError, ServiceLink
from spar.cli.top.pages import Page
from spar.cli.top.words import harmless, harmless_lines

#: The path of the records of each kind.
PATHS = {"approval": "/v1/approvals", "doubt": "/v1/calls/in-doubt", "letter": "/v1/dead-letters"}
TITLES = {"approval": "Approval", "doubt": "Call in doubt", "letter": "Dead letter"}


class AnswerKind(Struct, frozen=True):
    """Answer to a kind of record.

    Attributes:
        kind: The kind of record.
        question: The question before the answer is sent.
        done: The words for a sent answer.
        ending: The end of the path to which it is sent.
        body: Returns the body of the request, from the record and the typed text.
        asks: The input that it needs: "sure" (yes or no), "reason" (a line) or "params" (JSON).
    """

    kind: str
    question: str
    done: str
    ending: str
    body: Callable[[dict[str, Any], str], Any]
    asks: str = "sure"


def _decision(decision: str) -> Callable[[dict[str, Any], str], Any]:
    return lambda record, text: {"digest": record["digest"], "decision": decision, "reason": text}


def _edited(record: dict[str, Any], text: str) -> Any:
    return {"digest": record["digest"], "decision": "edit", "params": json.loads(text)}


ANSWERS = {
    "approve": AnswerKind("approval", "Approve exactly this call?", "approved", "", _decision("approve")),
    "deny": AnswerKind("approval", "Deny it. Why? (may be empty)", "denied", "", _decision("deny"), "reason"),
    "edit": AnswerKind("approval", "Other parameters, as JSON", "approved as edited", "", _edited, "params"),
    "done": AnswerKind("doubt", "It had its effect?", "answered: done", "/resolve",
                   lambda record, text: {"answer": "done"}),
    "failed": AnswerKind("doubt", "It had no effect, and is not made again?", "answered: failed", "/resolve",
                     lambda record, text: {"answer": "failed"}),
    "again": AnswerKind("doubt", "It had no effect, and is made again?", "is made again", "/resolve",
                    lambda record, text: {"answer": "again"}),
    "retry": AnswerKind("letter", "Have it tried again?", "is tried again", "/retry", lambda record, text: None),
    "drop": AnswerKind("letter", "Drop it for good?", "dropped", "/drop", lambda record, text: None),
}  # fmt: skip


class RecordScreen(ModalScreen[str]):
    """Screen of one record. Its result is the sentence about the given answer, "" without one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "begin('approve')", "Approve"),
        Binding("d", "begin('deny')", "Deny"),
        Binding("e", "begin('edit')", "Edit"),
        Binding("o", "begin('done')", "It was done"),
        Binding("f", "begin('failed')", "It failed"),
        Binding("r", "begin('again')", "Make again"),
        Binding("t", "begin('retry')", "Try again"),
        Binding("x", "begin('drop')", "Drop"),
        Binding("y", "sure", "Yes"),
        Binding("n", "back", "No"),
        Binding("ctrl+s", "send", "Send", priority=True),
        Binding("escape", "back", "Back"),
    ]

    def __init__(self, link: ServiceLink, waiting: WaitingRow, *, is_read_only: bool = False) -> None:
        super().__init__()
        self._link, self._waiting, self._is_read_only = link, waiting, is_read_only
        self._record: dict[str, Any] | None = None
        self._pending_answer: AnswerKind | None = None
        self._is_sending = False

    def compose(self) -> ComposeResult:
        with Vertical(id="record"):
            yield Page(id="text")
            with Vertical(id="answer"):
                yield Static(id="question")
                yield Input(id="reason", max_length=2000)
                yield TextArea(id="params", show_line_numbers=False)
            yield Static(id="message")
        yield Footer(show_command_palette=False)

    async def on_mount(self) -> None:
        box = self.query_one("#record")
        box.border_title = Content(f"{TITLES[self._waiting.kind]} {self._waiting.id}")
        self._ask(None)
        self.query_one(Page).focus()
        await self._load()

    async def _load(self) -> None:
        try:
            record = await self._link.get(self._path())
        except (AwayError, DeclinedError) as error:
            self._say(str(error))
            return
        self._record = record
        self.query_one(Page).write([(line, "plain") for line in harmless_lines(record["text"])])
        self.refresh_bindings()

    def _path(self, ending: str = "") -> str:
        return f"{PATHS[self._waiting.kind]}/{quote(self._waiting.id, safe='')}{ending}"

    # -- the answer

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether a key has an effect now; keys without an effect are not shown."""
        is_open = self._record is not None and self._record.get("status", "pending") == "pending"
        if action == "begin":
            fits = ANSWERS[str(parameters[0])].kind == self._waiting.kind
            return fits and is_open and self._pending_answer is None and not self._is_read_only and not self._is_sending
        if action == "sure":
            return self._pending_answer is not None and self._pending_answer.asks == "sure"
        if action == "send":
            return self._pending_answer is not None and self._pending_answer.asks == "params"
        return True

    def action_begin(self, name: str) -> None:
        """Ask for the input of an answer."""
        self._ask(ANSWERS[name])

    def _ask(self, answer: AnswerKind | None) -> None:
        """Show the question and the input of an answer; None hides them."""
        self._pending_answer = answer
        self.query_one("#answer").display = answer is not None
        asks = "" if answer is None else answer.asks
        reason, params = self.query_one("#reason", Input), self.query_one("#params", TextArea)
        reason.display, params.display = asks == "reason", asks == "params"
        if answer is not None and self._record is not None:
            digest = self._record.get("digest", "")
            about = f" (digest {harmless(digest, 12)})" if digest else ""
            ways = {"sure": "y yes, n no", "reason": "Enter denies, Esc goes back", "params": "Ctrl+S sends, Esc back"}
            self.query_one("#question", Static).update(Content(f"{answer.question}{about}  {ways[asks]}"))
            if asks == "params":
                params_text = json.dumps(
                    self._record["call"]["params"], indent=2
                )  # ASCII, so that no character is invisible
                params.load_text(params_text)
                params.focus()
            elif asks == "reason":
                reason.focus()
        if answer is None:
            self.query_one(Page).focus()
        self.refresh_bindings()

    async def action_sure(self) -> None:
        """Send the answer that was confirmed."""
        await self._send("")

    async def action_send(self) -> None:
        """Send the answer with the typed parameters."""
        await self._send(self.query_one("#params", TextArea).text)

    async def on_input_submitted(self, event: Input.Submitted) -> None:
        await self._send(event.value)

    def action_back(self) -> None:
        """Close the question, or the screen."""
        if self._pending_answer is not None:
            self._ask(None)
        else:
            self.dismiss("")

    async def _send(self, text: str) -> None:
        answer, record = self._pending_answer, self._record
        if answer is None or record is None or self._is_sending:
            return
        try:
            body = answer.body(record, text)
        except ValueError as error:
            self._say(f"the parameters are no JSON: {error}")
            return
        self._is_sending = True
        try:
            await self._link.post(self._path(answer.ending), body)
        except (AwayError, DeclinedError) as error:
            self._say(f"not answered: {error}")
            if answer.asks != "params":
                self._ask(None)
            return
        finally:
            self._is_sending = False
        self.dismiss(f"{answer.done}: {self._waiting.text}")

    def _say(self, text: str) -> None:
        self.query_one("#message", Static).update(Content(harmless(text, 1000)))
