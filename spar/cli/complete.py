"""Completes words that only the running service knows: sessions, runs, sensors.

Whoever presses Tab must not wait and must not read an error: where no service answers within a moment, or refuses,
nothing is completed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from spar.data.text import is_hidden, safe_line

if TYPE_CHECKING:
    from spar.cli.client import Client

#: Seconds that the service may take, and words that are offered.
WITHIN, MOST = 1.5, 100
#: Characters of a description.
_LINE = 60


def sessions(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the keys of sessions, the one that was used last first."""
    page = _answer(context, lambda client: client.get("/v1/sessions", limit=MOST))
    return _items(incomplete, ((each["key"], each.get("title") or "") for each in (page or {}).get("sessions", ())))


def runs(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the ids of runs, the newest first."""
    found = _answer(context, lambda client: client.get("/v1/runs", limit=MOST)) or ()
    return _items(incomplete, ((each["run_id"], f"{each['status']}, session {each['session']}") for each in found))


def sensors(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the names of sensors."""
    status = _answer(context, lambda client: client.get("/v1/status", lanes=0))
    found = status["agents"][0]["modules"]["sense"].get("sensors", {}) if status else {}
    return _items(incomplete, ((name, sensor.get("state", "")) for name, sensor in found.items()))


def _items(incomplete: str, words: Any) -> list[CompletionItem]:
    """Return what begins like the word in hand; what a shell could take for something else is left out."""
    found = [(str(word), help) for word, help in words if str(word).startswith(incomplete)]
    plain = [(word, help) for word, help in found if not any(is_hidden(sign) or sign in " '\"`$\\\n" for sign in word)]
    return [CompletionItem(word, help=safe_line(help, _LINE)) for word, help in plain[:MOST]]


def _answer(context: click.Context, question: Callable[[Client], Any]) -> Any:
    """Return the answer of the running service; None where none comes in time, for whatever reason."""
    from spar.cli.client import connect
    from spar.cli.context import Options

    given = context.find_root().params
    answers: list[Any] = []
    try:
        options = Options(given.get("config_path"), tuple(given.get("overrides") or ()), as_json=True)
        client = connect(options.state_dir(), WITHIN)
    except (Exception, SystemExit):  # a completion has nobody to tell it to
        return None

    def ask() -> None:
        try:
            answers.append(question(client))
        except (Exception, SystemExit):
            pass

    asking = threading.Thread(target=ask, name="completion", daemon=True)
    asking.start()
    asking.join(WITHIN)  # a service that starts is asked again and again: nobody waits for that here
    return answers[0] if answers else None
