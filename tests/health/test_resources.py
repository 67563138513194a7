"""Memory and disk that run short: what is said, what is given up, what is refused, and that it ends by itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from spar import Agent
from spar.errors import NoRoomError
from spar.events import Event, HealthAlert, HealthRecovered, RecoveryStep
from spar.health import relief
from spar.health.judge import CALM, HARD_READINGS, LEAST_FREE, MIB, Pressure, ResourceBounds
from spar.health.models import Models
from spar.health.relief import SHED_READINGS, Relief, Resources, disk_room, resident
from spar.hooks import FAILURES_UNTIL_OFF, HookContext, Hooks
from spar.runs.runs import KEPT
from spar.service.app import describe
from spar.testing import ScriptedSense, VirtualClock
from spar.types import Perception

GIB = 1024 * MIB


class Cached:
    """A plan module with a cache."""

    def __init__(self) -> None:
        self.entries = 100
        self.shed_count = 0

    async def plan(self, perceptions: Any) -> None:
        return None

    def shed(self) -> int:
        self.shed_count += 1
        given_up, self.entries = self.entries, 0
        return given_up


class Lab:
    """An agent, what is read of its process, and what was said about it."""

    def __init__(self, clock: VirtualClock, bounds: ResourceBounds, **modules: Any) -> None:
        self.memory, self.free, self.total = 100 * MIB, 50 * GIB, 100 * GIB
        self.agent = Agent(clock=clock, loop_interval=1.0, **modules)
        self.given_up: list[str] = []
        self.told: list[str] = []
        agent = self.agent
        resources = Resources(bounds, "/nowhere", agent.memory, lambda: self.memory, self._room)
        self.relief = Relief(agent.core, agent.health, agent.requests, resources, parts=agent.caches,
                             give_up=lambda: self.given_up.append("drain"))  # fmt: skip
        self.pressure = self.relief.pressure
        events = self.agent.events
        events.subscribe(HealthAlert, lambda event: self.told.append(f"{event.severity} {event.kind}"))
        events.subscribe(HealthRecovered, lambda event: self.told.append(f"recovered {event.kind}"))
        events.subscribe(RecoveryStep, lambda event: self.told.append(event.step))

    def _room(self, folder: str) -> tuple[int, int]:
        if self.free < 0:
            raise OSError(5, "Input/output error")
        return self.free, self.total

    def look(self, number: int = 1) -> list[str]:
        """Take so many readings; what was said because of them."""
        self.told.clear()
        for _ in range(number):
            self.relief.look()
        return list(self.told)


@pytest.fixture(autouse=True)
def collected(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is asked of the collector of garbage, which has all that this process's tests hold to look through."""
    asked: list[str] = []
    collector = SimpleNamespace(unfreeze=lambda: asked.append("unfreeze"), collect=lambda: asked.append("collect"))
    monkeypatch.setattr(relief, "gc", collector)
    return asked


# -- memory -------------------------------------------------------------------------------------------------


async def test_above_the_soft_limit_caches_are_given_up_and_told_once_in_a_while(
    clock: VirtualClock, collected: list[str]
) -> None:
    cached = Cached()
    lab = Lab(clock, ResourceBounds(), plan=cached)
    async with lab.agent:
        assert lab.look(10) == []
        lab.memory = 512 * MIB
        assert lab.look() == []  # the limit itself is within it
        lab.memory += 1
        assert lab.look() == ["warning memory", "shed"]
        assert (cached.entries, lab.pressure.shed) == (0, 100)
        assert lab.look(SHED_READINGS - 1) == []
        assert collected == ["unfreeze", "collect"]
        assert lab.look() == ["shed"]
        assert cached.shed_count == 2
        assert lab.given_up == []


async def test_the_alert_of_memory_closes_once_it_is_clearly_below_the_limit(clock: VirtualClock) -> None:
    lab = Lab(clock, ResourceBounds())
    async with lab.agent:
        lab.memory = 600 * MIB
        lab.look()
        lab.memory = 500 * MIB
        assert lab.look() == []
        assert "memory" in lab.agent.health.alerts
        lab.memory = 400 * MIB
        assert lab.look() == ["recovered memory"]
        assert lab.look() == []


@pytest.mark.parametrize("bounds", [ResourceBounds(), ResourceBounds(0, GIB, 0)], ids=["both", "hard alone"])
async def test_above_the_hard_limit_for_too_long_the_process_gives_up_once(
    clock: VirtualClock, bounds: ResourceBounds
) -> None:
    lab = Lab(clock, bounds)
    async with lab.agent:
        lab.memory = 2 * GIB
        assert lab.look(HARD_READINGS - 1) == ["warning memory", "shed"]
        for peak in (GIB, 2 * GIB) * 3:
            lab.memory = peak
            lab.look(1 if peak == GIB else HARD_READINGS - 1)
        assert lab.given_up == []
        assert lab.look() == ["critical memory", "drain"]
        lab.look(50)
        assert lab.given_up == ["drain"]
        alert = lab.agent.health.alerts["memory"]
        assert alert.message == (
            "the process takes 2048.0 MiB of memory, more than 1024.0 MiB, and gives nothing back; "
            "it ends, to be started again"
        )


