"""Breakpoints: a session stands at a point of its cycle while all others go on, is changed by hand, and goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from planning.llm.planner import ModelPlanner
from spar import Action, Agent, Call, Context, Perception, tool
from spar.breakpoints.breakpoints import HOOKS, MOST, Breakpoints
from spar.config.load import from_mapping
from spar.errors import ConflictError
from spar.events import BreakpointEnded, BreakpointLeft, BreakpointReached, CycleRecorded, HealthAlert, RecoveryStep
from spar.hooks import Decision, HookContext, Hooks, Outcome
from spar.ports.breakpoints import BY_HAND, Point, Stop
from spar.service.app import describe
from spar.testing import ScriptedModel, VirtualClock
from spar.types import CycleRecord
from tests.planning.desk import read_of

calls: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_was_called() -> None:
    calls.clear()


@tool(effect="once")
async def shell(command: str) -> str:
    calls.append(command)
    return f"ran {command}"


@tool(effect="once", approval="ask")
async def reboot(host: str) -> str:
    calls.append(f"reboot {host}")
    return "rebooted"


class Planner:
    """Plans a call of shell about each message, then answers with what it returned."""

    def __init__(self) -> None:
        self.contexts: list[Context] = []
        self.seen: list[list[str]] = []

    async def plan(self, perceptions: Sequence[Perception], context: Context) -> Action | None:
        self.contexts.append(context)
        self.seen.append([perception.text for perception in perceptions])
        run = context.run
        if run is None:
            return None
        if not run.results:
            return Action((Call("shell", {"command": run.message.text}, id="c1"),), goal="obey")
        return Action(output=run.results[-1].results[0].output if run.results[-1].results else "nothing")


class Debugged:
    """Agent with breakpoints, and all that is heard of it."""

    def __init__(self, clock: VirtualClock, **given: Any) -> None:
        self.breakpoints, self.planner = Breakpoints(), Planner()
        settings = from_mapping({"runs": {"limit": 1}, **given.pop("settings", {})})
        given = {"plan": self.planner, "tools": [shell, reboot], "attach": [self.breakpoints],
                 "memory": Memory("sqlite://:memory:"), **given}  # fmt: skip
        self.agent = Agent(clock=clock, settings=settings, loop_interval="off", **given)
        self.clock = clock
        self.heard: list[Any] = []
        self.records: list[CycleRecord] = []
        for kind in (BreakpointReached, BreakpointLeft, BreakpointEnded, HealthAlert, RecoveryStep):
            self.agent.events.subscribe(kind, self.heard.append)
        self.agent.events.subscribe(CycleRecorded, lambda event: self.records.append(event.record))

    def add(self, point: Point, session: str = "x", when: str = "", lease: float = 600.0) -> str:
        return self.breakpoints.add(point, session, when, "", lease, "ada").name

    async def stop(self, session: str = "x", seconds: float = 5.0) -> Stop:
        """Wait until a session stands."""
        for _ in range(100):
            if (stop := await self.breakpoints.attach_to(session, 0)) is not None:
                return stop
            await self.clock.sleep(seconds / 100)
        raise AssertionError("it stands nowhere")

    @asynccontextmanager
    async def standing(
        self, point: Point, text: str = "ls", **given: Any
    ) -> AsyncIterator[tuple[Stop, asyncio.Future[str]]]:
        """Run the agent until a session stands at a point; its stop, and its answer to come."""
        async with self.agent:
            self.add(point, **given)
            answer = asyncio.ensure_future(self.answer(text))
            yield await self.stop(), answer

    async def answer(self, text: str, session: str = "x") -> str:
        receipt = await self.agent.submit(text, session=session)
        return str((await self.agent.wait(receipt.run_id, None)).output)


@pytest.fixture
def made(clock: VirtualClock) -> Debugged:
    return Debugged(clock)


def planning(*planned: Call) -> Any:
    """A planner of these calls, which is done with them then."""

    async def plan(perceptions: Sequence[Perception], context: Context) -> Action | None:
        begins = context.run is not None and not context.run.results
        return Action(planned) if begins else Action(output="done")

    return plan


async def test_a_session_stands_after_its_plan_and_all_others_go_on(made: Debugged) -> None:
    async with made.agent:
        name = made.add("plan", when='tool == "shell"')
        answer = asyncio.ensure_future(made.answer("ls"))
        stop = await made.stop()
        assert (stop.session, stop.where, stop.breakpoint, stop.phase) == ("x", "after plan", name, "plan")
        assert [perception.text for perception in stop.perceptions] == ["ls"]
        assert [call.params for call in stop.plan.calls] == [{"command": "ls"}]
        # There is one slot for runs, and the session that stands does not hold it.
        assert [await made.answer(text, "y") for text in ("a", "b")] == ["ran a", "ran b"]
        assert calls == ["a", "b"]
        made.breakpoints.go(stop.id, "end", "ada")
        assert await answer == "ran ls"
        assert [type(event).__name__ for event in made.heard] == ["BreakpointReached", "BreakpointLeft"]
        assert made.heard[1].by == "ada"


@pytest.mark.parametrize("point", list(HOOKS))
async def test_it_stands_at_each_point_and_sees_what_is_known_there(point: Point, made: Debugged) -> None:
    async with made.standing(point) as (stop, answer):
        assert (stop.plan is not None) is (point != "sense")
        assert (stop.call is not None) is (point in ("call", "result"))
        assert [result.output for result in stop.results] == (["ran ls"] if point in ("result", "reflect") else [])
        assert calls == ([] if point in ("sense", "plan", "call") else ["ls"])
        made.breakpoints.remove(stop.breakpoint, "ada")
        assert await answer == "ran ls"


CHANGES: dict[Point, tuple[str, Any]] = {
    "sense": ("1", {"content": "pwd"}),
    "plan": ("c1", {"params": {"command": "pwd"}}),
    "call": ("", {"params": {"command": "pwd"}}),
    "result": ("", {"output": "ran pwd"}),
}


@pytest.mark.parametrize("point", list(CHANGES))
async def test_a_change_by_hand_takes_effect_and_is_known_with_its_author(point: Point, made: Debugged) -> None:
    async with made.standing(point) as (stop, answer):
        change = made.breakpoints.change(stop.id, *CHANGES[point], "ada", "ls is boring")
        assert (change.by, change.reason, change.point) == ("ada", "ls is boring", point)
        assert (await made.stop()).changes == (change,)
        made.breakpoints.remove(stop.breakpoint, "ada")
        output = await answer
    # A planner that reads the message of its run and not its perceptions is not moved by another perception.
    assert output == ("ran ls" if point == "sense" else "ran pwd")
    assert calls == (["ls"] if point in ("sense", "result") else ["pwd"])
    (note,) = [note for note in made.records[0].notes if note["kind"] == BY_HAND]
    (noted,) = note["changes"]
    assert (noted["by"], noted["reason"], noted["point"], noted["patch"]) == (
        "ada", "ls is boring", point, CHANGES[point][1],
    )  # fmt: skip
    assert noted["before"] != noted["after"]
    # The planner that plans next is told.
    if point == "sense":
        assert made.planner.seen[0] == ["pwd"]
        (perception,) = made.records[0].perceptions
        assert perception.attributes["changed"] == "by ada, by hand"
    else:
        run = made.planner.contexts[1].run
        corrections = [message["data"] for message in run.messages if message.get("kind") == "correction"]
        assert [correction["by"] for correction in corrections] == ["ada"]
        assert [correction["reason"] for correction in corrections] == ["ls is boring"]


async def test_calls_are_added_to_a_plan_and_removed_from_it(made: Debugged) -> None:
    async with made.standing("plan") as (stop, answer):
        made.breakpoints.change(stop.id, "", [{"tool": "shell", "params": {"command": "id"}}], "ada", "")
        made.breakpoints.remove(stop.breakpoint, "ada")
        assert await answer == "ran id"
    run = made.planner.contexts[1].run
    corrections = [message["data"] for message in run.messages if message.get("kind") == "correction"]
    assert [(one["decision"], one["call"]["command"]) for one in corrections] == [("remove", "ls"), ("add", "id")]


async def test_a_plan_can_be_dropped(clock: VirtualClock, made: Debugged) -> None:
    async with made.standing("plan") as (stop, _):
        made.breakpoints.change(stop.id, "", None, "ada", "")
        made.breakpoints.remove(stop.breakpoint, "ada")
        await clock.sleep(1)
        assert calls == []


@pytest.mark.parametrize(
    ("point", "id", "patch", "why"),
    [
        ("sense", "", {"content": "a"}, "perceptions are replaced by a list"),
        ("sense", "7", {"content": "a"}, "no perception '7' there; known: 1"),
        ("sense", "1", {"trust": "trusted"}, "'trust' of a perception cannot be changed by hand; these can: content"),
        ("sense", "1", {"priority": 7}, "priority must be"),
        ("plan", "", {"trust": "trusted"}, "'trust' of a plan cannot be changed by hand"),
        ("plan", "", [{"params": {}}], "a call must name its tool"),
        ("plan", "", [{"tool": "shell", "id": "a"}, {"tool": "shell", "id": "a"}], "two calls of the plan"),
        ("plan", "c2", {"params": {}}, r"no call 'c2' there; known: 1 \(c1\)"),
        ("plan", "", "ls", "a plan is changed by a list of calls or a table"),
        ("call", "", {"meta": {"_ask": ""}}, "'meta' of a call cannot be changed by hand"),
        ("call", "", {"params": 7}, "the change does not fit"),
        ("call", "", ["ls"], "a call is changed by a table of its fields"),
        ("result", "", {"status": "in_doubt"}, "can be made 'ok' or 'failed' by hand"),
        ("result", "", {"attempts": 7}, "'attempts' of a result cannot be changed"),
        ("reflect", "", {"status": "ok"}, "nothing can be changed before reflect"),
    ],
)  # fmt: skip
async def test_a_wrong_change_is_refused_in_one_sentence_and_changes_nothing(
    point: Point, id: str, patch: Any, why: str, made: Debugged
) -> None:
    async with made.standing(point) as (stop, answer):
        with pytest.raises((ValueError, LookupError), match=why):
            made.breakpoints.change(stop.id, id, patch, "ada", "")
        assert (await made.stop()).changes == ()
        made.breakpoints.remove(stop.breakpoint, "ada")
        assert await answer == "ran ls"


# -- a change passes the same checks as any


async def test_a_call_changed_by_hand_to_one_that_asks_is_asked_about(clock: VirtualClock, made: Debugged) -> None:
    async with made.agent:
        for point, host in (("plan", "db"), ("call", "web")):
            name = made.add(point)
            asyncio.ensure_future(made.answer("ls"))  # noqa: RUF006
            stop = await made.stop()
            patch = {"tool": "reboot", "params": {"host": host, "command": None}}
            made.breakpoints.change(stop.id, "c1" if point == "plan" else "", patch, "ada", "")
            made.breakpoints.remove(name, "ada")
            await clock.sleep(1)
        rows = await made.agent.approvals.list()
        assert {(row.call.tool, row.call.params["host"]) for row in rows} == {("reboot", "db"), ("reboot", "web")}
        assert calls == []


async def test_an_approved_call_that_is_changed_afterwards_does_not_run_by_that_approval(clock: VirtualClock) -> None:
    made = Debugged(clock, plan=planning(Call("reboot", {"host": "db"})))
    async with made.agent:
        asyncio.ensure_future(made.answer("reboot db"))  # noqa: RUF006
        await clock.sleep(1)
        (row,) = await made.agent.approvals.list()
        made.add("call")
        await made.agent.approvals.decide(row.id, "approve", by="ada")
        stop = await made.stop()
        made.breakpoints.change(stop.id, "", {"params": {"host": "web"}}, "ada", "")
        made.breakpoints.remove(stop.breakpoint, "ada")
        await clock.sleep(5)
        assert calls == []


async def test_a_planners_demand_that_people_approve_stands_for_the_calls_that_replace_its_own(
    clock: VirtualClock,
) -> None:
    made = Debugged(clock, plan=planning(Call("shell", {"command": "ls"}, meta={"_ask": "to be sure"})))
    async with made.standing("plan") as (stop, _):
        made.breakpoints.change(stop.id, "", [{"tool": "shell", "params": {"command": "id"}}], "ada", "")
        made.breakpoints.remove(stop.breakpoint, "ada")
        await clock.sleep(1)
        assert [row.call.params for row in await made.agent.approvals.list()] == [{"command": "id"}]
        assert calls == []


async def test_hooks_judge_what_was_changed_by_hand(made: Debugged) -> None:
    made.agent.hooks.add(
        "before_call", lambda ctx: Decision.deny("no pwd") if ctx.value.params["command"] == "pwd" else None
    )
    async with made.standing("call") as (stop, answer):
        made.breakpoints.change(stop.id, "", {"params": {"command": "pwd"}}, "ada", "")
        made.breakpoints.remove(stop.breakpoint, "ada")
        assert await answer == "None"
        assert calls == []


# -- how far it goes on


async def test_it_goes_on_by_phases_by_cycles_and_to_the_end(made: Debugged) -> None:
    async with made.agent:
        made.add("sense")
        answer = asyncio.ensure_future(made.answer("ls"))
        places = []
        for _ in range(5):
            stop = await made.stop()
            places.append((stop.where, stop.cycle_id))
            made.breakpoints.go(stop.id, "phase", "ada")
        words = ["after sense", "after plan", "before the call of shell", "after the result of shell", "before reflect"]
        assert [where for where, _ in places] == words
        assert len({cycle for _, cycle in places}) == 1
        stop = await made.stop()
        assert (stop.where, stop.cycle_id == places[0][1]) == ("after sense", False)
        made.breakpoints.remove("sense-1", "ada")
        assert await answer == "ran ls"

        made.add("plan")
        answer = asyncio.ensure_future(made.answer("id"))
        stop = await made.stop()
        made.breakpoints.go(stop.id, "cycle", "ada")
        then = await made.stop()
        assert (then.where, then.breakpoint, then.cycle_id == stop.cycle_id) == ("after sense", "", False)
        made.breakpoints.go(then.id, "end", "ada")
        made.breakpoints.go((await made.stop()).id, "end", "ada")
        assert await answer == "ran id"
        assert all(hook not in made.agent.hooks.used for hook in HOOKS.values() if hook != "after_plan")


async def test_detaching_lets_it_go_on_and_ends_the_steps(made: Debugged) -> None:
    async with made.agent:
        name = made.add("sense")
        answer = asyncio.ensure_future(made.answer("ls"))
        made.breakpoints.go((await made.stop()).id, "phase", "ada")
        await made.stop()
        made.breakpoints.remove(name, "ada")
        (stop,) = made.breakpoints.detach("x", "ada")
        assert stop.where == "after plan"
        assert await answer == "ran ls"
        assert not made.agent.hooks.used
        with pytest.raises(LookupError, match=f"no session stands at '{stop.id}' any more"):
            made.breakpoints.go(stop.id, "end", "ada")


# -- leases, conditions, bounds


async def test_a_forgotten_breakpoint_ends_with_its_lease_and_says_so(made: Debugged) -> None:
    async with made.agent:
        made.add("plan", lease=30.0)
        assert await made.answer("ls") == "ran ls"
        (row,) = made.breakpoints.rows()
        assert (row.state, row.why, row.hits) == ("ended", "its lease of 30 s is over", 1)
        (ended,) = [event for event in made.heard if isinstance(event, BreakpointEnded)]
        assert (ended.name, ended.sessions, ended.reason) == ("plan-1", ("x",), "its lease of 30 s is over")
        assert not made.agent.hooks.used


async def test_whoever_is_attached_renews_the_lease(clock: VirtualClock, made: Debugged) -> None:
    async with made.agent:
        made.add("plan", lease=30.0)
        answer = asyncio.ensure_future(made.answer("ls"))
        await made.stop()
        for _ in range(20):
            await clock.sleep(20)
            assert (await made.stop()).left == pytest.approx(30.0)
        await clock.sleep(31)
        assert await answer == "ran ls"


async def test_a_step_that_is_forgotten_ends_too(made: Debugged) -> None:
    async with made.agent:
        name = made.add("plan", lease=30.0)
        answer = asyncio.ensure_future(made.answer("ls"))
        made.breakpoints.go((await made.stop()).id, "phase", "ada")
        assert (await made.stop()).where == "before the call of shell"
        made.breakpoints.remove(name, "ada")
        assert await answer == "ran ls"
        assert [event.reason for event in made.heard if isinstance(event, BreakpointEnded)] == [
            "the lease of a step, 30 s, is over"
        ]
        assert not made.agent.hooks.used


class Vicious(str):
    """Text that cannot be compared."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("do not compare me")

    __hash__ = str.__hash__


