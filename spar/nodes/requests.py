"""Requests between nodes: what the owner of a session does for another node, and how its answer is written."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from spar.bus.run_log import RunEvent
from spar.decoding import convert
from spar.errors import ConflictError, NoRoomError, NotReadyError, SparError, TransientError
from spar.records.session import Origin
from spar.types import FeedbackSource

#: Seconds for which a request for events waits for the next ones.
_FOLLOWED_FOR = 20.0
#: Errors that may come of a request, by name: a class before those that it is derived from.
_ERRORS: Final[Mapping[str, type[Exception]]] = {
    kind.__name__: kind
    for kind in (ConflictError, NoRoomError, NotReadyError, TransientError, SparError, LookupError, ValueError,
                 TypeError, PermissionError)
}  # fmt: skip


async def _abort(conversations: Any, session: str, run: str) -> None:
    if (open_run := conversations.parts.runs.open_run(run)) is not None:
        await conversations.stops.abort(open_run)


async def _reset(conversations: Any, session: str, by: str) -> None:
    await conversations.resets.reset(session, by)


async def _change(conversations: Any, session: str, origin: Any, **given: Any) -> None:
    await conversations.records.set(session, origin=origin and Origin(**origin), **given)


async def _judge(conversations: Any, session: str, about: str, success: bool, why: str, by: FeedbackSource) -> None:
    await conversations.parts.attached("learning").give(about, success, why, by=by)


async def _fork(conversations: Any, session: str, key: str, at: str, by: str) -> None:
    await conversations.parts.attached("forks").fork(key, at, session, by)


async def _forget(conversations: Any, session: str, by: str) -> Any:
    return await conversations.resets.forget(session, by)


async def _answer_letter(conversations: Any, session: str, id: str, is_tried_again: bool) -> None:
    letters = conversations.parts.recovery.restart.letters
    await (letters.revive(id) if is_tried_again else letters.bury(id))


async def _resolve(conversations: Any, session: str, id: str, **given: Any) -> None:
    await conversations.parts.recovery.restart.doubts.resolve(id, **given)


async def _events(conversations: Any, session: str, run: str, after: int) -> list[RunEvent]:
    try:
        async with asyncio.timeout(_FOLLOWED_FOR):
            events: list[RunEvent] = await conversations.parts.runs.follow(run, after).some()
            return events
    except TimeoutError:
        return []


async def _wait(conversations: Any, session: str, run: str, seconds: float) -> None:
    if conversations.parts.runs.find(run) is not None:
        await conversations.parts.runs.wait(run, seconds)


Doer = Callable[..., Awaitable[Any]]
#: What the owner of a session is asked for by other nodes.
_DOERS: Final[Mapping[str, Doer]] = {
    "abort": _abort,
    "reset": _reset,
    "change": _change,
    "events": _events,
    "feedback": _judge,
    "fork": _fork,
    "forget": _forget,
    "letter": _answer_letter,
    "resolve": _resolve,
    "wait": _wait,
}


async def answer(do: Doer | None, kind: str, body: Mapping[str, Any], conversations: Any,
                 safe: Callable[[], Awaitable[None]]) -> str:  # fmt: skip
    """Do what another node asks for, wait until it is safe, and return the answer as JSON: the result or the error.

    Args: do: does it; None: the conversations do.
    """
    try:
        work = partial(_DOERS[kind], conversations, body["session"]) if do is None else do
        given = {name: value for name, value in body.items() if name != "session"}
        content: dict[str, Any] = {"result": await work(**given)}
        await safe()
    except (SparError, LookupError, ValueError, TypeError, PermissionError) as error:
        name = next(name for name, kind in _ERRORS.items() if isinstance(error, kind))
        content = {"error": name, "reason": str(error.args[0]) if error.args else type(error).__name__}
    return msgspec.json.encode(content).decode()


def result_of(text: str) -> Any:
    """Return the result in an answer. Raises: the error that stands there instead."""
    content = msgspec.json.decode(text)
    if "error" in content:
        raise _ERRORS[content["error"]](content["reason"])
    return content["result"]


def events_of(result: Any) -> list[RunEvent]:
    """Return the events of a run from the result of a request for them."""
    return convert(result, list[RunEvent])
