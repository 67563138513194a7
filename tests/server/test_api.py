"""The control API as data: what its document and its page say is what its handlers take."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import httpx
import msgspec
import pytest
from openapi_spec_validator import validate
from starlette.requests import Request

from memory import Memory
from spar import Agent, Perception, tool
from spar.config.load import load
from spar.errors import SparError
from spar.records.perceived.incidents import Incident
from spar.server.api.query import NoQuery, accepted_values, meaning
from spar.server.api.route import PATH_PARAMETERS, ApiRoute
from spar.server.routes.control import control, control_routes, described
from spar.service.app import Service
from spar.service.token_rows import SCOPES
from spar.types import utcnow

ROUTES = control_routes(cast(Service, None))
NAMES = [f"{route.method} {route.plain_path}" for route in ROUTES]


@tool(approval="ask")
async def deed() -> str:
    """Do it."""
    return "done"


class OneIncident:
    """Incidents of which there is one."""

    def list(self) -> Sequence[Incident]:
        return [Incident("I-1", "main", "disk full", "warning", utcnow(), utcnow())]

    def ask_closing(self, incident_id: str, by: str) -> Incident:
        raise LookupError(incident_id)

    def figures(self) -> Mapping[str, Any]:
        return {}


class Sensing:
    """Sense module that keeps incidents."""

    incidents = OneIncident()

    async def sense(self) -> list[Perception]:
        return []


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    memory = Memory(f"sqlite:///{tmp_path / 'memory.db'}")
    agent = Agent(sense=Sensing(), tools=[deed], memory=memory, loop_interval="off")
    async with agent:
        yield Service(load(None, environ={}), agent)


def target(route: ApiRoute) -> str:
    """Return a path of this route."""
    return route.plain_path.format_map(dict.fromkeys(PATH_PARAMETERS, "x"))


class Recording:
    """Query without a parameter that remembers which ones are read."""

    def __init__(self, kind: type[msgspec.Struct]) -> None:
        self._values, self.read = kind(), set[str]()

    def __getattr__(self, name: str) -> Any:
        self.read.add(name)
        return getattr(self._values, name)


def test_the_document_is_one_of_openapi() -> None:
    validate(described())


def test_every_route_is_in_the_document_and_nothing_else_is() -> None:
    written = {f"{method.upper()} {path}" for path, methods in described()["paths"].items() for method in methods}

    assert written == set(NAMES)
    assert len(NAMES) == len(set(NAMES)) > 50


def test_no_two_operations_have_one_name() -> None:
    names = [each["operationId"] for methods in described()["paths"].values() for each in methods.values()]

    assert len(names) == len(set(names))


@pytest.mark.parametrize("route", ROUTES, ids=NAMES)
def test_every_route_says_its_scope_and_what_it_does(route: ApiRoute) -> None:
    operation = described()["paths"][route.plain_path][route.method.lower()]

    assert isinstance(route, ApiRoute)
    assert operation["security"] == [{"token": [route.scope]}]
    assert route.scope in SCOPES
    assert (route.scope == "read") is (route.method == "GET") or route.path in ("/v1/examples:try", "/v1/tokens")
    assert operation["summary"].endswith((".", "body."))
    assert {"401", "403", "default", str(route.status)} == set(operation["responses"])
    assert all(each["description"] for each in operation["parameters"])


def test_all_that_is_served_under_v1_is_a_route_with_a_scope() -> None:
    assert [route for route in control(cast(Service, None)).routes if not isinstance(route, ApiRoute)] == []


@pytest.mark.parametrize("route", ROUTES, ids=NAMES)
async def test_a_parameter_that_is_not_documented_is_refused(service: Service, route: ApiRoute) -> None:
    transport = httpx.ASGITransport(control(service))
    async with httpx.AsyncClient(transport=transport, base_url="http://spar") as client:
        answer = await client.request(route.method, target(route), params={"oddity": "1"}, json={})

    known = ", ".join(field.name for field in msgspec.structs.fields(route.query)) or "none"
    assert (answer.status_code, answer.json()["detail"]) == (422, f"no parameter 'oddity'; known: {known}")


@pytest.mark.parametrize(
    "name", [name for name, route in zip(NAMES, ROUTES, strict=True) if route.query is not NoQuery]
)
async def test_every_documented_parameter_is_read_by_its_handler(service: Service, name: str) -> None:
    route = next(route for route in control_routes(service) if f"{route.method} {route.plain_path}" == name)
    query = Recording(route.query)
    path = dict.fromkeys(route.param_convertors, "x")
    request = Request({"type": "http", "headers": [], "path_params": path, "query_string": b"", "method": "GET"})

    with suppress(LookupError, SparError):  # there is no such thing, or it asks no model
        await route.handler(request, query=query)

    assert query.read == {field.name for field in msgspec.structs.fields(route.query)}


@pytest.mark.parametrize(
    ("asked", "detail"),
    [
        ("/v1/runs?limit=0", "limit = '0': must be 1 to 1000"),
        ("/v1/runs?limit=many", "limit = 'many': must be 1 to 1000"),
        ("/v1/runs?limit=1&limit=2", "limit is given 2 times, it is one value"),
        ("/v1/runs?open=maybe", "open = 'maybe': must be 1 or 0"),
        ("/v1/runs/x/wait?timeout=nan", "timeout = 'nan': must be 0 to 3600"),
        ("/v1/audit?since=soon", "since = 'soon': must be a time such as 2026-11-22T18:00:00+00:00"),
        ("/v1/audit?before=x", "before = 'x': must be a whole number of at most 64 bits"),
        ("/v1/approvals?status=odd", "status = 'odd': must be one of pending, approved, denied, expired, used, void, "
         "all"),
    ],
)  # fmt: skip
async def test_a_value_that_does_not_fit_is_named_with_what_does(service: Service, asked: str, detail: str) -> None:
    transport = httpx.ASGITransport(control(service))
    async with httpx.AsyncClient(transport=transport, base_url="http://spar") as client:
        answer = await client.get(asked)

    assert (answer.status_code, answer.json()["detail"]) == (422, detail)


def test_every_parameter_and_body_has_a_meaning() -> None:
    for route in ROUTES:
        assert set(route.param_convertors) <= set(PATH_PARAMETERS), route.path
        assert [
            field.name
            for field in msgspec.structs.fields(route.query)
            if not (meaning(field) and accepted_values(field))
        ] == []
    assert set(PATH_PARAMETERS) >= {name for route in ROUTES for name in route.param_convertors}


@pytest.mark.parametrize("route", [route for route in ROUTES if {"target", "verb"} & set(route.param_convertors)],
                         ids=lambda route: route.plain_path)  # fmt: skip
async def test_every_verb_that_is_documented_is_known_and_no_other_one(service: Service, route: ApiRoute) -> None:
    transport = httpx.ASGITransport(control(service))
    async with httpx.AsyncClient(transport=transport, base_url="http://spar") as client:

        async def told(verb: str) -> str:
            name = "main" if "agents" in route.path else "x"
            path = route.plain_path.format(target=f"{name}:{verb}", id="x", verb=verb)
            return (await client.request(route.method, path)).text

        assert route.verbs
        assert "no verb 'oddity'" in await told("oddity")
        assert [verb for verb in route.verbs if "no verb" in await told(verb)] == []


async def test_the_service_serves_the_document(service: Service) -> None:
    transport = httpx.ASGITransport(control(service))
    async with httpx.AsyncClient(transport=transport, base_url="http://spar") as client:
        answer = await client.get("/v1/openapi.json")

    assert answer.json() == json.loads(json.dumps(described()))
