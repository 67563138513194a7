"""Present lease of this node and the partitions that it owns, as all its threads see them.

The thread of the lease writes the lease, the event loop writes the partitions. Both are read everywhere.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping, Set

from memory.engine.transactions import Rejected
from memory.postgres.cluster.decisions import Lease, partition_of
from spar.errors import TransientError

#: Partition and epoch of a row, None if the row belongs to no session.
Share = tuple[int, int] | None


class LeaseOverError(TransientError):
    """Error of work that this node may not do any more: its lease is over, or another node owns the session."""


class Fenced(Rejected):
    """Result of work that was not written, since it is another node's: a waiting caller gets the error."""


def present() -> float:
    """Return the time by which a lease is counted, in seconds; it goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Ownership:
    """Lease and partitions of this node.

    Attributes: token: "" while there is no lease; begun: the lease that the event loop works under, which hears of
        a change later than the other threads; partitions: the epoch of each partition that it owns; to_leave: those
        that others are to have; format: that in which this node writes, 0 if it does not know the one in force;
        held: those of the partitions that the present transaction wants, with their epochs, which this node owns
        until its commit; only the writer's thread uses it; trouble: why there is no lease; beat: counts the turns
        of the event loop; fenced, takeovers: count the partitions that were lost before this node knew it, and
        those that it took.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.token, self.begun, self._lease = "", "", Lease(float("-inf"))
        self.format, self.trouble = 0, ""
        self.partitions: Mapping[int, int] = {}
        self.to_leave: frozenset[int] = frozenset()
        self.held: Set[tuple[int, int]] = frozenset()
        self.beat = self.fenced = self.takeovers = 0
        self._over = ""  # the last lease that was lost
        self._suspect: dict[int, float] = {}  # until when each partition is suspect that was lost too often
        self._lock = threading.Lock()

    def hold(self, token: str, asked_at: float) -> bool:
        """Note that a lease was given or renewed, unless it was over meanwhile. Return whether it holds.

        What was over for a moment is over for good, since rows that were added then were left out.

        Args: asked_at: when that was asked for.
        """
        with self._lock:
            if token == self._over or (token == self.token and not self._lease.is_valid(present())):
                return False
            self._lease, self.token = Lease(asked_at), token
            return True

    def lose(self, token: str) -> None:
        """Note that a lease is over for good."""
        with self._lock:
            if token and token == self.token:
                self.token, self._over = "", token

    @property
    def is_valid(self) -> bool:
        """Return whether this node may begin and commit work."""
        return bool(self.token) and self._lease.is_valid(present())

    @property
    def refusal(self) -> str:
        """Return why this node accepts nothing now; "" when it does."""
        return "" if self.is_valid else f"this node has no lease of its database now: {self.trouble or 'it is over'}"

    @property
    def age(self) -> float:
        """Return the seconds since the lease was last renewed."""
        return present() - self._lease.asked_at

    @property
    def is_in_force(self) -> bool:
        """Return whether the event loop works under a lease that holds, and may add rows."""
        return self.is_valid and self.token == self.begun

    def epoch_of(self, id: int) -> int | None:
        """Return the epoch of a partition; None if this node does not own it."""
        return self.partitions.get(id) if self.is_in_force else None

    def share_of(self, agent: str, session: str) -> Share:
        """Return the partition of a session with its epoch; None if this node does not own it."""
        id = partition_of(agent, session)
        epoch = self.epoch_of(id)
        return None if epoch is None else (id, epoch)

    @property
    def leaving(self) -> Set[int]:
        """Return the partitions that this node is to hand over."""
        return self.to_leave & self.partitions.keys()

    def give_up(self, ids: Collection[int]) -> None:
        """Note that this node does not own these partitions any more."""
        self.partitions = {id: epoch for id, epoch in self.partitions.items() if id not in ids}

    def suspect_for(self, seconds: Mapping[int, float]) -> None:
        """Note for how long partitions are suspect that have lost their owners too often."""
        now = present()
        self._suspect = {id: until for id, until in self._suspect.items() if until > now}
        self._suspect.update({id: now + left for id, left in seconds.items()})

    def is_suspect(self, id: int) -> bool:
        """Return whether work of a partition may have ended several of its owners."""
        return bool(self._suspect) and self._suspect.get(id, 0.0) > present()

    def error(self) -> LeaseOverError:
        """Return the error of work that this node may not do."""
        return LeaseOverError(f"{self._name}: this node does not own that work any more; another one goes on with it")
