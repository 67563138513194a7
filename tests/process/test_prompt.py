"""Files, skills and hooks of a service from outside: told, used, kept over a kill, shown by `spar sessions prompt`."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.process.conftest import PATIENCE, Service, Spar
from tests.servers.llm import served
from tests.servers.llm_replies import ToolCall, says
from tests.servers.llm_requests import Asked

pytestmark = pytest.mark.process
pytest.importorskip("pydantic_ai", reason="the library of models (spar-agent[llm]) is not installed")
SECRET = "value-of-the-weather-key"

CONFIG = """
[agent]
loop_interval = "adaptive"
min_interval = 0

[[sensors]]
use = "messages"

[plan]
use = "llm"

[plan.options]
model = [{{ name = "scripted", base_url = "{url}" }}]
instructions = "You are Ada's assistant."
files = ["AGENTS.md", "USER.md"]
skills = "skills/"

[[tools]]
use = "shell"
options = {{ skills = "skills/" }}

[log]
format = "json"
"""
SKILL = "---\nname: weather\ndescription: {}\nenvironment: [WEATHER_KEY]\n---\nRun `run.sh TOWN` in its folder.\n"


def written(spar: Spar, url: str) -> str:
    """Write configuration, files and a skill; returns the path of the skill's program."""
    spar.write(CONFIG.format(url=url))
    (spar.folder / "AGENTS.md").write_text("Answer briefly.")
    own = spar.folder / "skills" / "weather"
    own.mkdir(parents=True)
    (own / "SKILL.md").write_text(SKILL.format("Tells the weather."))
    (own / "run.sh").write_text('#!/bin/sh\necho "rain in $1, key $WEATHER_KEY"\n')
    (own / "run.sh").chmod(0o755)
    return str(own / "run.sh")


def texts(asked: Asked) -> str:
    return "\n".join(str(each.get("content")) for each in asked.messages)


def test_a_skill_is_listed_read_used_and_stays_as_it_was_over_a_kill(spar: Spar, start: Callable[..., Service]) -> None:
    story = [
        says("", ToolCall("skill", {"name": "weather"})),
        says("", ToolCall("shell", {"argv": [str(spar.folder / "skills" / "weather" / "run.sh"), "Graz"]})),
        says("It rains."),
        says("Still."),
        says("New."),
    ]
    with served(story) as server:
        written(spar, server.url)
        environ = {"WEATHER_KEY": SECRET}
        first = start(environ=environ).ready()
        assert spar("send", "how is the weather?").out.strip() == "It rains."

        asked = [texts(each) for each in server.requests]
        assert all("You are Ada's assistant.\n\n## File AGENTS.md\nAnswer briefly." in each for each in asked)
        assert all("- weather: Tells the weather." in each for each in asked)
        assert "Run `run.sh TOWN`" not in asked[0]
        assert "Run `run.sh TOWN`" in asked[1]
        assert "rain in Graz, key [WEATHER_KEY]" in asked[2]

        first.process.send_signal(signal.SIGKILL)
        first.process.wait(PATIENCE)
        (spar.folder / "skills" / "weather" / "SKILL.md").write_text(SKILL.format("Changed."))
        second = start(environ=environ).ready()
        spar("send", "and now?")
        spar("send", "hello", "--session", "bob")
        assert "- weather: Tells the weather." in texts(server.requests[3])
        assert "- weather: Changed." in texts(server.requests[4])

        kept = b"".join(each.read_bytes() for each in spar.state.iterdir() if each.is_file())
        said = "\n".join([*first.lines, *second.lines, *map(texts, server.requests)])
        assert SECRET.encode() not in kept
        assert SECRET not in said


def test_a_rule_of_approval_may_name_the_tool_that_reads_skills(spar: Spar) -> None:
    rule = '\n[[approval.rules]]\ntool = "{}"\ndecision = "deny"\n'
    written(spar, "http://127.0.0.1:1")
    known = CONFIG.format(url="http://127.0.0.1:1")

    spar.write(known + rule.format("skill"))
    assert spar("config", "check").code == 0
    spar.write(known + rule.format("skil"))
    assert "no tool named 'skil'; known: shell, skill" in spar("config", "check").err
