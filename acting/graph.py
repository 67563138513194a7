"""Which call may start: references and `after` made into dependencies. Pure: no clock, no tasks, no tools.

A call waits for three things: the calls it names in `after`; every earlier call that is still to write where
it reads (program order); and a value at each path it reads. The work is proportional to calls + references:
a countdown per call, an index by path, and nobody ever scans what remains. Readers of a path that many calls
write to share one `Barrier` instead of an edge each.

The caller adds calls in the order of arrival, says when one ended and what was written, and empties `ready`
(may start) and `doomed` (must be skipped: what they named ended badly). `stuck` says, once nothing runs, what
can never start and why.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from acting.paths import Path, overlaps, render, shorten
from acting.places import NOBODY, Barrier, Group, Node, Place, present, set_unfed, upwards

Why = Literal["bad_reference", "dep_failed"]


class Graph:
    """The calls of one tick. `has(path)` says whether a value stands at a path now."""

    def __init__(self, has: Callable[[Path], bool]) -> None:
        self._has = has
        self._roots: dict[str, Place] = {}
        self._known: dict[str, Node] = {}
        self._awaited: dict[str, list[Node]] = {}
        self._stalled: dict[Node, None] = {}
        self.pending = 0  # neither ready nor ended
        self.ready: list[Node] = []
        self.doomed: list[Node] = []

    def knows(self, id: str) -> bool:
        return id in self._known

    def ended_well(self, id: str) -> bool:
        return id in self._known and self._known[id].ok

    def refuse(self, node: Node, write: Path | None = None) -> None:
        """Take in a call that will not run, so that what names it or reads what it was to write learns that."""
        self.pending += 1
        self._known.setdefault(node.id, node)
        if write is not None:
            node.write = write
            self._register(node, write)
        node.followers += self._awaited.pop(node.id, ())

    def add(
        self, node: Node, reads: tuple[Path, ...] = (), write: Path | None = None, after: tuple[str, ...] = ()
    ) -> bool:
        """Take in the next call; False if it closes a cycle: the caller must then end it.

        Of two calls with one id the first keeps it.
        """
        self.pending += 1
        node.reads, node.write = reads, write
        self._known.setdefault(node.id, node)
        circular = self._follow(node, after) if after else False
        missing = [path for path in reads if not self._block(node, path) and not self._has(path)] if reads else []
        if write is not None and any(overlaps(write, path) for path in missing):
            circular = True  # it waits for what it alone is to write
        fed = self._register(node, write) if write is not None else []
        awaiting = self._awaited.pop(node.id, None) or []
        if fed or awaiting:
            circular = circular or _reaches(node, [*(reader for reader, _ in fed), *awaiting])
            for reader in awaiting:
                node.followers.append(reader)
                reader.blockers.append(node)
            for reader, path in fed:
                set_unfed(reader, path, reader.missing[path], fed=True)
                node.feeds.append((reader, path))
                reader.blockers.append(node)
        if circular:
            return False
        for path in missing:
            self._wait(node, path)
        if node.waiting == 0 and not node.is_doomed:
            self._offer(node)
        return True

    def end(self, node: Node, ok: bool) -> None:
        """A call has ended: free, or doom, what waits for it. Idempotent."""
        if node.ended:
            return
        node.ended, node.ok = True, ok
        if not node.is_ready:
            self.pending -= 1
            self._stalled.pop(node, None)
            for path in list(node.missing):
                self._unwait(node, path)
        if node.places:
            for place in node.places:
                place.live_sub -= 1
                place.failed_sub |= not ok
            last = node.places[-1]
            last.live_own -= 1
            last.failed_own |= not ok
        for reader, path in node.feeds:
            if path in reader.missing:
                set_unfed(reader, path, reader.missing[path], fed=False)
        free: list[Node | Barrier] = list(node.dependants)
        for follower in node.followers:
            if ok:
                free.append(follower)
            else:
                self._doom(follower)
        for waiter in free:  # grows while barriers end
            waiter.waiting -= 1
            if waiter.waiting == 0:
                if isinstance(waiter, Barrier):
                    free.extend(waiter.dependants)
                else:
                    self._offer(waiter)

    def written(self, path: Path, value: Any) -> None:
        """A value now stands at `path` (or was merged into it): wake the readers that have theirs now."""
        place: Place | None = self._roots.get(path[0])
        if place is None or not place.waiters_sub:
            return
        woken: list[tuple[Node, Path]] = []
        for segment in path[1:]:
            woken += place.waiters.items()
            place = place.children.get(segment)
            if place is None:
                break
        else:
            woken += (item for below in present(place, value) for item in below.waiters.items())
        for node, missed in woken:
            self._unwait(node, missed)
            if node.waiting == 0 and not node.missing:
                self._offer(node)

    def stuck(self) -> tuple[list[Node], Why, str] | None:
        """Calls that can never start, as far as nothing else runs; why, and of which id or path. None: nobody waits."""
        if self._awaited:
            id, nodes = self._awaited.popitem()
            waiting = [node for node in nodes if not node.ended]
            return waiting, "bad_reference", f"no call has the id {shorten(id)} that it is to run after"
        for node in self._stalled:
            path = next(iter(node.missing))
            if self._expected(node, path):
                return [node], "dep_failed", f"the call that was to write {render(path)!r} did not end well"
            return [node], "bad_reference", f"nothing stands at {render(path)!r} and no call writes it"
        return None

    # -- inside

    def _follow(self, node: Node, after: tuple[str, ...]) -> bool:
        """Wait for the calls named; True if it names itself."""
        circular = False
        for id in dict.fromkeys(after):
            other = self._known.get(id)
            if other is node:
                circular = True
            elif other is None:
                self._awaited.setdefault(id, []).append(node)
                node.waiting += 1
            elif not other.ended:
                other.followers.append(node)
                node.blockers.append(other)
                node.waiting += 1
            elif not other.ok:
                self._doom(node)
        return circular

    def _block(self, node: Node, path: Path) -> bool:
        """Wait for the earlier calls that write where `path` reads; False if none lives."""
        place = self._roots.get(path[0])
        if place is None or not place.live_sub:
            return False
        blocked = False
        for segment in path[1:]:
            if place.live_own and place.own:
                blocked |= place.own.block(node)
            below = place.children.get(segment)
            if below is None:
                return blocked
            place = below
        return (place.live_sub > 0 and place.sub is not None and place.sub.block(node)) or blocked

    def _register(self, node: Node, path: Path) -> list[tuple[Node, Path]]:
        """Note who writes here; returns the readers that wait for just that and that nobody else feeds."""
        places = node.places = self._walk(path)
        fed: list[tuple[Node, Path]] = []
        for place in places:
            place.live_sub += 1
            if place.sub is None:
                place.sub = Group()
            place.sub.fresh.append(node)
            if place.unfed:
                fed += place.unfed.items()
        last = places[-1]
        last.live_own += 1
        if last.own is None:
            last.own = Group()
        last.own.fresh.append(node)
        stack = list(last.children.values()) if last.unfed_sub > len(last.unfed) else []
        while stack:
            place = stack.pop()
            if place.unfed_sub:
                fed += place.unfed.items()
                stack += place.children.values()
        return fed

    def _walk(self, path: Path) -> list[Place]:
        place = self._roots.get(path[0])
        if place is None:
            place = self._roots[path[0]] = Place(None)
        places = [place]
        for segment in path[1:]:
            below = place.children.get(segment)
            if below is None:
                below = place.children[segment] = Place(place)
            places.append(below)
            place = below
        return places

    def _wait(self, node: Node, path: Path) -> None:
        place = self._walk(path)[-1]
        node.missing[path] = place
        if place.waiters is NOBODY:
            place.waiters, place.unfed = {}, {}
        place.waiters[node] = path
        for above in upwards(place):
            above.waiters_sub += 1
        set_unfed(node, path, place, fed=False)

    def _unwait(self, node: Node, path: Path) -> None:
        place = node.missing.pop(path)
        del place.waiters[node]
        for above in upwards(place):
            above.waiters_sub -= 1
        set_unfed(node, path, place, fed=True)

    def _offer(self, node: Node) -> None:
        """Nothing blocks it any more: it is ready if a value stands at each path, else it waits for values."""
        if node.ended or node.is_doomed or node.is_ready:
            return
        for path in node.reads:
            if path not in node.missing and not self._has(path):
                self._wait(node, path)
        if node.missing:
            self._stalled[node] = None
            return
        self._stalled.pop(node, None)
        node.is_ready = True
        self.pending -= 1
        self.ready.append(node)

    def _doom(self, node: Node) -> None:
        if not node.ended and not node.is_doomed:
            node.is_doomed = True
            self.doomed.append(node)

    def _expected(self, node: Node, path: Path) -> bool:
        """Whether somebody else was to write what `path` reads and failed, or is stuck himself."""
        place = self._roots[path[0]]
        own = 1 if node.write is not None and overlaps(node.write, path) else 0
        live, failed = 0, False
        for segment in path[1:]:
            live, failed = live + place.live_own, failed or place.failed_own
            place = place.children[segment]
        return failed or place.failed_sub or live + place.live_sub > own


def _reaches(node: Node, waiters: list[Node]) -> bool:
    """Whether one of `waiters` is among what `node` itself waits for, directly or not.

    Searches back from the node and forward from the waiters in turns, so that it costs the smaller of the two:
    a plan given in reverse order has a long way forward and none back.
    """
    back: list[Node | Barrier] = [node]
    forward: list[Node | Barrier] = list(waiters)
    before: set[Node | Barrier] = {node}
    behind: set[Node | Barrier] = set(waiters)
    if node in behind:
        return True
    while back and forward:
        for near in back.pop().blockers:
            if near in behind:
                return True
            if near not in before and not near.ended:
                before.add(near)
                back.append(near)
        here = forward.pop()
        followers = [*here.followers, *(reader for reader, _ in here.feeds)] if isinstance(here, Node) else []
        for far in (*here.dependants, *followers):
            if far in before:
                return True
            if far not in behind and not far.ended:
                behind.add(far)
                forward.append(far)
    return False
