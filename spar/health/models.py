"""Models that the planner may ask: their states as their parts report them, and problems of their prompts."""

from __future__ import annotations

from collections.abc import Container
from typing import Any, Protocol

from spar.events import ModelStateChanged
from spar.health.alerts import Alert, Kind, Severity
from spar.loop.core import Core
from spar.observe.logs import get_logger
from spar.protocols import ModelState

log = get_logger("spar.health")


class Alerts(Protocol):
    """Health of the agent, as far as it opens and closes alerts."""

    def alert(self, kind: Kind, message: str, *, severity: Severity = "warning", what: str = "") -> Alert: ...
    def recovered(self, kind: Kind, *, what: str = "") -> None: ...


class Models:
    """Models of one agent, by name: the part that reported each, and its state."""

    __slots__ = ("_core", "_health", "_problems", "_states")

    def __init__(self, core: Core, health: Alerts) -> None:
        self._core, self._health = core, health
        self._states: dict[str, tuple[int, ModelState]] = {}
        #: The problems of prompts by subject, with the part that reported each.
        self._problems: dict[str, int] = {}

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
            self._health.recovered("provider", what=reported.model)
            return
        wait = max(reported.until - self._core.clock.monotonic(), 0.0)
        log.warning("model left alone", agent=self._core.name, model=reported.model, reason=reported.fault,
                    seconds=round(wait, 1))  # fmt: skip
        self._core.events.publish(
            ModelStateChanged(model=reported.model, state="open", reason=reported.fault, retry_after=wait)
        )
        is_last = all(state.state == "open" for _, state in self._states.values())
        message = f"{reported.fault}; no other model can be asked" if is_last else reported.fault
        self._health.alert("provider", message, severity="critical" if is_last else "warning", what=reported.model)

    def forget(self, owners: Container[int]) -> None:
        """Forget the models of all parts but these, and the problems of their prompts."""
        for about, owner in list(self._problems.items()):
            if owner not in owners:
                self.problem(owner, about, "")
        for name, (owner, _) in list(self._states.items()):
            if owner not in owners:
                del self._states[name]
                self._health.recovered("provider", what=name)

    def problem(self, owner: int, about: str, why: str, *, is_note: bool = False) -> None:
        """Take the report of a part about a problem of its prompt. Args: owner: the id of the part; why: "" when it is
        solved."""
        if is_note:
            log.info("prompt", agent=self._core.name, about=about, reason=why)
        elif why:
            self._health.recovered("prompt", what=about)  # a new reason opens a new alert
            self._problems[about] = owner
            self._health.alert("prompt", f"{about} {why}", what=about)
        elif self._problems.get(about) == owner:
            del self._problems[about]
            self._health.recovered("prompt", what=about)

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