async def test_without_limits_nothing_is_ever_too_much(clock: VirtualClock) -> None:
    lab = Lab(clock, ResourceBounds(0, 0, 0))
    async with lab.agent:
        lab.memory, lab.free = 1000 * GIB, 0
        assert lab.look(100) == []
        assert (lab.given_up, lab.pressure.refusal) == ([], "")


async def test_a_cache_that_cannot_be_given_up_keeps_no_other_from_it(clock: VirtualClock) -> None:
    cached, more = Cached(), Cached()
    more.entries = 7

    class Broken:
        def shed(self) -> int:
            raise RuntimeError("no")

    lab = Lab(clock, ResourceBounds(), plan=cached)
    agent = lab.agent
    resources = Resources(ResourceBounds(), "/", memory=lambda: GIB, room=lambda folder: (GIB, GIB))
    of_all = Relief(agent.core, agent.health, agent.requests, resources, give_up=lambda: None,
                    parts=lambda: (*agent.caches(), Broken(), more))  # fmt: skip
    async with lab.agent:
        of_all.look()
    assert of_all.pressure.shed == 107


# -- disk ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("least", "total", "expected"),
    [
        (None, 100 * GIB, LEAST_FREE),
        (None, 10 * LEAST_FREE, LEAST_FREE // 2),
        (None, 2 * MIB, int(2 * MIB * 0.05)),
        (7 * MIB, 2 * MIB, 7 * MIB),
        (0, 100 * GIB, 0),
    ],
)
def test_how_much_must_be_free(least: int | None, total: int, expected: int) -> None:
    pressure = Pressure(ResourceBounds(min_free_disk=least))
    pressure.take_disk(expected, total)
    assert (pressure.least_free, pressure.refusal) == (expected, "")
    if expected:
        pressure.take_disk(expected - 1, total)
        assert pressure.refusal


async def test_below_the_least_free_room_nothing_is_accepted_until_there_is_room_again(clock: VirtualClock) -> None:
    lab = Lab(clock, ResourceBounds(min_free_disk=100 * MIB))
    async with lab.agent:
        lab.free = 99 * MIB
        assert lab.look() == ["critical disk"]
        assert lab.agent.health.pressure.refusal == (
            "the disk of the state directory has 99.0 MiB free, less than 100.0 MiB (service.min_free_disk); "
            "nothing new is accepted until there is room"
        )
        lab.free = 105 * MIB
        assert lab.look() == []
        assert lab.pressure.refusal
        lab.free = 111 * MIB
        assert lab.look() == ["recovered disk"]
        lab.free = -1  # it cannot be read, which says nothing about its room
        assert lab.look(3) == []
        assert lab.pressure.refusal == ""
        lab.free = 1
        assert lab.look() == ["critical disk"]


# -- the readings themselves --------------------------------------------------------------------------------


def test_the_readings_of_this_process_are_plausible(tmp_path: Any) -> None:
    before = resident()
    assert 10 * MIB < before < 100 * GIB
    ballast = bytearray(b"x" * 64 * MIB)
    assert resident() - before > 48 * MIB
    assert len(ballast)
    free, total = disk_room(str(tmp_path))
    assert 0 <= free <= total > MIB


def test_an_agent_whose_process_nobody_watches_is_calm() -> None:
    agent = Agent()
    assert agent.health.pressure is CALM
    assert CALM.refusal == ""
    assert agent.health.snapshot()["pressure"]["memory_bytes"] == 0


# -- what an agent that is not well does with what it is given, and what can be read of it


def full(agent: Agent, free: int) -> None:
    pressure = agent.health.pressure = Pressure(ResourceBounds(min_free_disk=1000))
    pressure.take_disk(free, 10_000)


async def test_while_the_disk_is_full_nothing_new_is_accepted_and_everybody_is_told(clock: VirtualClock) -> None:
    agent = Agent(clock=clock)
    async with agent:
        full(agent, 10)
        with pytest.raises(NoRoomError, match="nothing new is accepted until there is room"):
            await agent.submit("hello")
        assert not agent.push(Perception("x"))
        assert agent.refused == 1
        full(agent, 5000)
        assert (await agent.submit("hello")).run_id
        assert agent.push(Perception("x"))


async def test_a_phase_that_was_cancelled_and_a_handler_that_was_turned_off_are_steps_that_can_be_read(
    clock: VirtualClock,
) -> None:
    async def plan(perceptions: Any) -> None:
        await clock.sleep(1000)

    def broken(event: Event) -> None:
        raise RuntimeError("no")

    settings = {"agent": {"phases": {"plan": {"timeout": 5.0}}}}
    agent = Agent(sense=ScriptedSense(["x"], then=None), plan=plan, settings=settings, loop_interval=1.0, clock=clock)
    async with agent:
        await clock.sleep(10)
        assert [step.step for step in describe(agent)["health"]["steps"]] == ["cancel"]
        agent.events.subscribe(Event, broken)
        await clock.sleep(30)
        assert [step.step for step in agent.health.snapshot()["steps"]] == ["cancel", "quarantine"]


