"""Real MCP servers, as people have them: three from PyPI, three from npm, over standard streams and streamable HTTP.

`tests/servers/install.sh` brings them; without them these tests are skipped. No network is needed here.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from base64 import b64decode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from acting import Executor
from acting.mcp.server import McpServer
from spar.protocols import Home
from spar.types import CallResult
from tests import waiting
from tests.effort import hang_guard
from tests.ports import free_port
from tests.process.conftest import Spar, until
from tests.process.template import Forked, clean_environ

pytestmark = pytest.mark.process
pytest.importorskip("mcp", reason="the MCP library (spar-agent[mcp]) is not installed")

SERVERS = Path(__file__).parents[1] / "servers"
INSTALLED = Path(__file__).parents[2] / ".cache" / "servers"
NODE = INSTALLED / "node_modules" / "@modelcontextprotocol"
are_installed = pytest.mark.skipif(
    not (INSTALLED / "installed").exists(), reason="no MCP servers here: run tests/servers/install.sh"
)


def node(name: str, *arguments: str) -> list[str]:
    return ["node", str(NODE / f"server-{name}" / "dist" / "index.js"), *arguments]


def source(folder: Path, name: str, **options: Any) -> McpServer:
    home = Home(str(folder), str(folder / "workspace"), str(folder / "state"))
    (folder / "workspace").mkdir(exist_ok=True)
    made = McpServer(home=home, wait=20.0, **options)
    made.name = name
    return made


async def one(executor: Executor, tool: str, **params: Any) -> CallResult:
    return (await executor.run([{"_tool": tool, **params}])).results[0]


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Start a server that listens on a port, and give its URL."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(command: list[str], port: int) -> str:
        environ = {**clean_environ(), "PORT": str(port)}
        process = Forked(command, cwd=tmp_path, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        started.append(process)
        until(lambda: is_listening(port), "the server listening")
        return f"http://127.0.0.1:{port}/mcp"

    yield begin
    for process in started:
        process.kill()
        process.wait(10)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace" / "repo"
    folder.mkdir(parents=True)
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], [*who, "commit", "-q", "--allow-empty", "-m", "the first commit"]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    return folder


@are_installed
async def test_the_time_server_tells_and_converts_the_time(tmp_path: Path) -> None:
    command = [str(INSTALLED / "venv/bin/mcp-server-time"), "--local-timezone", "UTC"]
    async with Executor([source(tmp_path, "time", command=command, effects={"*": "read"})]) as executor:
        found = await one(
            executor, "time__convert_time", source_timezone="UTC", time="12:00", target_timezone="Asia/Tokyo"
        )
        wrong = await one(executor, "time__get_current_time", timezone="Nowhere/Land")

    assert found.status == "ok"
    assert "21:00" in json.dumps(found.output)
    assert wrong.status == "failed"
    assert wrong.fault is not None
    assert "Nowhere/Land" in wrong.fault.message


@are_installed
async def test_the_git_server_reads_a_repository_in_the_workspace(tmp_path: Path, repository: Path) -> None:
    command = [str(INSTALLED / "venv/bin/mcp-server-git"), "--repository", "repo"]
    async with Executor([source(tmp_path, "git", command=command, allow=["git_log"])]) as executor:
        found = await one(executor, "git__git_log", repo_path=str(repository))
        hidden = await one(executor, "git__git_commit", repo_path=str(repository), message="x")

    assert "the first commit" in json.dumps(found.output)
    assert hidden.fault is not None
    assert hidden.fault.kind == "unknown_tool"


@are_installed
async def test_a_server_of_an_older_protocol_writes_and_reads_a_database(tmp_path: Path) -> None:
    command = [str(INSTALLED / "venv-old/bin/mcp-server-sqlite"), "--db-path", "x.db"]
    async with Executor([source(tmp_path, "db", command=command)]) as executor:
        result = await executor.run(
            [
                {"_tool": "db__create_table", "_id": "table", "query": "CREATE TABLE t (a INTEGER)"},
                {"_tool": "db__write_query", "_id": "row", "query": "INSERT INTO t VALUES (42)", "_after": ["table"]},
                {"_tool": "db__read_query", "query": "SELECT a FROM t", "_after": ["row"]},
            ]
        )

    assert [each.status for each in result.results] == ["ok", "ok", "ok"]
    assert "42" in json.dumps(result.results[2].output)
    assert (tmp_path / "workspace" / "x.db").exists()


@are_installed
async def test_the_filesystem_server_reads_inside_and_refuses_outside(tmp_path: Path) -> None:
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "hello.txt").write_text("hello from a file\n")
    async with Executor([source(tmp_path, "fs", command=node("filesystem", str(folder)))]) as executor:
        inside = await one(executor, "fs__read_text_file", path=str(folder / "hello.txt"))
        outside = await one(executor, "fs__read_text_file", path="/etc/passwd")

    assert "hello from a file" in json.dumps(inside.output)
    assert outside.status == "failed"
    assert outside.fault is not None
    assert "Access denied" in outside.fault.message


@are_installed
async def test_the_memory_server_remembers_in_the_file_it_is_told(tmp_path: Path) -> None:
    entities = [{"name": "web-1", "entityType": "host", "observations": ["restarted twice"]}]
    env = [f"MEMORY_FILE_PATH={tmp_path / 'workspace' / 'memory.jsonl'}"]
    async with Executor([source(tmp_path, "memory", command=node("memory"), env=env)]) as executor:
        await one(executor, "memory__create_entities", entities=entities)
        found = await one(executor, "memory__search_nodes", query="web")

    assert found.status == "ok"
    assert "restarted twice" in json.dumps(found.output)
    assert "restarted twice" in (tmp_path / "workspace" / "memory.jsonl").read_text()


async def _tour(executor: Executor, name: str) -> None:
    added = await one(executor, f"{name}__get-sum", a=2, b=3)
    structured = await one(executor, f"{name}__get-structured-content", location="New York")
    image = await one(executor, f"{name}__get-tiny-image")
    unfit = await one(executor, f"{name}__get-sum", a="two", b=3)

    assert "5" in json.dumps(added.output)
    assert set(structured.output) == {"temperature", "conditions", "humidity"}
    (picture,) = [part for part in image.output if part["type"] == "image"]
    assert picture["mimeType"] == "image/png"
    assert len(b64decode(picture["data"])) == 4033, "it stays whole for references"
    assert unfit.fault is not None
    assert unfit.fault.kind == "bad_parameters"


@are_installed
async def test_the_server_of_everything_over_standard_streams_goes_on_behind_a_long_operation(tmp_path: Path) -> None:
    server = source(tmp_path, "all", command=node("everything", "stdio"), timeout=3.0)
    async with Executor([server]) as executor:
        await _tour(executor, "all")
        with hang_guard():
            late = await one(executor, "all__trigger-long-running-operation", duration=600, steps=3)
        then = await one(executor, "all__echo", message="still there")

    assert late.status in ("timeout", "in_doubt")
    assert "still there" in then.output


@are_installed
async def test_the_server_of_everything_over_http(tmp_path: Path, serve: Callable[..., str]) -> None:
    command = node("everything", "streamableHttp")
    command[1:1] = ["--require", str(SERVERS / "loopback.cjs")]
    url = serve(command, free_port())

    async with Executor([source(tmp_path, "all", url=url)]) as executor:
        await _tour(executor, "all")


@pytest.mark.parametrize("by", ["streams", "http"])
async def test_the_newest_protocol_tells_of_new_tools_and_of_progress(
    tmp_path: Path, serve: Callable[..., str], by: str
) -> None:
    command = [sys.executable, str(SERVERS / "modern.py")]
    if by == "http":
        port = free_port()
        server = source(tmp_path, "m", url=serve([*command, str(port)], port))
    else:
        server = source(tmp_path, "m", command=command)
    async with Executor([server]) as executor:
        counted = await one(executor, "m__count", to=3)
        await one(executor, "m__grow")
        await waiting.until(lambda: "m__grown" in executor.tools)
        refused = await one(executor, "m__grown")
        protocol = server.snapshot()["protocol"]

    assert counted.output == {"result": 3}
    assert protocol >= "2026"
    assert refused.fault is not None
    assert "is switched off: it is new" in refused.fault.message


def test_a_changed_tool_is_accepted_from_the_command_line_while_the_service_runs(
    spar: Spar, start: Callable[..., Any]
) -> None:
    def offer(description: str) -> None:
        tool = {"name": "echo", "description": description, "inputSchema": {"type": "object"}}
        (spar.folder / "tools.json").write_text(json.dumps([tool]))

    command = json.dumps([sys.executable, "-I", "-S", str(SERVERS / "scripted.py"), str(spar.folder)])
    options = f'{{ command = {command}, refresh = "200ms" }}'
    spar.write(
        f"""
