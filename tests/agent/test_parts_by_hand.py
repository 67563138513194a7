"""Parts of an agent made by hand: each takes its ports, none needs the agent."""

from __future__ import annotations

from spar.budgets.enforcement import Enforcement
from spar.config.tables.settings import Settings
from spar.events import RunEnded
from spar.health.alerts import Alert
from spar.health.health import Health
from spar.health.watched import Watched, look
from spar.loop.core import Core
from spar.loop.setup import Setup
from spar.loop.tasks import Requests
from spar.observe.stats import Stats
from spar.records.runs import RunStatus
from spar.records.transcript import Entry
from spar.runs.run import End, Run
from spar.runs.runs import Runs
from spar.runs.transcripts import SessionTranscripts
from spar.testing import VirtualClock
from spar.types import Perception, Phase


class Control:
    """Notes what the parts ask of their agent."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def request_pause(self) -> None:
        self.asked.append("pause")

    def request_stop(self) -> None:
        self.asked.append("stop")

    def resume_renewed(self) -> None:
        self.asked.append("resume")

    def fail(self, why: str) -> None:
        self.asked.append(f"fail: {why}")

    async def restart_module(self, phase: Phase) -> None:
        self.asked.append(f"restart {phase}")

    def run_is_late(self, run: Run, why: str) -> None:
        self.asked.append(f"late: {why}")

    def run_ended(self, run: Run, end: End) -> None:
        self.asked.append(f"ended: {end.status}")

    async def status_of(self, run_id: str) -> RunStatus:
        raise LookupError(run_id)


def health_of(core: Core, agent: Control) -> Health:
    return Health(core, Setup(), Stats(), agent, {})


def test_health_opens_and_closes_an_alert_without_an_agent(clock: VirtualClock) -> None:
    health = health_of(Core("main", clock, Settings()), Control())

    alert = health.alert("slow", "it takes long")
    assert isinstance(alert, Alert)
    assert health.kinds == {"slow"}
    health.recovered("slow")
    assert health.kinds == set()


def test_a_used_up_budget_pauses_the_agent_that_it_was_given(clock: VirtualClock) -> None:
    core, agent = Core("main", clock, Settings()), Control()
    restraint = Enforcement(core, Setup(), health_of(core, agent), agent)

    restraint({"pause": "no calls are left"})
    assert agent.asked == ["pause"]
    core.state = "paused"
    restraint({})
    assert agent.asked == ["pause", "resume"]


def test_runs_are_accounted_for_without_an_agent(clock: VirtualClock) -> None:
    core, owner, ended = Core("main", clock, Settings()), Control(), []
    core.events.subscribe(RunEnded, ended.append)

    runs = Runs(core.events, clock, owner.run_ended, owner.run_is_late, core.ledger)
    run = runs.accept("run", Perception("hello"), None, clock.now())
    assert (runs.open, runs.open_run(run.id), ended) == (1, run, [])
    runs.end(run, End("ok", output="hi"))
    assert runs.open == 0
    assert [event.run_id for event in ended] == [run.id]
    assert owner.asked == ["ended: ok"]


async def test_transcripts_without_a_store_keep_what_was_said(clock: VirtualClock) -> None:
    core = Core("main", clock, Settings())
    transcripts = SessionTranscripts("main", clock, Requests("main", clock, core.events), lambda: None, Setup())
    transcripts.keep("anna", (Entry("user", {"text": "hello"}, "r1"),))
    assert [entry.body["text"] for entry in await transcripts.read("anna")] == ["hello"]
    assert await transcripts.has("anna")


def test_the_watcher_sees_nothing_of_an_agent_that_does_not_run(clock: VirtualClock) -> None:
    core = Core("main", clock, Settings())
    watched = Watched(core, Setup(), health_of(core, Control()), Requests("main", clock, core.events), {})
    assert look(watched, 1e9) == []
    assert watched.blocked_for() == 0.0
