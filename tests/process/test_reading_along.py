"""Reading along with a service: thoughts, lines about calls, and compactions that hooks shape."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.process.conftest import Service, Spar
from tests.process.conversation import LONG, Novelist, Talk, configured
from tests.servers.llm import served
from tests.servers.llm_replies import Reply, ToolCall, says
from tests.servers.llm_requests import content_of

pytestmark = pytest.mark.process
pytest.importorskip("pydantic_ai", reason="the library of models (spar-agent[llm]) is not installed")

PLUGIN = '''
import json, pathlib
from spar import Decision
from spar.events import MessageSent

def record(agent):
    """Write down what people are told, and have compactions keep a promise."""
    def told(event):
        with pathlib.Path("told.jsonl").open("a") as file:
            file.write(json.dumps([event.kind, event.part, event.text]) + "\\n")

    agent.events.subscribe(MessageSent, told)
    promise = "Promised: nothing on Fridays."
    agent.hooks.add("before_compaction", lambda ctx: Decision.rewrite(ctx.value.keeping(promise)))
    agent.hooks.add("after_compaction", lambda ctx: Decision.rewrite(ctx.value.noted("Read the plan again.")))
'''
RUNS = """
[[plugins]]
use = "watcher:record"

[runs]
reasoning = "{reasoning}"
"""


def thinking(reply: Reply, *thoughts: str) -> Reply:
    """The reply, with thoughts before it."""
    return reply.broken(1, *({"delta": {"reasoning_content": each}} for each in thoughts))


def stories() -> Novelist:
    def measured(text: str) -> Reply:
        if "door: 293 kelvin" in text:
            return thinking(says("It is 293."), "That is it.")
        return thinking(says("I measure first.", ToolCall("measure", {"what": "door"})), "Let me ", "see.")

    return Novelist({"measured": measured, "other": lambda text: says("yes"), "long": lambda text: says(LONG)})


@pytest.fixture
def begin(spar: Spar, start: Callable[..., Service]) -> Callable[..., Talk]:
    def begun(url: str, *, reasoning: str = "off", context_tokens: int = 20_000) -> Talk:
        (spar.folder / "watcher.py").write_text(PLUGIN)
        configured(spar, url, context_tokens=context_tokens)
        text = spar.config.read_text()
        more = RUNS.format(reasoning=reasoning)
        plugins, _, runs = more.partition("\n[runs]\n")
        spar.write(text.replace("[runs]\n", f"[runs]\n{runs}", 1) + plugins)
        return Talk(spar, start().ready())

    return begun


def told(talk: Talk) -> list[list[Any]]:
    return [json.loads(line) for line in talk.lines("told.jsonl")]


def test_send_prints_thoughts_and_lines_about_calls_for_who_asks(spar: Spar, begin: Callable[..., Talk]) -> None:
    with served(stories()) as server:
        talk = begin(server.url, reasoning="stream")
        asked = spar("send", "--reasoning", "--verbose", "[measured] how warm is the door?")
        plain = spar("send", "--stream", "[measured] how warm is the door?")

        assert (asked.code, asked.out) == (0, "I measure first.\nIt is 293.\n")
        lines = [line for line in asked.err.splitlines() if "ms" not in line]
        assert lines == ["Let me see.", "That is it."]  # the words before the call stand
        [line] = [line for line in asked.err.splitlines() if "ms" in line]
        assert line.startswith('measure what="door" ✓ ')
        assert (plain.code, plain.out) == (0, "I measure first.\nIt is 293.\n")
        assert set(plain.err.splitlines()) == {"measure: ok", "measure …"}

        run_id = talk.submit("b", "[measured] how warm?", options={"verbose": True})
        talk.ended(run_id)
        events = talk.events(run_id)
        thoughts = [each["data"] for each in events if each["stream"] == "reasoning"]
        assert [(each["text"], each["request"]) for each in thoughts] == [("Let me see.", 1), ("That is it.", 2)]
        assert [each["data"]["tool"] for each in events if each["stream"] == "verbose"] == ["measure"]
        assert "Let me" not in json.dumps(talk.transcript("b"))
        assert [each["body"].get("said") for each in talk.transcript("b") if each["kind"] == "turn"] == [
            "I measure first.", None
        ]  # fmt: skip

        # The text beside the call was shown to the model again, before the call.
        again = [message for asked in server.requests for message in asked.messages if message.get("tool_calls")]
        assert {content_of(each) for each in again} == {"I measure first."}


def test_thoughts_that_nobody_wants_are_nowhere_and_hooks_say_what_a_compaction_keeps(
    spar: Spar, begin: Callable[..., Talk]
) -> None:
    with served(stories()) as server:
        talk = begin(server.url, context_tokens=4_000)
        asked = spar("send", "--reasoning", "[measured] how warm is the door?")

        assert asked.code == 0
        assert asked.err.splitlines()[-1] == 'no thoughts came: the model told none, or runs.reasoning is "off"'
        assert told(talk) == [["answer", 0, "It is 293."]]

        for number in range(12):
            talk.ask("a", f"[long] question {number}. {LONG}")
            if any(each["kind"] == "compaction" for each in talk.transcript("a")):
                break
        first, second = [each["body"] for each in talk.transcript("a") if each["kind"] == "compaction"][:2]
        assert first["kept"] == second["kept"] == ["Promised: nothing on Fridays."]
        assert ("note" in first, second["note"]) == (False, "Read the plan again.")

        talk.ask("a", "[other] and now?")
        read = "\n".join(content_of(each) for each in server.requests[-1].messages)
        assert '(of it, to the letter) "Promised: nothing on Fridays."' in read
        assert '(a note) "Read the plan again."' in read
        talk.service.stop()
        kept = b"".join(each.read_bytes() for each in spar.state.rglob("*") if each.is_file())
        assert b"293" in kept
        assert b"Let me see" not in kept
