"""A provider that is down is seen by people: an event, a log line, an alert, the status, readiness and metrics."""

from __future__ import annotations

import asyncio
import io
import json
import re
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from memory import Memory
from planning.assistant import Assistant
from planning.llm.planner import ModelPlanner
from planning.resilience.failover import Models
from planning.resilience.provider_errors import provider_error
from spar import Agent
from spar.cli.blocks import plain, style_of
from spar.cli.commands.status import models, read_status, status_blocks
from spar.cli.main import cli
from spar.config.load import from_mapping
from spar.config.tables.settings import Loaded
from spar.decoding import encode
from spar.events import HealthAlert, HealthRecovered, LoopCompleted, ModelStateChanged
from spar.observe.sink import configure
from spar.protocols import ModelState
from spar.service.agent_metrics import warnings_of
from spar.service.app import Service, describe
from spar.service.metrics import Metrics
from spar.testing import VirtualClock


class Model:
    """A model that cannot be reached while it is `away`."""

    def __init__(self, name: str, *, away: bool = False) -> None:
        self.name, self.is_away = name, away

    async def __call__(self, request: Any) -> dict[str, Any]:
        if self.is_away:
            raise provider_error("unreachable", self.name, "connection refused")
        return {"calls": [], "output": f"I am {self.name}"}


class Lab:
    """An agent that plans by models, and what it tells of them."""

    def __init__(self, clock: VirtualClock, *models: Model) -> None:
        self.models = Models(models, clock=clock)
        self.agent = Agent(plan=ModelPlanner(self.models), clock=clock, loop_interval=1.0)
        self.changes: list[ModelStateChanged] = []
        self.alerts: list[HealthAlert] = []
        self.ends: list[HealthRecovered] = []
        self.agent.events.subscribe(ModelStateChanged, self.changes.append)
        self.agent.events.subscribe(HealthAlert, self.alerts.append)
        self.agent.events.subscribe(HealthRecovered, self.ends.append)

    def metrics(self, name: str) -> dict[tuple[str, ...], float]:
        families = Metrics(lambda: [self.agent], "1").registry.collect()
        samples = [sample for family in families for sample in family.samples if sample.name == name]
        return {tuple(sample.labels[key] for key in sorted(sample.labels)): sample.value for sample in samples}


def lines_of(agent: Agent) -> list[str]:
    """Return what commands say of the models of an agent."""
    rows = models(read_status({"agent": json.loads(encode(describe(agent)))})[0].agent)
    return [f"{label} {text}" for label, text in rows if style_of(text) and label != "fallback"]


async def test_a_provider_that_goes_down_and_comes_back_is_told_once_each(clock: VirtualClock) -> None:
    model, written = Model("fake", away=True), io.StringIO()
    lab = Lab(clock, model)
    with closing(configure(level="info", format="json", stream=written)):
        async with lab.agent:
            receipt = await lab.agent.submit("hello", session="bob")
            await clock.sleep(5)
            [change] = lab.changes
            assert (change.model, change.state, change.retry_after) == ("fake", "open", 30.0)
            assert "fake cannot be reached: connection refused" in change.reason
            [alert] = lab.alerts
            assert (alert.kind, alert.severity, alert.session) == ("provider", "critical", "")
            model.is_away = False
            assert (await lab.agent.wait(receipt.run_id, 120)).output == "I am fake"
            assert [each.state for each in lab.changes] == ["open", "closed"]
            assert [end.alert_id for end in lab.ends] == [alert.alert_id]
            assert lab.agent.health.is_calm
    lines = [json.loads(line) for line in written.getvalue().splitlines()]
    told = [(line["msg"], line["level"]) for line in lines if line["msg"].startswith("model ")]
    assert told == [("model left alone", "warning"), ("model answers again", "info")]


