"""Port of a store that several processes share, each of which owns some of the sessions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from spar.ports.any_part import offers
from spar.protocols import Held


class NodeRequest(Struct, frozen=True):
    """Request of one node to the owner of a session: `kind` and `body` are the agent's; `seq` its number, 0 before it
    was posted. Of the kind `work` the store posts one itself: its body has the id of an accepted `item`, or nothing.
    `is_asked` says that a node waits for the answer.
    """

    partition: int
    agent: str
    kind: str
    body: str
    seq: int = 0
    is_asked: bool = False


class NodeRow(Struct, frozen=True):
    """Node as people see it. `left` are the seconds until its lease ends, `partitions` how many it owns; it knows the
    formats of the database from `lowest` to `highest`, and writes `format`, 0 if it does not know the one in force.
    """

    token: str
    name: str
    version: str
    since: float
    left: float
    is_draining: bool
    is_alive: bool
    partitions: int
    lowest: int
    highest: int
    format: int


class NodeListener(Protocol):
    """Agent that is told which sessions are its own. All methods are called in its event loop and return at once."""

    def gained(self) -> None:
        """Note that this node owns more sessions: their unfinished work goes on here."""

    def lost(self) -> None:
        """Note that sessions belong to another node already: their work ends here, and nothing of it is stored."""

    def leaving(self) -> None:
        """Note that sessions are to be handed over as soon as their cycles have ended: call `Nodes.hand_over` then."""

    def arrived(self, requests: Sequence[NodeRequest]) -> None:
        """Note requests of other nodes; call `Nodes.done` with those that were dealt with, or `Nodes.answer`."""


class Nodes(Protocol):
    """Nodes that share a store, as one of them sees them. `place` is the label of this one, "" for none."""

    place: str

    def owns(self, agent: str, session: str) -> bool:
        """Return whether this node may work on a session now. Safe from any thread."""

    def since_now(self, agent: str) -> Callable[[str], bool]:
        """Return a function that returns whether this node has owned a session without a break since this call."""

    def may_begin(self, agent: str, session: str) -> bool:
        """Return whether this node may begin a cycle of a session: it owns it and is not to hand it over."""

    def is_suspect(self, agent: str, session: str) -> bool:
        """Return whether work of a session may have ended several nodes: they did not give it up, within minutes."""

    async def work_for(self, agent: str) -> None:
        """Note for which agent this node works. Raises: ConfigError while nodes work for another one; SparError."""

    def listen(self, listener: NodeListener) -> Callable[[], None]:
        """Have a listener called. Return a function that ends that."""

    def settled(self) -> None:
        """Note that the work of all lost sessions has ended here: calls may begin again."""

    def hand_over(self, agent: str, busy: Collection[str]) -> None:
        """Give up the sessions that are to be handed over; what they have written is safe.

        Args: busy: sessions of the agent whose cycles have not ended.
        """

    def epoch_of(self, agent: str, session: str) -> int:
        """Return a number that grows when a session comes to another node; 0 for one that this node does not own."""

    async def post(self, agent: str, session: str, kind: str, body: str) -> None:
        """Send a request to the owner of a session; it is on disk when this returns. Raises: SparError."""

    async def ask(self, agent: str, session: str, kind: str, body: str) -> str:
        """Send a request to the owner of a session, and return its answer. Raises: SparError, after a minute, too."""

    async def session_of(self, agent: str, id: str) -> str | None:
        """Return the session of a piece of accepted work or of a recorded cycle; None for another id."""

    async def acquire(self, agent: str, resource: str) -> Held:
        """Return when this node alone has a resource of an agent. Raises: SparError."""

    async def resources(self, agent: str) -> Collection[str]:
        """Return the resources of an agent that live nodes have or wait for. Raises: SparError."""

    def done(self, requests: Sequence[NodeRequest]) -> None:
        """Delete requests that were dealt with."""

    def answer(self, request: NodeRequest, text: str) -> None:
        """Answer a request that was dealt with; `text` is not empty."""

    async def rows(self) -> Sequence[NodeRow]:
        """Return all nodes, by name."""

    def snapshot(self) -> Mapping[str, Any]:
        """Return counts of this node: `partitions`, `takeovers`, `fenced`, the `format` in which it writes, and the
        `lease_age` in seconds, None without a lease. Safe from any thread."""

    async def drain(self, token: str, *, is_draining: bool = True) -> None:
        """Let a node hand over all that it owns and take nothing, or let it take again. Raises: LookupError."""


class KeepsNodes(Protocol):
    """Store that may be shared by several nodes."""

    @property
    def nodes(self) -> Nodes | None:
        """Return the nodes while the store is open; None if no other process may work with it."""


def nodes_of(memory: Any) -> Nodes | None:
    """Return the nodes that share an open store; None if this process has it alone."""
    return memory.nodes if offers(memory, KeepsNodes) else None
