"""The models that the planner may ask, as their parts tell of them, and what is wrong with what they are told."""

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
    """The health of the agent: its alerts are opened and closed there."""

    def alert(self, kind: Kind, message: str, *, severity: Severity = "warning", what: str = "") -> Alert: ...
    def recovered(self, kind: Kind, *, what: str = "") -> None: ...


class Models:
    """The models of one agent, by name: by which part each was told of, and how it is."""

    __slots__ = ("_core", "_health", "_problems", "_states")

    def __init__(self, core: Core, health: Alerts) -> None:
        self._core, self._health = core, health
        self._states: dict[str, tuple[int, ModelState]] = {}
        #: What is wrong with what a model is told, by what it is about: by which part it was told.
        self._problems: dict[str, int] = {}

    @property
    def is_any_open(self) -> bool:
        """Return whether a model is left alone now; from any thread."""
        return any(told.state == "open" for _, told in list(self._states.values()))

    def told(self, owner: int, told: ModelState) -> None:
        """Take in what a part (`owner` is its id) tells of one of its models: that it is there, or may be asked now."""
        known = self._states.get(told.model)
        self._states[told.model] = (owner, told)
        if told.state == "closed":
            if known is not None and known[1].state == "open":
                log.info("model answers again", agent=self._core.name, model=told.model)
                self._core.events.publish(ModelStateChanged(model=told.model, state="closed"))
            self._health.recovered("provider", what=told.model)
            return
        wait = max(told.until - self._core.clock.monotonic(), 0.0)
        log.warning("model left alone", agent=self._core.name, model=told.model, reason=told.fault,
                    seconds=round(wait, 1))  # fmt: skip
        self._core.events.publish(
            ModelStateChanged(model=told.model, state="open", reason=told.fault, retry_after=wait)
        )
        is_last = all(state.state == "open" for _, state in self._states.values())
        message = f"{told.fault}; no other model can be asked" if is_last else told.fault
        self._health.alert("provider", message, severity="critical" if is_last else "warning", what=told.model)

    def forget(self, owners: Container[int]) -> None:
        """Forget the models of all other parts, and what was wrong with what those were told."""
        for about, owner in list(self._problems.items()):
            if owner not in owners:
                self.problem(owner, about, "")
        for name, (owner, _) in list(self._states.items()):
            if owner not in owners:
                del self._states[name]
                self._health.recovered("provider", what=name)

    def problem(self, owner: int, about: str, why: str, *, is_note: bool = False) -> None:
        """Take in what a part (`owner` is its id) finds wrong with what its model is told; "": nothing any more."""
        if is_note:
            log.info("prompt", agent=self._core.name, about=about, reason=why)
        elif why:
            self._health.recovered("prompt", what=about)  # another reason is told as well
            self._problems[about] = owner
            self._health.alert("prompt", f"{about} {why}", what=about)
        elif self._problems.get(about) == owner:
            del self._problems[about]
            self._health.recovered("prompt", what=about)

    def report(self) -> list[dict[str, Any]]:
        """Each model: whether it may be asked, why not, and the seconds until it is tried; from any thread."""
        now = self._core.clock.monotonic()
        return [
            {
                "model": told.model,
                "state": "half_open" if told.state == "open" and told.until <= now else told.state,
                "reason": told.fault.removeprefix(f"{told.model} "),
                "wait": max(told.until - now, 0.0),
            }
            for _, told in list(self._states.values())
        ]
