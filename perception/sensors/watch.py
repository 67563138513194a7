"""Watch that waits for file events of one directory in a thread, and reports to the loop where something happened.

watchfiles does the watching, by inotify, or by polling where inotify is not available. The kind of change is not
reported, because events merge and get lost; the receiver looks at the files.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterable
from typing import Any

from spar.threads import in_loop

DELETED = 3  # watchfiles' Change.deleted


class Watch:
    """Watching thread, from its construction on; `hinted` is called in the loop with paths below `root`.

    It is called with None, for "anything may have changed", when the watch has begun and when it ends by itself.
    `error` is the reason for such an end, `is_stale` tells that the directory was deleted, and `identity` identifies
    the directory.
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
        # Not a thread of `Threads`: it runs as long as the sensor, and a virtual clock must not stop for it.
        threading.Thread(target=self._serve, name=f"watch {root}", daemon=True).start()

    def stop(self) -> None:
        """Let the thread end within one step of watchfiles, 50 ms."""
        self._is_stopped = True

    def is_set(self) -> bool:
        """Return whether to stop; watchfiles asks at every step, the first time when it has begun.

        Changes before that first call were not seen.
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
                self._hand_over({os.path.relpath(path, self._root) for _, path in changes if path != self._root})
        except Exception as error:
            self.error = error
            self._hand_over(None)

    def _hand_over(self, paths: set[str] | None) -> None:
        if not (self._is_stopped or in_loop(self._loop, self._hinted, paths)):
            self._is_stopped = True
