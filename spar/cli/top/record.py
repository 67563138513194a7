"""Screen of one record that waits for a person: its full text, and the answer to it.

Answers use the same routes as `spar approvals`, `spar calls` and `spar dead`. An answer to an approval has the digest
of the shown call; if the stored call is another one by then, the service refuses the answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from msgspec import Struct
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, Static, TextArea

from spar.cli.top.facts import KINDS, WaitingRow
from spar.cli.top.rows import Page
from spar.cli.top.words import harmless, harmless_lines
from spar.client.async_client import AsyncClient
from spar.client.client import ServiceError
from spar.errors import TransientError
from spar.operations import review
from spar.operations.operation import Operation


class AnswerKind(Struct, frozen=True):
    """Answer to a kind of record.

    Attributes:
        kind: The kind of record.
        key: The key, and its label.
        question: The question before the answer is sent.
        done: The words for a sent answer.
        operation: The operation that carries it out.
        fields: Fields of its input, beside the id and the digest of the record.
        typed: The field that is typed: the reason (a line) or the parameters (JSON); "": it needs a yes.
    """

    kind: str
    key: tuple[str, str]
    question: str
    done: str
    operation: Operation[Any, Any]
    fields: Mapping[str, str] = {}
    typed: Literal["", "reason", "params"] = ""

    def given(self, record: dict[str, Any], text: str) -> Any:
        """Return the input of the operation, from the record and the typed text. Raises: ValueError."""
        values: dict[str, Any] = {name: record[name] for name in ("id", "digest") if name in record}
        values |= self.fields
        if self.typed:
            values[self.typed] = json.loads(text) if self.typed == "params" else text
        return self.operation.given(**values)


ANSWERS = {
    "approve": AnswerKind("approval", ("a", "Approve"), "Approve exactly this call?", "approved", review.decide,
                          {"decision": "approve"}),
    "deny": AnswerKind("approval", ("d", "Deny"), "Deny it. Why? (may be empty)", "denied", review.decide,
                       {"decision": "deny"}, "reason"),
    "edit": AnswerKind("approval", ("e", "Edit"), "Other parameters, as JSON", "approved as edited", review.decide,
                       {"decision": "edit"}, "params"),
    "done": AnswerKind("doubt", ("o", "It was done"), "It had its effect?", "answered: done", review.resolve,
                       {"answer": "done"}),
    "failed": AnswerKind("doubt", ("f", "It failed"), "It had no effect, and is not made again?", "answered: failed",
                         review.resolve, {"answer": "failed"}),
    "again": AnswerKind("doubt", ("r", "Make again"), "It had no effect, and is made again?", "is made again",
                        review.resolve, {"answer": "again"}),
    "retry": AnswerKind("letter", ("t", "Try again"), "Have it tried again?", "is tried again", review.retry_letter),
    "drop": AnswerKind("letter", ("x", "Drop"), "Drop it for good?", "dropped", review.drop_letter),
}  # fmt: skip
#: How the input of an answer is given, by what is typed.
WAYS = {"": "y yes, n no", "reason": "Enter denies, Esc goes back", "params": "Ctrl+S sends, Esc back"}


class RecordScreen(ModalScreen[str]):
    """Screen of one record. Its result is the sentence about the given answer, "" without one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(answer.key[0], f"begin('{name}')", answer.key[1]) for name, answer in ANSWERS.items()),
        Binding("y", "sure", "Yes"),
        Binding("n", "back", "No"),
        Binding("ctrl+s", "send", "Send", priority=True),
        Binding("escape", "back", "Back"),
    ]

    def __init__(self, client: AsyncClient, waiting: WaitingRow, *, is_read_only: bool = False) -> None:
        super().__init__()
        self._client, self._waiting, self._is_read_only = client, waiting, is_read_only
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
        box.border_title = Content(f"{KINDS[self._waiting.kind].title} {self._waiting.id}")
        self._ask(None)
        self.query_one(Page).focus()
        await self._load()

    async def _load(self) -> None:
        try:
            record = await self._client.answer(KINDS[self._waiting.kind].showing, review.RecordId(self._waiting.id))
        except (ServiceError, TransientError) as error:
            self._say(str(error))
            return
        self._record = record
        self.query_one(Page).write("\n".join(harmless_lines(record["text"])))
        self.refresh_bindings()

    # -- the answer

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether a key has an effect now; keys without an effect are not shown."""
        is_open = self._record is not None and self._record.get("status", "pending") == "pending"
        if action == "begin":
            fits = ANSWERS[str(parameters[0])].kind == self._waiting.kind
            return fits and is_open and self._pending_answer is None and not self._is_read_only and not self._is_sending
        if action == "sure":
            return self._pending_answer is not None and not self._pending_answer.typed
        if action == "send":
            return self._pending_answer is not None and self._pending_answer.typed == "params"
        return True

    def action_begin(self, name: str) -> None:
        """Ask for the input of an answer."""
        self._ask(ANSWERS[name])

    def _ask(self, answer: AnswerKind | None) -> None:
        """Show the question and the input of an answer; None hides them."""
        self._pending_answer = answer
        self.query_one("#answer").display = answer is not None
        typed = "" if answer is None else answer.typed
        reason, params = self.query_one("#reason", Input), self.query_one("#params", TextArea)
        reason.display, params.display = typed == "reason", typed == "params"
        if answer is not None and self._record is not None:
            digest = self._record.get("digest", "")
            about = f" (digest {harmless(digest, 12)})" if digest else ""
            self.query_one("#question", Static).update(Content(f"{answer.question}{about}  {WAYS[typed]}"))
            if typed == "params":  # in ASCII, so that no character is invisible
                params.load_text(json.dumps(self._record["call"]["params"], indent=2))
                params.focus()
            elif typed == "reason":
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
            given = answer.given(record, text)
        except ValueError as error:
            self._say(f"the parameters are no JSON: {error}")
            return
        self._is_sending = True
        try:
            await self._client.answer(answer.operation, given)
        except (ServiceError, TransientError) as error:
            self._say(f"not answered: {error}")
            if answer.typed != "params":
                self._ask(None)
            return
        finally:
            self._is_sending = False
        self.dismiss(f"{answer.done}: {self._waiting.text}")

    def _say(self, text: str) -> None:
        self.query_one("#message", Static).update(Content(harmless(text, 1000)))
