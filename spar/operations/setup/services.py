"""Operation that lists the services of this machine: those of the user of this service, by their control sockets."""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import DecodeError, Struct

from spar.operations.operation import Nothing, operation

if TYPE_CHECKING:
    from spar.service.app import Service

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
