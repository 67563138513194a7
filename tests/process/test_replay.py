"""`spar cycles replay`: the decisions of a real service, made again from its record, without effects."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from tests.process.conftest import Service, Spar, in_one_process
from tests.process.conversation import Novelist, configured
from tests.servers.llm import served
from tests.servers.llm_replies import Reply, ToolCall, says

pytestmark = pytest.mark.process

WRITER = '''
from pathlib import Path
from spar import Action, Call, tool

@tool(effect="once", brings_untrusted=False)
async def write(text: str) -> str:
    """Write a line."""
    with Path("written.txt").open("a") as file:
        file.write(text + "\\n")
    return text

class Planner:
    """Planner that tries to reach the tool itself, the store and the senders."""
    def __init__(self):
        self.host = None
    def attach(self, host):
        self.host = host
    async def plan(self, perceptions, context):
        host = self.host
        for reach in (lambda: host.tools()["write"].target, lambda: host.tools()["write"](text="direct"),
                      lambda: host.store.save("key", 1), lambda: context.memory.store(None),
                      lambda: host.deliver("run", "main", "answer", "text"), lambda: host.journal.append(None)):
            try:
                reach()
            except (AttributeError, TypeError):
                pass
            else:
                Path("reached.txt").touch()
        return Action(calls=[Call("write", {"text": perceptions[0].text})])
'''
SAFE = """
[agent]
loop_interval = "adaptive"
min_interval = 0
[[sensors]]
use = "messages"
[[tools]]
use = "writer:write"
"""
RULE = """
[[rules]]
name = "keep"
when = { kind = "message" }
calls = [{ tool = "write", params = { text = "{text}" } }]
answer = "kept"
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spar]:
    """`spar` with one recorded cycle, in which a rule called a tool that writes; its service runs."""
    spar = Spar(tmp_path_factory.mktemp("recorded"))
    (spar.folder / "writer.py").write_text(WRITER)
    spar.write(SAFE + RULE)
    service = Service(spar).ready()
    assert spar("send", "hello").out == "kept\n"
    spar.until(lambda: spar("cycles", "list", "--json").json, "the cycle")
    yield spar
    service.kill()


def test_a_cycle_is_decided_again(recorded: Spar) -> None:
    answer = recorded.here("cycles", "replay", "--json")
    assert answer.code == 0, answer
    (again,) = answer.json
    assert (again["verdict"], again["changes"]) == ("same", [])
    assert [(call["tool"], call["status"]) for call in again["calls"]] == [("write", "ok")]
    assert (recorded.folder / "written.txt").read_text() == "hello\n"


def test_another_configuration_shows_what_differs_and_a_call_that_was_never_made_is_unknown(recorded: Spar) -> None:
    (recorded.folder / "other.toml").write_text((SAFE + RULE).replace('"{text}"', '"{text}!"'))

    answer = recorded.here("cycles", "replay", "last", "--config", "other.toml")

    assert answer.code == 1
    assert "– calls: write by rule 'keep'" in answer.out
    assert 'write({"text": "hello!"}): unknown' in answer.out
    assert "+ outcome: unknown: 1 call was never made" in answer.out


def test_a_planner_that_reaches_for_everything_writes_nothing(recorded: Spar) -> None:
    (recorded.folder / "other.toml").write_text(SAFE + '[plan]\nuse = "writer:Planner"\n')
    before = {path: path.read_bytes() for path in recorded.folder.rglob("*") if path.suffix in (".txt", ".db")}

    (again,) = recorded.here("cycles", "replay", "--config", "other.toml", "--json").json

    tally = recorded("backtest", "--config", "other.toml", "--json").json

    assert [call["tool"] for call in again["calls"]] == ["write"]
    assert [one["what"] for one in tally["disagreements"]][-2:] == ["no more: write by rule 'keep'", "new: write"]
    assert {path: path.read_bytes() for path in before} == before
    assert not (recorded.folder / "reached.txt").exists()


def test_bad_input_is_one_clear_sentence(recorded: Spar) -> None:
    (recorded.folder / "wrong.toml").write_text("\n" * 11 + "[agent]\nname = 7\n")
    (recorded.folder / "gone.toml").write_text(SAFE.replace("writer:", "gone:"))
    for arguments, code, words in (
        (["none"], 1, "it was idle, or is gone by retention"),
        (["--config", "wrong.toml"], 78, "wrong.toml:13: agent.name"),
        (["--config", "gone.toml"], 78, "gone.toml:8: tools[0].use"),
        (["--config", "absent.toml"], 78, "absent.toml: there is no such file"),
    ):
        answer = recorded.here("cycles", "replay", *arguments)
        assert (answer.code, answer.out) == (code, ""), answer
        assert words in answer.err
        assert answer.err.count("\n") == 1, answer