async def test_a_condition_that_raises_ends_its_breakpoint_and_the_session_goes_on(clock: VirtualClock) -> None:
    async def sense() -> list[Perception]:
        return [Perception("load is high", kind=Vicious("host.load"))]

    made = Debugged(clock, sense=sense)
    async with made.agent:
        made.add("sense", "main", 'kind == "host.load"')
        made.agent.wake()
        await clock.sleep(1)
        (row,) = made.breakpoints.rows()
        assert (row.state, row.why) == ("failed", "its condition failed: RuntimeError('do not compare me')")
        assert made.planner.seen == [["load is high"]]


async def test_a_breakpoint_stops_only_where_its_condition_holds(made: Debugged) -> None:
    async with made.agent:
        made.add("call", "", 'tool == "shell" and "rm" in params.command')
        assert await made.answer("ls") == "ran ls"
        answer = asyncio.ensure_future(made.answer("rm -r /", "y"))
        stop = await made.stop("")
        assert stop.session == "y"
        made.breakpoints.detach("", "ada")
        await answer


async def test_names_and_numbers_of_breakpoints_are_bounded(made: Debugged) -> None:
    made.add("plan")
    with pytest.raises(ConflictError, match="a breakpoint 'plan-1' is set already"):
        made.breakpoints.add("plan", "", "", "plan-1", 60, "ada")
    with pytest.raises(ValueError, match="no name 'tol' in a condition"):
        made.add("plan", when='tol == "shell"')
    with pytest.raises(LookupError, match="no breakpoint 'plan-2' is set; set are: plan-1"):
        made.breakpoints.remove("plan-2", "ada")
    for _ in range(MOST - 1):
        made.add("call")
    with pytest.raises(ConflictError, match=f"{MOST} breakpoints are set"):
        made.add("call")