[[tools]]
use = "acting.mcp.server:McpServer"
name = "s"
options = {options}
[[rules]]
name = "say"
when = {{ pattern = "say" }}
[[rules.calls]]
tool = "s__echo"
[[sensors]]
use = "messages"
"""
    )
    offer("harmless")
    start().ready().stop()
    offer("harmful")
    service = start().ready()
    spar.until(lambda: "its description changed" in json.dumps(spar("mcp", "list", "--json").json), "what waits")

    spar("send", "say")
    shown = spar("status").out
    accepted = spar("mcp", "accept", "s", "echo")
    unknown = spar("mcp", "accept", "s", "other")
    spar.until(lambda: not service.agent["modules"]["act"]["parts"]["s"]["off"], "the tool being on")
    spar("send", "say")
    cycles = spar("cycles", "list", "--json").json

    assert "tool     s: connected, 0 tools, s__echo is off: " in shown
    assert "contract violated" in service.err
    assert "accepted echo: it changed after it was accepted: its description changed" in accepted.out
    assert "no tool 'other' of 's' waits to be accepted" in unknown.err
    calls = [(cycle["calls"]["ok"], cycle["calls"]["failed"], cycle["failed_calls"]) for cycle in cycles]
    assert calls == [(1, 0, 0), (0, 1, 1)], service.agent["modules"]
