"""Completion of words that only the running service knows: sessions, runs, sensors.

A completion must neither take long nor print an error. If no service answers in time, or it refuses, there are no
completions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from spar.cli.answers import agent_of
from spar.data.text import is_hidden, safe_line

if TYPE_CHECKING:
    from spar.cli.client import CommandClient

#: Seconds that the service may take, and number of offered words.
WITHIN, MOST = 1.5, 100
#: Characters of a description.
_LINE = 60


def sessions(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the keys of sessions, the last used one first."""
    page = _answer(context, lambda client: client.get("/v1/sessions", limit=MOST))
    return _items(
        incomplete, ((session["key"], session.get("title") or "") for session in (page or {}).get("sessions", ()))
    )


def runs(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the ids of runs, the newest first."""
    rows = _answer(context, lambda client: client.get("/v1/runs", limit=MOST)) or ()
    return _items(incomplete, ((row["run_id"], f"{row['status']}, session {row['session']}") for row in rows))


def sensors(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the names of sensors."""
    status = _answer(context, lambda client: client.get("/v1/status", lanes=0))
    by_name = agent_of(status)["modules"]["sense"].get("sensors", {}) if status else {}
    return _items(incomplete, ((name, sensor.get("state", "")) for name, sensor in by_name.items()))


def _items(incomplete: str, words: Any) -> list[CompletionItem]:
    """Return completions of an incomplete word, without words that contain characters special to a shell."""
    matches = [(str(word), help) for word, help in words if str(word).startswith(incomplete)]
    plain = [
        (word, help) for word, help in matches if not any(is_hidden(sign) or sign in " '\"`$\\\n" for sign in word)
    ]
    return [CompletionItem(word, help=safe_line(help, _LINE)) for word, help in plain[:MOST]]


def _answer(context: click.Context, question: Callable[[CommandClient], Any]) -> Any:
    """Ask the running service and return its answer; None if no answer comes in time or any error occurs."""
    from spar.cli.client import connect
    from spar.cli.context import Options

    params = context.find_root().params
    answers: list[Any] = []
    try:
        options = Options(params.get("config_path"), tuple(params.get("overrides") or ()), as_json=True)
        client = connect(options.state_dir(), WITHIN)
    except (Exception, SystemExit):  # a completion cannot report errors
        return None

    def ask() -> None:
        try:
            answers.append(question(client))
        except (Exception, SystemExit):
            pass

    asking = threading.Thread(target=ask, name="completion", daemon=True)
    asking.start()
    asking.join(WITHIN)  # the client repeats requests to a starting service, which would take too long here
    return answers[0] if answers else None
