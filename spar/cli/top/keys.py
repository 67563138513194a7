"""Screen that explains the keys."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen

from spar.cli.top.pages import Page

KEYS = """\
1 to 6, Tab     go to a list
↑ ↓ PgUp PgDn   move in it (also j, k, g, G)
Enter           open a run, or what waits for you
z               show this list alone, and all again
space           hold the picture still, and go on
r               ask for everything again
?               these keys
q               quit

On what waits for you
a   approve exactly this call, once
d   deny it, with a reason
e   approve it with other parameters
o f r   a call in doubt: it was done, it failed, make it again
t x     a dead letter: try again, drop
Esc     back, without an answer

Colours
a phase is red after a minute; ● works, · rests; ▶ runs, ◌ waits, ✓ ended well, ✗ failed
? asks for approval, ‽ is in doubt, ✉ was put aside; ▲ is an alert

It shows what GET /v1/events tells, and answers as spar approvals does. It comes back by itself
when the service was away.
"""


class KeysScreen(ModalScreen[None]):
    """Screen of the keys."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark", "dismiss", "Back")]

    def compose(self) -> ComposeResult:
        with Vertical(id="record"):
            yield Page(id="text")

    def on_mount(self) -> None:
        self.query_one("#record").border_title = "Keys of spar top"
        self.query_one(Page).write([(line, "plain") for line in KEYS.splitlines()])
        self.query_one(Page).focus()
