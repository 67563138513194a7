"""Screens above the lists: an answer of the service, one run, and one record that waits for a person.

Answers to records use the same routes as `spar approvals`, `spar calls` and `spar dead`. An answer to an approval has
the digest of the shown call; if the stored call is another one by then, the service refuses the answer.
"""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple

from msgspec import Struct
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, Static, TextArea

from spar.cli.blocks import plain
from spar.cli.cycles import cycle_blocks
from spar.cli.nouns import blocks_of
from spar.cli.printer import RunPrinter, harmless, harmless_lines, of_call
from spar.client.async_client import AsyncClient, Paced
from spar.client.client import Client, EventReader, ServiceError
from spar.errors import TransientError
from spar.operations import history, review, runs
from spar.operations.knowledge.rules import RulesChoice, list_rules
from spar.operations.operation import Operation
from spar.ports.costs import SUMS
from spar.top.facts import KINDS, CycleFacts, RunFacts

#: What is asked for by each key, with the title: the operations and their inputs.
FIGURES: Final[dict[str, tuple[str, str, tuple[tuple[Operation[Any, Any], Struct], ...]]]] = {
    "cost": ("c", "Cost of seven days", tuple((runs.cost, runs.CostChoice(by=by)) for by in SUMS)),
    "changes": ("d", "Changes of a day", ((history.changes, history.ChangesChoice()),)),
    "rules": ("u", "Rules, those that fire most first", ((list_rules, RulesChoice(sort="fired")),)),
}
#: Characters of the shown end of a run; seconds between two drawings of what arrives, and events that one takes.
SHOWN, EVERY, AT_ONCE = 200_000, 0.15, 2_000
CUT = "… what came before is not shown here: spar runs follow, spar sessions transcript"


class Page(TextArea):
    """Page with the whole of a text. Args: follows: keep the end in sight until somebody scrolls."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("k", "scroll_up", show=False), Binding("j", "scroll_down", show=False),
        Binding("g", "scroll_home", show=False), Binding("G", "scroll_end", show=False),
    ]  # fmt: skip

    def __init__(self, *, follows: bool = False) -> None:
        super().__init__(read_only=True, show_cursor=False, highlight_cursor_line=False, compact=True, id="text")
        self._follows = follows

    def write(self, text: str) -> None:
        """Show a text, which must be escaped already."""
        was_at_end = self.scroll_offset.y >= self.max_scroll_y - 1
        if text.startswith(self.text):
            self.insert(text[len(self.text) :], self.document.end)
        else:
            self.load_text(text)
        if self._follows and was_at_end:
            self.scroll_end(animate=False)


class TextScreen(ModalScreen[None]):
    """Screen of one text under a title. Args: ask: returns the text; follows: as for `Page`."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark", "dismiss", "Back")]

    def __init__(self, title: str, ask: Callable[[], Awaitable[str]] | None = None, *, follows: bool = False) -> None:
        super().__init__()
        self._title, self._ask = title, ask
        self.page = Page(follows=follows)

    def compose(self) -> ComposeResult:
        with Vertical(id="record") as box:
            box.border_title = Content(self._title)
            yield self.page
        yield Footer(show_command_palette=False)

    async def on_mount(self) -> None:
        if self._ask is not None:
            try:
                self.page.write("\n".join(harmless_lines(await self._ask())))
            except (ServiceError, TransientError) as error:
                self.page.write(harmless(str(error), 1000))


def cycle_screen(client: AsyncClient, cycle: CycleFacts) -> TextScreen:
    """Return the screen of one cycle: what was noticed, decided, done and learnt."""

    async def ask() -> str:
        record = await client.call(history.show_cycle, history.CycleId(cycle.id))
        return "\n".join(map(plain, cycle_blocks(None, record)))

    return TextScreen(f"Cycle {harmless(cycle.id, 40)}", ask)


