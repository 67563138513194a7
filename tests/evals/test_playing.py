"""Trials: bounded, apart from one another and from the service, and over when no model can be asked."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from spar.errors import ConfigError
from spar.evals.cases import EvalCase
from spar.evals.playing import ModelAwayError, Trial, check, play_all
from spar.evals.summary import judge
from tests.evals.scripted import configured
from tests.servers.llm import LlmServer
from tests.servers.llm_replies import FAULTS, ToolCall, says
from tests.servers.llm_requests import Asked, content_of

pytest.importorskip("openai", reason="the library of models (spar-agent[llm]) is not installed")


def case_of(**given: Any) -> EvalCase:
    return TypeAdapter(EvalCase).validate_python({"name": "one", "messages": ["hello"], "expect": {}, **given})


async def play(case: EvalCase, configure: Any) -> Trial:
    ((trial,),) = await play_all([case], configure)
    return trial


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def why(trial: Trial) -> dict[str, str]:
    return {finding.key: finding.why for finding in judge(trial) if finding.why}


async def test_a_case_that_never_ends_is_ended_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    async with LlmServer(FAULTS["silent in the middle"]) as server:
        trial = await play(case_of(timeout=2), configured(server.url, tmp_path))

    assert why(trial) == {"timeout": "did not end within 2 s"}
    assert names_in(tmp_path) == ["config.toml"]


async def test_a_model_that_calls_without_end_meets_the_limit_of_the_run(tmp_path: Path) -> None:
    tools = {
        "look": {"description": "Look.", "answers": [{"result": "nothing"}], "params": {"at": {"type": "integer"}}}
    }

    def look(asked: Asked) -> Any:
        return says("", ToolCall("look", {"at": len(asked.messages)}))

    async with LlmServer(look) as server:
        trial = await play(case_of(tools=tools, settings={"runs.requests": 4}), configured(server.url, tmp_path))

    assert (trial.steps, trial.statuses[-1].status) == (4, "error")
    assert "requests" in why(trial)["status"]


@pytest.mark.parametrize("fault", ["key", "payment", "no such model"])
async def test_a_model_that_refuses_everybody_ends_all_trials(fault: str, tmp_path: Path) -> None:
    cases = [case_of(name=f"case {number}") for number in range(8)]
    async with LlmServer(FAULTS[fault]) as server:
        with pytest.raises(ModelAwayError, match="local "):
            await play_all(cases, configured(server.url, tmp_path), at_once=2)
        assert len(server.requests) <= 2


async def test_a_model_that_is_not_there_ends_all_trials(tmp_path: Path) -> None:
    async with LlmServer([]) as server:
        url = server.url

    with pytest.raises(ModelAwayError, match="local cannot be reached"):
        await play_all([case_of(), case_of(name="two")], configured(url, tmp_path))


async def test_a_model_that_fails_once_fails_no_trial(tmp_path: Path) -> None:
    async with LlmServer([FAULTS["broken"], says("hi")]) as server:
        trial = await play(case_of(expect={"answer": "hi"}), configured(server.url, tmp_path))

    assert (why(trial), trial.steps) == ({}, 1)


async def test_trials_run_side_by_side_up_to_a_number_and_keep_their_order(tmp_path: Path) -> None:
    started = asyncio.Semaphore(0)
    waiting = [0]

    async def meet(asked: Asked) -> Any:
        waiting[0] += 1
        started.release()
        while waiting[0] < 3:
            await asyncio.sleep(0.01)
        return says(content_of(asked.messages[-1]))

    cases = [case_of(name=name, messages=[f"I am {name}"]) for name in "abc"]
    async with LlmServer(meet) as server:
        (trials,) = await play_all(cases, configured(server.url, tmp_path), at_once=3)
        assert server.most_at_once == 3
    assert [trial.statuses[-1].reply for trial in trials] == ["I am a", "I am b", "I am c"]

    waiting[0] = 3
    async with LlmServer(meet) as server:
        (trials,) = await play_all(cases, configured(server.url, tmp_path), at_once=1, repeat=2)
        assert server.most_at_once == 1
    assert [trial.case.name for trial in trials] == list("aabbcc")


async def test_the_past_is_a_conversation_of_the_provider_and_its_calls_are_not_counted(tmp_path: Path) -> None:
    tools = {"look": {"description": "Look.", "params": {"at": "The place."}}}
    past = [{"user": "look {n}", "calls": [{"tool": "look", "params": {"at": "door"}, "result": "shut"},
                                           {"tool": "look", "params": {"at": "roof"}, "error": "too high"}],
             "agent": "seen {n}", "repeat": 2}]  # fmt: skip
    async with LlmServer(says("well")) as server:
        trial = await play(
            case_of(history=past, tools=tools, expect={"only": True, "steps": 1}), configured(server.url, tmp_path)
        )
        (asked,) = server.requests

    assert why(trial) == {}
    assert [(message["role"], content_of(message)) for message in asked.messages if message["role"] != "system"] == [
        *(turn for number in (1, 2) for turn in (
            ("user", f"look {number}"), ("assistant", ""), ("tool", "shut"), ("tool", "Error: too high"),
            ("assistant", f"seen {number}"))),
        ("user", "hello"),
    ]  # fmt: skip


async def test_no_part_of_the_configuration_is_reached_but_the_planner(tmp_path: Path) -> None:
    configure = configured(
        "http://127.0.0.1:9/v1", tmp_path, sensors='[{"use": "directory", "options": {"path": "inbox"}}]',
        tools='[{"use": "shell"}]', rules='[{"name": "all", "when": {"kind": "message"}, "answer": "by rule"}]',
        plugins='[{"use": "missing:thing"}]', memory=f'{{"url": "sqlite:///{tmp_path}/real.db"}}',
    )  # fmt: skip
    async with LlmServer(says("by the model")) as server:
        trial = await play(case_of(settings={"plan.options.base_url": server.url}), configure)
        (asked,) = server.requests

    assert trial.statuses[-1].reply == "by the model"
    assert asked.tools == []
    assert names_in(tmp_path) == ["config.toml"]


def test_settings_that_nothing_reads_and_a_configuration_without_a_model_are_refused_before_any_trial(
    tmp_path: Path,
) -> None:
    with pytest.raises(ConfigError, match=r"case 'one', settings: .*runs\.reqests.*did you mean 'requests'"):
        check([case_of(settings={"runs.reqests": 3})], configured("http://127.0.0.1:9/v1", tmp_path))
    with pytest.raises(ConfigError, match=r"plan.use = 'rules' .*name a configuration that has one with -c"):
        check([case_of(settings={"plan": '{"use": "rules", "options": {}}'})], configured("http://x/v1", tmp_path))
