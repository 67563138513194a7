"""Approvals of a run during a conversation: the call that would run is shown in full, and the person decides."""

from __future__ import annotations

import json
from typing import Any, Final
from urllib.parse import quote

import click

from spar.cli.client import NotRunningError
from spar.cli.commands.conversation.chat.link import Link
from spar.cli.context import write
from spar.data.text import printable
from spar.review.kinds import APPROVALS

HOW: Final = "run it? y, n [WHY], e KEY=VALUE … or e {JSON} (other parameters)"


class Questions:
    """The approvals of a run that wait for the person's decision, the oldest first."""

    def __init__(self, link: Link) -> None:
        self._link = link
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
            rows = self._link.client().get(APPROVALS.path, status="pending")
        except (NotRunningError, click.ClickException):
            return []  # requested again once the service is back
        of_run = [row for row in reversed(rows) if row.get("run_id") == run_id]
        known = {row["id"] for row in self._waiting}
        new = [row for row in of_run if row["id"] not in known]
        ids = {row["id"] for row in of_run}
        self._waiting = [*(row for row in self._waiting if row["id"] in ids), *new]
        return [str(row["call"]["tool"]) for row in new]

    def forget(self) -> None:
        """Forget all approvals, because the run is over."""
        self._waiting = []

    def _show(self) -> None:
        """Show the first approval in full."""
        try:
            shown = self._link.client().get(f"{APPROVALS.path}/{quote(self._waiting[0]['id'], safe='')}")
        except (NotRunningError, click.ClickException):
            return
        write(printable(shown["text"]))
        write(HOW)

    def answer(self, line: str) -> bool:
        """Send a line as the answer to the first approval; return False if it is no answer or is refused."""
        question = self._waiting[0]
        word, _, rest = line.strip().partition(" ")
        body: dict[str, Any] = {"digest": question["digest"], "reason": ""}
        match word.lower():
            case "y" | "yes":
                body["decision"] = "approve"
            case "n" | "no":
                body |= {"decision": "deny", "reason": rest.strip()}
            case "e" | "edit" if (params := _params(question["call"]["params"], rest.strip())) is not None:
                body |= {"decision": "edit", "params": params}
            case _:
                write(HOW)
                return False
        try:
            self._link.patiently(
                lambda: self._link.client().post(f"{APPROVALS.path}/{quote(question['id'], safe='')}", body)
            )
        except click.ClickException as error:  # somebody else has answered, or the parameters do not fit the tool
            click.echo(printable(error.message), err=True)
            return False
        self._waiting = self._waiting[1:]
        if self._waiting:
            self._show()
        return True


def _params(planned: dict[str, Any], text: str) -> dict[str, Any] | None:
    """Return the planned parameters with the typed changes, None for a text that cannot be read."""
    if text.startswith("{"):
        try:
            value = json.loads(text)
        except ValueError:
            return None
        return value if isinstance(value, dict) else None
    params = dict(planned)
    pairs = [word.partition("=") for word in text.split()]
    if not pairs or not all(key and equals for key, equals, _ in pairs):
        return None
    for key, _, value in pairs:
        try:
            params[key] = json.loads(value)
        except ValueError:
            params[key] = value
    return params
