"""The start order of a batch: calls that share a resource, or that must run one after another, start in plan order.

There is a *line* for each name of a resource or a sequence. A call enters the lines of its names when it arrives, and
waits until it is the first in all of them; it holds no permit meanwhile. It leaves the line of a resource when it
starts: the resource's slot keeps the next call from overlapping with it. It leaves the line of a sequence (a name for
which `is_sequence` is true) when it has ended. A call whose names depend on values that are not there yet is
*nameless*: all later calls with names wait behind it, since it may share one of them. Only the order is kept: a call
that was skipped, failed or parked holds up no other call.

Pure: no clock, no tasks. Each line is a heap by arrival; a call that has left is dropped when it comes to the top.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Final, Generic, Protocol, TypeVar

from msgspec import Struct, field

_SEQUENCE: Final = "\0"  # a sign that no name of a resource contains


def sequence(name: str = "") -> str:
    """Return the name of a line in which calls run one after another; with "" the line of the whole batch."""
    return _SEQUENCE + name


def is_sequence(name: str) -> bool:
    """Return whether calls in this line wait for the end of the call before, not only for its start."""
    return name[:1] == _SEQUENCE


class Queued(Protocol):
    """A call in the order of a batch: its number `at` in the plan, and the names of the `lines` that it is in."""

    at: int
    lines: tuple[str, ...] | None


S = TypeVar("S", bound=Queued)


class StartOrder(Struct, Generic[S], eq=False):
    """The lines of one batch. `waiting` are authorized calls that wait for their turn. `due` are those of them that may
    have become the first; the batch takes them out and checks each with `is_first`."""

    waiting: set[S] = field(default_factory=set)
    due: list[S] = field(default_factory=list)
    _lines: dict[str, list[tuple[int, S]]] = field(default_factory=dict)
    _nameless: list[tuple[int, S]] = field(default_factory=list)  # calls whose names are not known yet
    _behind: list[tuple[int, S]] = field(default_factory=list)  # calls that wait for nameless ones
    _are_behind: set[S] = field(default_factory=set)
    _next: list[tuple[int, int, S]] = field(default_factory=list)  # a heap of the waiting calls
    _count: int = 0  # the second item in that heap, so that two entries of one call can be compared

    def enter(self, step: S, names: Iterable[str] | None) -> None:
        """Put an arrived call into its lines; None as names if they are not known yet."""
        if names is None:
            step.lines = None
            heappush(self._nameless, (step.at, step))
        else:
            self._line_up(step, names)

    def name(self, step: S, names: Iterable[str]) -> None:
        """Put a nameless call into its lines, now that its names are known."""
        self._line_up(step, names)
        self._free_those_behind()

    def is_first(self, step: S) -> bool:
        """Return whether an authorized call may start; if not, it waits until it is `due`."""
        if self._is_behind_nameless(step):
            if step not in self._are_behind:
                self._are_behind.add(step)
                heappush(self._behind, (step.at, step))
        elif all(self._first(name) is step for name in step.lines or ()):
            self.waiting.discard(step)
            return True
        if step not in self.waiting:
            self.waiting.add(step)
            self._count += 1
            heappush(self._next, (step.at, self._count, step))
        return False

    def begin(self, step: S) -> None:
        """Remove a call that starts from the lines of its resources."""
        self._leave(step, [name for name in step.lines or () if not is_sequence(name)])

    def end(self, step: S) -> None:
        """Remove a call that has ended, or that will not start, from all lines."""
        self.waiting.discard(step)
        if step.lines is None:
            step.lines = ()
            self._free_those_behind()
        elif step.lines:
            self._leave(step, step.lines)

    @property
    def next(self) -> S:
        """Return the first of the waiting calls, in the order of the plan."""
        while self._next[0][2] not in self.waiting:
            heappop(self._next)
        return self._next[0][2]

    def let_pass(self, step: S) -> None:
        """Let a call start before its turn: the calls before it wait for it, directly or through others."""
        self._leave(step, step.lines or ())
        self.due.append(step)

    def take_due(self) -> list[S]:
        """Remove and return the due calls that still wait."""
        due, self.due = self.due, []
        return [step for step in dict.fromkeys(due) if step in self.waiting]

    def ahead_of(self, step: S) -> list[S]:
        """Return the calls that this one waits for."""
        firsts = [first for name in step.lines or () if (first := self._first(name)) is not None and first is not step]
        if self._is_behind_nameless(step):
            firsts.append(self._nameless[0][1])
        return firsts

    # -- inside

    def _line_up(self, step: S, names: Iterable[str]) -> None:
        step.lines = tuple(dict.fromkeys(names))
        for name in step.lines:
            heappush(self._lines.setdefault(name, []), (step.at, step))

    def _leave(self, step: S, names: Iterable[str]) -> None:
        left = set(names)
        step.lines = tuple([name for name in step.lines or () if name not in left])
        for name in left:
            first = self._first(name)
            if first is None:
                del self._lines[name]
            elif first in self.waiting:
                self.due.append(first)

    def _first(self, name: str) -> S | None:
        line = self._lines.get(name, ())
        while line:
            step = line[0][1]
            if step.lines is not None and name in step.lines:
                return step
            heappop(line)
        return None

    def _is_behind_nameless(self, step: S) -> bool:
        while self._nameless and self._nameless[0][1].lines is not None:
            heappop(self._nameless)
        return bool(self._nameless) and self._nameless[0][0] < step.at and bool(step.lines)

    def _free_those_behind(self) -> None:
        """Make the calls due that waited for a nameless call, where none is before them any more."""
        while self._behind and not self._is_behind_nameless(self._behind[0][1]):
            step = heappop(self._behind)[1]
            self._are_behind.discard(step)
            if step in self.waiting:
                self.due.append(step)
