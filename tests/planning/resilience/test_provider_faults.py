"""Each thing that a provider is known to do wrong, over real sockets, through the real library, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from planning.llm.provider import ProviderModel
from planning.llm.response import ModelResponse
from planning.ports import Piece, Request, TextDelta, Usage
from planning.resilience.failover import Models
from planning.resilience.provider_errors import TREATMENTS, FaultKind, ProviderError
from spar.errors import PermanentError, TransientError
from spar.testing import VirtualClock
from tests.servers.llm import LlmServer
from tests.servers.llm_replies import FAULTS, GOOD, TWO_CALLS, Cut, Reply, ToolCall, limited, says, solves
from tests.servers.llm_requests import Asked

pytest.importorskip("pydantic_ai", reason="the library of models (spar-agent[llm]) is not installed")

LOOK = {
    "type": "object",
    "properties": {"_tool": {"const": "look"}, "at": {"type": "string"}, "_after": {"type": "array"}},
    "required": ["_tool", "at"],
}
SCHEMA = {"type": "object", "properties": {"calls": {"items": {"anyOf": [LOOK]}}, "output": {}}}
REQUEST = Request(schema=SCHEMA, texts=("look at the door and the window",))
#: What each fault of the script is taken for; None: it is an answer.
KINDS: dict[str, FaultKind | None] = {
    "limited": "rate_limited",
    "quota": "billing",
    "payment": "billing",
    "key": "auth",
    "forbidden": "auth",
    "no such model": "not_found",
    "too long": "overflow",
    "unfit": "bad_request",
    "filtered before": "refused",
    "filtered": "refused",
    "broken": "server",
    "gateway": "server",
    "unavailable": "overloaded",
    "overloaded": "overloaded",
    "reset before": "unreachable",
    "closed before": "unreachable",
    "silent before": "silent",
    "silent after headers": "silent",
    "silent in the middle": "idle",
    "reset in the middle": "truncated",
    "closed in the middle": "truncated",
    "truncated": "truncated",
    "truncated in a call": "truncated",
    "empty": "garbage",
    "nothing said": None,
    "too many tokens": "length",
    "garbage": "garbage",
    "garbage lines": "garbage",
    "garbage for an answer": "garbage",
    "no UTF-8": "garbage",
    "an error in the stream": "server",
    "unfit arguments": None,
    "comments only": "silent",
    "byte by byte": "silent",
    "endless": "endless",
}


@pytest.fixture
async def made(clock: VirtualClock) -> AsyncIterator[list[ProviderModel]]:
    """The models of a test, to be closed at its end."""
    models: list[ProviderModel] = []
    yield models
    for model in models:
        await model.aclose()


def model_of(server: LlmServer | str, clock: VirtualClock, made: list[ProviderModel], **options: Any) -> ProviderModel:
    url = server if isinstance(server, str) else server.url
    limits = {"first_byte": 30.0, "idle": 10.0, "max_chars": 2_000}
    model = ProviderModel("m", base_url=url, clock=clock, **{"mode": "native", **limits, **options})
    made.append(model)
    return model


async def pieces_of(model: Any, request: Request = REQUEST) -> tuple[list[Piece], Exception | None]:
    """What was handed out, and how it ended."""
    pieces: list[Piece] = []
    try:
        async for piece in await model(request):
            pieces.append(piece)  # noqa: PERF401 - what came before the error counts
    except Exception as error:
        return pieces, error
    return pieces, None


@pytest.mark.parametrize("name", FAULTS)
async def test_a_fault_is_of_its_kind_and_nothing_is_asked_twice(
    clock: VirtualClock, made: list[ProviderModel], name: str
) -> None:
    async with LlmServer(FAULTS[name]) as server:
        pieces, error = await pieces_of(model_of(server, clock, made))

    kind = KINDS[name.partition(",")[0]]
    assert len(server.requests) == 1
    if kind is None:
        assert error is None
        return
    assert isinstance(error, ProviderError), error
    assert error.kind == kind
    assert isinstance(error, TransientError if TREATMENTS[kind].is_transient else PermanentError)
    assert not [piece for piece in pieces if isinstance(piece, dict) and "output" in piece]


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry_after": "2"}, 2.0),
        ({"retry_after": "2.5"}, 2.5),
        ({"retry_after_ms": "1500"}, 1.5),
        ({"retry_after_ms": "1500", "retry_after": "2"}, 1.5),
        ({"retry_after": "Thu, 01 Jan 2026 00:01:30 GMT"}, 90.0),
        ({"retry_after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 1.0),
        ({"retry_after": "-5"}, 1.0),
        ({"retry_after": "99999999999"}, 3_600.0),
        ({"retry_after": "soon"}, None),
        ({}, None),
    ],
)
async def test_the_wait_that_a_provider_asks_for_is_read_whatever_it_looks_like(
    clock: VirtualClock, made: list[ProviderModel], headers: dict[str, str], wait: float | None
) -> None:
    async with LlmServer(limited(**headers)) as server:
        _, error = await pieces_of(model_of(server, clock, made))

    assert isinstance(error, ProviderError)
    found = error.retry_after
    assert found == wait if wait is None else found == pytest.approx(wait, abs=0.1)


#: A fault of each kind, and all that come in the middle of an answer.
TELLING = {
    *{KINDS[name.partition(",")[0]]: name for name in FAULTS}.values(),
    *(name for name in FAULTS if "middle" in name or "truncated" in name),
}


@pytest.mark.parametrize("name", sorted(TELLING))
async def test_another_model_is_asked_only_where_that_may_help_and_nothing_was_handed_out(
    clock: VirtualClock, made: list[ProviderModel], name: str
) -> None:
    kind = KINDS[name.partition(",")[0]]
    async with LlmServer(FAULTS[name]) as server, LlmServer(says("from the other")) as other:
        models = Models([model_of(server, clock, made), model_of(other, clock, made)], clock=clock)
        pieces, error = await pieces_of(models)

    told = [piece for piece in pieces if not isinstance(piece, Usage)]
    helped = {"output": "from the other"} in told
    had_begun = bool(told) and not helped
    once_more = kind is not None and TREATMENTS[kind].again and not had_begun
    assert len(server.requests) == (2 if once_more else 1)
    if kind is None or not TREATMENTS[kind].other:
        assert (helped, len(other.requests)) == (False, 0)
    elif had_begun:  # it had begun to answer: what was said cannot be unsaid
        assert isinstance(error, ProviderError)
        assert len(other.requests) == 0
    else:
        assert error is None
        assert (helped, len(other.requests)) == (True, 1)
        assert told[0] == TextDelta("from")


async def test_the_first_call_is_handed_out_while_the_second_is_still_being_written(
    clock: VirtualClock, made: list[ProviderModel]
) -> None:
    last = ToolCall("look", {"at": "the window, and then at all that can be seen from there"})
    async with LlmServer(says("", ToolCall("look", {"at": "the door"}), last, rate=50.0)) as server:
        calls = []
        async with aclosing(await model_of(server, clock, made)(REQUEST)) as pieces:
            async for piece in pieces:
                calls.append((piece, clock.monotonic(), server.requests[0].is_over))
                if not isinstance(piece, Usage):
                    last_call = piece

    (first, at, was_over), (second, later, _), *_ = calls
    assert (first, was_over) == ({"_tool": "look", "at": "the door"}, False)
    assert second == last_call == {"_tool": "look", **last.arguments}  # type: ignore[dict-item]
    assert later - at > 0.2


@pytest.mark.parametrize("mode", ["native", "structured"])
async def test_a_call_is_handed_out_with_its_last_byte_not_with_the_end_of_the_stream(
    clock: VirtualClock, made: list[ProviderModel], mode: str
) -> None:
    whole = TWO_CALLS if mode == "native" else solves({"_tool": "look", "at": "the door"}, output=None)
    pause: Any = 5.0
    own = tuple(whole.steps)  # type: ignore[arg-type]
    ending = own.index({"delta": {}, "finish_reason": "tool_calls" if mode == "native" else "stop"})
    async with LlmServer(Reply((*own[:ending], pause, *own[ending:]))) as server:
        began = clock.monotonic()
        async with ModelResponse(model_of(server, clock, made, mode=mode), REQUEST) as response:
            at = [clock.monotonic() - began async for item in response if not isinstance(item, TextDelta)]
        took = clock.monotonic() - began

    assert at
    assert max(at) < 1.0
    assert took >= 5.0


@pytest.mark.parametrize("name", ["silent before", "silent after headers", "silent in the middle", "endless"])
async def test_who_does_not_wait_any_longer_closes_the_connection(
    clock: VirtualClock, made: list[ProviderModel], name: str
) -> None:
    async with LlmServer(FAULTS[name]) as server:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await pieces_of(Models([model_of(server, clock, made, max_chars=10**9)], clock=clock))
        await server.until(lambda server: server.aborted == 1)

    assert len(server.requests) == 1


async def test_who_has_read_enough_closes_the_connection(clock: VirtualClock, made: list[ProviderModel]) -> None:
    async with LlmServer(FAULTS["endless"]) as server:
        async with aclosing(await Models([model_of(server, clock, made)], clock=clock)(REQUEST)) as pieces:
            first = await anext(pieces)
        await server.until(lambda server: server.aborted == 1)

    assert first == TextDelta("and then ")


async def test_a_call_that_was_complete_before_the_stream_broke_was_handed_out_and_is_not_asked_for_again(
    clock: VirtualClock, made: list[ProviderModel]
) -> None:
    steps = tuple(TWO_CALLS.steps)  # type: ignore[arg-type]
    async with LlmServer(TWO_CALLS.cut(len(steps) - 5, Cut.CLOSE)) as server, LlmServer(GOOD) as other:
        models = Models([model_of(server, clock, made), model_of(other, clock, made)], clock=clock)
        pieces, error = await pieces_of(models)

    assert {"_tool": "look", "at": "the door"} in pieces
    assert isinstance(error, ProviderError)
    assert error.kind == "truncated"
    assert (len(server.requests), len(other.requests)) == (1, 0)


async def test_what_is_sent_is_what_real_servers_take_in_both_modes(
    clock: VirtualClock, made: list[ProviderModel]
) -> None:
    def script(asked: Asked) -> Reply:
        return says("", ToolCall("look", {"at": "x"})) if asked.tools else solves({"_tool": "look", "at": "x"})

    async with LlmServer(script) as server:
        native, error = await pieces_of(model_of(server, clock, made))
        structured, other_error = await pieces_of(model_of(server, clock, made, mode="structured"))

    assert (error, other_error) == (None, None)
    assert native[0] == {"_tool": "look", "at": "x"}
    assert isinstance(structured[0], str)
    assert [asked.status for asked in server.requests] == [200, 200]
    assert server.requests[0].tools == ["look"]
    assert server.requests[1].body["response_format"]["type"] == "json_schema"
    assert all(asked.wants_usage and "look at the door" in asked.text for asked in server.requests)
    assert isinstance(native[-1], Usage)
