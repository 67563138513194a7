"""A hundred nodes: no partition ever has two owners, all are owned soon after nodes vanish, and seeded bugs show."""

from __future__ import annotations

from typing import Literal

import pytest

from memory.postgres.cluster.decisions import PARTITIONS, TTL, Node, Partition, View, format_step, partition_of, plan
from tests.cluster.simulated import NODES, Cluster, Database, Poison, SimulatedNode, lived, signs_of

SEEDS = 40


@pytest.mark.parametrize("seed", range(3))  # a hundred of them are in the short form of the table
def test_no_partition_has_two_owners_and_all_are_owned_soon_after_a_loss(seed: int) -> None:
    cluster, slowest = lived(seed)
    assert signs_of(cluster, slowest) == set(), (cluster.overlaps[:3], cluster.database.errors[:3], slowest)
    assert cluster.database.commits > NODES


@pytest.mark.parametrize("seed", range(5))
def test_work_that_ends_each_node_ends_three_and_is_put_aside(seed: int) -> None:
    cluster = Cluster(seed, 20)
    cluster.settle()
    poisons = [Poison() for _ in range(3)]
    for poison, row in zip(poisons, cluster.world.random.sample(cluster.database.rows, 3), strict=True):
        row.poison = poison
        cluster.world.run(cluster.world.now + cluster.world.random.uniform(0, 5))
    cluster.world.run(cluster.world.now + 30)
    assert all(poison.is_put_aside and poison.deaths <= 3 for poison in poisons), poisons
    assert not cluster.unowned


class Unfenced(Database):
    def commit(self, token: str, id: int, epoch: int, format: int) -> None:
        self.write(id, epoch)


class FencedOutside(Database):
    def commit(self, token: str, id: int, epoch: int, format: int) -> None:
        if (self.rows[id].owner, self.rows[id].epoch) == (token, epoch):
            self.world.after(self.world.delay(2 * TTL), lambda: self.write(id, epoch))


class HostClock(Database):
    def until(self, clock: float) -> float:
        return clock + TTL


class RisesTooSoon(Database):
    @staticmethod
    def next_format(view: View) -> Literal["", "rise", "remove"]:
        is_due = view.now > 2 and view.formats[-1] < max(node.highest for node in view.nodes.values())
        return "rise" if is_due else format_step(view)


class RemovesTooSoon(Database):
    @staticmethod
    def next_format(view: View) -> Literal["", "rise", "remove"]:
        return "remove" if len(view.formats) > 1 else format_step(view)


class NameAsToken(SimulatedNode):
    def new_token(self) -> str:
        return self.name


class WakeOnly(SimulatedNode):
    polls = False


@pytest.mark.parametrize(
    ("bug", "signs"),
    [
        ({"database": Unfenced}, {"stale row"}),
        ({"database": FencedOutside}, {"stale row"}),
        ({"database": HostClock}, {"no owner"}),
        ({"database": RisesTooSoon}, {"stale row"}),
        ({"database": RemovesTooSoon}, {"stale row"}),
        ({"node": NameAsToken}, {"two owners"}),
        ({"node": WakeOnly}, {"not served"}),
    ],
)
def test_a_seeded_bug_shows(bug: dict[str, type], signs: set[str]) -> None:
    seen: set[str] = set()
    for seed in range(SEEDS):
        seen |= signs_of(*lived(seed, 20, **bug))
        if signs <= seen:
            break
    assert signs <= seen


def view(owners: dict[int, str], *nodes: Node, now: float = 0.0) -> View:
    rows = tuple(Partition(id, owners.get(id)) for id in range(PARTITIONS))
    return View(now, {node.token: node for node in nodes}, rows)


def test_a_node_that_joins_changes_no_owner_but_to_itself() -> None:
    a, b, c = (Node(token, 1.0) for token in "abc")
    owners = {id: token for token in "ab" for id in plan(view({}, a, b), token).take}
    assert len(owners) == PARTITIONS
    handed_over = {id for token in "ab" for id in plan(view(owners, a, b, c), token).hand_over}
    assert 0 < len(handed_over) < PARTITIONS / 2
    left = {id: token for id, token in owners.items() if id not in handed_over}
    assert set(plan(view(left, a, b, c), "c").take) == handed_over
    assert plan(view(left, a, b, c), "a").take == plan(view(left, a, b, c), "b").take == ()


def test_a_node_that_drains_hands_all_over_unless_it_is_alone() -> None:
    owners = dict.fromkeys(range(PARTITIONS), "a")
    draining, other = Node("a", 1.0, is_draining=True), Node("b", 1.0)
    assert plan(view(owners, draining, other), "a").hand_over == tuple(range(PARTITIONS))
    assert plan(view(owners, draining), "a").hand_over == ()
    assert plan(view({}, draining, other), "a").take == ()


def test_a_partition_is_free_once_the_lease_is_over_or_the_connection_is_gone() -> None:
    owners = dict.fromkeys(range(PARTITIONS), "a")
    b = Node("b", 9.0)
    assert plan(view(owners, Node("a", 1.0), b, now=0.9), "b").take == ()
    assert len(plan(view(owners, Node("a", 1.0), b, now=1.0), "b").take) == PARTITIONS
    assert len(plan(view(owners, Node("a", 5.0, is_connected=False), b), "b").take) == PARTITIONS
    assert plan(view({}, Node("b", 1.0), now=1.0), "b").take == ()


def test_the_partition_of_a_session_never_changes() -> None:
    assert [partition_of("main", key) for key in ("main", "mail:ada", "ü")] == [56, 5, 197]
