"""Client of a running service for programs: all operations of the table, typed, over its socket or its port.

    from spar.client import Client
    from spar.operations.runs import RunBody, submit

    client = Client("state")                             # the state directory of a service of this user
    client = Client("http://10.0.0.7:8420", token="…")   # its port, with a token
    receipt = client.call(submit, RunBody("hello"))

client        the client, its errors, and the events of streams
async_client  the same for programs with an event loop
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spar.client.client import BrokenOffError as BrokenOffError
from spar.client.client import Client as Client
from spar.client.client import MisfitError as MisfitError
from spar.client.client import NotRunningError as NotRunningError
from spar.client.client import RefusedError as RefusedError

if TYPE_CHECKING:
    from spar.client.async_client import AsyncClient as AsyncClient


def __getattr__(name: str) -> Any:
    """Return the client for an event loop, which is imported when it is used: commands need none."""
    if name != "AsyncClient":
        raise AttributeError(f"module 'spar.client' has no attribute {name!r}")
    from spar.client.async_client import AsyncClient

    return AsyncClient
