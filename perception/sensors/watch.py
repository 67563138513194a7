"""Waits for file events of one directory in a thread, and tells the loop where something happened.

watchfiles does the watching: by inotify, or by looking itself where that is not to be had. What has happened is
not said, for events merge and get lost; whoever is told looks.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from typing import Any

DELETED = 3  # watchfiles' Change.deleted


class Watch:
    """The thread, from the moment it is made; `hinted` is called in the loop with full paths.

    It is called with None, for "anything may have changed", when the watch has begun and when it ends by itself.
    `error` says why it did, `is_stale` that the directory was deleted under it, `identity` which directory it was.
    """

    def __init__(
        self,
        root: str,
        identity: tuple[int, int],
        hinted: Callable[[set[str] | None], None],
        *,
        recursive: bool,
        must_poll: bool,
    ) -> None:
        self.identity, self.is_stale = identity, False
        self.error: Exception | None = None
        self._root, self._hinted, self._recursive, self.must_poll = root, hinted, recursive, must_poll
        self._loop = asyncio.get_running_loop()
        self._is_stopped = self._has_begun = False
        # A thread of its own and not one of `Threads`: it works as long as the sensor does, and a virtual clock
        # must not stand still for it.
        threading.Thread(target=self._serve, name=f"watch {root}", daemon=True).start()

    def stop(self) -> None:
        """Let the thread end within one step of watchfiles, 50 ms."""
        self._is_stopped = True

    def is_set(self) -> bool:
        """Return whether to stop; watchfiles asks at every step, first when it has begun.

        What changed before that first question was not seen.
        """
        if not self._has_begun:
            self._has_begun = True
            self._hand_over(None)
        return self._is_stopped

    def events(self) -> Iterable[set[tuple[Any, str]]]:
        """Yield the changes that watchfiles sees, in the thread, until `is_set`. Raises: OSError when watching is
        refused."""
        from watchfiles import watch

        return watch(
            self._root,
            watch_filter=None,
            debounce=200,
            rust_timeout=0,
            stop_event=self,
            raise_interrupt=False,
            recursive=self._recursive,
            force_polling=True if self.must_poll else None,
            ignore_permission_denied=True,
        )

    def _serve(self) -> None:
        try:
            for changes in self.events():
                self.is_stale = self.is_stale or (DELETED, self._root) in changes
                self._hand_over({path for _, path in changes})
        except Exception as error:
            self.error = error
            self._hand_over(None)

    def _hand_over(self, paths: set[str] | None) -> None:
        if self._is_stopped:
            return
        try:
            self._loop.call_soon_threadsafe(self._hinted, paths)
        except RuntimeError:  # the loop is closed
            self._is_stopped = True