async def test_the_status_says_what_is_away_why_until_when_and_who_waits(clock: VirtualClock) -> None:
    lab = Lab(clock, Model("fake", away=True))
    async with lab.agent:
        assert lines_of(lab.agent) == []
        assert lab.metrics("spar_model_state")["main", "fake", "closed"] == 1.0
        assert lab.metrics("spar_degraded")["main",] == 0.0
        await lab.agent.submit("hello", session="bob")
        await clock.sleep(10)
        assert lines_of(lab.agent) == [
            "model fake: cannot be reached: connection refused, next try in 20 s, no success yet, 2 requests, 2 failed",
            "waiting 1 run waits for a model",
        ]
        assert lab.metrics("spar_model_state") == {
            ("main", "fake", "closed"): 0.0, ("main", "fake", "open"): 1.0, ("main", "fake", "half_open"): 0.0,
        }  # fmt: skip
        assert lab.metrics("spar_degraded")["main",] == 1.0
        assert lab.metrics("spar_alerts_active")["main", "provider"] == 1.0
        await lab.agent.stop(deadline=0)


async def test_readiness_is_degraded_and_stays_ready(clock: VirtualClock) -> None:
    lab = Lab(clock, Model("fake", away=True))
    service = Service(Loaded(from_mapping({}), {}), lab.agent)
    async with lab.agent:
        is_ready, report = service.ready()
        assert (is_ready, report["degraded"]) == (True, False)
        await lab.agent.submit("hello", session="bob")
        await clock.sleep(5)
        is_ready, report = service.ready()
        assert (is_ready, report["degraded"], report["alerts"]) == (True, True, ["provider"])
        await lab.agent.stop(deadline=0)


async def test_one_of_several_models_is_a_warning_and_nobody_waits(clock: VirtualClock) -> None:
    lab = Lab(clock, Model("first", away=True), Model("second"))
    async with lab.agent:
        receipt = await lab.agent.submit("hello", session="bob")
        assert (await lab.agent.wait(receipt.run_id, 30)).output == "I am second"
        assert [(alert.severity, "first" in alert.message) for alert in lab.alerts] == [("warning", True)]
        assert describe(lab.agent)["waiting_for_models"] == 0


async def test_models_of_a_planner_that_was_replaced_are_told_of_no_more(clock: VirtualClock) -> None:
    lab = Lab(clock, Model("old", away=True))
    async with lab.agent:
        await lab.agent.submit("hello", session="bob")
        await clock.sleep(5)
        assert [alert.kind for alert in lab.alerts] == ["provider"]
        new = ModelPlanner(Models([Model("new")], clock=clock))
        await lab.agent.exchange({"plan": new}, lab.agent.settings)
        assert [each["model"] for each in describe(lab.agent)["models"]] == ["new"]
        assert [end.kind for end in lab.ends] == ["provider"]


async def test_a_model_whose_rest_is_over_is_tried_next(clock: VirtualClock) -> None:
    agent = Agent(clock=clock)
    agent.health.models.update(1, ModelState("fake", "open", "fake is overloaded", clock.monotonic() + 5))
    await clock.sleep(6)
    assert agent.health.models.report()[0]["state"] == "half_open"
    assert lines_of(agent) == ["model fake: is overloaded, the next request tries it"]


# -- keys -----------------------------------------------------------------------------------------------------


def test_a_key_that_is_not_set_is_known_before_the_first_run() -> None:
    planner = Assistant("openai:gpt-5", key_env="SPAR_TEST_NO_SUCH_KEY")
    [warning] = warnings_of(Agent(plan=planner))
    assert "'SPAR_TEST_NO_SUCH_KEY'" in warning
    assert "'openai:gpt-5'" in warning
    assert "set it where the service is started" in warning
    assert warnings_of(Agent(plan=Assistant("openai:gpt-5", key_env="PATH"))) == []


def test_a_module_that_cannot_say_what_is_wrong_hides_nobody_elses_warning() -> None:
    class Odd:
        async def sense(self) -> None:
            return None

        def warnings(self) -> list[str]:
            raise OSError("gone")

    agent = Agent(sense=Odd(), plan=Assistant("openai:gpt-5", key_env="SPAR_TEST_NO_SUCH_KEY"))
    assert ["gone" in each for each in warnings_of(agent)] == [True, False]


# -- the rest of the status -----------------------------------------------------------------------------------


