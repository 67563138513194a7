"""Asks the service from threads of its own, hears its events, and goes on where it was when the service was away.

The events are heard over one connection in a daemon thread, which puts them away; the application takes them when it
draws. A flood loses the oldest, which is told as a `Gap`.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from spar.cli.client import Client, NotRunningError, connect
from spar.clock import SystemClock
from spar.errors import TransientError
from spar.threads import Threads

#: Seconds that an answer may take; without a sign of life of the events; between two attempts to come back.
ANSWER_WITHIN, SILENCE, RETRY = 10.0, 45.0, 0.5
#: Events that wait to be drawn.
MOST = 20_000


class AwayError(Exception):
    """The service does not answer now."""


class RefusedError(Exception):
    """The service has refused, with a reason."""


class EventListener:
    """Events of one stream, heard in a thread until `close`.

    Attributes: is_live: whether the connection stands; turns: how often it has come to stand; why: why it does not.
    """

    def __init__(self, folder: Path, path: str, ends: Callable[[dict[str, Any]], bool] = lambda event: False,
                 **params: Any) -> None:  # fmt: skip
        self._folder, self._path, self._params, self._ends = folder, path, params, ends
        self._heard: deque[dict[str, Any]] = deque()
        self._closed = threading.Event()
        self.after: int | None = params.pop("after", None)
        self.is_live, self.turns, self.why, self.lost = False, 0, "", 0
        threading.Thread(target=self._listen, name=f"hears {path}", daemon=True).start()

    def take(self, most: int) -> list[dict[str, Any]]:
        """Return what was heard since, at most so many; what was lost comes first, as a `Gap`."""
        found: list[dict[str, Any]] = []
        if self.lost:
            missed, self.lost = self.lost, 0
            found.append({"type": "Gap", "stream": "gap", "at": "", "session": "", "run_id": "", "cycle_id": "",
                          "data": {"missed": missed}})  # fmt: skip
        while self._heard and len(found) < most:
            found.append(self._heard.popleft())
        return found

    def close(self) -> None:
        """Hear no more. The thread ends with the next sign of life, or with the process."""
        self._closed.set()

    def _listen(self) -> None:
        while not self._closed.is_set():
            try:
                if self._hear(connect(self._folder, SILENCE)):
                    break
                self.why = "the connection broke off"
            except NotRunningError as error:
                self.why = str(error) or "no service runs"
            except click.ClickException as error:
                self.why = error.format_message()
            except (OSError, ValueError, KeyError) as error:  # not what a service of this release sends
                self.why = f"its events cannot be read: {error!r:.100}"
            self.is_live = False
            self._closed.wait(RETRY)
        self.is_live = False

    def _hear(self, client: Client) -> bool:
        """Hear until the connection breaks; True when there is nothing more to hear."""
        params = {**self._params, **({} if self.after is None else {"after": self.after})}
        for line in client.lines(self._path, **params):
            if self._closed.is_set():
                return True
            if not self.is_live:
                self.is_live, self.turns = True, self.turns + 1
            name, _, value = line.partition(": ")
            if name == "id":
                self.after = int(value)
            elif name == "data":
                event = json.loads(value)
                self._keep(event)
                if self._ends(event):
                    return True
        return False

    def _keep(self, event: dict[str, Any]) -> None:
        if len(self._heard) >= MOST:
            self._heard.popleft()
            self.lost += 1
        self._heard.append(event)


class ServiceLink:
    """The service in a state directory, as it is asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._threads = Threads("top", SystemClock())

    async def get(self, path: str, **params: Any) -> Any:
        """Return an answer. Raises: AwayError, RefusedError."""
        return await self._asked(lambda client: client.get(path, **params))

    async def post(self, path: str, body: Any = None) -> Any:
        """Return the answer to what is sent. Raises: AwayError, RefusedError."""
        return await self._asked(lambda client: client.post(path, body))

    def listen(
        self, path: str, ends: Callable[[dict[str, Any]], bool] = lambda event: False, **params: Any
    ) -> EventListener:
        """Hear a stream of events from now on."""
        return EventListener(self.folder, path, ends, **params)

    async def _asked(self, question: Callable[[Client], Any]) -> Any:
        def ask() -> Any:
            return question(connect(self.folder, ANSWER_WITHIN))

        try:
            return await self._threads.run(ask)
        except NotRunningError:
            raise AwayError("no service runs") from None
        except TransientError as error:
            raise AwayError(str(error)) from None
        except click.ClickException as error:
            raise RefusedError(error.format_message()) from None