# -- the agent


async def test_another_sense_module_is_refused_at_once_while_the_session_that_polls_stands(clock: VirtualClock) -> None:
    async def sense() -> list[Perception]:
        return [Perception("load is high")]

    made = Debugged(clock, sense=sense)
    async with made.agent:
        made.add("plan", "main")
        made.agent.wake()
        exchange = asyncio.ensure_future(made.agent.exchange({"sense": lambda: []}, from_mapping({})))
        stop = await made.stop("main")
        for exchanging in (exchange, made.agent.exchange({"sense": lambda: []}, from_mapping({}))):
            with pytest.raises(ConflictError, match="session 'main' stands at breakpoint 'plan-1', after plan"):
                await asyncio.wait_for(exchanging, 30)
        await made.agent.exchange({"plan": made.planner}, from_mapping({}))
        made.breakpoints.remove(stop.breakpoint, "ada")


async def test_standing_trips_no_deadline_no_limit_and_no_alert(clock: VirtualClock) -> None:
    phases = {phase: {"timeout": 5.0} for phase in ("sense", "plan", "act", "reflect")}
    made = Debugged(clock, settings={"agent": {"phases": phases}, "runs": {"timeout": 20.0, "inactivity": 20.0}})
    async with made.standing("call", lease=3_000.0) as (stop, answer):
        await clock.sleep(2_000)
        (lane,) = [lane for lane in describe(made.agent)["lanes"] if lane["session"] == "x"]
        assert lane["stands"] == "breakpoint 'call-1', before the call of shell: spar attach x"
        assert describe(made.agent)["stands"] == [f"session 'x' stands at {lane['stands']}"]
        made.breakpoints.go(stop.id, "end", "ada")
        assert await answer == "ran ls"
        assert not [event for event in made.heard if isinstance(event, (HealthAlert, RecoveryStep))]
        assert made.records[0].duration < 5.0
        assert sum(made.records[0].phases.values()) < 5.0
        assert describe(made.agent)["stands"] == []
        assert made.records[0].started_at <= stop.since


