"""Traces from outside: a real service tells a real collector, whose spans agree with the log and the tape."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from spar.tracing.trace_context import parse_traceparent
from tests.ports import SocketConnection
from tests.process.conftest import PATIENCE, Service, Spar, until
from tests.servers.collector import Collector, Told, collecting
from tests.servers.llm import LlmServer, served
from tests.servers.llm_replies import ToolCall, says
from tests.servers.llm_requests import Asked
from tests.servers.web import Web, web_served

pytestmark = pytest.mark.process

TOOLS = '''
from spar import tool

@tool(effect="read")
async def measure(what: str) -> str:
    """Measure something."""
    return f"{what}: 293 kelvin"

@tool(effect="read")
async def fails(token: str) -> str:
    """Fail."""
    raise OSError("no")
'''

CONFIG = """
[agent]
name = "watcher"
loop_interval = "adaptive"
min_interval = 0

[[sensors]]
use = "messages"

[plan]
use = "llm"

[plan.options]
model = {{ name = "small", base_url = "{url}", context_tokens = 8_000, max_tokens = 500 }}

[[tools]]
use = "own:measure"

[[tools]]
use = "own:fails"

[tracing]
enabled = true
endpoint = "{collector}"
timeout = 1
{more}

[log]
format = "json"
"""
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def answer(asked: Asked) -> Any:
    """Measure and fail first, or call an MCP server and a page, then say it."""
    if "look at" in asked.text:
        page = re.findall(r"http://127[.]0[.]0[.]1:[0-9]+/page", asked.text)
        return says("it is done") if "seen" in asked.text else says(
            "", ToolCall("web__act", {}), ToolCall("http", {"url": page[0]})
        )  # fmt: skip
    if "293 kelvin" in asked.text or "how warm" not in asked.text:
        return says("it is warm")
    return says("", ToolCall("measure", {"what": "room"}), ToolCall("fails", {"token": "hunter2hunter2"}))


def configure(spar: Spar, url: str, collector: str, more: str = "") -> None:
    (spar.folder / "own.py").write_text(TOOLS)
    spar.write(CONFIG.format(url=url, collector=collector, more=more))


NAMED = """
[[tools]]
use = "mcp"
name = "web"
options = {{ url = "{web}/mcp", effects = {{ act = "read" }} }}

