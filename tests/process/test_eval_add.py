"""`spar eval add`: what happened becomes a case, which holds when it is played again, without its secrets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml

from tests.process.conftest import Service, Spar, in_one_process
from tests.servers.llm import served
from tests.servers.llm_replies import Reply, ToolCall, says
from tests.servers.llm_requests import Asked, content_of

pytestmark = pytest.mark.process
pytest.importorskip("openai", reason="the library of models (spar-agent[llm]) is not installed")

SECRET = "sk-proj-a1b2c3d4e5f6a7b8c9d0a1b2c3d4e5f6"
TOOLS = f'''
from pathlib import Path

from spar import PermanentError, tool


@tool(effect="once")
async def weather(town: str, unit: str = "C") -> str:
    """Return the weather of a town."""
    with Path("called").open("a") as file:
        file.write(town)
    if town == "Gratz":
        raise PermanentError("no such town; did you mean Graz")
    return "12 degrees, asked with {SECRET}"


@tool(approval="deny")
async def wipe(host: str) -> str:
    """Wipe a host."""
    return "wiped"
'''
CONFIG = """
plan = {{ use = "llm", options = {{ model = "local", base_url = "{url}" }} }}
agent = {{ loop_interval = "off" }}
tools = [{{ use = "parts:weather" }}, {{ use = "parts:wipe" }}]
"""


def script(asked: Asked) -> Reply:
    """Answer as by what was said last: two wrong calls, a right one, then the answer."""
    said = [content_of(message) for message in asked.messages if message["role"] in ("user", "tool")]
    if "hello" in said[-1]:
        return says("hi")
    if "How is" in said[-1]:
        return says("", ToolCall("weather", {"town": "Gratz"}), ToolCall("wipe", {"host": "web-1"}))
    if any("did you mean" in text for text in said[-2:]):
        return says("", ToolCall("weather", {"town": "Graz", "unit": "C"}))
    return says("12 degrees in Graz.")


@pytest.fixture(scope="module")
def spar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spar]:
    """`spar` in the folder of a service, which runs."""
    spar = Spar(tmp_path_factory.mktemp("runs"))
    (spar.folder / "parts.py").write_text(TOOLS)
    with served(script) as model:
        spar.write(CONFIG.format(url=model.url))
        service = Service(spar).ready()
        yield spar
        service.kill()


@pytest.fixture(scope="module")
def runs(spar: Spar) -> tuple[str, str]:
    """The ids of two runs of one conversation, of which the second made calls and was marked bad."""
    ids = []
    for text in ("hello", f"How is the weather? My key is {SECRET}"):
        ids.append(spar("send", "--no-wait", text).out.strip())
        if "How is" in text:  # what an earlier call brought came from outside, so the next one asks
            (row,) = spar.until(lambda: spar("--json", "approvals", "list").json, "a call that asks")
            assert spar("approvals", "approve", row["id"], "--yes").code == 0
        assert spar("runs", "wait", ids[-1]).code == 0
    said = spar("runs", "feedback", ids[1], "bad", "it wanted to wipe web-1")
    assert (said.code, "bad" in said.out) == (0, True)
    assert spar("runs", "feedback", "none", "good").code == 1
    assert spar("runs", "feedback", ids[1], "maybe").code == 64
    return ids[0], ids[1]


def test_a_run_becomes_a_case_that_holds_when_it_is_played_and_reaches_nothing(
    spar: Spar, runs: tuple[str, str]
) -> None:
    called = (spar.folder / "called").read_text()
    listed = spar.here("eval", "add")
    assert (listed.code, listed.err) == (0, "")
    assert runs[1] in listed.out
    assert "bad, it wanted to wipe web-1" in listed.out

    added = spar.here("eval", "add", runs[1], "--to", "mine.yaml")
    assert (added.code, added.err) == (0, ""), added
    text = (spar.folder / "mine.yaml").read_text()
    assert SECRET not in text
    assert "***" in text
    (case,) = yaml.safe_load(text)
    assert case["history"] == [{"user": "hello", "agent": "hi"}]
    assert case["expect"]["calls"] == [
        {"tool": "weather", "params": {"town": "Gratz"}, "times": 1},
        {"tool": "wipe", "params": {"host": "web-1"}, "times": 1},
        {"tool": "weather", "params": {"town": "Graz", "unit": "C"}, "times": 1},
    ]
    assert case["expect"]["answer"] == {"contains": ["12 degrees in Graz."]}
    assert case["tools"]["weather"]["description"] == "Return the weather of a town."
    assert (case["tools"]["weather"]["optional"], case["tools"]["wipe"]["approval"]) == (["unit"], "deny")
    assert case["expect"]["approvals"] == ["weather"]

    (spar.folder / "other.yaml").write_text(text.replace("12 degrees in Graz", "13 degrees in Graz"))
    played, other = in_one_process([(spar, ["eval", name], b"") for name in ("mine.yaml", "other.yaml")])
    assert (played.code, played.err, other.code) == (0, "", 1), played
    assert "pass" in played.out
    assert (spar.folder / "called").read_text() == called


def test_a_cycle_is_added_as_its_run_and_a_case_is_written_once(spar: Spar, runs: tuple[str, str]) -> None:
    cycle = spar("--json", "cycles", "list").json[0]["cycle_id"]
    printed = spar.here("eval", "add", cycle)
    assert (printed.code, yaml.safe_load(printed.out)[0]["name"]) == (
        0,
        f"How is the weather? My key is *** ({runs[1]})",
    )

    codes = [spar.here("eval", "add", id, "--to", "both.yaml").code for id in (*runs, runs[0])]
    assert codes == [0, 0, 1]
    assert len(yaml.safe_load((spar.folder / "both.yaml").read_text())) == 2

    answer = spar.here("eval", "add", "none")
    assert (answer.code, answer.out, "no run or cycle 'none'" in answer.err) == (1, "", True)


def test_a_case_is_not_added_to_a_file_that_has_none(spar: Spar, runs: tuple[str, str]) -> None:
    (spar.folder / "words.yaml").write_text("just words")

    answer = spar.here("eval", "add", runs[0], "--to", "words.yaml")

    assert (answer.code, "words.yaml:1: must be a list of cases" in answer.err) == (65, True)
    assert (spar.folder / "words.yaml").read_text() == "just words"
