"""Decisions of a node, from what one look at the database shows: pure functions.

A session belongs to one of 256 partitions by a hash. Rendezvous hashing gives each partition to one of the live nodes:
each node computes the same owners from the same rows, and a node that comes or goes changes no owner but its own. All
times of the database are of its clock alone; a node counts its own lease from before it asked for it. The format of
the database rises when all live nodes know the next one, so that releases can be exchanged one node after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import blake2b, shake_128
from struct import unpack
from typing import Final, Literal

from msgspec import Struct

PARTITIONS: Final = 256
#: Seconds for which a lease holds by the clock of the database, and seconds between two renewals.
TTL: Final = 3.0
RENEW_EVERY: Final = 1.0
#: Seconds by which a node's own lease ends sooner: for what is under way then.
MARGIN: Final = 0.5
#: Seconds by which the clock of a node may differ from that of the database until people are told.
CLOCK_WITHIN: Final = 5.0
#: Number of owners that ended without giving a partition up, within so many seconds, after which its work is suspected.
LOSSES: Final = 2
LOST_WITHIN: Final = 600.0


class Node(Struct, frozen=True):
    """Row of a node: the end of its lease by the database's clock, and whether its connection is still there.

    Args: highest: the highest format that it knows; format: that in which it writes, 0 if it does not know the one in
        force.
    """

    token: str
    until: float
    is_draining: bool = False
    is_connected: bool = True
    highest: int = 1
    format: int = 1


class Partition(Struct, frozen=True):
    """Row of a partition: its owner's token, None if nobody owns it."""

    id: int
    owner: str | None = None
    epoch: int = 0


class View(Struct, frozen=True):
    """Look at the database: its clock, nodes by token, all partitions by id, the formats whose tables are there."""

    now: float
    nodes: Mapping[str, Node]
    partitions: tuple[Partition, ...]
    formats: tuple[int, ...] = (1,)


class Plan(Struct, frozen=True):
    """Partitions that a node takes now, and those that it hands over as soon as their cycles have ended."""

    take: tuple[int, ...] = ()
    hand_over: tuple[int, ...] = ()


class Lease(Struct, frozen=True):
    """Lease of a node by its own clock, which counts the time that the machine sleeps.

    Args: asked_at: when the last renewal that succeeded was sent. The database received it later, so that its own lease
        ends later than this one.
    """

    asked_at: float

    def is_valid(self, now: float) -> bool:
        """Return whether the node may begin and commit work."""
        return now < self.asked_at + TTL - MARGIN


@lru_cache(4_096)
def partition_of(agent: str, session: str) -> int:
    """Return the partition of a session. The rows in a database depend on it: it never changes."""
    return blake2b(f"{agent}\0{session}".encode("utf-8", "surrogatepass"), digest_size=1).digest()[0]


def is_alive(node: Node | None, now: float) -> bool:
    """Return whether a node keeps its partitions: it has a row, its lease holds, and its connection is there."""
    return node is not None and node.is_connected and now < node.until


def clock_ahead(before: float, now: float, after: float) -> float:
    """Return the seconds by which the clock of a node is ahead of the database's, negative if it is behind; 0 within
    the bound. Args: now: the time by the database, asked for between two times of the node.
    """
    ahead = max(before - now, 0.0) or min(after - now, 0.0)
    return ahead if abs(ahead) > CLOCK_WITHIN else 0.0


def format_of(formats: Iterable[int], lowest: int, highest: int) -> int:
    """Return the format in which a node with a range of formats writes; 0 if it does not know the one in force."""
    present = max(formats)
    return present if lowest <= present <= highest else 0


def format_step(view: View) -> Literal["", "rise", "remove"]:
    """Return what comes next for the format: the next one is in force once all live nodes know it; the former one is
    removed once none of them writes it. So all live nodes write one of two formats, and know both.
    """
    now, present = view.now, max(view.formats)
    live = [node for node in view.nodes.values() if now < node.until and node.is_connected]
    if {node.format for node in live} - {0, present}:
        return ""
    if len(view.formats) > 1:
        return "remove"
    return "rise" if live and all(node.highest > present for node in live) else ""


def plan(view: View, token: str) -> Plan:
    """Return what a node takes and hands over. It hands nothing over if no other node could take it."""
    now = view.now
    alive = [node for node in view.nodes.values() if node.format and now < node.until and node.is_connected]
    tokens = frozenset([node.token for node in alive])
    if token not in tokens:
        return Plan()
    own = _shares(frozenset([node.token for node in alive if not node.is_draining]) or tokens).get(token, ())
    held = [partition.id for partition in view.partitions if partition.owner == token]
    take = tuple([id for id in own if view.partitions[id].owner not in tokens])
    return Plan(take, tuple(sorted(set(held).difference(own))))


@lru_cache(64)
def _shares(tokens: frozenset[str]) -> dict[str, list[int]]:
    """Return the partitions of each node: those for which it has the greatest weight (rendezvous hashing)."""
    ordered, shares = sorted(tokens), dict[str, list[int]]()
    for id, column in enumerate(zip(*map(_weights, ordered), strict=True)):
        shares.setdefault(ordered[column.index(max(column))], []).append(id)
    return shares


@lru_cache(1_024)
def _weights(token: str) -> tuple[int, ...]:
    """Return the weight of a node for each partition."""
    return unpack(f"<{PARTITIONS}Q", shake_128(token.encode()).digest(PARTITIONS * 8))
