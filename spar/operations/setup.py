"""Operations on how a service is set up: attachments, settings in force, the services of this machine, the nodes.

Settings are those in force with their origins; a check says what a reload would apply. The services are those of the
user of this service, by their control sockets. Nodes are the processes that run this agent together, each with some of
its sessions.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from msgspec import DecodeError, Meta, Struct

from spar.operations.operation import (
    NOT_RUNNING,
    AgentStore,
    AuditRule,
    Column,
    CommandForm,
    Nothing,
    RowsChoice,
    chosen,
    operation,
)

if TYPE_CHECKING:
    from spar.ports.nodes import Nodes
    from spar.service.app import Service


class PartRow(Struct, frozen=True):
    """Attachment: its name, where it comes from, its state (why, if it is not attached), and how often it failed."""

    name: str
    origin: str
    state: str
    why: str = ""
    failures: int = 0


@operation("parts", "GET /v1/parts", "read", where="service", is_stored=True, command=CommandForm(
    columns=(Column("name", "name"), Column("from", "origin"), Column("state", "state"),
             Column(">failures", lambda row: str(row.failures)), Column("why", "why")),
    empty="nothing is attached, and no attachment is installed",
    examples=("spar parts",),
))  # fmt: skip
async def list_parts(store: AgentStore, given: RowsChoice) -> list[PartRow]:
    """List the attachments of the agent in the order in which they were attached, then those that are installed and not
    attached.

    Something of an attachment that is `quarantined` has failed five times in a row and is turned off."""
    from spar.parts.factory import BUILT_IN, built_in
    from spar.parts.registry import OWN, default_registry

    if store.agent is not None:
        attached = list(store.agent.attachments.by_name.values())
        rows = [PartRow(item.name, item.origin, item.state, "", item.all_failures) for item in attached]
    else:
        settings = store.configuration("attachments", "channels", "notifiers", "runs", "sessions", "tracing").settings
        rows = [PartRow(name, OWN, NOT_RUNNING) for name in built_in(settings, default_registry())]
        rows += [PartRow(part.label, part.use, NOT_RUNNING) for part in settings.attachments]
    names = {row.name for row in rows}
    for entry in default_registry().entries("spar.attachments"):
        if entry.name not in names:
            setting = BUILT_IN.get(entry.name, f'[[attachments]] use = "{entry.name}"')
            rows.append(PartRow(entry.name, entry.distribution, "not attached", f"without {setting}"))
    return chosen(given, rows)


# -- settings


class SettingRow(Struct, frozen=True):
    """Setting in force: its dotted key, its value, where that was set ("default": nowhere), and whether a change of it
    applies at a reload or after a restart. Secrets are masked."""

    key: str
    value: Any
    origin: str
    applies: Literal["reload", "restart"]


class ConfigCheck(Struct, frozen=True):
    """Result of a check: what is wrong, one sentence each; the settings that a reload would change, and those that
    would change only after a restart."""

    problems: list[str]
    changed: list[str]
    needs_restart: list[str]


@operation("config show", "GET /v1/config", "read", where="service", is_stored=True)
async def show_settings(store: AgentStore, given: Nothing) -> list[SettingRow]:
    """Return the settings in force with their origins."""
    from spar.config.load import reloads, show

    values = json.loads(show(store.configuration(), origins=True, form="json"))
    return [SettingRow(key, row["value"], row["from"], "reload" if reloads(key) == "live" else "restart")
            for key, row in values.items()]  # fmt: skip


@operation("config check", "POST /v1/config:check", "operate")
async def check(service: Service, given: Nothing) -> ConfigCheck:
    """Say what a reload would change, or what is wrong with the configuration, without applying anything."""
    from spar.errors import SparError

    try:
        changed, needs_restart = await service.check()
    except SparError as error:
        return ConfigCheck(str(error).splitlines(), [], [])
    return ConfigCheck([], list(changed), list(needs_restart))


# -- the services of this machine

#: Services that are asked; seconds that one may take; bytes that its answer may have.
MOST: Final = 64
WITHIN: Final = 2.0
LARGEST: Final = 1024 * 1024


class _Agent(Struct):
    """Agent of a service, as its status has it."""

    name: str
    state: str
    alerts: list[Any] = []
    approvals: dict[str, Any] = {}


class _Status(Struct):
    """Status of a service, as far as it is listed."""

    version: str
    pid: int
    agent: _Agent
    started_at: datetime | None = None
    config: str | None = None
    addresses: dict[str, str] = {}


class ServiceRow(Struct, frozen=True):
    """Service of this machine and user: its agent, its state, what waits, and the folder with its control socket.

    `console` is the address of its page for browsers, "" without a port. `trouble` says why it does not answer, "" if
    it does. `is_this` marks the service that answers.
    """

    folder: str
    name: str = ""
    state: str = ""
    version: str = ""
    pid: int = 0
    started_at: datetime | None = None
    config: str | None = None
    console: str = ""
    alerts: int = 0
    approvals: int = 0
    trouble: str = ""
    is_this: bool = False


@operation("services", "GET /v1/services", "read", where="service", served="always")
async def list_services(service: Service, given: Nothing) -> list[ServiceRow]:
    """List the services of this machine and user, with the addresses of their consoles."""
    import asyncio

    from anyio import to_thread

    from spar.decoding import encode
    from spar.net.control_socket import SOCKET_NAME
    from spar.net.local_sockets import own_sockets
    from spar.parts.factory import home_of

    own = Path(home_of(service.loaded).state, SOCKET_NAME)
    paths = [path for path in await to_thread.run_sync(own_sockets) if path != own][:MOST]
    others = await asyncio.gather(*(to_thread.run_sync(_asked, path, abandon_on_cancel=True) for path in paths))
    this = _row(own, encode(service.status(has_lanes=False)), is_this=True)
    return [this, *sorted(others, key=lambda row: (row.name, row.folder))]


def _asked(path: Path) -> ServiceRow:
    """Return what a service says of itself."""
    import http.client

    from spar.net.control_socket import SocketConnection

    connection = SocketConnection(path, WITHIN, WITHIN)
    try:
        connection.request("GET", "/v1/status?lanes=0", headers={"connection": "close"})
        return _row(path, connection.getresponse().read(LARGEST))
    except TimeoutError:
        return ServiceRow(str(path.parent), trouble=f"it does not answer within {WITHIN:g} s")
    except (OSError, http.client.HTTPException, DecodeError) as error:
        return ServiceRow(str(path.parent), trouble=f"it does not answer as a service of this version: {error}")
    finally:
        connection.close()


def _row(path: Path, content: bytes, *, is_this: bool = False) -> ServiceRow:
    """Return a status as a row. Raises: DecodeError."""
    from spar.decoding import decode

    status: _Status = decode(content, _Status)
    agent, address, pending = status.agent, status.addresses.get("http", ""), status.agent.approvals.get("pending", 0)
    return ServiceRow(
        str(path.parent), agent.name, agent.state, status.version, status.pid, status.started_at, status.config,
        f"{address}/" if address.startswith("http://") else "", len(agent.alerts),
        pending if isinstance(pending, int) else 0, is_this=is_this,
    )  # fmt: skip


# -- the nodes


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
