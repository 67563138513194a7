"""The most that the parts of one agent share, so that none of them is given the agent itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, Protocol

from spar.bus.bus import Events
from spar.clock import Clock
from spar.hooks import Hooks
from spar.observe.logs import Logger, get_logger

if TYPE_CHECKING:
    from spar.config.load import Settings

State = Literal["created", "running", "pausing", "paused", "stopping", "stopped", "failed"]


class Traces(Protocol):
    """The names of traces and spans that are told."""

    def trace(self, cycle_id: str) -> str:
        """Return the id of a cycle's trace; "" for one that is not told."""

    def traceparent(self, to: str, cycle_id: str, *names: str) -> str:
        """Return the header that names a span to `to`; "" for one that is not told, or not to be known there."""


class Core:
    """The name, clock, events, hooks, log, settings and state of one agent, and nothing else."""

    __slots__ = ("clock", "events", "hooks", "name", "settings", "state", "traces")

    settings: Settings
    state: State
    log: Final[Logger] = get_logger("spar.agent")

    def __init__(self, name: str, clock: Clock, settings: Settings) -> None:
        self.name, self.clock, self.settings = name, clock, settings
        self.events, self.hooks = Events(name, clock=clock), Hooks()
        self.state = "created"
        #: None where no traces are told at all.
        self.traces: Traces | None = None

    def traceparent(self, to: str, cycle_id: str, *names: str) -> str:
        """Return the header that a request to `to` names its span by; "" for none, as where no traces are told."""
        return "" if self.traces is None else self.traces.traceparent(to, cycle_id, *names)
