"""Completion of words that only the running service knows, such as sessions, runs and approvals: they are those that
the listing of the noun has.

A completion must neither take long nor print an error. If no service answers in time, or it refuses, there are no
completions.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem
from msgspec import Struct

from spar.cli.blocks import cells
from spar.data.text import is_hidden, safe_line

if TYPE_CHECKING:
    from spar.operations.operation import Operation

#: Seconds that the service may take, and number of offered words.
WITHIN, MOST = 1.5, 100
#: Characters of a description.
_LINE = 60


def names(context: click.Context, incomplete: str, operation: Operation[Any, Any], field: str) -> list[CompletionItem]:
    """Return the values that a field of an operation's path, or its session, can have: those of the listing, in its
    order, described by their rows."""
    from spar.operations.table import commands_of

    noun, path = operation.name.split()[0], operation.path.partition("/{")[0]
    if field == "session":
        noun, path, field = "sessions", "/v1/sessions", "key"
    listings = ((verb, listing) for verb, listing in commands_of(noun).items()
                if listing.is_read and listing.path == path)  # fmt: skip
    verb, listing = next(listings, ("", None))
    if listing is None or (answer := _answer(context, listing, listing.given(limit=MOST))) is None:
        return []
    form, items = listing.commands[verb], []
    for row in answer if form.rows is None else form.rows(answer):
        word = str(getattr(row, field) if isinstance(row, Struct) else row[0])
        is_plain = not any(is_hidden(sign) or sign in " '\"`$\\\n" for sign in word)  # for a shell
        if word.startswith(incomplete) and is_plain:
            about = ", ".join(text for text in cells(form.columns, row) if text not in ("", word))
            items.append(CompletionItem(word, help=safe_line(about, _LINE)))
    return items[:MOST]


def _answer(context: click.Context, operation: Operation[Any, Any], given: Any) -> Any:
    """Return the answer of the running service; None if no answer comes in time or any error occurs."""
    from spar.cli.context import Options
    from spar.client.client import Client

    params = context.find_root().params
    answers: list[Any] = []
    try:
        options = Options(params.get("config_path"), tuple(params.get("overrides") or ()), as_json=True)
        client = Client(options.state_dir(), timeout=WITHIN)
    except (Exception, SystemExit):  # a completion cannot report errors
        return None

    def ask() -> None:
        try:
            answers.append(client.call(operation, given))
        except Exception:
            pass

    asking = threading.Thread(target=ask, name="completion", daemon=True)
    asking.start()
    asking.join(WITHIN)  # the client repeats requests to a starting service, which would take too long here
    return answers[0] if answers else None