async def test_a_phase_that_is_too_long_after_a_stop_is_still_ended(clock: VirtualClock) -> None:
    @tool(effect="read", timeout=1_000.0)
    async def shell(command: str) -> str:
        await clock.sleep(100)
        return command

    made = Debugged(clock, tools=[shell], settings={"agent": {"phases": {"act": {"timeout": 10.0}}}})
    async with made.agent:
        made.add("call", lease=50.0)
        await made.answer("ls")
        (fault,) = made.records[0].faults
        assert (fault.kind, fault.phase) == ("timeout", "act")
        assert 9.0 < made.records[0].phases["act"] < 11.0 if "act" in made.records[0].phases else True


async def test_several_calls_stand_at_once_and_go_on_one_by_one(clock: VirtualClock) -> None:
    phases = {"act": {"timeout": 5.0}}
    made = Debugged(
        clock,
        plan=planning(*(Call("shell", {"command": one}) for one in "abc")),
        settings={"agent": {"phases": phases}},
    )
    async with made.agent:
        made.add("call")
        answer = asyncio.ensure_future(made.answer("go"))
        for number in range(3):
            stop = await made.stop()
            assert len(made.breakpoints.stops()) == 3 - number
            await clock.sleep(100)
            made.breakpoints.go(stop.id, "end", "ada")
            await clock.sleep(0.1)
        assert await answer == "done"
        assert calls == ["a", "b", "c"]
        assert not made.records[0].faults


