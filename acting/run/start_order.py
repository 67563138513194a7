"""The order in which calls of one run start that share a resource, or are to run one after another: that of the plan.

A call takes its place in line at each of its names when it arrives, and waits there, holding nothing, until it is the
first at all of them. At a resource it gives its place up when it starts: its slot keeps the next one from overlapping
with it. In a sequence (a name that `is_sequence` says is one) it gives its place up when it has ended. A call whose
names depend on values that are not there yet stands before all later calls that have names, since it may turn out to
share one. Only the order is kept: a call that was skipped, failed or parked holds nobody up.

Pure: no clock, no tasks. Each line is a heap by arrival, what has left is dropped when it comes up.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Final, Generic, Protocol, TypeVar

from msgspec import Struct, field

_SEQUENCE: Final = "\0"  # in no name of a resource


def sequence(name: str = "") -> str:
    """Return the name of a line in which calls run one after another; "" for that of a whole run."""
    return _SEQUENCE + name


def is_sequence(name: str) -> bool:
    """Return whether calls in this line wait for the end of the one before, not only for its start."""
    return name[:1] == _SEQUENCE


class Queued(Protocol):
    """A call in the order of a run: its number `at` in the plan, and the names of the `lines` in which it stands."""

    at: int
    lines: tuple[str, ...] | None


S = TypeVar("S", bound=Queued)


class StartOrder(Struct, Generic[S], eq=False):
    """The lines of one run. `waiting` are calls that are ready and wait for their turn, `due` are those of them that
    may be the first now."""

    waiting: set[S] = field(default_factory=set)
    due: list[S] = field(default_factory=list)
    _lines: dict[str, list[tuple[int, S]]] = field(default_factory=dict)
    _nameless: list[tuple[int, S]] = field(default_factory=list)  # whose names are not known yet
    _behind: list[tuple[int, S]] = field(default_factory=list)  # waiting for those
    _are_behind: set[S] = field(default_factory=set)
    _next: list[tuple[int, int, S]] = field(default_factory=list)  # a heap of those that wait
    _count: int = 0

    def enter(self, step: S, names: Iterable[str] | None) -> None:
        """Let a call that has arrived take its places; None: its names are not known yet."""
        if names is None:
            step.lines = None
            heappush(self._nameless, (step.at, step))
        else:
            self._line_up(step, names)

    def name(self, step: S, names: Iterable[str]) -> None:
        """Take note of the names of a call that had none yet."""
        self._line_up(step, names)
        self._look_behind()

    def is_first(self, step: S) -> bool:
        """Return whether a call that is ready may start; if not, it waits until it is `due`."""
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
        """Take note that a call starts: it leaves the lines of its resources."""
        self._leave(step, [name for name in step.lines or () if not is_sequence(name)])

    def end(self, step: S) -> None:
        """Take note that a call has ended, or is not to start: it leaves all lines."""
        self.waiting.discard(step)
        if step.lines is None:
            step.lines = ()
            self._look_behind()
        elif step.lines:
            self._leave(step, step.lines)

    @property
    def next(self) -> S:
        """The first of the calls that wait, in the order of the plan."""
        while self._next[0][2] not in self.waiting:
            heappop(self._next)
        return self._next[0][2]

    def let(self, step: S) -> None:
        """Let a call start before those that came before it: they wait for it, directly or through others."""
        self._leave(step, step.lines or ())
        self.due.append(step)

    def taken(self) -> list[S]:
        """Return the calls that are due and still wait, and forget that they are due."""
        due, self.due = self.due, []
        return [step for step in dict.fromkeys(due) if step in self.waiting]

    def ahead_of(self, step: S) -> list[S]:
        """Return the calls that this one waits for."""
        found = [first for name in step.lines or () if (first := self._first(name)) is not None and first is not step]
        if self._is_behind_nameless(step):
            found.append(self._nameless[0][1])
        return found

    # -- inside

    def _line_up(self, step: S, names: Iterable[str]) -> None:
        step.lines = tuple(dict.fromkeys(names))
        for name in step.lines:
            heappush(self._lines.setdefault(name, []), (step.at, step))

    def _leave(self, step: S, names: Iterable[str]) -> None:
        gone = set(names)
        step.lines = tuple([name for name in step.lines or () if name not in gone])
        for name in gone:
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

    def _look_behind(self) -> None:
        """Let those look again that waited for a call whose names were not known."""
        while self._behind and not self._is_behind_nameless(self._behind[0][1]):
            step = heappop(self._behind)[1]
            self._are_behind.discard(step)
            if step in self.waiting:
                self.due.append(step)
