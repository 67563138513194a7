"""The shape of a hold: a reason not to start a call yet."""

from __future__ import annotations

from typing import Protocol

from acting.run.call.call_state import Step
from spar.types import CallResult


class Go(Protocol):
    """Callback of a hold: lets a held call go on, or ends it with the result of a call that may not run.

    Returns False if the call is over, so that it takes nothing.
    """

    def __call__(self, step: Step, refusal: CallResult | None = None, /) -> bool: ...


class Hold(Protocol):
    """A reason not to start a call yet. The permits of `tooling/limits` have this shape too."""

    def take(self, step: Step, go: Go, /) -> bool | CallResult:
        """Return True if the call is free, or the result of a call that may not run. False holds the call: then `go` is
        called once, later."""
        raise NotImplementedError

    def release(self, step: Step, /) -> None:
        """Give back what an ended call had taken."""
        return