@pytest.mark.parametrize("way", ["stop", "abort", "reset", "pause", "forget"])
async def test_what_ends_its_work_ends_the_wait_at_once(way: str, clock: VirtualClock, tmp_path: Path) -> None:
    made = Debugged(clock, memory=Memory(f"sqlite:///{tmp_path}/memory.db"))
    async with made.agent:
        made.add("call")
        receipt = await made.agent.submit("ls", session="x")
        await made.stop()
        began = clock.monotonic()
        match way:
            case "stop":
                await made.agent.stop(60)
            case "abort":
                await made.agent.abort(receipt.run_id)
            case "reset":
                await made.agent.reset("x")
            case "pause":
                await made.agent.pause()
            case "forget":
                await made.agent.abort(receipt.run_id)
                await made.agent.conversations.resets.forget("x", "ada")
        assert clock.monotonic() - began < 5.0
        assert made.breakpoints.stops() == []


# -- without a breakpoint


async def test_an_agent_without_a_breakpoint_has_no_hook_and_awaits_nothing(clock: VirtualClock) -> None:
    asked: list[str] = []

    class Counted(Hooks):
        async def run(self, ctx: HookContext, accept: Any = None) -> Outcome:
            asked.append(ctx.point)
            return await super().run(ctx, accept)

    made = Debugged(clock)
    made.agent.core.hooks = Counted()
    async with made.agent:
        assert await made.answer("ls") == "ran ls"
        made.breakpoints.remove(made.add("plan"), "ada")
        assert await made.answer("ls") == "ran ls"
        assert (asked, made.agent.hooks.used) == ([], frozenset())
        made.add("plan", when='tool == "nothing"')
        assert await made.answer("ls") == "ran ls"
        assert set(asked) == {"after_plan"}


# -- a model that plans next


@pytest.mark.parametrize(
    ("point", "id", "patch", "words"),
    [
        ("plan", "", [{"tool": "shell", "params": {"command": "id"}}], ["remove by ada", "add by ada", "ran id"]),
        ("plan", "1", {"params": {"command": "id"}}, ["edit by ada", "ran id"]),
        ("call", "", {"params": {"command": "id"}}, ["edit by ada", "ran id"]),
        ("result", "", {"output": "ran nothing"}, ["change of its result by ada", "ran nothing"]),
    ],
)
async def test_a_model_is_told_what_was_changed_by_hand_and_why(
    point: Point, id: str, patch: Any, words: list[str], clock: VirtualClock
) -> None:
    model = ScriptedModel([{"calls": [{"_tool": "shell", "command": "ls"}]}, {"output": "done"}])
    made = Debugged(clock, plan=ModelPlanner(model))
    async with made.standing(point, "go") as (stop, answer):
        made.breakpoints.change(stop.id, id, patch, "ada", "ls is boring")
        made.breakpoints.remove(stop.breakpoint, "ada")
        assert await answer == "done"
    read = read_of(model.requests[1])
    assert [word for word in (*words, "ls is boring") if word not in read] == []
