"""Simulation of nodes over the pure decisions: a virtual clock, late messages, nodes that vanish, stop or come back.

Each node asks the database by messages that take some time, or are lost; a transaction of the database happens in one
instant. An oracle outside looks at every commit and every change of an owner. Seeded bugs are subclasses.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count

from msgspec.structs import replace

from memory.postgres.cluster.decisions import (
    LOSSES,
    LOST_WITHIN,
    PARTITIONS,
    RENEW_EVERY,
    TTL,
    Lease,
    Node,
    Partition,
    View,
    format_of,
    format_step,
    is_alive,
    plan,
)

LOOK_EVERY = 0.5
NODES = 100


class World:
    """Virtual time and the messages that are under way."""

    def __init__(self, seed: int) -> None:
        self.now, self.random = 0.0, random.Random(seed)
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._order = count()

    def after(self, seconds: float, act: Callable[[], object]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._order), act))

    def delay(self, longest: float = 0.5) -> float:
        """Return how long a message takes: mostly milliseconds, sometimes up to `longest` seconds."""
        draw = self.random.random()
        return self.random.uniform(0.0005, 0.02) if draw < 0.99 else self.random.uniform(0.02, longest)

    def run(self, until: float) -> None:
        while self._events and self._events[0][0] <= until:
            self.now, _, act = heapq.heappop(self._events)
            act()
        self.now = until


@dataclass
class Poison:
    """Work that ends each node that begins it, before anything of that is on disk but its last attempt."""

    is_last: bool = False
    is_put_aside: bool = False
    deaths: int = 0


@dataclass
class Row:
    """Row of a partition, with the work that waits in it."""

    owner: str | None = None
    epoch: int = 0
    written: int = 0  # the epoch of its newest fact
    waiting: list[float] = field(default_factory=list)  # when each was accepted
    losses: int = 0
    lost_at: float = float("-inf")
    poison: Poison | None = None  # work that waits and ends each node that begins it


class Database:
    """Rows of nodes and partitions. Each method is one transaction."""

    next_format = staticmethod(format_step)

    def __init__(self, world: World) -> None:
        self.world = world
        self.nodes: dict[str, Node] = {}
        self.formats: tuple[int, ...] = (1,)
        self.rows = [Row() for _ in range(PARTITIONS)]
        self.errors: list[str] = []
        self.slowest = 0.0  # seconds that work has waited for its owner
        self.commits = self.refused = 0
        self._view: View | None = None

    def until(self, clock: float) -> float:
        """Return the end of a lease. Args: clock: the time of the node that asks."""
        return self.world.now + TTL

    def join(self, token: str, clock: float, highest: int) -> int:
        """Return the format in which a node writes; 0 if it does not know the one in force."""
        format = format_of(self.formats, 1, highest)
        self.nodes[token] = Node(token, self.until(clock), highest=highest, format=format)
        self._view = None
        return format

    def change_format(self) -> None:
        """Do what comes next for the format."""
        step, self._view = self.next_format(self.view()), None
        if step:
            self.formats = (*self.formats, self.formats[-1] + 1) if step == "rise" else self.formats[-1:]

    def renew(self, token: str, clock: float, format: int) -> bool:
        node = self.nodes.get(token)
        if node is None or self.world.now >= node.until:
            return False
        self.nodes[token] = replace(node, until=self.until(clock), format=format)
        return True

    def gone(self, token: str) -> None:
        """Note that the connection of a node is gone."""
        if (node := self.nodes.get(token)) is not None:
            self.nodes[token] = replace(node, is_connected=False)

    def view(self) -> View:
        if self._view is None:
            rows = tuple(Partition(id, row.owner, row.epoch) for id, row in enumerate(self.rows))
            self._view = View(0.0, self.nodes, rows)
        return View(self.world.now, self.nodes, self._view.partitions, self.formats)

    def take(self, token: str, wanted: Iterable[int]) -> dict[int, int]:
        """Give free partitions to a node. Return their epochs."""
        self._view, node = None, self.nodes.get(token)
        if node is None or self.world.now >= node.until:
            return {}
        taken = {}
        for id in wanted:
            row = self.rows[id]
            owner = self.nodes.get(row.owner or "")
            if owner is None or not owner.is_connected or self.world.now >= owner.until:
                if row.owner is not None:
                    is_late = self.world.now > row.lost_at + LOST_WITHIN
                    row.losses, row.lost_at = (0 if is_late else row.losses) + 1, self.world.now
                row.owner, row.epoch = token, row.epoch + 1
                taken[id] = row.epoch
        return taken

    def release(self, token: str, ids: Iterable[int]) -> None:
        self._view = None
        for id in ids:
            if self.rows[id].owner == token:
                self.rows[id].owner = None

    def leave(self, token: str) -> None:
        self.release(token, range(PARTITIONS))
        self.nodes.pop(token, None)

    def commit(self, token: str, id: int, epoch: int, format: int) -> None:
        """Write a fact of a partition, if its owner is still this one."""
        row, node = self.rows[id], self.nodes.get(token)
        if (row.owner, row.epoch) == (token, epoch) and node is not None and is_alive(node, self.world.now):
            if format not in self.formats or node.highest < max(self.formats):
                self.errors.append(f"{self.world.now:.3f}: {token} writes format {format} of {self.formats}")
            self.write(id, epoch)
        else:
            self.refused += 1

    def write(self, id: int, epoch: int) -> None:
        row = self.rows[id]
        self.commits += 1
        if epoch < row.epoch or epoch < row.written:
            self.errors.append(f"{self.world.now:.3f}: partition {id} written in epoch {epoch}, it is in {row.epoch}")
        row.written = max(row.written, epoch)

    def serve(self, token: str, id: int) -> None:
        """Have the owner take the work that waits in a partition."""
        row = self.rows[id]
        if row.owner == token:
            for at in row.waiting:
                self.slowest = max(self.slowest, self.world.now - at)
            row.waiting.clear()


class SimulatedNode:
    """Process with a clock of its own. It knows of the database what the answers to its messages say."""

    polls = True

    def __init__(self, world: World, database: Database, name: str, tokens: Iterator[int], highest: int) -> None:
        self.world, self.database, self.name, self._tokens = world, database, name, tokens
        self.highest, self.format = highest, 0
        self.offset = world.random.uniform(-3_600, 3_600)
        self.is_alive, self.is_stopped = True, False
        self.token, self.lease = "", Lease(float("-inf"))
        self.owned: dict[int, int] = {}
        self._left: list[Callable[[], object]] = []  # what happens once it is no longer stopped
        self._join()
        world.after(world.random.uniform(0, LOOK_EVERY), self._tick)
        world.after(world.random.uniform(0, 0.2), self._work)

    # -- its clock and its messages

    @property
    def clock(self) -> float:
        return self.world.now + self.offset

    @property
    def is_valid(self) -> bool:
        """Return whether it believes that it may work."""
        return self.is_alive and bool(self.token) and self.lease.is_valid(self.clock)

    def ask(self, act: Callable[[], object], then: Callable[[object], object], longest: float = 0.5) -> None:
        """Send a message; the answer comes later. A process that is stopped gets it when it goes on."""

        def arrived() -> None:
            answer = act()
            self.world.after(self.world.delay(), lambda: self._resumed(lambda: then(answer)))

        self.world.after(self.world.delay(longest), arrived)

    def _resumed(self, act: Callable[[], object]) -> None:
        if self.is_stopped:
            self._left.append(act)
        elif self.is_alive:
            act()

    # -- its life

    def new_token(self) -> str:
        return f"{self.name}-{next(self._tokens)}"

    def _join(self) -> None:
        token, asked_at, clock = self.new_token(), self.clock, self.clock
        self.token, self.owned = "", {}

        def joined(format: object) -> None:
            assert isinstance(format, int)
            self.token, self.lease, self.format = token, Lease(asked_at if format else float("-inf")), format

        self.ask(lambda: self.database.join(token, clock, self.highest), joined)

    def lose(self) -> None:
        """End its work, and begin anew under another token."""
        old = self.token
        self.ask(lambda: self.database.leave(old), lambda _: None)
        self._join()

    def _tick(self) -> None:
        self.world.after(LOOK_EVERY, lambda: self._resumed(self._tick))
        if not self.token:
            return
        if not self.is_valid:  # one that does not know the format in force joins again and again
            self.lose()
            return
        token, asked_at, format = self.token, self.clock, self.format
        if asked_at >= self.lease.asked_at + RENEW_EVERY - LOOK_EVERY / 2:
            self.ask(
                lambda: self.database.renew(token, asked_at, format),
                lambda good: self._renewed(token, asked_at, good),
            )
        self.ask(self.database.view, lambda view: self._looked(token, view))

    def _renewed(self, token: str, asked_at: float, good: object) -> None:
        if token != self.token:
            return
        if good and self.is_valid:
            self.lease = Lease(max(asked_at, self.lease.asked_at))
        else:  # what was over for a moment is over for good: answers that came then were left aside
            self.lose()

    def _looked(self, token: str, view: object) -> None:
        assert isinstance(view, View)
        if token != self.token or not self.is_valid:
            return
        self.format = format_of(view.formats, 1, self.highest)
        if not self.format:
            self.lose()
            return
        if self.database.next_format(view):
            self.ask(self.database.change_format, lambda _: None)
        chosen = plan(view, token)
        if chosen.hand_over:
            ids = [id for id in chosen.hand_over if self.owned.pop(id, None)]
            self.ask(lambda: self.database.release(token, ids), lambda _: None)
        if chosen.take:
            self.ask(lambda: self._taken(token, chosen.take), lambda taken: self._gained(token, taken))
        if self.polls:
            self._serve(list(self.owned))

    def _taken(self, token: str, wanted: Iterable[int]) -> dict[int, int]:
        return self.database.take(token, wanted)

    def _gained(self, token: str, taken: object) -> None:
        assert isinstance(taken, dict)
        if token == self.token and self.is_valid:
            self.owned.update(taken)
            self._serve(list(taken))

    def wake(self, id: int) -> None:
        self._resumed(lambda: self._serve([id] if id in self.owned else []))

    def _serve(self, ids: Iterable[int]) -> None:
        if self.is_valid:
            token = self.token
            for id in ids:
                row = self.database.rows[id]
                if row.poison is not None and not row.poison.is_put_aside and row.owner == token:
                    self._begin(row.poison, row)
                if row.waiting:
                    self.world.after(self.world.delay(), lambda id=id: self.database.serve(token, id))

    def _begin(self, poison: Poison, row: Row) -> None:
        if poison.is_last:
            poison.is_put_aside = True
            return
        poison.is_last = row.losses >= LOSSES
        poison.deaths += 1
        self.vanish(is_seen=self.world.random.random() < 0.9)

    def _work(self) -> None:
        self.world.after(self.world.random.uniform(0.5, 1.5), lambda: self._resumed(self._work))
        if self.is_valid and self.owned:
            token, id = self.token, self.world.random.choice(list(self.owned))
            epoch = self.owned[id]
            self.ask(lambda: self.database.commit(token, id, epoch, self.format), lambda _: None, longest=2 * TTL)

    # -- what happens to it

    def vanish(self, *, is_seen: bool) -> None:
        """End it like a kill. Args: is_seen: whether the database notices that its connection is gone."""
        self.is_alive = False
        if is_seen:
            token = self.token
            self.world.after(self.world.random.uniform(0, 0.05), lambda: self.database.gone(token))

    def stop(self, seconds: float) -> None:
        """Let it stand still for some seconds, like a machine that sleeps."""
        self.is_stopped = True
        self.world.after(seconds, self._go_on)

    def _go_on(self) -> None:
        self.is_stopped, left = False, self._left
        self._left = []
        for act in left:
            act()


class Cluster:
    """Nodes, their database, and an oracle outside of them."""

    def __init__(
        self, seed: int, number: int, *, database: type[Database] = Database, node: type[SimulatedNode] = SimulatedNode,
        older: int = 0,
    ) -> None:  # fmt: skip
        """Args: older: the number of nodes that do not know the second format."""
        self.world = World(seed)
        self.database = database(self.world)
        self._node, self._tokens = node, count()
        self.nodes = [
            node(self.world, self.database, f"node{index}", self._tokens, 1 if index < older else 2)
            for index in range(number)
        ]
        self.overlaps: list[str] = []
        self._owned_at = [0.0] * PARTITIONS  # when each partition was last seen with an owner that works
        self.longest = 0.0  # seconds in which one had none
        self.world.after(0.1, self._look)
        self.world.after(0.1, self._accept)

    def add(self, name: str) -> SimulatedNode:
        node = self._node(self.world, self.database, name, self._tokens, 2)
        self.nodes.append(node)
        return node

    def _look(self) -> None:
        """Note every partition that two nodes believe to own, and for how long one has no owner. The process of a
        connection that is gone is dead."""
        self.world.after(0.1, self._look)
        owners: dict[int, SimulatedNode] = {}
        for node in self.nodes:
            if node.is_valid and not node.is_stopped:
                for id in node.owned:
                    if (other := owners.setdefault(id, node)) is not node:
                        self.overlaps.append(f"{self.world.now:.3f}: {id} of {node.token} and {other.token}")
        for id, at in enumerate(self._owned_at):
            if id in owners:
                self._owned_at[id] = self.world.now
            else:
                self.longest = max(self.longest, self.world.now - at)

    def _accept(self) -> None:
        """Accept work in any partition; half of the wakes are lost."""
        self.world.after(0.05, self._accept)
        id = self.world.random.randrange(PARTITIONS)
        row = self.database.rows[id]
        row.waiting.append(self.world.now)
        for node in self.nodes:
            if node.token == row.owner and self.world.random.random() < 0.5:
                self.world.after(self.world.delay(), lambda node=node: node.wake(id))

    @property
    def unowned(self) -> list[int]:
        """Return the partitions that no node works on."""
        owned = {id for node in self.nodes if node.is_valid and not node.is_stopped for id in node.owned}
        return sorted(set(range(PARTITIONS)) - owned)

    @property
    def late(self) -> list[int]:
        """Return the partitions in which work has waited for more than the longest time without an owner."""
        limit = self.world.now - TTL - 2.0
        return [id for id, row in enumerate(self.database.rows) if row.waiting and row.waiting[0] < limit]

    def settle(self) -> None:
        """Wait until each partition has an owner again, at most 30 seconds."""
        until = self.world.now + 30
        while self.unowned and self.world.now < until:
            self.world.run(self.world.now + 0.1)


def lived(seed: int, number: int = NODES, **bugs: type) -> tuple[Cluster, float]:
    """Let nodes live through losses. Return them, and the longest time in which a partition had no owner."""
    fifth = max(1, number // 5)
    cluster = Cluster(seed, number, older=fifth + 5, **bugs)
    world, nodes = cluster.world, list(cluster.nodes)
    cluster.settle()
    cluster.longest = 0.0
    world.random.shuffle(nodes)
    nodes.sort(key=lambda node: node.highest)  # those of the former release end or stand still
    for node in nodes[:fifth]:
        node.vanish(is_seen=world.random.random() < 0.5)
    for index, node in enumerate(nodes[fifth : fifth + 3]):
        node.stop(world.random.uniform(2, 10))
        if index == 0:
            world.after(0.5, lambda name=node.name: cluster.add(name))  # its supervisor takes it for dead
    for node in nodes[fifth + 3 : fifth + 5]:
        world.after(world.random.uniform(1, 4), lambda node=node: node.vanish(is_seen=True))
    cluster.settle()
    for node in nodes[:3]:
        cluster.add(node.name)
    world.run(world.now + 6)
    cluster.settle()
    return cluster, cluster.longest


def signs_of(cluster: Cluster, slowest: float) -> set[str]:
    """Return what the oracle has seen."""
    seen = {
        "two owners": bool(cluster.overlaps),
        "stale row": bool(cluster.database.errors),
        "no owner": slowest > TTL + 2.0,
        "not served": bool(cluster.late),
        "format waits": bool(format_step(cluster.database.view())),
    }
    return {name for name, is_seen in seen.items() if is_seen}
