"""Completion of words that only the running service knows: sessions, runs, sensors.

A completion must neither take long nor print an error. If no service answers in time, or it refuses, there are no
completions.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from spar.data.text import is_hidden, safe_line

if TYPE_CHECKING:
    from spar.operations.operation import Operation

#: Seconds that the service may take, and number of offered words.
WITHIN, MOST = 1.5, 100
#: Characters of a description.
_LINE = 60


def sessions(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the keys of sessions, the last used one first."""
    from spar.operations.sessions import SessionsChoice, list_sessions

    page = _answer(context, list_sessions, SessionsChoice(MOST))
    return _items(incomplete, ((session.key, session.title) for session in (page.sessions if page else ())))


def runs(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the ids of runs, the newest first."""
    from spar.operations.runs import RunsChoice, list_runs

    rows = _answer(context, list_runs, RunsChoice(MOST)) or ()
    return _items(incomplete, ((row.run_id, f"{row.status}, session {row.session}") for row in rows))


def sensors(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the names of sensors."""
    from spar.operations.operation import Nothing
    from spar.operations.perceived import list_sensors

    by_name = _answer(context, list_sensors, Nothing()) or {}
    return _items(incomplete, ((name, sensor.get("state", "")) for name, sensor in by_name.items()))


def _items(incomplete: str, words: Any) -> list[CompletionItem]:
    """Return completions of an incomplete word, without words that contain characters special to a shell."""
    matches = [(str(word), help) for word, help in words if str(word).startswith(incomplete)]
    plain = [
        (word, help) for word, help in matches if not any(is_hidden(sign) or sign in " '\"`$\\\n" for sign in word)
    ]
    return [CompletionItem(word, help=safe_line(help, _LINE)) for word, help in plain[:MOST]]


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
