"""Connection of a conversation to the service: each message is sent once, and each event shown once, over restarts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, TypeVar

import click

from spar.cli.client import CommandClient, NotRunningError, connect
from spar.cli.commands.conversation.follow import SILENCE, events_of
from spar.ids import new_id
from spar.service import exit_codes as exits

R = TypeVar("R")

#: Seconds for which requests to an absent service are repeated, and between two attempts.
BACK_WITHIN: Final = 120.0
AGAIN_AFTER: Final = 0.25
#: Exit codes of refusals after which the service may soon answer again.
PASSING: Final = (exits.UNAVAILABLE, exits.TIMED_OUT, exits.UNFINISHED)


class LostError(Exception):
    """Error: the service did not come back in time."""


class Link:
    """Connection to the service of a state directory.

    Args: lost: called once for each request during which the service does not answer.
    """

    def __init__(self, folder: Path, lost: Callable[[], None]) -> None:
        self._folder, self._lost = folder, lost

    def client(self) -> CommandClient:
        """Return a client of the service. Raises: NotRunningError, ClickException."""
        return connect(self._folder, SILENCE)

    def submit(self, body: dict[str, Any]) -> str:
        """Submit a message and return the id of its run. All attempts have the same key, so it is accepted once.

        Raises: LostError; ClickException if it is refused.
        """
        body = {**body, "idempotency_key": new_id()}
        receipt: dict[str, Any] = self.patiently(lambda: self.client().post("/v1/runs", body))
        return str(receipt["run_id"])

    def patiently(self, ask: Callable[[], R]) -> R:
        """Repeat a request until the service answers it, and return the answer. Raises: LostError; ClickException."""
        until, is_lost = time.monotonic() + BACK_WITHIN, False
        while True:
            try:
                return ask()
            except NotRunningError:
                why = "no service runs there"
            except click.ClickException as error:
                if error.exit_code not in PASSING:
                    raise
                why = error.message
            if time.monotonic() > until:
                raise LostError(why)
            if not is_lost:
                self._lost()
                is_lost = True
            time.sleep(AGAIN_AFTER)


class Follower(threading.Thread):
    """Thread that follows one run and puts its events into a queue. After a broken connection it continues.

    `None` in the queue means that it has given up; `failure` is the reason.

    Args: arrived: called after each event and each change.
    """

    def __init__(self, link: Link, run_id: str, arrived: Callable[[], None]) -> None:
        super().__init__(name=f"follower of {run_id}", daemon=True)
        self._link, self.run_id, self._arrived = link, run_id, arrived
        self.events: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
        self.failure, self.is_lost = "", False
        self._is_left = threading.Event()

    def leave(self) -> None:
        """Stop following."""
        self._is_left.set()

    def run(self) -> None:
        """Follow the run to its end."""
        after, since = 0, time.monotonic()
        while not self._is_left.is_set():
            try:
                for event in events_of(self._link.client(), self.run_id, after):
                    after, since, self.is_lost = event["seq"], time.monotonic(), False
                    self._put(event)
                    if self._is_left.is_set() or _is_terminal(event):
                        return
                self.failure = "the connection broke off"
            except NotRunningError as error:
                self.failure = str(error) or "no service runs there"
            except click.ClickException as error:
                self.failure = error.message
                if error.exit_code not in PASSING:
                    break
            if time.monotonic() - since > BACK_WITHIN:
                break
            self.is_lost = True
            self._arrived()
            self._is_left.wait(AGAIN_AFTER)
        self._put(None)

    def _put(self, event: dict[str, Any] | None) -> None:
        self.events.put(event)
        self._arrived()


def _is_terminal(event: dict[str, Any]) -> bool:
    return event["stream"] == "lifecycle" and event["data"]["phase"] in ("end", "error")
