"""The control API as data: what its document and its page say is what its handlers take."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import httpx
import msgspec
import pytest
from openapi_spec_validator import validate
from starlette.routing import Match

from memory import Memory
from planning.rules.planner import RulesPlanner
from spar import Agent, tool
from spar.config.load import load
from spar.errors import SparError
from spar.operations.fields import accepted_values, meaning
from spar.operations.operation import Caller, Operation
from spar.records.perceived import Incident
from spar.server.api.dispatch import OperationRoute
from spar.server.api.openapi import PATH_PARAMETERS, has_body, plain_path, query_fields
from spar.server.routes.applications import control, described, served
from spar.service.app import Service
from spar.service.token_rows import SCOPES
from spar.types import utcnow
from tests.doubles import LearningSense

OPERATIONS = served()
NAMES = [f"{each.method} {plain_path(each)}" for each in OPERATIONS]


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


class Sensing(LearningSense):
    """Sense module that keeps incidents, and learns."""

    incidents = OneIncident()


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    memory = Memory(f"sqlite:///{tmp_path / 'memory.db'}")
    agent = Agent(sense=Sensing(), tools=[deed], memory=memory, loop_interval="off",
                  attach=["senders", "channels", "notices"])  # fmt: skip
    async with agent:
        yield Service(load(None, environ={}), agent)


@pytest.fixture
async def client(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(service) as client:
        yield client


def client_of(service: Service, **more: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(control(service), **more), base_url="http://spar")


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return dict(described())


def target(operation: Operation[Any, Any]) -> str:
    """Return a path of this operation."""
    return plain_path(operation).format_map(dict.fromkeys(PATH_PARAMETERS, "x"))


class Recording:
    """Input that remembers which fields are read."""

    def __init__(self, values: msgspec.Struct) -> None:
        self._values, self.read = values, set[str]()

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


@pytest.mark.parametrize("operation", OPERATIONS, ids=NAMES)
def test_every_operation_says_its_scope_what_it_does_and_what_it_answers(
    document: dict[str, Any], operation: Operation[Any, Any]
) -> None:
    described_ = document["paths"][plain_path(operation)][operation.method.lower()]

    assert described_["security"] == [{"token": [operation.scope]}]
    assert operation.scope in SCOPES
    assert (operation.scope == "read") is (operation.method == "GET") or operation.name in (
        "examples try", "tokens list",
    )  # fmt: skip
    assert described_["summary"].endswith((".", "body."))
    unchanged = {"304"} if operation.method == "GET" and operation.streams is None else set()
    assert {"401", "403", "default", str(operation.status)} | unchanged == set(described_["responses"])
    assert all(each.get("$ref") or each["description"] for each in described_["parameters"])
    (answer,) = described_["responses"][str(operation.status)]["content"].values()
    assert answer["schema"]


def test_all_that_is_served_under_v1_is_an_operation_with_a_scope() -> None:
    routes = control(cast(Service, None)).routes
    assert [route for route in routes if not isinstance(route, OperationRoute)] == []


async def test_every_documented_parameter_is_read_by_its_operation(service: Service) -> None:
    for operation in filter(query_fields, OPERATIONS):
        given: Any = Recording(operation.given(**dict.fromkeys(operation.path_fields, "x")))
        with suppress(LookupError, SparError):  # there is no such thing, or it asks no model
            await operation.run(service, given, Caller("ann"))
        assert given.read >= {field.name for field in query_fields(operation)}, operation.name


async def test_a_value_that_does_not_fit_is_named_with_what_does(client: httpx.AsyncClient) -> None:
    refused = [
        ("/v1/runs?limit=0", "limit = '0': must be 1 to 1000"),
        ("/v1/sessions?limit=0", "limit = '0': must be 1 to 1000"),
        ("/v1/sessions?limit=1001", "limit = '1001': must be 1 to 1000"),
        ("/v1/runs?limit=many", "limit = 'many': must be 1 to 1000"),
        ("/v1/runs?limit=1&limit=2", "limit is given 2 times, it is one value"),
        ("/v1/runs?open=maybe", "open = 'maybe': must be 1 or 0"),
        ("/v1/runs/x/wait?timeout=nan", "timeout = 'nan': must be 0 to 3600"),
        ("/v1/audit?since=soon", "since = 'soon': must be a time such as 2026-11-22T18:00:00+00:00"),
        ("/v1/audit?before=x", "before = 'x': must be a whole number of at most 64 bits"),
        ("/v1/approvals?status=odd", "status = 'odd': must be one of pending, approved, denied, expired, used, void, "
         "all"),
    ]  # fmt: skip
    for asked, detail in refused:
        answer = await client.get(asked)
        assert (answer.status_code, answer.json()["detail"]) == (422, detail)


async def test_a_name_that_no_event_has_is_shown_with_its_control_characters(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/events?type=%00")

    assert answer.status_code == 422
    assert answer.json()["detail"].startswith(r"type = '\x00': no event has this name; known: ")


def test_every_parameter_and_body_has_a_meaning() -> None:
    for operation in OPERATIONS:
        assert set(operation.path_fields) <= set(PATH_PARAMETERS), operation.name
        unsaid = [field.name for field in query_fields(operation) if not (meaning(field) and accepted_values(field))]
        assert unsaid == [], operation.name
        assert not has_body(operation) or operation.given.__doc__, operation.name
    assert set(PATH_PARAMETERS) == {name for operation in OPERATIONS for name in operation.path_fields}


async def test_an_answer_that_does_not_fit_its_type_is_an_error_of_the_service() -> None:
    class Odd(LearningSense):
        def taught(self) -> Mapping[str, Any]:
            return {"labels": [{"what": 5}]}

    agent = Agent(sense=Odd(), loop_interval="off")
    async with agent, client_of(Service(load(None, environ={}), agent)) as client:
        answer = await client.get("/v1/examples")

    assert answer.status_code == 500
    assert answer.json()["detail"].startswith("the answer of 'examples list' does not fit its type: Expected `str`")


async def test_a_defect_of_the_service_is_no_unknown_thing() -> None:
    class Broken(LearningSense):
        def taught(self) -> Mapping[str, Any]:
            return [][0]

    agent = Agent(sense=Broken(), loop_interval="off")
    async with agent, client_of(Service(load(None, environ={}), agent), raise_app_exceptions=False) as client:
        answer = await client.get("/v1/examples")

    assert answer.status_code == 500


async def test_the_service_serves_the_document(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/openapi.json")

    assert answer.json() == json.loads(json.dumps(described()))


async def test_an_answer_that_the_client_has_already_is_not_sent_again(client: httpx.AsyncClient) -> None:
    first = await client.get("/v1/runs")
    tag = first.headers["etag"]
    for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        again = await client.get("/v1/runs", headers={"if-none-match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    await client.post("/v1/runs", json={"message": "hello"})
    changed = await client.get("/v1/runs", headers={"if-none-match": tag})
    assert (changed.status_code, len(changed.json())) == (200, 1)
    assert changed.headers["etag"] != tag
    refused = await client.get("/v1/runs/none", headers={"if-none-match": "*"})
    assert (refused.status_code, "etag" in refused.headers) == (404, False)


def test_no_route_takes_the_requests_of_another_one() -> None:
    routes = control(cast(Service, None)).routes
    for operation in OPERATIONS:
        path = re.sub(r"\{[^}]*\}", "x", operation.path)
        scope = {"type": "http", "method": operation.method, "path": path, "raw_path": path.encode()}

        first = next(route for route in routes if route.matches(dict(scope))[0] is Match.FULL)

        assert isinstance(first, OperationRoute)
        assert first.operation.name == operation.name


async def test_each_rule_says_how_often_it_fired_and_when_last(tmp_path: Path) -> None:
    rules = [
        {"name": "greet", "when": {"pattern": "hello"}, "answer": "hi"},
        {"name": "never", "when": {"pattern": "nobody says this"}, "answer": "?"},
    ]
    async with Agent(plan=RulesPlanner(rules), loop_interval="off") as agent:
        for _ in range(2):
            await agent.wait((await agent.submit("hello")).run_id, 20)
        async with client_of(Service(load(None, environ={}), agent)) as client:
            greet, never = (await client.get("/v1/rules")).json()

    assert (greet["name"], greet["fired"], never["name"], never["fired"]) == ("greet", 2, "never", 0)
    assert greet["last_at"] is not None
    assert never["last_at"] is None
