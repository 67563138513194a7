"""Graph of the calls of one batch: makes dependencies from references and `after`, and says which call may start. Pure.

A call waits for three things: the calls in its `after`; every earlier call that is still to write where it reads (plan
order, even if an old value is there); and a value at each path that it reads. For a read with alternatives (`a || b`)
it waits for the earlier writers of each alternative up to the one that it takes: when all writers of `a` have ended
without a value, `b` is taken at once. With `fallback="race"` it takes an alternative that has a value. A later writer
feeds an earlier reader only if that reader has no value and all earlier writers have ended.

A call of an instance reads the values of the instance, and below them the common values; it writes values of the
instance. So it waits for writers of both kinds, and only readers of its instance wait for it.

Cycles are searched when a call arrives, over `after` and reads with one alternative: a call that waits for itself in
this way can never start, so the call that closes the cycle is refused. Reads with alternatives do not count, since
another alternative may still get its value; alternatives in an output path do not matter, since a reader waits for the
writer's end whichever it writes. `deadlock` resolves the remaining cycles when nothing else can run.

A read of one path is open from the moment when no value is there. A read with alternatives first waits at a gate before
each alternative for the earlier calls that are to write there; it is judged when the gates open.

The work is proportional to calls + references: a counter per call, an index by path, and no scan of all remaining
calls. Readers of a path that many calls write to share one `Barrier` instead of one edge per writer.

`earlier(id)` returns whether a call of an earlier batch of the same run ended well; None for an unknown id.

The caller adds calls in the order of arrival, reports ends and written values, and empties two lists: `ready` (calls
that may start, and read their values at once) and `doomed` (calls to be skipped for the reason in `why`). When nothing
runs and nothing more arrives, `stuck` returns the calls that can never start, and why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import chain, product
from typing import Any, Final, Literal

from msgspec import Struct, field

from acting.graph.deadlock import Deadlocks, Stuck, reaches
from acting.graph.index import Index
from acting.graph.nodes import ENDED, HELD, NONE, Barrier, Gate, IndexNode, Node, ReadRequirement, Why
from spar.data.paths import Expression, Path, overlaps
from spar.types.slotted import slotted

MOST_UNINDEXED: Final = 1 << 12  # so that the index is filled in a few milliseconds


@slotted
class Graph(Struct, eq=False):
    """The calls of one batch. `has(path, instance)` returns whether an instance sees a value at a path now.

    `ready` and `doomed` hold nodes of the class that was added; `pending` counts the proposed calls, which are neither
    ready nor ended, `open` those that were made ready and have not ended. `is_watched` says whether a call has ever
    waited for a value.
    """

    _has: Callable[[Path, str | None], bool]
    _fallback: Literal["wait", "race"] = "wait"
    _earlier: Callable[[str], bool | None] = lambda id: None
    known: dict[str, Node] = field(default_factory=dict)
    ready: list[Any] = field(default_factory=list)
    doomed: list[Any] = field(default_factory=list)
    pending: int = 0
    open: int = 0
    is_watched: bool = False
    _unindexed: list[Node] | None = field(default_factory=list)  # the calls that write, before the first that reads
    _count: int = 0  # of the calls
    _index: Index = field(default_factory=Index)
    _awaited: dict[str, list[Node]] = field(default_factory=dict)
    _suspects: list[tuple[int, Node]] = field(default_factory=list)  # a heap of calls whose values may never come
    _deadlocks: Deadlocks | None = None  # made when they are first looked for

    def ended_well(self, id: str) -> bool:
        return self.known[id].ok if id in self.known else self._earlier(id) is True

    def refuse(self, node: Node, writes: Expression | None = None, instance: str | None = None) -> None:
        """Add a call that will not run, so that calls that name it or read its output path are given up."""
        self._count += 1
        node.at, node.instance = self._count, instance
        self.known.setdefault(node.id, node)
        self.pending += 1
        if writes is not None:
            self._register(node, writes)
        if self._awaited:
            node.followers = [*node.followers, *self._awaited.pop(node.id, ())]

    def add(
        self,
        node: Node,
        reads: Sequence[Expression] = (),
        writes: Expression | None = None,
        after: Sequence[str] = (),
        instance: str | None = None,
    ) -> bool:
        """Add the next call. Return False if it closes a cycle: the caller must then end it.

        `reads` are distinct. Of two calls with one id the first keeps it.
        """
        self._count += 1
        node.at = self._count
        if instance is not None:
            node.instance = instance
        self.known.setdefault(node.id, node)
        circular = self._follow(node, after) if after else False
        missing = self._order(node, reads) if reads else ()
        fed: Sequence[tuple[ReadRequirement, IndexNode]] = ()
        if writes is not None:
            fed = self._register(node, writes)
            if missing:  # a call that waits for a value that only it writes is circular
                written = chain.from_iterable(node.writes)
                circular = circular or any(overlaps(*both) for both in product(missing, written))
        awaiting = self._awaited.pop(node.id, ()) if self._awaited else ()
        if fed or awaiting:
            for read, place in fed:
                place.set_fed(read, node)
            if not circular and reaches(node, [*(read.node for read, _ in fed if read.is_plain), *awaiting]):
                # Search again without the readers that have another feeder, which was not recorded yet.
                alone = [read.node for read, place in fed if read.is_plain and not place.writer(read.node, node)]
                circular = reaches(node, [*alone, *awaiting])
            node.followers = [*node.followers, *awaiting]
            for reader in awaiting:
                reader.blockers = reader.blockers or []
                reader.blockers.append(node)
        if not (circular or node.requirements or reads or node.waiting or node.why):
            node.state = HELD
            self.open += 1
            self.ready.append(node)
            return True
        self.pending += 1
        if circular:
            return False
        for path in missing:
            self._miss(node, path)
        if node.requirements or (reads and not node.waiting):
            self._offer(node)
        return True

    def end(self, node: Node, ok: bool, chosen: int | None = None) -> None:
        """Record the end of a call: free the calls that wait for it, or doom them. Idempotent.

        `chosen` is the index of the alternative of its output path that was written; by default the first, if the call
        ended well. A call that did not end well may have written too: then readers of that alternative run, others not.
        """
        state = node.state
        if state == ENDED:
            return
        node.state, node.ok = ENDED, ok
        if chosen or not ok:
            node.chosen = chosen
        if not node.at:  # it was never added
            return
        if state:
            self.open -= 1
        else:
            self.pending -= 1
            for read in node.requirements:
                read.close()
        if (not ok or len(node.writes) > 1) and self._unindexed is None:
            self._index.lose(node)
        # The edges are removed, so that the memory of a batch is free without the garbage collector.
        if node.feeds:
            for read, place in node.feeds:
                if read.fed.get(place) is node:
                    place.set_fed(read, None)
                    self._suspect(read.node)
            node.feeds = NONE
        if node.requirements:
            for read in node.requirements:
                read.gates = ()
            node.requirements = NONE
        if node.blockers:
            node.blockers = NONE
        free = node.dependants
        if free:
            node.dependants = NONE
        if node.followers:
            free = list(free)
            for follower in node.followers:
                if ok:
                    follower.after -= 1
                    free.append(follower)
                else:
                    self._doom(follower, "branch" if node.why == "branch" else "dep_failed")
            node.followers = NONE
        if free:
            self._free(free)

    def written(self, path: Path, value: object, instance: str | None = None) -> None:
        """Record that `value` was written to `path` (or merged into it): free the readers that have all values now."""
        for read, read_path in self._index.awaiting(path, value, instance):
            if read_path in read.absent and self._arrived(read, read_path):
                self._offer(read.node)

    def close(self) -> None:
        """Drop the index: no call arrives or ends any more."""
        self._deadlocks = None
        if self._index.roots or self._index.instances:
            self._index.close()

    def stuck(self) -> Stuck | None:
        """Return calls that can never start, and why; None if no call waits. Nothing may be running.

        The caller ends them and asks again. If no call is named, one that waited has been made `ready`.
        """
        if not self.pending:
            return None
        if self._deadlocks is None:
            self._deadlocks = Deadlocks(
                self.known, self._awaited, self._take_suspects, self._reconsider, self._has, self._make_ready
            )
        return self._deadlocks.next()

    # -- arrival

    def _register(self, node: Node, writes: Expression) -> Sequence[tuple[ReadRequirement, IndexNode]]:
        """Record the paths that a call writes to. Return the reads that wait there and have no feeder."""
        node.writes = writes.alternatives
        if self._unindexed is None:
            return self._index.register(node)
        self._unindexed.append(node)
        if len(self._unindexed) == MOST_UNINDEXED:
            self._fill_index()
        return ()

    def _fill_index(self) -> None:
        """Put the calls before the first one that reads into the index, which has all calls from now on."""
        writers, self._unindexed = self._unindexed, None
        for node in writers or ():
            if node.state != ENDED:
                self._index.register(node)
            elif not node.ok or len(node.writes) > 1:
                self._index.lose(node)

    def _follow(self, node: Node, after: Sequence[str]) -> bool:
        """Wait for the calls in `after`; return True if the call names itself."""
        circular = False
        ended_badly = []
        for id in dict.fromkeys(after):
            other = self.known.get(id)
            if other is node:
                circular = True
            elif other is None and (is_ok := self._earlier(id)) is not None:
                if not is_ok:
                    self._doom(node, "dep_failed")
            elif other is None:
                self._awaited.setdefault(id, []).append(node)
                node.waiting += 1
                node.after += 1
            elif not other.ended:
                other.followers = other.followers or []
                other.followers.append(node)
                node.blockers = node.blockers or []
                node.blockers.append(other)
                node.waiting += 1
                node.after += 1
            elif not other.ok:
                ended_badly.append(other)
        if ended_badly:
            is_branch = all(other.why == "branch" for other in ended_badly)
            self._doom(node, "branch" if is_branch else "dep_failed")
        return circular

    def _order(self, node: Node, reads: Sequence[Expression]) -> Sequence[Path]:
        """Wait for the earlier calls that write where this one reads. Return the paths without a value or a writer."""
        if self._unindexed is not None:
            self._fill_index()
        instance = node.instance
        paths: list[Path] = []
        for expression in reads:
            if len(expression.alternatives) == 1:
                paths += expression.alternatives[0]  # these count as separate reads
            else:
                self._choose(node, expression.alternatives)
        node.reads = paths if len(paths) < 2 else list(dict.fromkeys(paths))
        missing: list[Path] = []
        for path in node.reads:
            if not self._index.block(node, path, instance) and not self._has(path, instance):
                missing += [path]
        return missing

    # -- starting and ending

    def _offer(self, node: Node) -> None:
        """Make a node ready if nothing blocks it and all its values are there; else let it wait for values."""
        if node.state or node.why:
            return
        if node.requirements:
            self._judge(node)
        if node.waiting:
            return
        if node.reads:
            self._note_missing(node)
        if node.lacking:
            self._suspect(node)
            return
        self._make_ready(node)

    def _make_ready(self, node: Node) -> None:
        """Make a node ready even if it still waits for something."""
        node.state = HELD
        self.pending -= 1
        self.open += 1
        self.ready.append(node)

    def _doom(self, node: Node, why: Why) -> None:
        if not node.state and not node.why:
            node.why = why
            self.doomed.append(node)

    def _free(self, waiters: list[Node | Barrier]) -> None:
        """Count down a blocker of each waiter, and free those with none left; what waits behind a barrier that ends is
        added to them."""
        for waiter in waiters:
            waiter.waiting -= 1
            if waiter.waiting == 0:
                if isinstance(waiter, Node):
                    self._offer(waiter)
                elif isinstance(waiter, Gate):
                    if self._gate_opened(waiter.requirement):
                        self._offer(waiter.requirement.node)
                else:
                    waiters += waiter.dependants
                    waiter.dependants = NONE

    # -- the reads that wait for a value

    def _miss(self, node: Node, path: Path) -> None:
        """Wait for a value at a path that must be present."""
        read = ReadRequirement(node, ((path,),))
        self._require(read)
        node.lacking += 1
        self._watch(read, path)

    def _choose(self, node: Node, alternatives: tuple[tuple[Path, ...], ...]) -> None:
        """Add a read with alternatives, with a gate before each that earlier calls may still write; none in a race."""
        read = ReadRequirement(node, alternatives)
        gates: list[Gate | None] = []
        for paths in alternatives:
            gate = Gate(read)
            if self._fallback == "wait":
                for path in paths:
                    self._index.block(gate, path, node.instance)
            gates.append(gate if gate.waiting else None)
        read.gates = gates
        read.is_open = False  # until `judge` opens it
        self._require(read)

    def _judge(self, node: Node) -> None:
        """Open the reads with alternatives that are not settled."""
        for read in node.requirements:
            if not read.is_plain and not self._is_settled(read) and not read.is_open:
                read.is_open = True
                node.lacking += 1

    def _note_missing(self, node: Node) -> None:
        """Wait for a value at each path of the call that has none."""
        known = {path for read in node.requirements if read.is_plain for path in read.absent} if node.lacking else NONE
        for path in node.reads:
            if path not in known and not self._has(path, node.instance):
                self._miss(node, path)

    def _arrived(self, read: ReadRequirement, path: Path) -> bool:
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

    def _gate_opened(self, read: ReadRequirement) -> bool:
        """Judge a read again after one of its gates has opened; return whether nothing blocks its call now."""
        node = read.node
        if not read.is_open or node.state:
            return False
        if not self._is_settled(read):
            self._suspect(node)
            return False
        read.close()
        return self._is_one_less(node)

    def _suspect(self, node: Node) -> None:
        """Record that the values of a call may never come; `deadlock` finds out."""
        heappush(self._suspects, (node.at, node))

    def _take_suspects(self) -> Iterator[Node]:
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
        self._suspect(read.node)

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

    def _reconsider(self, node: Node) -> None:
        """Compare a call's reads with the values that are there now.

        Some changes are not reported: a write may remove a value below it, or make a value of an instance visible
        again.
        """
        for read in list(node.requirements):
            for path in list(read.absent):
                is_there = path in read.absent and self._has(path, node.instance)
                if is_there and self._arrived(read, path):
                    self._offer(node)
        if not node.state:
            self._note_missing(node)
            self._judge(node)
            for read in node.requirements:
                read.find_feeders()
