"""Operations on the nodes: the processes that run this agent together, each with some of its sessions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final, Literal

from msgspec import Meta, Struct

from spar.operations.operation import AuditRule, Column, CommandForm, RowsChoice, chosen, operation

if TYPE_CHECKING:
    from spar.ports.nodes import Nodes
    from spar.service.app import Service


class NodeName(Struct, frozen=True, forbid_unknown_fields=True):
    """A node, and whether it is to hand over what it owns or to take its share again."""

    node: Annotated[str, Meta(description="The name of the node, or its token.")]
    undo: Annotated[bool, Meta(description="Let it take its share again.")] = False


class NodeView(Struct, frozen=True):
    """Node: its name and token, its version, its state, since when it is there, the seconds until its lease ends, how
    many partitions it owns, and the formats of the database that it knows, from `lowest` to `highest`.

    `format` is the one in which it writes, 0 for a node that is outdated: it takes nothing, and waits to be replaced.
    """

    name: str
    token: str
    version: str
    state: Literal["working", "draining", "outdated", "gone"]
    since: datetime
    left: float
    partitions: int
    lowest: int
    highest: int
    format: int


#: What is said where no other process may run the agent.
_ALONE: Final = "this process runs the agent alone: set memory.nodes to run it on several machines"


def _nodes_of(service: Service) -> Nodes | None:
    """Return the nodes; None for an agent of one process."""
    from spar.ports.nodes import nodes_of

    return nodes_of(service.agent.memory)


async def _rows(nodes: Nodes | None) -> list[NodeView]:
    return [] if nodes is None else [
        NodeView(row.name, row.token, row.version,
                 "gone" if not row.is_alive else "outdated" if not row.format
                 else "draining" if row.is_draining else "working",
                 datetime.fromtimestamp(row.since, UTC), round(row.left, 3), row.partitions,
                 row.lowest, row.highest, row.format)
        for row in await nodes.rows()
    ]  # fmt: skip


def _format(row: NodeView) -> str:
    """Return the format of a node, with those that it knows if these are others."""
    if row.lowest == row.format == row.highest:
        return str(row.format)
    return f"{row.format or 'none'} of {row.lowest} to {row.highest}"


@operation("nodes list", "GET /v1/nodes", "read", where="service", command=CommandForm(
    columns=(Column("name", "name"), Column("state", "state"), Column(">partitions", "partitions"),
             Column("since", "since", "time"), Column("version", "version"),
             Column("format", _format), Column("token", "token")),
    empty=_ALONE, examples=("spar nodes list",),
))  # fmt: skip
async def list_nodes(service: Service, given: RowsChoice) -> list[NodeView]:
    """List the nodes that run this agent together."""
    return chosen(given, await _rows(_nodes_of(service)))


@operation("nodes drain", "POST /v1/nodes/{node}:drain", "operate", status=202,
           audit=AuditRule("node.drain", subject="node", detail=("undo",)), command=CommandForm(
    sentence=lambda given, row: f"{row.name}: {'takes its share again' if given.undo else 'hands its sessions over'}",
    examples=("spar nodes drain host:4711", "spar nodes drain host:4711 --undo"),
))  # fmt: skip
async def drain(service: Service, given: NodeName) -> NodeView:
    """Let a node hand over what it owns between two cycles and take nothing more, until it is started again.

    A node that is alone keeps what it has."""
    if (nodes := _nodes_of(service)) is None:
        raise LookupError(_ALONE)
    for row in await _rows(nodes):
        if given.node in (row.name, row.token):
            await nodes.drain(row.token, is_draining=not given.undo)
            return row
    raise LookupError(f"no node {given.node!r:.100}; they are shown by: spar nodes list")
