"""Messages of people: the terms under which a message becomes a perception.

Messages come through the agent's own door (`submit`: `spar send` over the control socket today, HTTP later), because
whoever sends one wants a receipt and an answer. This sensor says what they are worth: how much their text may do,
how urgent they are, how long they may be. It is never polled.
"""

from __future__ import annotations

from typing import Annotated, Any

from annotated_types import Ge, Gt, Le

from spar.types import Perception, Trust


class MessagesSensor:
    """Hears messages.

    Args:
        trust: whether their text may steer the agent; the socket admits only the service's own user.
        priority: where they stand among what is noticed, 0..1; None: as the stage of priorities finds.
        longest: how many characters one may have.
    """

    every = float("inf")

    def __init__(
        self,
        *,
        trust: Trust = "trusted",
        priority: Annotated[float, Ge(0), Le(1)] | None = None,
        longest: Annotated[int, Gt(0)] = 100_000,
    ) -> None:
        self._trust, self._priority, self._longest = trust, priority, longest

    def hear(self, text: str, session: str, **fields: Any) -> Perception:
        """Return the perception that a message is. Raises: ValueError when it is too long."""
        if len(text) > self._longest:
            raise ValueError(f"a message may have {self._longest} characters, this one has {len(text)}")
        return Perception(
            text,
            source="message",
            kind="message",
            session=session,
            trust=self._trust,
            priority=self._priority,
            **fields,
        )
