"""Wrong inputs, drawn for every route of the control API: none is answered as an error of the service."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any, Literal, get_args, get_origin
from urllib.parse import quote, unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory import Memory
from spar import Agent, Call, Experience, Perception, facts, tool
from spar.config.load import load
from spar.operations.operation import Operation
from spar.records.journal import Doubt, Item
from spar.server.api.openapi import has_body, plain_path, query_fields
from spar.server.routes.applications import control, served
from spar.service.app import Service
from tests.journal.left import tell

#: What a request was answered: a path with its query, and a body, to a status.
Ask = Callable[[str, str, bytes], int]

LONG = "9" * 5_000
#: Numbers at the borders of 64 bits, and beyond.
INTEGERS = (0, 1, -1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**30, 10**400)
#: Times that leave the calendar when they are moved to another zone.
TIMES = ("0001-01-01", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2026-02-30T00:00:00Z", "soon")
TEXTS = (
    "",
    "x",
    "main",
    "null",
    "nan",
    "inf",
    "1e400",
    "\x00",
    "\ud800",
    "‮",
    "a/b",
    "x:y",
    "%",
    "{}",
    "[1]",
    '"x"',
    LONG,
    *TIMES,
)
#: Ids of things that are there, so that a request gets further than the question whether they are.
IDS = ("c1/pay", "d1", "learnt", "main", "x", "x:retry", "x:test", "\x00", "‮", "é/%2F", "9" * 300)  # fmt: skip

LEAVES = st.sampled_from((None, True, False, 0.5, float("nan"), float("inf"), -0.0, *INTEGERS, *TEXTS))
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
    st.sampled_from(("id", "type", "_tool", "calls", "model", *TEXTS)), inner, max_size=3), max_leaves=4)  # fmt: skip
RAW = st.sampled_from((b"", b"{", b"\xff", b"[" * 5_000, b"1" * 5_000, b'{"a":1,"a":2}', b'"\xed\xa0\x80"'))


def known(kind: Any) -> list[Any]:
    """Return the values that a type names, also inside a union or an annotation."""
    inside = [value for part in get_args(kind) if not isinstance(part, str) for value in known(part)]
    return [*get_args(kind), *inside] if get_origin(kind) is Literal else inside


def fitting(kind: Any) -> Any:
    """Return a value of a type."""
    simple: dict[Any, Any] = {str: "x", bool: True, int: 1, float: 1.0, list: [], dict: {}}
    return known(kind)[0] if known(kind) else simple.get(get_origin(kind) or kind, "x")


def bodies_of(route: Operation[Any, Any]) -> st.SearchStrategy[bytes]:
    """Return bodies for a route: mostly its fields, of which some do not fit, so that the handler is reached."""
    values = VALUES
    if not route.is_free:
        fields = route.other_fields
        usual = {field.encode_name: fitting(field.type) for field in fields if field.required}
        wrong = {field.encode_name: LEAVES | VALUES | st.sampled_from([*known(field.type), "x"]) for field in fields}
        drawn = st.fixed_dictionaries({}, optional=wrong).map(lambda some: {**usual, **some})
        values = drawn | drawn | values
    return values.map(lambda value: json.dumps(value).encode()) | RAW


def joined(values: dict[str, str]) -> str:
    """Return parameters as a query."""
    return "&".join(f"{name}={quote(text, safe='', errors='surrogatepass')}" for name, text in values.items())


def queries_of(route: Operation[Any, Any]) -> st.SearchStrategy[str]:
    """Return queries for a route: some of its parameters, each with some text."""
    texts = [*TEXTS, *map(str, INTEGERS), "0.5", "-0"]
    fields = {
        field.encode_name: st.sampled_from([*texts, *map(str, known(field.type))]) for field in query_fields(route)
    }
    return st.fixed_dictionaries({}, optional=fields).map(joined)


def too_large(route: Operation[Any, Any]) -> Iterator[tuple[str, bytes]]:
    """Yield a query and a body for each of a route's fields, with a number beyond 64 bits in it."""
    fields = route.other_fields if has_body(route) and not route.is_free else ()
    usual = {field.encode_name: fitting(field.type) for field in fields if field.required}
    body = json.dumps(usual).encode()
    for number in (2**63, -(2**63) - 1, 10**30):
        for parameter in query_fields(route):
            yield joined({parameter.encode_name: str(number)}), body
        for field in fields:
            yield "", json.dumps({**usual, field.encode_name: number}).encode()


@tool(effect="read")
async def look() -> str:
    """Look."""
    return "seen"


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """A paused agent with a call in doubt, a dead letter and an experience; returns the status of each request."""
    url = f"sqlite:///{tmp_path_factory.mktemp('wrong')}/m.db"

    async def opened() -> Agent:
        async with Memory(url) as memory:
            tell(memory.journal, facts.CallDoubted, doubt=Doubt("c1/pay", Call("pay", id="pay"), "c1"))
            tell(memory.journal, facts.PutAside, item=Item("d1", Perception("x", id="d1")), reason="3 attempts failed")
            await memory.journal.safe()
            await memory.store(Experience("x", "look", "ok", id="learnt"))
        agent = Agent(tools=[look], memory=Memory(url), loop_interval="off")
        await agent.start()
        await agent.pause()
        return agent

    with asyncio.Runner() as runner:
        agent = runner.run(opened())
        application = control(Service(load(None, environ={}), agent))

        async def answered(method: str, path: str, body: bytes) -> int:
            status, has_begun, parts = 0, asyncio.Event(), [{"type": "http.request", "body": body}]

            async def receive() -> Any:
                if parts:
                    return parts.pop()
                await has_begun.wait()  # a stream goes on until its client leaves
                return {"type": "http.disconnect"}

            async def send(message: Any) -> None:
                nonlocal status
                status = message.get("status", status)
                has_begun.set()

            raw, _, query = path.partition("?")
            scope = {"type": "http", "method": method, "path": unquote(raw), "raw_path": raw.encode(), "headers": [],
                     "query_string": query.encode(), "client": ("ann", 1)}  # fmt: skip
            async with asyncio.timeout(30):
                await application(scope, receive, send)
            return status

        yield lambda method, path, body: runner.run(answered(method, path, body))
        runner.run(agent.stop())


ROUTES = {f"{route.method} {route.path}": route for route in served()}


@pytest.mark.parametrize("name", ROUTES)
def test_no_wrong_input_is_answered_as_an_error_of_the_service(ask: Ask, name: str) -> None:
    route = ROUTES[name]
    paths = st.fixed_dictionaries(dict.fromkeys(route.path_fields, st.sampled_from(IDS)))

    @settings(max_examples=8, derandomize=True, database=None)
    @given(paths, queries_of(route), bodies_of(route) if has_body(route) else st.just(b""))
    def check(params: dict[str, str], query: str, body: bytes) -> None:
        path = plain_path(route).format_map({key: quote(text, safe=":") for key, text in params.items()})
        assert 0 < ask(route.method, f"{path}?{query}", body) != 500, (path, query, body[:500])

    for query, body in too_large(route):
        path = plain_path(route).format_map(dict.fromkeys(route.path_fields, IDS[0]))
        assert 0 < ask(route.method, f"{path}?{query}", body) != 500, (path, query, body)
    check()