def figures_screen(client: AsyncClient, name: str) -> TextScreen:
    """Return the screen of the answers to one of `FIGURES`, as their commands show them."""

    async def ask() -> str:
        texts = []
        for operation, given in FIGURES[name][2]:
            answer = await client.call(operation, given)
            form = next(iter(operation.commands.values()))
            texts.append("\n".join(map(plain, blocks_of(operation, form, given, answer))))
        return "\n\n".join(texts)

    return TextScreen(FIGURES[name][1], ask)


# -- one run


class RunText(RunPrinter):
    """Text of a run, collected from its events: `text` has at most the last `SHOWN` characters, escaped."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""

    def show(self, event: dict[str, Any]) -> None:
        if event["stream"] == "tool" and event["data"]["phase"] != "proposed":
            self._note(of_call(event["data"]))
        else:
            super().show(event)

    def put(self, text: str, end: str = "\n") -> None:
        text = self.text.removeprefix(f"{CUT}\n") + "\n".join(harmless_lines(text)) + end
        self.text = text if len(text) <= SHOWN else f"{CUT}\n{text[-SHOWN:]}"

    put_aside = put


class RunScreen(TextScreen):
    """Screen of one run: its text as it is written, and its calls of tools, from the event stream of the run."""

    def __init__(self, client: Client, run: RunFacts) -> None:
        super().__init__(f"Run {run.id}  session {harmless(run.session, 40)}", follows=True)
        self._run, self._client = run, client
        self._text, self._is_over = RunText(), False
        self._reader: EventReader | None = None

    async def on_mount(self) -> None:
        self._arrivals = Paced(partial(self.call_later, self.look), EVERY)
        stream = self._client.events(runs.follow, runs.FollowRun(self._run.id), math.inf)
        self._reader = EventReader(stream, self._arrivals.ask)

    def on_screen_resume(self) -> None:
        self.look()

    def on_unmount(self) -> None:
        if self._reader is not None:
            self._reader.close()

    def look(self) -> None:
        """Apply the new events, and draw."""
        if (reader := self._reader) is None or not (self.is_current and self.app.is_running):  # closing, or covered
            return
        for event in (batch := reader.take(AT_ONCE)):
            self._text.show(event)
            self._is_over |= runs.is_end(event)
        if batch:
            self.page.write(self._text.text)
        if len(batch) == AT_ONCE:
            self._arrivals.ask()
        away = "" if reader.stream.is_live else f"away: {harmless(reader.stream.why, 60)}"
        self.query_one("#record").border_subtitle = Content("has ended" if self._is_over else away)


# -- one record that waits for a person


class RecordAnswer(NamedTuple):
    """Answer to a kind of record: its key with the label, the question before it is sent, the operation, and the field
    that is typed: the reason (a line), the parameters (JSON), or none ("": it needs a yes)."""

    kind: str
    key: str
    label: str
    question: str
    operation: Operation[Any, Any]
    typed: str = ""


#: The answers by their names, which their operations know as decisions.
ANSWERS: Final = {
    "approve": RecordAnswer("approval", "a", "Approve", "Approve exactly this call?", review.decide),
    "deny": RecordAnswer("approval", "d", "Deny", "Deny it. Why? (may be empty)", review.decide, "reason"),
    "edit": RecordAnswer("approval", "e", "Edit", "Other parameters, as JSON", review.decide, "params"),
    "done": RecordAnswer("doubt", "o", "It was done", "It had its effect?", review.resolve),
    "failed": RecordAnswer("doubt", "f", "It failed", "It had no effect, and is not made again?", review.resolve),
    "again": RecordAnswer("doubt", "r", "Make again", "It had no effect, and is made again?", review.resolve),
    "retry": RecordAnswer("letter", "t", "Try again", "Have it tried again?", review.retry_letter),
    "drop": RecordAnswer("letter", "x", "Drop", "Drop it for good?", review.drop_letter),
}
#: How the input of an answer is given, by what is typed.
WAYS: Final = {"": "y yes, n no", "reason": "Enter denies, Esc goes back", "params": "Ctrl+S sends, Esc back"}


class RecordScreen(ModalScreen[str]):
    """Screen of one record: its full text, and the answer to it. Its result is the sentence about the given answer, ""
    without one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(answer.key, f"begin('{name}')", answer.label) for name, answer in ANSWERS.items()),
        Binding("y", "sure", "Yes"),
        Binding("n", "back", "No"),
        Binding("ctrl+s", "send", "Send", priority=True),
        Binding("escape", "back", "Back"),
    ]

    def __init__(self, client: AsyncClient, kind: str, row: Mapping[str, Any], *, is_read_only: bool = False) -> None:
        super().__init__()
        self._client, self._kind, self._row, self._is_read_only = client, kind, row, is_read_only
        self._record: dict[str, Any] | None = None
        self._pending = ""  # the name of the answer that is begun
        self._is_sending = False

    def compose(self) -> ComposeResult:
        with Vertical(id="record") as box:
            box.border_title = Content(f"{KINDS[self._kind].title} {self._row['id']}")
            yield Page()
            with Vertical(id="answer"):
                yield Static(id="question")
                yield Input(id="reason", max_length=2000)
                yield TextArea(id="params", show_line_numbers=False)
            yield Static(id="message")
        yield Footer(show_command_palette=False)

    async def on_mount(self) -> None:
        self._begin("")
        try:
            record = await self._client.answer(KINDS[self._kind].showing, review.RecordId(str(self._row["id"])))
            self.query_one(Page).write("\n".join(harmless_lines(record["text"])))
        except (ServiceError, TransientError) as error:
            self._say(str(error))
            return
        self._record = record
        self.refresh_bindings()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether a key has an effect now; keys without an effect are not shown."""
        if action == "begin":
            is_open = self._record is not None and self._record.get("status", "pending") == "pending"
            fits = is_open and ANSWERS[str(parameters[0])].kind == self._kind
            return fits and not (self._pending or self._is_read_only or self._is_sending)
        typed = {"sure": "", "send": "params"}.get(action)
        return typed is None or (bool(self._pending) and ANSWERS[self._pending].typed == typed)

    def action_begin(self, name: str) -> None:
        """Ask for the input of an answer."""
        self._begin(name)

    def _begin(self, name: str) -> None:
        """Show the question and the input of an answer; "" hides them."""
        self._pending = name
        self.query_one("#answer").display = bool(name)
        answer, reason, params = ANSWERS.get(name), self.query_one("#reason"), self.query_one("#params", TextArea)
        typed = answer.typed if answer is not None else ""
        reason.display, params.display = typed == "reason", typed == "params"
        if answer is not None and self._record is not None:
            digest = self._record.get("digest", "")
            about = f" (digest {harmless(digest, 12)})" if digest else ""
            self.query_one("#question", Static).update(Content(f"{answer.question}{about}  {WAYS[typed]}"))
            if typed == "params":  # in ASCII, so that no character is invisible
                params.load_text(json.dumps(self._record["call"]["params"], indent=2))
        {"reason": reason, "params": params}.get(typed, self.query_one(Page)).focus()
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
        if self._pending:
            self._begin("")
        else:
            self.dismiss("")

    async def _send(self, text: str) -> None:
        name, record = self._pending, self._record
        if not name or record is None or self._is_sending:
            return
        kind, answer = KINDS[self._kind], ANSWERS[name]
        try:
            values: dict[str, Any] = {field: record[field] for field in ("id", "digest") if field in record}
            values |= {kind.decision: name} if kind.decision else {}
            values |= {answer.typed: json.loads(text) if answer.typed == "params" else text} if answer.typed else {}
            given = answer.operation.given(**values)
        except ValueError as error:
            self._say(f"the parameters are no JSON: {error}")
            return
        self._is_sending = True
        try:
            await self._client.answer(answer.operation, given)
        except (ServiceError, TransientError) as error:
            self._say(f"not answered: {error}")
            if answer.typed != "params":
                self._begin("")
            return
        finally:
            self._is_sending = False
        self.dismiss(f"{answer.label}: {kind.text(self._row)}")

    def _say(self, text: str) -> None:
        self.query_one("#message", Static).update(Content(harmless(text, 1000)))