async def test_a_hook_that_keeps_failing_is_asked_no_more_unless_it_guards() -> None:
    hooks, asked = Hooks(), []

    def broken(ctx: HookContext) -> None:
        asked.append(ctx.point)
        raise RuntimeError("no")

    for point in ("before_cycle", "before_call"):
        hooks.add(point, broken)
    for _ in range(2 * FAILURES_UNTIL_OFF):
        assert not (await hooks.run(HookContext("before_cycle", "main"))).denied
        assert (await hooks.run(HookContext("before_call", "main"))).denied
    assert asked.count("before_cycle") == FAILURES_UNTIL_OFF
    assert asked.count("before_call") == 2 * FAILURES_UNTIL_OFF
    assert len(hooks.off) == 1
    assert "before_cycle" not in hooks.used


async def test_for_want_of_memory_most_runs_that_ended_are_forgotten(clock: VirtualClock) -> None:
    agent = Agent(clock=clock, loop_interval=0)
    async with agent:
        ids = [(await agent.submit(f"message {number}", session=f"s{number % 8}")).run_id for number in range(1500)]
        for run_id in ids:
            await agent.wait(run_id, 60)
        assert agent.runs.shed() == 1500 - KEPT // 10
        assert (await agent.wait(ids[-1], 0)).status == "ok"
        with pytest.raises(LookupError):
            await agent.wait(ids[0], 0)


# -- the share of a session's input that the provider's cache serves, and the alert when it falls


class Alerts:
    """Open alerts by kind, and their beginnings and ends."""

    def __init__(self) -> None:
        self.open: dict[str, str] = {}
        self.changes: list[str] = []

    def alert(self, kind: str, message: str, *, severity: str = "warning", what: str = "") -> Any:
        if self.open.setdefault(kind, message) is message:
            self.changes.append("begins")

    def recovered(self, kind: str, *, what: str = "") -> None:
        if self.open.pop(kind, None) is not None:
            self.changes.append("ends")


def use(models: Models, session: str, *shares: float, read: int = 10_000) -> None:
    for share in shares:
        models.used(session, {"input_tokens": read, "output_tokens": 10, "cached_tokens": int(read * share)})


def test_tokens_are_counted_apart_and_more_served_than_read_count_as_all_of_it(models: Models) -> None:
    use(models, "ada", 0.75)
    assert models.tokens == {"input": 2_500, "cached": 7_500, "output": 10}
    models.used("ada", {"input_tokens": 2_000, "output_tokens": 0, "cached_tokens": 9_000})
    assert models.tokens == {"input": 2_500, "cached": 9_500, "output": 10}


@pytest.fixture
def alerts() -> Alerts:
    return Alerts()


@pytest.fixture
def models(clock: VirtualClock, alerts: Alerts) -> Models:
    return Models(SimpleNamespace(clock=clock), alerts.alert, alerts.recovered)  # type: ignore[arg-type]


async def test_an_alert_opens_when_the_share_falls_below_half_of_the_usual_and_closes_when_it_is_usual_again(
    alerts: Alerts, models: Models
) -> None:
    use(models, "ada", *[0.9] * 30)
    use(models, "bob", *[0.9] * 30)
    assert alerts.open == {}

    use(models, "ada", *[0.1] * 4)

    assert list(alerts.open) == ["cache"]
    assert alerts.open["cache"].startswith("session ada: ")
    assert "usually 7" in alerts.open["cache"]
    use(models, "ada", *[0.9] * 8)
    assert alerts.open == {}


async def test_an_episode_is_told_once_over_all_sessions_and_however_the_share_varies(
    alerts: Alerts, models: Models
) -> None:
    names = [f"session {number}" for number in range(50)]
    for name in names:
        use(models, name, *[0.8] * 30)

    for share in (0.1, 0.3, 0.1, 0.0, 0.5, 0.6, 0.3, 0.5, 0.1, 0.45, 0.55) * 3:  # about half of the usual share
        for name in names:
            use(models, name, share)

    assert alerts.changes == ["begins", "ends"], "it has become usual"


async def test_the_alert_of_a_session_that_asks_no_more_closes_after_an_hour(
    clock: VirtualClock, alerts: Alerts, models: Models
) -> None:
    use(models, "ada", *[0.9] * 30, *[0.1] * 4)
    await clock.sleep(3_000.0)
    use(models, "ada", 0.1)  # it still asks
    await clock.sleep(3_000.0)
    assert list(alerts.open) == ["cache"]

    await clock.sleep(601.0)

    assert alerts.open == {}
    use(models, "ada", *[0.9] * 8)


def test_nothing_is_said_of_sessions_that_are_new_of_small_requests_and_of_providers_without_a_cache(
    alerts: Alerts, models: Models
) -> None:
    use(models, "new", *[0.9] * 10, *[0.0] * 4)
    use(models, "small", *[0.9] * 30, *[0.0] * 10, read=1_000)
    use(models, "none", *[0.0] * 60)

    assert alerts.open == {}
