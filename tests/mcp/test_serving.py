"""`spar mcp serve`: a running service as tools, for the official SDK's clients in Python and TypeScript."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from memory import Memory
from planning.rules.planner import RulesPlanner
from spar import Agent, tool
from spar.config.load import load
from spar.operations.operation import operations
from spar.server.front import Front
from spar.service.app import Service
from tests.process.template import Forked, clean_environ

pytest.importorskip("mcp", reason="the MCP library (spar-agent[mcp]) is not installed")
import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from spar.mcp.tools import SERVED, tools_for

RULES = [
    {"name": "greet", "when": {"pattern": "hello"}, "answer": "hi"},
    {"name": "deploy", "when": {"pattern": "deploy"}, "calls": [{"tool": "deploy", "params": {}}]},
]
NODE = Path(__file__).parents[2] / ".cache" / "servers"
PROGRAM = (sys.executable, "-m", "spar", "mcp", "serve")


@tool(effect="once", approval="ask")
async def deploy() -> str:
    """Deploy."""
    return "done"


class Served:
    """A running service in a folder, with a token of each kind."""

    def __init__(self, agent: Agent, front: Front, tokens: dict[str, str]) -> None:
        self.agent, self.front, self.tokens = agent, front, tokens

    @asynccontextmanager
    async def over_http(self, *scopes: str) -> AsyncIterator[str]:
        """Run `spar mcp serve --http` and yield its address."""
        arguments = ["--http", "0", "--url", self.front.address, *(("--scopes", ",".join(scopes)) if scopes else ())]
        with Forked([*PROGRAM, *arguments], env=clean_environ(), stderr=subprocess.PIPE) as process:
            assert process.stderr is not None
            try:
                yield (await asyncio.to_thread(process.stderr.readline)).decode().strip()
            finally:
                process.terminate()
                await asyncio.to_thread(process.communicate)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    memory = Memory(f"sqlite:///{tmp_path / 'memory.db'}", durability="off")
    async with Agent(plan=RulesPlanner(RULES), tools=[deploy], memory=memory, loop_interval="off") as agent:
        service = Service(load(None, environ={}), agent)
        tokens = {scope: (await service.tokens.create(scope, [scope])).token for scope in ("read", "operate", "admin")}
        front = Front(service, tmp_path, "127.0.0.1", 0, with_probes=True)
        front.open()
        yield Served(agent, front, tokens)
        await asyncio.to_thread(front.close)


@asynccontextmanager
async def client_of(address: str, token: str, **headers: str) -> AsyncIterator[Client]:
    headers = {"authorization": f"Bearer {token}", **headers}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60, trust_env=False) as http,
        Client(streamable_http_client(address, http_client=http)) as client,
    ):
        yield client


def text(result: Any) -> str:
    return str(result.content[0].text)


def test_each_tool_is_an_operation_with_the_schema_of_its_input() -> None:
    by_name = {operation.name: operation for operation in operations()}
    tools = tools_for(["admin"])

    assert set(SERVED) <= set(by_name)
    assert list(tools) == [name.replace(" ", "_") for name in SERVED]
    for served in tools.values():
        Draft202012Validator.check_schema(served.schema)
        Draft202012Validator.check_schema(served.answers)
        assert served.answers["type"] == "object"
        assert served.answers["properties"]
        assert served.schema["type"] == "object"
        assert set(served.schema.get("properties", {})) == set(served.operation.given.__struct_encode_fields__)
        assert served.description
    assert {served.operation.scope for served in tools_for(["read"]).values()} == {"read"}
    assert "approvals_decide" not in tools_for(["read", "operate"])


async def test_over_standard_streams_a_message_is_sent_and_followed(served: Served, tmp_path: Path) -> None:
    setting = f"service.state_dir={tmp_path}"
    program = StdioServerParameters(command=PROGRAM[0], args=[*PROGRAM[1:], "--set", setting], cwd=str(tmp_path))
    heard: list[str] = []

    async def progress(number: float, total: float | None, message: str | None) -> None:
        heard.append(message or "")

    async with Client(program) as client:
        listed = {each.name: each for each in (await client.list_tools()).tools}
        receipt = (await client.call_tool("runs_submit", {"message": "hello"})).structured_content
        followed = await client.call_tool("runs_follow", {"run_id": receipt["run_id"]}, progress_callback=progress)
        run = (await client.call_tool("runs_show", {"run_id": receipt["run_id"]})).structured_content
        cycles = json.loads(text(await client.call_tool("cycles_list")))
        cycle = {"cycle_id": cycles[0]["cycle_id"]}
        why = json.loads(text(await client.call_tool("memory_why", cycle)))
        reasons = (await client.call_tool("why", cycle)).structured_content
        # The client refuses what does not fit the schema of the answer.
        answers = {
            name: await client.call_tool(name, parameters)
            for name, parameters in (
                ("status", {}),
                ("runs_list", {}),
                ("runs_wait", {"run_id": receipt["run_id"]}),
                ("approvals_list", {}),
                ("memory_search", {"reasons": True}),
                ("cycles_list", {}),
                ("cycles_show", cycle),
            )
        }
        wrong = await client.call_tool("runs_show", {"run": "x"})
        unknown = await client.call_tool("runs_show", {"run_id": "x"})
        absent = await client.call_tool("approvals_decide", {"id": "x", "digest": "d", "decision": "deny"})

    assert (run["status"], run["reply"]) == ("ok", "hi")
    events = followed.structured_content["events"]
    assert (events[-1]["stream"], events[-1]["data"]["phase"]) == ("lifecycle", "end")
    assert [json.loads(line)["seq"] for line in heard] == [event["seq"] for event in events]
    assert why == []
    assert "hello" in str(reasons["noticed"])
    assert [name for name, answer in answers.items() if answer.is_error or not answer.structured_content] == []
    assert answers["cycles_list"].structured_content == {"result": cycles}
    assert all(each.output_schema["type"] == "object" for each in listed.values())
    assert (wrong.is_error, "known: run_id" in text(wrong)) == (True, True)
    assert (unknown.is_error, text(unknown).startswith("404: ")) == (True, True)
    assert (absent.is_error, "no tool 'approvals_decide'; known: status, " in text(absent)) == (True, True)
    assert (listed["status"].annotations.read_only_hint, listed["runs_abort"].annotations.read_only_hint) == (
        True,
        False,
    )


async def test_over_http_the_scopes_of_the_token_hold(served: Served) -> None:
    run_id = (await served.agent.submit("deploy")).run_id
    async with served.over_http("read", "operate", "approve") as address:
        async with client_of(address, served.tokens["read"]) as client:
            while not (waiting := json.loads(text(await client.call_tool("approvals_list")))):
                pass
            decision = {"id": waiting[0]["id"], "digest": waiting[0]["digest"], "decision": "approve"}
            refused = [await client.call_tool("approvals_decide", decision),
                       await client.call_tool("runs_submit", {"message": "hello"})]  # fmt: skip
            status = (await client.call_tool("status", {"lanes": False})).structured_content
        async with client_of(address, served.tokens["operate"]) as client:
            sent = await client.call_tool("runs_submit", {"message": "hello"})
        async with client_of(address, served.tokens["admin"]) as client:
            decided = await client.call_tool("approvals_decide", decision)

    assert [(each.is_error, text(each)[:5]) for each in refused] == [(True, "403: ")] * 2
    assert status["agent"]["state"] == "running"
    assert (sent.is_error, decided.is_error, decided.structured_content["decided_by"]) == (False, False, "token admin")
    assert (await served.agent.wait(run_id, 60)).status == "ok"


async def test_over_http_strangers_and_web_pages_do_not_reach_the_protocol(served: Served) -> None:
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    good = {"authorization": f"Bearer {served.tokens['read']}", "accept": "application/json, text/event-stream"}
    async with served.over_http() as address, httpx2.AsyncClient(trust_env=False) as http:
        answers = {
            what: await http.post(address, json=asked, headers=headers)
            for what, headers in (
                ("no token", {}),
                ("unknown token", {"authorization": f"Bearer {served.tokens['read'][:-1]}_"}),
                ("other host", {**good, "host": "rebound.example"}),
                ("other origin", {**good, "origin": "http://evil.example"}),
                ("fetched", {**good, "sec-fetch-site": "cross-site"}),
                ("good", good),
            )
        }
    statuses = {what: answer.status_code for what, answer in answers.items()}
    assert statuses == {"no token": 401, "unknown token": 401, "other host": 421, "other origin": 403, "fetched": 403,
                        "good": 200}  # fmt: skip
    for what, answer in answers.items():
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert what == "good" or answer.headers["content-type"] == "application/problem+json"
        assert ("www-authenticate" in answer.headers) == what.endswith("token")


@pytest.mark.skipif(not (NODE / "installed").exists(), reason="no SDK for TypeScript: run tests/servers/install.sh")
async def test_a_client_of_another_make_is_served(served: Served) -> None:
    async with served.over_http() as address:
        script = Path(__file__).parents[1] / "servers" / "mcp_client.mjs"
        token = (served.tokens["admin"],)
        process = await asyncio.create_subprocess_exec(
            "node", str(script), str(NODE), address, *token, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await process.communicate()

    assert process.returncode == 0
    answer = json.loads(out)
    assert "approvals_decide" not in answer["tools"]
    assert (answer["waited"]["status"], answer["waited"]["reply"]) == ("ok", "hi")
