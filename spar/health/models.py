"""Models that the planner may ask: their states as their parts report them, problems of their prompts, and the tokens
that they read and wrote, with the share that the caches of their providers served."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from functools import partial
from typing import Any, Final

from msgspec import Struct

from spar.clock import Timer
from spar.data.bounded import BoundedDict
from spar.events import ModelStateChanged
from spar.loop.core import Core
from spar.observe.logs import get_logger
from spar.protocols import ModelState

log = get_logger("spar.health")

#: Requests of a session whose mean is its usual and its recent share of cached tokens.
_USUAL: Final = 20
_RECENT: Final = 4
#: Usual share below which nothing is said of its fall, and tokens of a request that no provider caches.
_WORTH: Final = 0.2
_LEAST: Final = 1_024
#: Sessions whose shares are remembered, and seconds without a request after which no alert is about them.
_MOST_SESSIONS: Final = 1_000
_OVER_AFTER: Final = 3_600.0


class CacheShare(Struct):
    """Share of what a session's requests have their models read that a cache served: its usual and its recent mean.

    `requests` counts the requests, `low` those since the recent share has fallen below half of the usual one, where
    that is worth a word. It is low until it is three quarters of the usual one, or has been low for so long that this
    is usual now: a share at the border falls once.
    """

    usual: float = 0.0
    recent: float = 0.0
    requests: int = 0
    low: int = 0

    def add(self, share: float) -> None:
        """Add the share of one request."""
        self.requests += 1
        self.recent += (share - self.recent) / min(self.requests, _RECENT)
        if not self.low:
            self.usual += (share - self.usual) / min(self.requests, _USUAL)
            self.low = int(self.requests > _USUAL and self.usual >= _WORTH and self.recent < self.usual / 2)
        elif self.recent >= self.usual * 3 / 4:
            self.low = 0
        elif self.low == _USUAL:
            self.requests = self.low = 0  # the usual share is learnt anew
        else:
            self.low += 1


class Models:
    """Models of one agent, by name: the part that reported each, and its state.

    `tokens` counts those that models wrote (`output`), and that they read: from a cache (`cached`) or not (`input`).
    """

    __slots__ = ("_alert", "_core", "_problems", "_recovered", "_shares", "_states", "_timers", "tokens")

    def __init__(self, core: Core, alert: Callable[..., object], recovered: Callable[..., object]) -> None:
        self._core, self._alert, self._recovered = core, alert, recovered
        self._states: dict[str, tuple[int, ModelState]] = {}
        #: The problems of prompts by subject, with the part that reported each.
        self._problems: dict[str, int] = {}
        self._shares: BoundedDict[str, CacheShare] = BoundedDict(_MOST_SESSIONS)
        self._timers: dict[str, Timer] = {}  # of the sessions of which an open alert speaks
        self.tokens = dict.fromkeys(("input", "cached", "output"), 0)

    def used(self, session: str, parts: Mapping[str, int]) -> None:
        """Count the tokens of one request of a session.

        Args: parts: `input_tokens`, `output_tokens`, and of the input `cached_tokens`.
        """
        read = parts.get("input_tokens", 0)
        cached = min(parts.get("cached_tokens", 0), read)
        self.tokens["input"] += read - cached
        self.tokens["cached"] += cached
        self.tokens["output"] += parts.get("output_tokens", 0)
        if read < _LEAST:
            return
        share = self._shares[session] = self._shares.get(session) or CacheShare()
        share.add(cached / read)
        if share.low:
            message = f"{share.recent:.0%} of what is read comes from the provider's cache, usually {share.usual:.0%}"
            self._alert("cache", f"session {session}: {message}")  # one for all sessions: their cache is one
            if (timer := self._timers.pop(session, None)) is not None:
                timer.cancel()
            clock = self._core.clock
            self._timers[session] = clock.call_at(clock.monotonic() + _OVER_AFTER, partial(self._served_again, session))
        elif session in self._timers:
            self._served_again(session)

    def _served_again(self, session: str) -> None:
        """Close the alert with its last session, whose share is usual again, or which has not asked for long."""
        self._timers.pop(session).cancel()
        if not self._timers:
            self._recovered("cache")

    @property
    def is_any_open(self) -> bool:
        """Return whether any model is not asked now because it failed. May be called from any thread."""
        return any(state.state == "open" for _, state in list(self._states.values()))

    def update(self, owner: int, reported: ModelState) -> None:
        """Take the report of a part about the state of one of its models. Args: owner: the id of the part."""
        known = self._states.get(reported.model)
        self._states[reported.model] = (owner, reported)
        if reported.state == "closed":
            if known is not None and known[1].state == "open":
                log.info("model answers again", agent=self._core.name, model=reported.model)
                self._core.events.publish(ModelStateChanged(model=reported.model, state="closed"))
            self._recovered("provider", what=reported.model)
            return
        wait = max(reported.until - self._core.clock.monotonic(), 0.0)
        log.warning("model left alone", agent=self._core.name, model=reported.model, reason=reported.fault,
                    seconds=round(wait, 1))  # fmt: skip
        self._core.events.publish(
            ModelStateChanged(model=reported.model, state="open", reason=reported.fault, retry_after=wait)
        )
        is_last = all(state.state == "open" for _, state in self._states.values())
        message = f"{reported.fault}; no other model can be asked" if is_last else reported.fault
        self._alert("provider", message, severity="critical" if is_last else "warning", what=reported.model)

    def forget(self, owners: Container[int]) -> None:
        """Forget the models of all parts but these, and the problems of their prompts."""
        for about, owner in list(self._problems.items()):
            if owner not in owners:
                self.problem(owner, about, "")
        for name, (owner, _) in list(self._states.items()):
            if owner not in owners:
                del self._states[name]
                self._recovered("provider", what=name)

    def problem(self, owner: int, about: str, why: str, *, is_note: bool = False) -> None:
        """Take the report of a part about a problem of its prompt. Args: owner: the id of the part; why: "" when it is
        solved."""
        if is_note:
            log.info("prompt", agent=self._core.name, about=about, reason=why)
        elif why:
            self._recovered("prompt", what=about)  # a new reason opens a new alert
            self._problems[about] = owner
            self._alert("prompt", f"{about} {why}", what=about)
        elif self._problems.get(about) == owner:
            del self._problems[about]
            self._recovered("prompt", what=about)

    def report(self) -> list[dict[str, Any]]:
        """Return each model: whether it may be asked, why not, and the seconds until it is tried. May be called from
        any thread."""
        now = self._core.clock.monotonic()
        return [
            {
                "model": reported.model,
                "state": "half_open" if reported.state == "open" and reported.until <= now else reported.state,
                "reason": reported.fault.removeprefix(f"{reported.model} "),
                "wait": max(reported.until - now, 0.0),
            }
            for _, reported in list(self._states.values())
        ]
