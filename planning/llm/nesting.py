"""How deep requests are inside one another, and what they may take together.

A call may ask a model again (a delegate, a thought, an advisor), and that one again. All of them live off what the
outermost was allowed, and nesting has an end, whatever the models answer.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Final

from msgspec import Struct, field

from planning.llm.response import added
from planning.ports import Usage
from spar.errors import PermanentError

MOST_DEEP: Final = 5


class Allowance(Struct):
    """What is left, of requests and of calls; shared by all that are nested."""

    requests: int
    calls: int

    def take(self, quantity: str) -> bool:
        """Take one; False when there is none left."""
        left = getattr(self, quantity)
        if left <= 0:
            return False
        setattr(self, quantity, left - 1)
        return True


class Frame(Struct):
    """One run of requests: its depth (0: the outermost), its allowance, its messages so far, who advises it, and what
    it took (what is nested included)."""

    allowance: Allowance
    depth: int = 0
    messages: list[dict[str, Any]] = field(default_factory=list)
    advisors: dict[str, Any] = field(default_factory=dict)
    advice: list[dict[str, Any]] = field(default_factory=list)
    usage: Usage | None = None

    def inner(self) -> Frame:
        """The frame of a run inside this one. Raises: PermanentError when that is one too many."""
        if self.depth >= MOST_DEEP:
            raise PermanentError(f"requests inside requests go at most {MOST_DEEP} deep, and this one would be deeper")
        return Frame(self.allowance, self.depth + 1)

    def took(self, usage: Usage) -> None:
        """A request took so much."""
        self.usage = usage if self.usage is None else added(self.usage, usage)


#: The run in which the code at hand is carried out.
FRAME: ContextVar[Frame | None] = ContextVar("frame", default=None)
