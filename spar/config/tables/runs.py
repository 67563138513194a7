"""The tables `[runs]` and `[sessions]`."""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Ge

from spar.config.fields import Limit, Seconds, Whole
from spar.config.tables.amounts import Cap, Count, Money
from spar.config.tables.section import Section


class RunSettings(Section):
    """Runs, and the place of a message that arrives during a run."""

    queue_mode: Literal["followup", "steer", "collect", "interrupt"] = "followup"
    """The place of a message while its session has a run. "followup": it waits its turn. "steer": the run's next
    request sees it, calls that have not started are put to the planner again. "collect": with others that come it
    becomes one run, once nobody says more. "interrupt": the run is ended, and it is served next."""
    quiet: Seconds = 0.5
    """Seconds without a further message until collected ones become one run."""
    cap: Cap = "auto"
    """How many messages may wait in one session; "auto": 20 of those that become part of something else, 1000 where
    each gets an answer of its own."""
    drop: Literal["old", "new", "summarize"] = "summarize"
    """The message that is dropped when more arrive than `cap`: the oldest, the new one, or the oldest with a summary
    of it for the next run. Each sender is told."""
    timeout: Limit = 600.0
    """Seconds that a run may take; 0 or "off": any time. Waiting for a provider that is down counts as no time."""
    patience: Limit = 86_400.0
    """Seconds that a run waits in all for a provider that is down, or for its budget; a day. 0 or "off": any."""
    inactivity: Limit = 0.0
    """Seconds without any progress until a run is ended; 0 or "off": any."""
    requests: Count = 40
    """How many requests to models a run may take; one that has got nowhere by then will not."""
    calls: Count = 200
    """How many calls a run may make before it is ended; a cycle that has begun is not cut."""
    tokens: Count = "off"
    """Tokens of models that a run may take."""
    money: Money = "off"
    """The money that a run may cost."""
    limit: Annotated[Whole, Ge(1)] = 8
    """How many runs may be under way at once, over all sessions, `main` included; the oldest message goes first."""
    verify_output: bool = True
    """Whether an answer that comes together with failed calls is asked for once more, with the errors shown."""
    tell_errors: bool = True
    """Whether people are told in one sentence that the run of their message failed."""


class SessionSettings(Section):
    """Sessions, and when one ends."""

    idle: Limit = 0.0
    """Seconds without a run after which a session ends, which hooks at `session_end` are told; 0 or "off": never."""
