"""Questions and decisions of people about channels and senders, at any of several nodes that run an agent.

The node that has the channels answers and decides: it has what waits to be sent, and counts the senders.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, cast

from spar.channels.sender_list import SenderView
from spar.decoding import convert
from spar.errors import TransientError
from spar.records.senders import CHANNELS, KIND


async def ask_channels(channels: Any, work: str, **given: str) -> Any:
    """Return the result of `list notifiers failed retry drop test forget`, as plain values if another node has the
    channels.

    Raises: as the methods that do it; SparError if no node does it.
    """
    if not channels.is_elsewhere:
        return await do_for_channels(channels, work, **given)
    return await channels.core.shared.ask(CHANNELS, CHANNELS, work=work, **given)


async def do_for_channels(channels: Any, work: str, **given: str) -> Any:
    """Do what is asked of the channels on this node. Raises: as `ask_channels`."""
    if channels.is_elsewhere:
        raise TransientError("the channels begin on this node just now; try again")
    works: dict[str, Callable[..., Any]] = {
        "list": partial(channels.snapshot, has_report=False),
        "notifiers": lambda: [outbox.snapshot() for outbox in channels.notifiers.values()],
        "failed": channels.undelivered, "test": channels.test,
        "forget": lambda id: channels.forget_here(id), "retry": lambda id: channels.holder_of(id).retry(id),
        "drop": lambda id: channels.holder_of(id).drop(id),
    }  # fmt: skip
    result = works[work](**given)
    return await result if asyncio.iscoroutine(result) else result


async def ask_senders(senders: Any, work: str, **given: Any) -> SenderView:
    """Have a decision about a sender made: `pair allow deny forget`. Raises: as the method of that name; SparError if
    no node makes it."""
    owner = senders.core.owner_of(CHANNELS)
    if owner is None:
        return await do_for_senders(senders, work, **given)
    return convert(await owner.ask(CHANNELS, KIND, work=work, **given), SenderView)


async def do_for_senders(senders: Any, work: str, **given: Any) -> SenderView:
    """Make a decision about a sender on this node. Raises: as `ask_senders`."""
    await _read(senders)
    works: dict[str, Callable[..., Awaitable[SenderView]]] = {
        "pair": senders.pair, "allow": senders.allow, "deny": senders.deny, "forget": senders.forget,
    }  # fmt: skip
    return await works[work](**given)


async def list_senders(senders: Any, status: str | None = None) -> Sequence[SenderView]:
    """Return the senders as `Senders.list` does. Raises: the errors of the store."""
    await _read(senders)
    return cast("Sequence[SenderView]", senders.list(status))


async def _read(senders: Any) -> None:
    if senders.core.shared is not None:  # another node may have decided
        await senders.read()
