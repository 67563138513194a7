"""The options of runs from outside: at the command line and over HTTP, kept over `kill -9`, on the tape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.process.conftest import Service, Spar, until
from tests.process.conversation import Talk
from tests.servers.llm import served
from tests.servers.llm_replies import Reply, says
from tests.servers.llm_requests import Asked, content_of

pytestmark = pytest.mark.process

CONFIG = """
[agent]
loop_interval = "adaptive"
min_interval = 0

[[sensors]]
use = "messages"

[plan]
use = "llm"

[plan.options]
model = {{ name = "small", base_url = "{url}", context_tokens = 8_000, max_tokens = 500, temperature = 0.5 }}
allowed_models = ["small", {{ name = "large", base_url = "{url}", thinking = "low" }}]

[log]
format = "json"
"""


def settings_of(asked: Asked) -> dict[str, Any]:
    """With which settings a request was made."""
    names = ("model", "reasoning_effort", "temperature", "max_completion_tokens")
    return {name: asked.body[name] for name in names if name in asked.body}


SMALL = {"model": "small", "temperature": 0.5, "max_completion_tokens": 500}
LARGE = {"model": "large", "reasoning_effort": "high", "max_completion_tokens": 4_096 + 16_384}


REFUSED = {
    ("--model", "gpt-9"): "option model is 'gpt-9', allowed are: small, large",
    ("--thinking", "high"): "option thinking is 'high': small does not think",
    ("--thinking", "very"): "'very' is not one of 'off', 'low', 'medium', 'high'",
    ("--run-timeout", "0"): "0.0 is not in the range",
    ("--instructions", " "): "option instructions is ' ', expected text",
    ("--instructions", "@none.txt"): "cannot be read",
}


def test_send_chooses_of_what_is_allowed_and_a_run_ends_whose_model_is_not_allowed_any_more(
    spar: Spar, start: Callable[..., Service]
) -> None:
    def answer(asked: Asked) -> Reply:
        slow = {"rate": 0.1} if "never" in content_of(asked.messages[-1]) else {}
        return says(f"from {asked.body['model']}", **slow)

    with served(answer) as server:
        spar.write(CONFIG.format(url=server.url))
        talk = Talk(spar, start().ready())
        for options, words in REFUSED.items():
            answer = spar("send", *options, "hello")
            assert (answer.code, words in answer.err) == (64, True), answer
        (spar.folder / "verse.txt").write_text("Answer in verse.")
        plain = spar("send", "hello")
        chosen = spar("send", "--model", "large", "--thinking", "high", "--instructions", "@verse.txt", "hello")
        status = spar("--json", "send", "--run-timeout", "60", "--verbose", "hello").json
        shown = spar("runs", "show", status["run_id"])
        [_, cycle, *_] = talk.service.api("/v1/cycles").json()
        tape = spar("--json", "cycles", "show", cycle["cycle_id"])

        run_id = talk.submit("alice", "never", options={"model": "large"})
        until(lambda: len(server.requests) == 4, "a request")
        talk.service.kill()
        spar.edit(', { name = "large"', ']\n# [{ name = "large"')
        ended = Talk(spar, start().ready()).ended(run_id)

    assert ended["status"] == "error"
    assert ended["error"].startswith("option model is 'large', allowed are: small")
    assert (plain.out, chosen.out) == ("from small\n", "from large\n")
    assert [settings_of(each) for each in server.requests[:-1]] == [SMALL, LARGE, SMALL]
    assert content_of(server.requests[1].messages[0]).endswith("adds:\nAnswer in verse.")
    assert status["options"] == {"timeout": 60.0, "verbose": True}
    assert "timeout = 60.0, verbose = true\n" in shown.out
    asked = [each for each in tape.json["notes"] if each["kind"] == "model.asked"]
    assert [(each["model"], each["thinking"], each["max_tokens"]) for each in asked] == [("large", "high", 20_480)]
