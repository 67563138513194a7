"""The most that the parts of one agent share, so that none of them is given the agent itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal

from spar.bus.bus import Events
from spar.clock import Clock
from spar.hooks import Hooks
from spar.observe.logs import Logger, get_logger

if TYPE_CHECKING:
    from spar.config.load import Settings

State = Literal["created", "running", "pausing", "paused", "stopping", "stopped", "failed"]


class Core:
    """The name, clock, events, hooks, log, settings and state of one agent, and nothing else."""

    __slots__ = ("clock", "events", "hooks", "name", "settings", "state", "trace")

    settings: Settings
    state: State
    log: Final[Logger] = get_logger("spar.agent")

    def __init__(self, name: str, clock: Clock, settings: Settings) -> None:
        self.name, self.clock, self.settings = name, clock, settings
        self.events, self.hooks = Events(name, clock=clock), Hooks()
        self.state = "created"
        #: Returns the id of a cycle's trace, "" for one that is not told; None where no traces are told at all.
        self.trace: Callable[[str], str] | None = None
