"""An agent as metrics and status read it: its parts and figures, none of which can be called to do anything."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol

from spar.budgets.budgets import Budgets
from spar.channels.conversations import Channels
from spar.channels.senders import Senders
from spar.health.health import Health
from spar.journal.recovery import Recovery
from spar.loop.core import Core
from spar.loop.setup import Setup
from spar.observe.learning import LearningCounts
from spar.observe.stats import Stats
from spar.protocols import Warns
from spar.runs.runs import Runs
from spar.session.sessions import Sessions
from spar.types import Ability


class Counted(Protocol):
    """The figures of an agent."""

    @property
    def account(self) -> Stats: ...
    @property
    def kept(self) -> dict[str, int]: ...
    @property
    def learnt(self) -> LearningCounts: ...
    @property
    def abilities(self) -> Mapping[str, Ability]: ...
    @property
    def refused(self) -> int: ...
    @property
    def left_behind(self) -> int: ...
    @property
    def last_completed_at(self) -> float: ...
    @property
    def gave_up_at(self) -> float: ...


class Blockable(Protocol):
    """An agent whose event loop may be blocked, as far as the watchdog has seen."""

    @property
    def name(self) -> str: ...
    @property
    def core(self) -> Core: ...
    @property
    def event_loop(self) -> asyncio.AbstractEventLoop | None: ...
    @property
    def blocked_by(self) -> str: ...
    @property
    def blocked_since(self) -> float | None: ...
    def blocked_for(self) -> float: ...


class Measured(Counted, Blockable, Protocol):
    """An agent as it is measured: its figures, and the parts that say how they are doing."""

    @property
    def setup(self) -> Setup: ...
    @property
    def health(self) -> Health: ...
    @property
    def budgets(self) -> Budgets: ...
    @property
    def recovery(self) -> Recovery: ...
    @property
    def runs(self) -> Runs: ...
    @property
    def sessions(self) -> Sessions: ...
    @property
    def senders(self) -> Senders: ...
    @property
    def channels(self) -> Channels: ...
    @property
    def memory(self) -> Any: ...
    @property
    def failure(self) -> str: ...


def warnings_of(agent: Measured) -> list[str]:
    """Return what of the configuration will not work, as far as the modules know; safe from any thread."""
    found: list[str] = []
    for module in agent.setup.modules.values():
        if isinstance(module.part, Warns):
            try:
                found += [str(each) for each in module.part.warnings()]
            except Exception as error:  # a part of somebody else's; the others are still told
                found.append(f"{module.name} cannot say what is wrong with it: {error!r:.200}")
    return found
