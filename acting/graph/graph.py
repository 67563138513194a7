"""Which call may start: references and `after` made into dependencies. Pure: no clock, no tasks, no tools.

A call waits for three things: the calls it names in `after`; every earlier call that is still to write where
it reads (program order, also when an old value stands); and a value at each path it reads. Of a read with
alternatives (`||`) it waits for the earlier writers of those up to the one that it would take, so that when a left
one's writers have all ended without it the next is taken at once; with `fallback="race"` it takes what is there.
A later writer feeds an earlier reader only if that reader has no value and no earlier writer lives.

A call of an instance reads what was written for all with what was written for the instance over it, and writes for
the instance: so it waits for writers of both kinds, and only readers of its instance wait for it.

Cycles are looked for when a call arrives, over `after` and reads with one alternative: whoever waits so for himself
can never start, and the call that closes the circle is refused. Reads with alternatives are not counted, since
another alternative may still come; nor are the writer's own (`||` in an output path), since its reader waits for
its end whichever it chooses. What they leave knotted up is untied when nothing else can run.

The work is proportional to calls + references: a countdown per call, an index by path, and nobody ever scans what
remains. Readers of a path that many calls write to share one `Barrier` instead of an edge each.

`earlier(id)` says whether a call of an earlier batch of the same run ended well; None: there was none.

The caller adds calls in the order of arrival, says when one ended and what was written, and empties `ready`
(may start; it takes its values at once) and `doomed` (must be skipped for the reason in `why`). `stuck` says, once
nothing runs and nothing more arrives, what can never start and why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Literal

from acting.graph.deadlock import Deadlocks, Stuck, reaches
from acting.graph.index import Index, IndexNode
from acting.graph.nodes import NOBODY, NONE, Barrier, Gate, Node, ReadRequirement, Why
from acting.graph.requirements import Requirements
from spar.data.paths import Expression, Path, overlaps


class Graph:
    """The calls of one batch. `has(path, instance)` says whether a value stands at a path now, as an instance sees."""

    def __init__(
        self,
        has: Callable[[Path, str | None], bool],
        fallback: Literal["wait", "race"] = "wait",
        earlier: Callable[[str], bool | None] = lambda id: None,
    ) -> None:
        self._has = has
        self._earlier = earlier
        self._is_racing = fallback == "race"
        self._index = Index()
        self.requirements = Requirements(self._index, has)
        self.known: dict[str, Node] = {}
        self._awaited: dict[str, list[Node]] = {}
        self._deadlocks: Deadlocks | None = None  # made when they are first looked for
        self._count = 0
        self.pending = 0  # neither ready nor ended
        self.ready: list[Any] = []  # nodes of the class that was added
        self.doomed: list[Any] = []

    def ended_well(self, id: str) -> bool:
        return self.known[id].ok if id in self.known else self._earlier(id) is True

    def refuse(self, node: Node, writes: Expression | None = None, instance: str | None = None) -> None:
        """Take in a call that will not run, so that what names it or reads what it was to write learns that."""
        self._admit(node, instance)
        if writes is not None:
            self._index.register(node, writes.alternatives)
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
        """Take in the next call; False if it closes a cycle: the caller must then end it.

        `reads` are distinct. Of two calls with one id the first keeps it.
        """
        self._admit(node, instance)
        circular = self._follow(node, after) if after else False
        missing = self._order(node, reads) if reads else ()
        fed: list[tuple[ReadRequirement, IndexNode]] = []
        if writes is not None:
            fed = self._index.register(node, writes.alternatives)
            for path in missing:  # whoever waits for what it alone is to write
                circular = circular or any(overlaps(path, own) for paths in node.writes for own in paths)
        awaiting = self._awaited.pop(node.id, ()) if self._awaited else ()
        if fed or awaiting:
            for read, place in fed:
                place.set_fed(read, node)
            if not circular and reaches(node, [*(read.node for read, _ in fed if read.is_plain), *awaiting]):
                # Unless somebody else, who has not been on record, is to feed the readers as well.
                alone = [read.node for read, place in fed if read.is_plain and not place.writer(read.node, node)]
                circular = reaches(node, [*alone, *awaiting])
            node.followers = [*node.followers, *awaiting]
            for reader in awaiting:
                reader.blockers = reader.blockers or []
                reader.blockers.append(node)
        if circular:
            return False
        for path in missing:
            self.requirements.miss(node, path)
        if node.requirements or (reads and not node.waiting):
            self._offer(node)
        elif not node.waiting and not node.is_doomed:
            node.is_ready = True
            self.pending -= 1
            self.ready.append(node)
        return True

    def end(self, node: Node, ok: bool, chosen: int | None = None) -> None:
        """A call has ended: free, or doom, what waits for it. Idempotent.

        `chosen` is the alternative of its output path that was written, of a call that ended well the first if it
        is not said. One that did not end well may have written too: readers of that run, those of others do not.
        """
        if node.ended:
            return
        node.ended, node.ok = True, ok
        if not node.at:  # it was never taken in, and ends all the same
            return
        if not node.is_ready:
            self.pending -= 1
            for read in node.requirements:
                read.close()
        if node.groups:
            node.leave(chosen)
        for read, place in node.feeds:
            if read.fed.get(place) is node:
                place.set_fed(read, None)
                self.requirements.suspect(read.node)
        # What it was tied to is not tied to it any more, so that nothing of a batch waits for the garbage collector.
        for read in node.requirements:
            read.gates = ()
        node.requirements, node.feeds = NOBODY, NONE
        free, node.dependants = node.dependants, NONE
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
        """`value` now stands at `path` (or was merged into it): wake the readers that have theirs now."""
        for read, found in self._index.awaiting(path, value, instance):
            if found in read.absent and self.requirements.arrived(read, found):
                self._offer(read.node)

    def close(self) -> None:
        """Forget who writes and waits where: nothing arrives or ends any more."""
        self._deadlocks = None
        if self._index.roots or self._index.instances:
            self._index.close()

    def stuck(self) -> Stuck | None:
        """Calls that can never start, as far as nothing else runs; why, and of which id or path. None: nobody waits.

        The caller ends them and asks again. If no call is named, one that waited has been made `ready`.
        """
        if not self.pending:
            return None
        if self._deadlocks is None:
            self._deadlocks = Deadlocks(
                self.known, self._awaited, self.requirements, self._has, self._offer, self._make_ready
            )
        return self._deadlocks.next()

    # -- arrival

    def _admit(self, node: Node, instance: str | None) -> None:
        self.pending += 1
        self._count += 1
        node.at = self._count
        node.instance = instance
        node.reads = node.writes = node.groups = node.branches = ()
        node.waiting = node.after = node.lacking = 0
        node.ok = node.is_doomed = node.is_ready = False
        node.blockers = node.dependants = node.followers = node.feeds = NONE
        node.requirements = NOBODY
        self.known.setdefault(node.id, node)

    def _follow(self, node: Node, after: Sequence[str]) -> bool:
        """Wait for the calls named; True if it names itself."""
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
        """Wait for the earlier calls that write where it reads; the paths at which nothing is and nobody writes."""
        instance, has = node.instance, self._has
        paths: list[Path] = []
        for expression in reads:
            only = expression.only
            if only is not None:
                paths.append(only)
            elif len(expression.alternatives) == 1:
                paths += expression.alternatives[0]  # what belongs together is as if each were read by itself
            else:
                self.requirements.choose(node, expression.alternatives, is_racing=self._is_racing)
        node.reads = paths if len(paths) < 2 else list(dict.fromkeys(paths))
        return [path for path in node.reads if not self._index.block(node, path, instance) and not has(path, instance)]

    # -- starting and ending

    def _offer(self, node: Node) -> None:
        """Make a node ready that nothing blocks, if all it reads is there; else let it wait for values."""
        if node.ended or node.is_doomed or node.is_ready:
            return
        if node.requirements:
            self.requirements.judge(node)
        if node.waiting:
            return
        if node.reads:
            self.requirements.note_missing(node)
        if node.lacking:
            self.requirements.suspect(node)
            return
        node.is_ready = True
        self.pending -= 1
        self.ready.append(node)

    def _make_ready(self, node: Node) -> None:
        """Let a node start whatever it still waits for."""
        node.is_ready = True
        self.pending -= 1
        self.ready.append(node)

    def _doom(self, node: Node, why: Why) -> None:
        if not node.ended and not node.is_doomed:
            node.is_doomed = True
            node.why = why
            self.doomed.append(node)

    def _free(self, waiters: list[Node | Barrier]) -> None:
        """Something that each of these waited for has ended."""
        further: list[Node | Barrier] = []
        for waiter in chain(waiters, further):  # which grows while barriers end
            waiter.waiting -= 1
            if waiter.waiting == 0:
                if isinstance(waiter, Node):
                    self._offer(waiter)
                elif isinstance(waiter, Gate):
                    if self.requirements.gate_opened(waiter.requirement):
                        self._offer(waiter.requirement.node)
                else:
                    further += waiter.dependants
                    waiter.dependants = NONE
