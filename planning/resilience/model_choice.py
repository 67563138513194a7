"""Choice among the models of a planner: which may be named, in which order they are asked, how much each can read."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from planning.ports import Model, Request
from planning.resilience.failover import Models
from spar.checks import shorten
from spar.errors import PermanentError
from spar.records.run_options import RunOptions, Thinking


class ModelChoice:
    """Choice among the models of a planner, which are one model or several (`Models`).

    Args: model: one model (without a name here) or `Models`, which has names for its models; room: the tokens that a
        request may have if the model's limit is unknown; size_of: returns the estimated tokens of a request.
    """

    def __init__(self, model: Model, room: int | None, size_of: Callable[[Request], int]) -> None:
        self.model = model
        self._room = room
        self._size_of = size_of
        self._read: dict[str, int] = {}  # by model, the tokens that it read after it had refused more

    @property
    def allowed(self) -> tuple[str, ...]:
        """Return the names of the models that people and hooks may choose from."""
        return self.model.allowed if isinstance(self.model, Models) else ()

    @property
    def room(self) -> int | None:
        """Return the tokens that a request to the preferred model may have; None if unknown."""
        return self.room_of(self.in_turn(self.order()))

    def attach(self) -> None:
        """Let the models refuse a request that was made for a model with more room and does not fit another one."""
        if isinstance(self.model, Models):
            self.model.is_too_long = self._is_too_long

    def order(self, first: str | None = None) -> tuple[str, ...]:
        """Return the names of the models in the order in which they are asked, `first` before the preferred ones.

        Raises: PermanentError when `first` may not be chosen.
        """
        if first is not None and first not in self.allowed:
            raise PermanentError(self._not_allowed(first))
        return self.model.order(first) if isinstance(self.model, Models) else ()

    def in_turn(self, order: Sequence[str]) -> str:
        """Return the name of the model that is asked now; "" if there is only one model, without a name."""
        return self.model.in_turn(order) if order and isinstance(self.model, Models) else ""

    def room_of(self, name: str, thinking: Thinking | None = None) -> int | None:
        """Return the tokens that a request to this model may have; None if unknown."""
        room = self.model.room(name, thinking) if isinstance(self.model, Models) else None
        rooms = [
            tokens for tokens in (self._room if room is None else room, self._read.get(name)) if tokens is not None
        ]
        return min(rooms, default=None)

    def learn(self, name: str, room: int | None, thinking: Thinking | None = None) -> None:
        """Remember how many tokens a model has read if that differs from its known limit."""
        if room is not None and room != self.room_of(name, thinking):
            self._read[name] = room

    async def check_options(self, options: RunOptions) -> None:
        """Raise ValueError for a model that may not be chosen, or that does not support this much thinking."""
        if options.model is not None and options.model not in self.allowed:
            raise ValueError(self._not_allowed(options.model))
        if options.thinking is None:
            return
        if not isinstance(self.model, Models):
            raise ValueError("option thinking means nothing here: it is not known how much the model thinks")
        if reason := await self.model.refusal_of(self.order(options.model)[0], options.thinking):
            raise ValueError(f"option thinking is {options.thinking!r}: {reason}")

    def _not_allowed(self, name: str) -> str:
        if not self.allowed:
            return f"option model is {shorten(name, 80)}, no model may be chosen (plan.options.allowed_models is empty)"
        allowed = ", ".join(self.allowed)
        return f"option model is {shorten(name, 80)}, allowed are: {allowed} (plan.options.allowed_models)"

    def _is_too_long(self, name: str, request: Request) -> bool:
        """Return whether a cycle's request, made for a model with more room, does not fit this model."""
        room = self.room_of(name, request.thinking)
        if room is None or not request.models or (request.room is not None and request.room <= room):
            return False
        return self._size_of(request) > room
