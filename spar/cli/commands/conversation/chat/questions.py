"""The approvals of a run, asked in the middle of a conversation: what would run is shown whole, and decided on."""

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
    """The approvals that wait for this person's word, oldest first."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._waiting: list[dict[str, Any]] = []

    @property
    def is_open(self) -> bool:
        return bool(self._waiting)

    def look(self, run_id: str) -> None:
        """Find what a run asks, and show what is new."""
        first = self._waiting[0]["id"] if self._waiting else ""
        self.found(run_id)
        if self.is_open and self._waiting[0]["id"] != first:
            self._show()

    def found(self, run_id: str) -> list[str]:
        """Find what a run asks; return the tools of which it is new."""
        try:
            rows = self._link.client().get(APPROVALS.path, status="pending")
        except (NotRunningError, click.ClickException):
            return []  # it is asked again once the service is back
        of_run = [each for each in reversed(rows) if each.get("run_id") == run_id]
        known = {each["id"] for each in self._waiting}
        new = [each for each in of_run if each["id"] not in known]
        ids = {each["id"] for each in of_run}
        self._waiting = [*(each for each in self._waiting if each["id"] in ids), *new]
        return [str(each["call"]["tool"]) for each in new]

    def forget(self) -> None:
        """Ask nothing more: the run is over."""
        self._waiting = []

    def _show(self) -> None:
        """Show the first whole."""
        try:
            shown = self._link.client().get(f"{APPROVALS.path}/{quote(self._waiting[0]['id'], safe='')}")
        except (NotRunningError, click.ClickException):
            return
        write(printable(shown["text"]))
        write(HOW)

    def answer(self, line: str) -> bool:
        """Take a line as the answer to the first; False for one that is none."""
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
        except click.ClickException as error:  # somebody else has answered, or other parameters do not fit
            click.echo(printable(error.message), err=True)
            return False
        self._waiting = self._waiting[1:]
        if self._waiting:
            self._show()
        return True


def _params(now: dict[str, Any], text: str) -> dict[str, Any] | None:
    """Return the parameters as somebody has changed them; None for what cannot be read."""
    if text.startswith("{"):
        try:
            given = json.loads(text)
        except ValueError:
            return None
        return given if isinstance(given, dict) else None
    params = dict(now)
    pairs = [each.partition("=") for each in text.split()]
    if not pairs or not all(key and equals for key, equals, _ in pairs):
        return None
    for key, _, value in pairs:
        try:
            params[key] = json.loads(value)
        except ValueError:
            params[key] = value
    return params