def shown(agent: Agent, **changes: Any) -> list[str]:
    told = json.loads(encode({**describe(agent), "approvals": {"pending": 0}}))
    status = {
        "version": "1",
        "pid": 1,
        "config": "config.toml",
        "started_at": "2026-01-01T00:00:00Z",
        "addresses": {},
        "agent": told | changes,
    }
    return "\n".join(map(plain, status_blocks(status))).splitlines()


def test_open_incidents_are_shown_by_severity_the_worst_first() -> None:
    counts = {"info": 0, "warning": 2, "error": 0, "critical": 1}
    (line,) = [
        each
        for each in shown(Agent(), modules={"act": {}, "sense": {"incidents": {"open": counts}}})
        if "incident" in each
    ]
    assert line.split(None, 1) == ["incidents", "open: 1 critical, 2 warning; spar incidents list"]
    for other in ({}, {"incidents": 3}, {"incidents": {"open": dict.fromkeys(counts, 0)}}):
        assert not any("incident" in each for each in shown(Agent(), modules={"act": {}, "sense": other}))


def test_the_phase_in_hand_is_shown_with_its_duration() -> None:
    lane = {"session": "bob", "waiting": 2, "cycle": "0123456789abcdef", "phase": "plan", "phase_seconds": 93.4,
            "waits_for_model": False}  # fmt: skip
    rests = {**lane, "session": "ann", "cycle": None, "phase": None, "phase_seconds": None}
    lines = shown(Agent(), lanes=[lane, rests, {**rests, "session": "eve", "waits_for_model": True}])
    assert "  session  bob: plan for 93 s, cycle 0123456789ab, 2 waiting" in lines
    assert "  session  ann: resting, 2 waiting" in lines
    assert "  session  eve: waits for a model, 2 waiting" in lines


def test_an_alert_says_whose_it_is_and_since_when() -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    alert = {"kind": "stuck", "severity": "warning", "message": "plan hangs\nby: a stack", "since": at.isoformat(),
             "session": "bob"}  # fmt: skip
    local = at.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    [line] = [line for line in shown(Agent(), alerts=[alert]) if line.startswith("  alert")]
    age = r"\d+ d( \d+ (h|min))?"
    assert re.fullmatch(
        rf"  alert    stuck \(warning\) in session bob for {age}, since {local} \(.+\): plan hangs", line
    )


@pytest.mark.parametrize(("state", "extra"), [("ok", ""), ("backing_off", ": [Errno 2] gone")])
def test_an_error_that_is_over_does_not_stand_beside_ok(state: str, extra: str) -> None:
    sensors = {"log": {"state": state, "last_error": "[Errno 2] gone"}}
    lines = shown(Agent(), modules={"sense": {"use": "Sense", "sensors": sensors}, "act": {"use": "Executor"}})
    assert f"  sensor   log: {state}{extra}" in lines


@pytest.mark.parametrize(("age", "told"), [(14.0, "ok"), (59.0, "ok"),
                                           (61.0, "stale: not asked for 61 s, it should be each 5 s")])  # fmt: skip
def test_a_sensor_that_is_not_asked_any_more_is_stale(age: float, told: str) -> None:
    sensors = {"host": {"state": "ok", "every": 5.0, "last_poll_age": age}}
    lines = shown(Agent(), modules={"sense": {"use": "Sense", "sensors": sensors}, "act": {"use": "Executor"}})
    assert f"  sensor   host: {told}" in lines


async def test_a_model_is_told_with_its_last_success_and_what_plans_in_its_place(clock: VirtualClock) -> None:
    first, second = Model("first"), Model("second")
    lab = Lab(clock, first, second)
    async with lab.agent:
        receipt = await lab.agent.submit("hello")
        await lab.agent.wait(receipt.run_id, 60)
        await clock.sleep(90)
        first.is_away = True
        receipt = await lab.agent.submit("again", session="bob")
        await lab.agent.wait(receipt.run_id, 60)
        told = shown(lab.agent)
        await lab.agent.stop(deadline=0)
    [away, well] = [line for line in told if line.startswith("  model")]
    assert away.startswith("  model    first: cannot be reached: connection refused, next try in ")
    assert re.search(r", last success 9\d s ago, \d requests?, \d failed$", away)
    assert re.fullmatch(r"  model    second: answers, last success \d+ s ago, 1 request, 0 failed", well)
    assert "  fallback 1 request was answered by another model than the first" in told


