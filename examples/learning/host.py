"""A simulated host: three services that go down again and again, each for a reason of its own, and three tools.

All of it is made up. `troubles.log`, beside this file, says what each trouble took.
"""

import time
from collections.abc import Sequence
from pathlib import Path

from spar import Perception, tool
from spar.errors import PermanentError
from spar.protocols import SensorContext

#: Tools tried in vain after which a person mends it.
MOST_TRIED = 8
#: By service, the reason that its log gives, and the tool that helps.
TROUBLES = {
    "shop": ("its worker crashed", "restart"),
    "mail": ("no space left on the disk", "clean_disk"),
    "search": ("its port is taken by a former process", "end_stale_process"),
}
LOG = Path(__file__).with_name("troubles.log")


class Host:
    """What is down now, and which tools were tried on it."""

    def __init__(self) -> None:
        self.down = ""
        self.tried: list[str] = []
        self.ended = 0
        self.up_since = 0.0

    def break_next(self) -> None:
        self.down, self.tried = list(TROUBLES)[self.ended % len(TROUBLES)], []

    def use(self, service: str, name: str) -> str:
        """Use a tool on a service, and look whether it is up a moment later."""
        if service != self.down:
            return f"{service} is up"
        self.tried.append(name)
        reason, remedy = TROUBLES[service]
        if name == remedy:
            self._end()
            return f"{service} is up again"
        if len(self.tried) == MOST_TRIED:
            self._end(", then a person")
        raise PermanentError(f"{service} is still down: {reason}")

    def _end(self, besides: str = "") -> None:
        with LOG.open("a") as log:
            log.write(f"{self.down}, time {self.ended // len(TROUBLES) + 1}: {', '.join(self.tried)}{besides}\n")
        self.down, self.ended, self.up_since = "", self.ended + 1, time.monotonic()


HOST = Host()


class Troubles:
    """A sensor that tells which service is down, and again after each tool that did not help.

    Args: times: how often each service goes down; pause: seconds between two troubles.
    """

    def __init__(self, *, times: int = 3, pause: float = 1.0, every: float = 0.2) -> None:
        self.every = every
        self._most, self._pause = times * len(TROUBLES), pause
        self._told: tuple[int, int] | None = None

    def open(self, context: SensorContext) -> None:
        HOST.up_since = time.monotonic()

    def poll(self) -> Sequence[Perception]:
        if not HOST.down and HOST.ended < self._most and time.monotonic() - HOST.up_since >= self._pause:
            HOST.break_next()
        state = (HOST.ended, len(HOST.tried))
        if not HOST.down or state == self._told:
            return []
        self._told = state
        reason, _ = TROUBLES[HOST.down]
        about = {"entities": [HOST.down], "service": HOST.down}
        words = f"{HOST.down} is down: {reason}"
        # Our own measurement is trusted: nobody need approve what follows from it.
        return [Perception(words, kind="service.down", key=f"{state}", attributes=about, trust="trusted")]

    def close(self) -> None:
        return None


@tool(effect="idempotent")
def restart(service: str) -> str:
    """Start a service again."""
    return HOST.use(service, "restart")


@tool(effect="idempotent")
def clean_disk(service: str) -> str:
    """Delete what a service does not need any more."""
    return HOST.use(service, "clean_disk")


@tool(effect="idempotent")
def end_stale_process(service: str) -> str:
    """End what is left of a former process of a service."""
    return HOST.use(service, "end_stale_process")
