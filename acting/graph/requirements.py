"""The reads that wait for a value: a call starts only when there is a value at each path that it reads.

A read of one path is open from the moment when no value is there. A read with alternatives first waits at a gate before
each alternative for the earlier calls that are to write there; it is judged when the gates open. `graph` decides
whether a call may start, `deadlock` whether a value will never come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush

from msgspec import Struct, field

from acting.graph.index import Index
from acting.graph.nodes import NOBODY, Gate, Node, ReadRequirement
from spar.data.paths import Path


class Requirements(Struct, eq=False):
    """The open reads of one batch. `has(path, instance)` returns whether there is a value at a path now."""

    _index: Index
    _has: Callable[[Path, str | None], bool]
    is_watched: bool = False  # whether a call has ever waited for a value
    _suspects: list[tuple[int, Node]] = field(default_factory=list)  # a heap of calls whose values may never come

    def miss(self, node: Node, path: Path) -> None:
        """Wait for a value at a path that must be present."""
        read = ReadRequirement(node, ((path,),))
        self._require(read)
        node.lacking += 1
        self._watch(read, path)

    def choose(self, node: Node, alternatives: tuple[tuple[Path, ...], ...], *, is_racing: bool) -> None:
        """Add a read with alternatives, with a gate before each that earlier calls may still write; none in a race."""
        read = ReadRequirement(node, alternatives)
        gates: list[Gate | None] = []
        for paths in alternatives:
            gate = Gate(read)
            if not is_racing:
                for path in paths:
                    self._index.block(gate, path, node.instance)
            gates.append(gate if gate.waiting else None)
        read.gates = gates
        read.is_open = False  # until `judge` opens it
        self._require(read)

    def judge(self, node: Node) -> None:
        """Open the reads with alternatives that are not settled."""
        for read in node.requirements:
            if not read.is_plain and not self._is_settled(read) and not read.is_open:
                read.is_open = True
                node.lacking += 1

    def note_missing(self, node: Node) -> None:
        """Wait for a value at each path of the call that has none."""
        known = (
            {path for read in node.requirements if read.is_plain for path in read.absent} if node.lacking else NOBODY
        )
        for path in node.reads:
            if path not in known and not self._has(path, node.instance):
                self.miss(node, path)

    def arrived(self, read: ReadRequirement, path: Path) -> bool:
        """Record that there is a value at a path that `read` waited for; return whether nothing blocks its call now."""
        for place in read.absent.pop(path):
            place.leave(read)
        if read.is_plain:
            read.is_open = False
            del read.node.requirements[read]
        elif not self._is_settled(read):
            return False
        else:
            read.close()
        return self._is_one_less(read.node)

    def gate_opened(self, read: ReadRequirement) -> bool:
        """Judge a read again after one of its gates has opened; return whether nothing blocks its call now."""
        node = read.node
        if not read.is_open or node.state:
            return False
        if not self._is_settled(read):
            self.suspect(node)
            return False
        read.close()
        return self._is_one_less(node)

    def suspect(self, node: Node) -> None:
        """Record that the values of a call may never come; `deadlock` finds out."""
        heappush(self._suspects, (node.at, node))

    def suspects(self) -> Iterator[Node]:
        """Remove and yield the suspected calls that wait only for values, in the order of arrival."""
        while self._suspects:
            node = heappop(self._suspects)[1]
            if not (node.waiting or node.state or node.why):
                yield node

    def _require(self, read: ReadRequirement) -> None:
        node = read.node
        if not node.requirements:
            node.requirements = {}
        node.requirements[read] = None

    def _watch(self, read: ReadRequirement, path: Path) -> None:
        self.is_watched = True
        self._index.watch(read, path)
        self.suspect(read.node)

    def _is_one_less(self, node: Node) -> bool:
        node.lacking -= 1
        return node.waiting == node.lacking == 0

    def _is_settled(self, read: ReadRequirement) -> bool:
        """Return whether an alternative has all its values, and no earlier call may still write to it or to one before.

        If not, the read waits at each path without a value, in the alternatives that can be judged.
        """
        absent, instance, has = read.absent, read.node.instance, self._has
        missing: list[Path] = []
        for paths, gate in zip(read.alternatives, read.gates, strict=True):
            if gate is not None and gate.waiting:
                break
            lacking = [path for path in paths if path in absent or not has(path, instance)]
            if not lacking:
                return True
            missing += lacking
        for path in missing:
            if path not in absent:
                self._watch(read, path)
        return False
