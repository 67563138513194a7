"""Messages of people: the terms under which a message becomes a perception.

Messages come through the agent's `submit` (`spar send`, HTTP, channels), because the sender wants a receipt and an
answer. This sensor sets their terms: the trust in their text, their priority and their length. It is never polled.
"""

from __future__ import annotations

from typing import Annotated, Any

from annotated_types import Ge, Gt, Le

from spar.types import Perception, Trust


class MessagesSensor:
    """Terms of messages.

    Args:
        trust: whether their text may steer the agent; the socket admits only the service's own user.
        priority: their priority among all perceptions, 0..1; None: as the stage `priority` computes it.
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
        """Return the perception of a message. Raises: ValueError when it is too long."""
        if len(text) > self._longest:
            raise ValueError(f"a message may have {self._longest} characters, this one has {len(text)}")
        return Perception(text, source="message", kind="message", session=session, trust=self._trust,
                          priority=self._priority, **fields)  # fmt: skip

    def snapshot(self) -> dict[str, int]:
        """Return how many characters a message may have, for those who write one."""
        return {"longest": self._longest}