def test_an_answer_of_a_model_comes_from_the_record_and_a_request_that_differs_is_asked_on_demand(
    spar: Spar, start: Callable[..., Service]
) -> None:
    pytest.importorskip("pydantic_ai", reason="the library of models (spar-agent[llm]) is not installed")

    def weather(text: str) -> Reply:
        if "293" not in text:
            return says("I look.", ToolCall("measure", {"what": "air"}), usage=(1_000, 0, 10))
        return says("It is mild.", usage=(1_000, 0, 10))

    with served(Novelist({"weather": weather})) as server:
        configured(spar, server.url)
        service = start().ready()
        assert spar("send", "[weather] how is it?").out == "It is mild.\n"
        assert spar("send", "[weather] and now?").code == 0
        cycles = spar.until(lambda: spar("cycles", "list", "--json").json[3:] and
                            spar("cycles", "list", "--json").json, "four cycles")  # fmt: skip
        service.stop()
        asked = len(server.requests)
        other = spar.config.read_text().replace("recall = 0", 'recall = 0\ninstructions = "Be brief."')
        (spar.folder / "other.toml").write_text(other)
        of_other = ("cycles", "replay", "last", "--config", "other.toml", "--json")
        same, unasked, answer = in_one_process([(spar, words, b"") for words in (
            ("cycles", "replay", *(cycle["cycle_id"] for cycle in cycles), "--json"), of_other, (*of_other, "--ask")
        )])  # fmt: skip
        assert [(again["verdict"], again["changes"]) for again in same.json] == 4 * [("same", [])]
        (again,) = unasked.json
        assert again["verdict"] == "unknown"
        assert {"part": "request", "what": "instructions"}.items() <= again["changes"][0].items()
        assert "Be brief." in again["changes"][0]["now"]
        assert re.match(r"1 request of about \d+ tokens: about 0\.\d+, by the 4 requests", answer.err)
        (again,) = answer.json
        assert (again["verdict"], [change["part"] for change in again["changes"]]) == ("differs", ["request"])
        assert len(server.requests) == asked + 1, "the one that was wanted"


def test_a_backtest_counts_what_differs_and_is_continued_from_its_checkpoint(recorded: Spar) -> None:
    (recorded.folder / "other.toml").write_text((SAFE + RULE).replace('"{text}"', '"{text}!"'))
    files = ("--html", "page.html", "--checkpoint", "state.json")
    for _ in range(2):
        answer = recorded("backtest", "--since", "1d", "--config", "other.toml", *files, "--json")
        assert answer.code == 0, answer
        assert (answer.json["cycles"], answer.json["differs"], answer.json["calls"]["changed"]) == (1, 1, 1)
    assert "1 × other: write by rule 'keep'" in recorded("backtest", "--config", "other.toml").out
    assert "<svg" in (recorded.folder / "page.html").read_text()
    assert (recorded.folder / "written.txt").read_text() == "hello\n"
    for arguments, code, words in (
        (["--rule", "none"], 64, "no rule named 'none' in either configuration; known: keep"),
        (["--checkpoint", "state.json"], 64, "is of another configuration"),
        (["--checkpoint", "config.toml"], 65, "cannot be read"),
        (["--html", "absent/page.html"], 73, "cannot be written"),
    ):
        refused = recorded("backtest", *arguments)
        assert (refused.code, words in refused.err, refused.err.count("\n")) == (code, True, 1), refused


def test_a_second_configuration_decides_beside_the_service_and_writes_nothing(
    spar: Spar, start: Callable[..., Service]
) -> None:
    (spar.folder / "writer.py").write_text(WRITER)
    spar.write(SAFE + RULE)
    (spar.folder / "reaching.toml").write_text(SAFE + '[plan]\nuse = "writer:Planner"\n')
    (spar.folder / "wrong.toml").write_text(SAFE.replace("writer:", "gone:"))
    (refused,) = in_one_process([(spar, ["run", "--shadow", "wrong.toml"], b"")])
    assert (refused.code, "wrong.toml:8: tools[0].use" in refused.err) == (78, True), refused
    service = start(of_run=("--shadow", "reaching.toml")).ready()
    assert spar("send", "hello").out == "kept\n"
    spar.until(lambda: sum(spar("shadow", "--json").json["agree"].values()), "the decision of the shadow")
    assert "reaching.toml: 0.0% of 1 decisions agree" in spar("status").out
    assert 'spar_shadow_decisions_total{agree="no"} 1.0' in service.get("/metrics").text
    assert "no more: write by rule 'keep'" in spar("shadow").out
    service.stop()
    assert (spar.folder / "written.txt").read_text() == "hello\n"
    assert not (spar.folder / "reached.txt").exists()


def test_a_cycle_names_the_rules_and_settings_that_it_was_decided_by(recorded: Spar) -> None:
    assert "as they are now" in recorded("why").out
    recorded.write(SAFE + RULE.replace('"kept"', '"noted"').replace('"message" }', '"message", source = "message" }'))
    assert recorded("reload").code == 0
    _is_explained_by_its_own(recorded)
    first = recorded("cycles", "show", "last", "--json").json["configuration"]
    assert recorded("send", "again").out == "noted\n"

    def newest() -> dict[str, str] | None:
        cycle: dict[str, str] = recorded("cycles", "show", "last", "--json").json
        return cycle if cycle["configuration"] != first else None

    assert "as they are now" in recorded("why", recorded.until(newest, "the cycle by the new rules")["cycle_id"]).out
    recorded.write(SAFE + RULE)
    assert recorded("stop").code == 0
    _is_explained_by_its_own(recorded)


def _is_explained_by_its_own(spar: Spar) -> None:
    """Check that the last cycle is explained by the rules of then, and that their difference from today's is said."""
    why = spar("why", "last").out
    assert "rules that were looked at (as they were then)" in why
    assert "policy (as it was then): lets it run" in why
    assert "different now: rules[keep]" in why
    again = spar.here("cycles", "replay", "last", "--json").json[0]
    assert "settings that differ from those it was decided by: rules[keep]" in again["remarks"]