def test_a_model_tells_its_cost_in_units_and_one_request_as_one() -> None:
    rows = [{"model": "good", "requests": 1, "faults": 0, "cost": 1_500, "last_success_age": 3.0}]
    state = {"model": "good", "state": "closed", "reason": "", "wait": 0.0}
    whole = {**json.loads(encode(describe(Agent()))), "models": [state], "modules": {"plan": {"models": rows}}}

    told = [text for _, text in models(read_status({"agent": whole})[0].agent)]

    assert [str(text) for text in told] == ["good: answers, last success 3 s ago, 1 request, 0 failed, 0.0015 spent"]


def test_what_is_kept_and_budgets_are_explained() -> None:
    budgets = [{"budget": "hour.tokens", "used": 500, "limit": 1000, "ratio": 0.5, "refused": 2, "ends_at": None},
               {"budget": "day.money", "used": 1_500_000, "limit": 3_000_000, "ratio": 0.5, "refused": 0,
                "ends_at": None},
               {"budget": "hour.cached_tokens", "used": 9_000, "limit": 90_000, "ratio": 0.1, "refused": 0,
                "ends_at": None}]  # fmt: skip
    lines = shown(Agent(), kept={"stored": 2, "waiting": 0, "lost": 1}, budgets=budgets)
    assert "  memory   2 cycles and experiences written, 1 lost because the memory could not take them" in lines
    assert "  budget   hour.tokens: 500 of 1,000 left (50% used), 2 refused" in lines
    assert "  budget   day.money: 1.5 of 3 left (50% used)" in lines
    assert "  budget   hour.cached_tokens: 81,000 of 90,000 left (10% used)" in lines


def test_a_check_of_the_configuration_says_which_key_is_not_set(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[plan]\nuse = "llm"\noptions = { model = "openai:gpt-5", key_env = "SPAR_TEST_NO_SUCH_KEY" }\n')
    answer = CliRunner().invoke(cli, ["-c", str(file), "config", "check"], standalone_mode=False)
    assert "SPAR_TEST_NO_SUCH_KEY" in answer.output
    assert "can be used" in answer.output


async def test_a_cycle_whose_plan_was_put_off_is_listed_as_such_with_the_reason(
    clock: VirtualClock, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    model, cycles = Model("fake", away=True), list[LoopCompleted]()
    planner = ModelPlanner(Models([model], clock=clock))
    agent = Agent(plan=planner, memory=Memory(url), clock=clock, loop_interval=1.0)
    agent.events.subscribe(LoopCompleted, cycles.append)
    async with agent:
        run = await agent.submit("hello")
        await clock.sleep(5)
        model.is_away = False
        assert (await agent.wait(run.run_id, 120)).status == "ok"

    def spar(*words: str) -> str:
        answer = CliRunner().invoke(cli, ["-c", str(file), *words], standalone_mode=False)
        assert answer.exception is None
        return answer.output

    file = tmp_path / "config.toml"
    file.write_text(f'[memory]\nurl = "{url}"\n')
    told = await asyncio.to_thread(spar, "--json", "cycles", "list")
    listed = await asyncio.to_thread(spar, "cycles", "list")
    well, *_, off = rows = json.loads(told)
    shown = await asyncio.to_thread(spar, "cycles", "show", off["cycle_id"])

    assert {each["outcome"] for each in rows} == {"acted"}
    assert well["deferred"] == ""
    assert "fake cannot be reached: connection refused" in off["deferred"]
    assert [each.deferred for each in reversed(cycles) if each.outcome != "idle"] == [each["deferred"] for each in rows]
    marked = [("put off" in line, "no model can answer now" in line) for line in listed.splitlines()[1:]]
    assert marked == [(False, False)] + [(True, True)] * (len(rows) - 1)
    assert f"put off: {off['deferred'][:60]}" in shown
