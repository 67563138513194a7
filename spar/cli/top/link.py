"""Link to the service: sends requests in threads, reads its events, and reconnects after the service was away.

A daemon thread reads the events of one connection into a bounded queue; the application takes them when it draws. If
the queue is full, the oldest events are lost, and a `Gap` event has their number.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from spar.cli.client import CommandClient, NotRunningError, connect
from spar.clock import SystemClock
from spar.errors import TransientError
from spar.threads import Threads

#: Seconds for an answer; without an event or a heartbeat; between two attempts to reconnect, also after a refusal.
ANSWER_WITHIN, SILENCE, RETRY, RETRY_REFUSED = 10.0, 45.0, 0.5, 10.0
#: Events that the queue holds.
MOST = 20_000


class AwayError(Exception):
    """Error: the service does not answer now."""


class DeclinedError(Exception):
    """Error: the service refused a request, with a reason."""


class EventListener:
    """Listener to one stream of events, in a thread, until `close`.

    Args: ends: returns whether an event is the last one of the stream.
    Attributes: is_live: whether it is connected; turns: how often it has connected; why: why it is not connected;
        is_refused: whether the service answers, but not with events, for example since it is of an older version.
    """

    def __init__(self, folder: Path, path: str, ends: Callable[[dict[str, Any]], bool] = lambda event: False,
                 **params: Any) -> None:  # fmt: skip
        self._folder, self._path, self._params, self._ends = folder, path, params, ends
        self._queue: deque[dict[str, Any]] = deque()
        self._closed = threading.Event()
        self.after: int | None = params.pop("after", None)
        self.is_live, self.turns, self.why, self.lost, self.is_refused = False, 0, "", 0, False
        threading.Thread(target=self._listen, name=f"hears {path}", daemon=True).start()

    def take(self, most: int) -> list[dict[str, Any]]:
        """Return the new events, at most `most`; if events were lost, a `Gap` comes first."""
        batch: list[dict[str, Any]] = []
        if self.lost:
            missed, self.lost = self.lost, 0
            batch.append({"type": "Gap", "stream": "gap", "at": "", "session": "", "run_id": "", "cycle_id": "",
                          "data": {"missed": missed}})  # fmt: skip
        while self._queue and len(batch) < most:
            batch.append(self._queue.popleft())
        return batch

    def close(self) -> None:
        """Stop listening. The thread ends with the next event or heartbeat, or with the process."""
        self._closed.set()

    def _listen(self) -> None:
        """Connect and read, again and again, until the end of the stream or `close`."""
        while not self._closed.is_set():
            is_refused = False
            try:
                if self._read(connect(self._folder, SILENCE)):
                    break
                self.why = "the connection broke off"
            except NotRunningError as error:
                self.why = str(error) or "no service runs"
            except click.ClickException as error:
                self.why, is_refused = error.format_message(), True
            except (OSError, ValueError, KeyError) as error:  # for example a service of another release
                self.why = f"its events cannot be read: {error!r:.100}"
            self.is_live, self.is_refused = False, is_refused
            self._closed.wait(RETRY_REFUSED if is_refused else RETRY)
        self.is_live = False

    def _read(self, client: CommandClient) -> bool:
        """Read events until the connection breaks (False), or until the end or `close` (True)."""
        params = {**self._params, **({} if self.after is None else {"after": self.after})}
        for name, value in client.stream(self._path, **params):
            if self._closed.is_set():
                return True
            if not self.is_live:
                self.is_live, self.is_refused, self.turns = True, False, self.turns + 1
            if name == "id":
                self.after = int(value)
            elif name == "data":
                event = client.parsed(value)
                self._enqueue(event)
                if self._ends(event):
                    return True
        return False

    def _enqueue(self, event: dict[str, Any]) -> None:
        if len(self._queue) >= MOST:
            self._queue.popleft()
            self.lost += 1
        self._queue.append(event)


class ServiceLink:
    """Link to the service of a state directory, for requests and event streams."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._threads = Threads("top", SystemClock())

    async def get(self, path: str, **params: Any) -> Any:
        """Send a GET and return its answer. Raises: AwayError, DeclinedError."""
        return await self._request(lambda client: client.get(path, **params))

    async def post(self, path: str, body: Any = None) -> Any:
        """Send a POST and return its answer. Raises: AwayError, DeclinedError."""
        return await self._request(lambda client: client.post(path, body))

    def listen(
        self, path: str, ends: Callable[[dict[str, Any]], bool] = lambda event: False, **params: Any
    ) -> EventListener:
        """Return a listener to a stream of events, which begins at once."""
        return EventListener(self.folder, path, ends, **params)

    async def _request(self, question: Callable[[CommandClient], Any]) -> Any:
        """Ask a question in a thread and return its answer. Raises: AwayError, DeclinedError."""

        def ask() -> Any:
            return question(connect(self.folder, ANSWER_WITHIN))

        try:
            return await self._threads.run(ask)
        except NotRunningError:
            raise AwayError("no service runs") from None
        except TransientError as error:
            raise AwayError(str(error)) from None
        except click.ClickException as error:
            raise DeclinedError(error.format_message()) from None