[[tools]]
use = "http"
options = {{ allow = ["{host}"] }}
"""


def spans_named(requests: Iterable[Mapping[str, str]]) -> list[tuple[str, str]]:
    """Return trace and span that the headers of requests name."""
    parents = [parse_traceparent(each["traceparent"]) for each in requests]
    return [(each.trace_id, each.span_id) for each in parents if each is not None]


def of_spans(told: Iterable[Told]) -> list[tuple[str, str]]:
    return [(each.trace_id, each.span_id) for each in sorted(told, key=lambda each: each.began)]


def names_the_spans(server: LlmServer, collector: Collector, web: Web) -> None:
    """Check that requests name the span that is told of them."""
    chats = [each.headers for each in server.requests]
    assert len(chats) >= 2
    assert spans_named(chats) == of_spans(collector.named("chat small"))
    (call,), (page,) = web.calls(), web.pages()
    assert spans_named([call.headers]) == of_spans(collector.named("execute_tool web__act"))
    assert call.message["params"]["_meta"]["traceparent"] == call.headers["traceparent"]
    named = [request.message.get("method") for request in web.requests if "traceparent" in request.headers]
    # The two calls run side by side: either may arrive first.
    assert Counter(named) == Counter(["tools/call", None])
    assert spans_named([page.headers]) == of_spans(collector.named("execute_tool http"))


def ask(spar: Spar, session: str = "main") -> dict[str, Any]:
    """Send a message to a session of its own and return what became of it."""
    status: dict[str, Any] = spar("--json", "send", "--session", session, "hello").json
    return status


def submit(service: Service, session: str, parent: str) -> str:
    """Hand in a message with a header `traceparent`; the id of its run."""
    with SocketConnection(service.spar.state / "control.sock", PATIENCE) as channel:
        body = json.dumps({"message": "how warm is it?", "session": session})
        channel.request("POST", "/v1/runs", body, {"traceparent": parent})
        run_id: str = json.loads(channel.getresponse().read())["run_id"]
    return run_id


def run_of(collector: Collector) -> Told:
    found: list[Told] = until(lambda: collector.named("run watcher"), "the span of the run")
    return found[0]


def test_the_spans_of_a_run_agree_with_log_and_tape_and_requests_name_them_to_whom_a_setting_says(
    spar: Spar, start: Callable[..., Service]
) -> None:
    pytest.importorskip("mcp", reason="the MCP library (spar-agent[mcp]) is not installed")
    more = 'headers = { authorization = { env = "OTLP_TOKEN" } }\nnamed_to = ["models", "mcp", "http"]'
    with served(answer) as server, collecting() as collector, web_served() as web:
        named = NAMED.format(web=web.url, host=web.url.removeprefix("http://"))
        configure(spar, server.url, collector.url, more + named)
        environ = {"OTLP_TOKEN": "Bearer s3cr3t-of-collector"}
        service = start(environ=environ).ready()
        with_parent = spar("--json", "send", "how warm is it?").json
        run = run_of(collector)
        first, *_ = cycles = spar("--json", "cycles", "list").json[::-1]
        tape = spar("--json", "cycles", "show", first["cycle_id"]).json
        shown = spar("cycles", "show", first["cycle_id"]).out
        metrics = service.get("/metrics").text
        said = service.said("cycle acted", cycle=first["cycle_id"])
        sent = spar("--json", "send", "--session", "other", f"look at {web.url}/page").json
        everything = service.err + str(tape) + spar("config", "show").out
        service.stop()

    assert (with_parent["output"], sent["output"]) == ("it is warm", "it is done")
    names_the_spans(server, collector, web)
    trace = collector.of(tape["trace_id"])
    assert set(trace) == {
        "invoke_agent watcher", "spar.sense", "plan watcher", "chat small", "spar.act", "execute_tool measure",
        "execute_tool fails", "spar.reflect",
    }  # fmt: skip
    cycle, plan, act = trace["invoke_agent watcher"], trace["plan watcher"], trace["spar.act"]
    parents = {name: each.parent_id for name, each in trace.items()}
    assert parents == {
        "invoke_agent watcher": "", "spar.sense": cycle.span_id, "plan watcher": cycle.span_id,
        "chat small": plan.span_id, "spar.act": cycle.span_id, "execute_tool measure": act.span_id,
        "execute_tool fails": act.span_id, "spar.reflect": cycle.span_id,
    }  # fmt: skip
    assert all(cycle.began <= each.began <= each.ended <= cycle.ended for each in trace.values())
    assert (said["trace_id"], said["span_id"]) == (cycle.trace_id, cycle.span_id)
    assert f"trace {cycle.trace_id}\n" in shown

    assert cycle.attributes["gen_ai.operation.name"] == "invoke_agent"
    assert cycle.attributes["spar.cycle.id"] == first["cycle_id"]
    chat = trace["chat small"]
    assert chat.kind == 3  # client
    assert {key: chat.attributes[key] for key in chat.attributes if key.startswith("gen_ai.")} == {
        "gen_ai.operation.name": "chat", "gen_ai.request.model": "small", "gen_ai.provider.name": "openai",
        "gen_ai.response.model": "small", "gen_ai.response.finish_reasons": ["tool_call"],
        "gen_ai.usage.input_tokens": 20, "gen_ai.usage.output_tokens": chat.attributes["gen_ai.usage.output_tokens"],
    }  # fmt: skip
    tool, failed = trace["execute_tool measure"], trace["execute_tool fails"]
    assert tool.attributes["gen_ai.tool.call.id"] == tape["result"]["results"][0]["call"]["id"]
    assert (tool.attributes["spar.call.status"], tool.attributes["spar.call.attempts"], tool.error) == ("ok", 1, "")
    assert failed.attributes["spar.call.status"] == "failed"
    assert failed.error == failed.attributes["error.type"] != ""
    assert "room" not in str(collector.spans)
    assert "how warm" not in str(collector.spans)

    assert {link[0] for link in run.links} == {
        spar("--json", "cycles", "show", each["cycle_id"]).json["trace_id"] for each in cycles
    }
    assert (run.trace_id, run.span_id) in cycle.links
    assert collector.spans[0].resource["service.name"] == "watcher"
    assert collector.headers[0]["authorization"] == "Bearer s3cr3t-of-collector"
    assert "s3cr3t-of-collector" not in everything
    assert 'spar_trace_spans_total{disposition="dropped"} 0.0' in metrics


def test_content_is_told_without_secrets_and_linked_and_a_collector_that_is_down_costs_a_counted_loss_and_one_line(
    spar: Spar, start: Callable[..., Service]
) -> None:
    with served(answer) as server:
        with collecting() as collector:
            configure(spar, server.url, collector.url, "content = true")
            service = start().ready()
            content_is_told_and_the_asker_is_linked(service, collector)
            a_loss_is_counted_and_told_once(service, collector)
            last = ask(spar)
            assert (last["status"], service.stop()) == ("ok", 0)
            told = [each.attributes["spar.run.id"] for each in collector.named("run watcher")]
            assert last["run_id"] in told, "what waits is told before the process ends"
        service = start().ready()  # nobody listens there any more
        assert ask(spar, "s3")["status"] == "ok"
        assert service.stop() == 0


def content_is_told_and_the_asker_is_linked(service: Service, collector: Collector) -> None:
    with_parent = submit(service, "first", PARENT)
    broken = submit(service, "second", "00-zz-zz-01")
    until(lambda: len(collector.named("run watcher")) == 2, "both runs")
    until(lambda: len(collector.named("invoke_agent watcher")) >= 4, "their cycles")

    asker = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")
    by_run = {each.attributes["spar.run.id"]: each for each in collector.named("run watcher")}
    assert by_run[with_parent].links[0] == asker
    assert asker not in by_run[broken].links
    of_cycles = {each.attributes["spar.run.id"]: each.links for each in collector.named("invoke_agent watcher")}
    assert asker in of_cycles[with_parent]
    assert asker not in of_cycles[broken]
    (tool, *_) = collector.named("execute_tool measure")
    assert tool.attributes["gen_ai.tool.call.arguments"] == '{"what":"room"}'
    assert tool.attributes["gen_ai.tool.call.result"] == '"room: 293 kelvin"'
    assert "hunter2hunter2" not in str(collector.spans)


def a_loss_is_counted_and_told_once(service: Service, collector: Collector) -> None:
    spar, before = service.spar, len(collector.spans)
    collector.answers = 400

    def lost() -> bool:
        return 'spar_trace_spans_total{disposition="dropped"} 0.0' not in service.get("/metrics").text

    for number in range(2):
        assert ask(spar, f"s{number}")["status"] == "ok"
        until(lost, "spans that were lost")
        service.said("traces are lost")
    assert len(collector.spans) == before
    collector.answers = 200
    assert ask(spar, "s2")["status"] == "ok"
    until(lambda: len(collector.named("run watcher")) > 2, "the span of a run")
    again = service.said("traces are told again")
    assert again["dropped"] > 0
    assert sum(line["msg"] == "traces are lost" for line in service.log) == 1


def test_settings_that_cannot_work_are_refused_by_name(spar: Spar) -> None:
    for more, words in {
        'headers = { authorization = { env = "NO_SUCH" } }': "environment variable 'NO_SUCH' is not set",
        'headers = { authorization = { file = "absent" } }': "cannot be read: No such file",
        'headers = { "x y" = "hush-hush" }': "must be a header and its text",
        "ratio = 2": "tracing.ratio",
    }.items():
        configure(spar, "http://127.0.0.1:9", "http://127.0.0.1:9/v1/traces", more)
        refused = spar("config", "check")
        assert (refused.code, words in refused.err) == (78, True), refused
        assert "hush-hush" not in refused.err
    configure(spar, "http://127.0.0.1:9", "127.0.0.1:9")
    assert "tracing.endpoint" in spar("config", "check").err
