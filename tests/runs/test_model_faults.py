"""Runs that a model plans, under faults: what it is shown, what people see, and that it all comes to an end.

The numbers are those of the list of acceptance tests in the project's study of agent loops; those that need no model
are in `test_faults`.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw
import pytest

from acting import Executor
from acting.tools.say import SayTool
from memory import Memory
from perception.sense import Sense
from perception.sensors.schedule import ScheduleSensor
from planning.llm.planner import ModelPlanner
from planning.llm.record import digest
from planning.ports import Request, TextDelta
from planning.resilience.provider_errors import provider_error
from spar import Agent, tool
from spar.errors import ConfigError, FencedError
from spar.events import (
    CompactionCompleted,
    Event,
    MessageSent,
    RunAccepted,
    RunEnded,
    TriggerMissed,
)
from spar.protocols import SensorSpec
from spar.records.approvals import Approval, Approver, DecidedError
from spar.records.transcript import Entry
from spar.runs.run_log import RunEvent
from spar.testing import Hang, ScriptedModel, ScriptedSensor, VirtualClock, stream
from tests.planning.desk import read_of

LONG = "we talked at length about many things of little weight " * 20


def memory_in(folder: Path) -> Memory:
    return Memory(f"sqlite:///{folder / 'memory.db'}")


def agent_of(clock: VirtualClock, script: Sequence[Any], *, plan: Any = None, **options: Any) -> Agent:
    """An agent that a scripted model plans for; `model_of` finds the model."""
    planner = ModelPlanner(ScriptedModel(script), **(plan or {}))
    return Agent(plan=planner, clock=clock, **{"loop_interval": 0.1, **options})


def model_of(agent: Agent) -> ScriptedModel:
    found: ScriptedModel = agent.modules["plan"].part.model
    return found


def heard(agent: Agent, kind: type[Event]) -> list[Any]:
    found: list[Any] = []
    agent.events.subscribe(kind, found.append)
    return found


async def seen_of(agent: Agent, run_id: str) -> tuple[str, list[RunEvent]]:
    """What somebody has before him who reads a run to its end and honours `reset`."""
    text, events = "", []
    async for event in agent.events.run(run_id):
        events.append(event)
        if event.stream == "assistant" and "reset" in event.data:
            text = event.data["text"] if event.data["reset"] else text + event.data["text"]
    return text, events


def as_killed(folder: Path, to: Path) -> None:
    """The folder as a process leaves it that dies here: all that it has been told of is on disk."""
    shutil.copytree(folder, to, ignore=shutil.ignore_patterns("*.lock"))


# -- 3


async def test_a_call_that_was_cut_off_after_its_effect_is_shown_as_in_doubt_and_not_repeated(
    clock: VirtualClock, tmp_path: Path
) -> None:
    paid: list[int] = []
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()

    @tool(effect="once")
    async def pay(amount: int) -> str:
        paid.append(amount)
        await agent.recovery.journal.safe()
        as_killed(first, second)
        return "paid"

    script = [{"calls": [{"_tool": "pay", "_id": "p", "amount": 30}]}, Hang()]
    agent = agent_of(clock, script, tools=[pay], memory=memory_in(first))
    async with agent:
        run = await agent.submit("pay thirty")
        while not second.exists():
            await clock.sleep(0.1)

    agent = agent_of(clock, [{"output": "I cannot tell"}], tools=[pay], memory=memory_in(second))
    async with agent:
        status = await agent.wait(run.run_id)

    assert paid == [30]
    assert (status.status, status.output) == ("ok", "I cannot tell")
    [request] = model_of(agent).requests
    assert 'called pay {"amount": 30}: Its effect is not known, so do not repeat it: ' in read_of(request)


# -- 4


async def test_of_two_processes_on_one_memory_the_second_is_refused_and_a_stale_one_adds_nothing(
    clock: VirtualClock, tmp_path: Path
) -> None:
    hang = Hang()

    async def late(request: Request) -> Any:
        await hang.wait()
        return {"output": "the stale one's"}

    stale = agent_of(clock, [late], memory=memory_in(tmp_path))
    heir = agent_of(clock, [{"output": "the heir's"}], memory=memory_in(tmp_path))
    told = heard(stale, MessageSent)
    await stale.start()
    run = await stale.submit("who is it?")
    await clock.sleep(1.0)
    with pytest.raises(ConfigError, match="in use by"):
        await heir.start()

    (tmp_path / "memory.db.lock").unlink()  # as on a disk that is shared and knows no locks
    async with heir:
        assert (await heir.wait(run.run_id)).output == "the heir's"
        hang.release()
        assert (await stale.wait(run.run_id, 60)).status == "timeout"
        assert told == []  # it is not its to say any more
        with pytest.raises(FencedError):
            await asyncio.wait_for(
                stale.conversations.transcripts.compact(
                    "main", run.run_id, Entry("compaction", {"summary": "x", "first_kept": 1}, run.run_id)
                ),
                30,
            )
        await stale.stop(deadline=0)
        entries = await heir.conversations.transcripts.read("main")

    assert [(each.kind, each.body.get("text", each.body.get("reply"))) for each in entries if each.kind != "turn"] == [
        ("user", "who is it?"), ("end", "the heir's"),
    ]  # fmt: skip


# -- 9


async def test_a_steered_message_is_in_the_next_request_and_each_call_keeps_its_result(
    clock: VirtualClock, tmp_path: Path
) -> None:
    done: list[str] = []

    @tool(effect="read")
    async def step(name: str) -> str:
        await asyncio.sleep(1.0)
        done.append(name)
        return f"{name} is done"

    calls = [{"_tool": "step", "_id": name, "name": name, **({"_after": [before]} if before else {})}
             for name, before in zip("abc", ("", "a", "b"), strict=True)]  # fmt: skip
    agent = agent_of(clock, [{"calls": calls}, {"output": "stopped"}], tools=[step], memory=memory_in(tmp_path),
                     settings={"runs": {"queue_mode": "steer"}})  # fmt: skip
    async with agent:
        run = await agent.submit("all three")
        await clock.sleep(0.5)
        steer = await agent.submit("only the first one, please")
        answers = [await agent.wait(each.run_id) for each in (run, steer)]
        entries = await agent.conversations.transcripts.read("main")

    assert done == ["a"]
    assert [(each.outcome, each.output) for each in answers] == [("started", "stopped"), ("steered", "stopped")]
    _, request = model_of(agent).requests
    assert "only the first one, please" in read_of(request)
    assert "a is done" in read_of(request)
    assert [each.kind for each in entries] == ["user", "turn", "user", "turn", "end"]
    found = [(each["call"]["_id"], each["status"], each["reason"]) for each in entries[1].body["calls"]]
    assert found == [("a", "ok", ""), ("b", "skipped", "steered"), ("c", "skipped", "steered")]


# -- 10


async def test_a_tool_that_is_missing_is_named_as_such_and_asking_for_it_again_ends_the_run(
    clock: VirtualClock,
) -> None:
    @tool(effect="read")
    async def note(text: str) -> None: ...

    agent = agent_of(clock, [{"calls": [{"_tool": "delete", "path": "/"}]}], tools=[note])
    async with agent:
        status = await agent.wait((await agent.submit("delete it")).run_id, 600)

    assert status.status == "error"
    requests = model_of(agent).requests
    assert 3 <= len(requests) <= 8
    assert not any("delete" in str(each.schema) for each in requests)
    sentence = "There is no tool named 'delete', and there will be none"
    assert [sentence in read_of(each) for each in requests] == [False, False, *[True] * (len(requests) - 2)]


# -- 11


async def test_two_tools_that_take_turns_and_say_each_time_when_it_is_are_stopped(clock: VirtualClock) -> None:
    made: list[str] = []

    def turn(name: str) -> Any:
        @tool(name=name, effect="read")
        async def made_tool(of: str) -> dict[str, Any]:
            made.append(name)
            return {"state": "unchanged", "at": clock.now().isoformat()}

        return made_tool

    def alternate(request: Request) -> Any:
        return {"calls": [{"_tool": ("ping", "pong")[len(made) % 2], "of": "it"}]}

    agent = agent_of(clock, [alternate], tools=[turn("ping"), turn("pong")], loop_interval=1.0)
    async with agent:
        status = await agent.wait((await agent.submit("watch it")).run_id, 600)

    assert status.status == "error"
    assert "ping" in status.error or "pong" in status.error
    assert len(made) == len(model_of(agent).requests) <= 12


# -- 12


async def talked(agent: Agent, times: int) -> None:
    for number in range(times):
        assert (await agent.wait((await agent.submit(f"{LONG} {number}")).run_id)).status == "ok"


@pytest.mark.parametrize("least", [0, 12_000], ids=["nothing is short enough", "what is short is"])
async def test_a_summary_that_is_no_shorter_is_tried_once_and_then_the_request_is_cut(
    clock: VirtualClock, tmp_path: Path, least: int
) -> None:
    is_full = False

    def answer(request: Request) -> Any:
        if request.purpose == "compaction":
            return {"output": request.texts[0] * 2}
        if is_full and len(read_of(request)) > least:
            raise provider_error("overflow", "m")
        return {"output": f"so it is: {LONG}"}

    agent = agent_of(clock, [answer], memory=memory_in(tmp_path))
    compactions = heard(agent, CompactionCompleted)
    async with agent:
        await talked(agent, 12)
        is_full = True
        asked = len(model_of(agent).requests)
        statuses = [await agent.wait((await agent.submit(f"what is it? {LONG}")).run_id) for _ in range(2)]
        entries = await agent.conversations.transcripts.read("main")

    requests = model_of(agent).requests[asked:]
    assert [(each.completed, each.will_retry) for each in compactions][:1] == [(False, True)]
    assert "nothing is gained" in compactions[0].error
    assert len({digest(each) for each in requests}) == len(requests) <= 12
    assert not any(each.kind == "compaction" for each in entries)
    if least:
        assert {each.status for each in statuses} == {"ok"}
    else:
        assert {each.status for each in statuses} == {"error"}
        assert all("too long however much is left out of it" in each.error for each in statuses)


# -- 13


async def test_what_was_shown_before_a_compaction_is_not_shown_twice(clock: VirtualClock, tmp_path: Path) -> None:
    is_full = False

    def answer(request: Request) -> Any:
        if request.purpose == "compaction":
            return {"output": "They talked."}
        if is_full and len(read_of(request)) > 12_000:
            return stream([TextDelta("It is "), 1.0, TextDelta("thr"), provider_error("overflow", "m")])
        pieces = [TextDelta("It is "), 1.0, TextDelta("three"), {"output": "It is three"}]
        return stream(pieces) if is_full else {"output": LONG}

    agent = agent_of(clock, [answer], memory=memory_in(tmp_path))
    async with agent:
        await talked(agent, 12)
        is_full = True
        run = await agent.submit("what is it?")
        text, events = await seen_of(agent, run.run_id)

    assert text == "It is three"
    shown = [each.stream for each in events if each.stream in ("assistant", "compaction")]
    assert shown.index("assistant") < shown.index("compaction")  # it had begun to answer
    assert [each.data["sent"] for each in events if "is_answer" in each.data] == ["It is three"]


# -- 14


async def test_what_was_said_already_is_told_once_on_a_route_however_it_is_dressed(clock: VirtualClock) -> None:
    script = [
        {"calls": [{"_tool": "say", "text": "The build is green."},
                   {"_tool": "say", "text": "The build is green.", "to": "pager"}]},
        {"output": "the build is GREEN. 🎉"},
    ]  # fmt: skip
    agent = agent_of(clock, script, act=Executor([SayTool()]))
    told = heard(agent, MessageSent)
    async with agent:
        status = await agent.wait((await agent.submit("is it green?", session="ann")).run_id)

    assert status.output == "the build is GREEN. 🎉"
    assert sorted((each.route, each.text) for each in told) == [
        ("ann", "The build is green."), ("pager", "The build is green."),
    ]  # fmt: skip


# -- 15


@pytest.mark.parametrize(
    "pieces",
    [["NO", "_RE", "PLY"], [" no_", "reply", "\n"], ['{"calls": [], "output": "NO', "_REP", 'LY"}']],
    ids=["text", "dressed", "json"],
)
async def test_of_a_silent_answer_nothing_is_seen_at_any_moment(clock: VirtualClock, pieces: list[str]) -> None:
    is_json = pieces[0].startswith("{")
    parts: list[Any] = [each if is_json else TextDelta(each) for each in pieces]
    script = stream([*parts, *([] if is_json else [{"output": "".join(pieces)}])])
    agent = agent_of(clock, [script])
    told = heard(agent, MessageSent)
    async with agent:
        run = await agent.submit("anything new?")
        _, events = await seen_of(agent, run.run_id)
        status = await agent.wait(run.run_id, 0)

    assert (status.status, status.output, status.reply, status.silent) == ("ok", None, None, True)
    assert [each for each in events if each.stream == "assistant"] == []
    assert told == []
    assert "NO" not in str([each.data for each in events])


async def test_an_empty_answer_is_asked_for_again_and_then_the_run_says_what_is_wrong(clock: VirtualClock) -> None:
    async with agent_of(clock, [{"output": " "}, {"output": "It is three"}]) as agent:
        assert (await agent.wait((await agent.submit("what is it?")).run_id)).output == "It is three"
    async with agent_of(clock, [{"output": ""}]) as agent:
        status = await agent.wait((await agent.submit("what is it?")).run_id)

    assert (status.status, status.error) == ("error", "the model gave an empty answer twice")
    assert len(model_of(agent).requests) == 2
    assert "The last answer was of no use" in read_of(model_of(agent).requests[1])


# -- 16


def desk_of(agent: Agent) -> Approver:
    found: Approver = agent.modules["act"].part.approvals
    return found


async def question_of(agent: Agent) -> Approval:
    for _ in range(1000):
        if found := await desk_of(agent).list():
            assert len(found) == 1
            return found[0]
        await clock_of(agent).sleep(0.1)
    raise AssertionError("nobody was asked")


def clock_of(agent: Agent) -> Any:
    return agent.clock


@pytest.mark.parametrize("decision", ["approve", "deny"])
@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
async def test_a_question_that_is_open_at_a_restart_is_answered_once_and_its_run_goes_on(
    clock: VirtualClock, tmp_path: Path, decision: Any, is_killed: bool
) -> None:
    wiped: list[str] = []
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()

    def executor() -> Executor:
        @tool(effect="once", approval="ask")
        async def wipe(disk: str) -> str:
            wiped.append(disk)
            return f"{disk} is empty"

        return Executor([wipe], settings={"approval": {"hold": 60.0, "expires": 3600.0}})

    def answer(request: Request) -> Any:
        if "is empty" in read_of(request) or "denied" in read_of(request):
            return {"output": "that is all"}
        return {"calls": [{"_tool": "wipe", "disk": "sda"}]}

    agent = agent_of(clock, [answer], act=executor(), memory=memory_in(first))
    await agent.start()
    run = await agent.submit("wipe it")
    asked = await question_of(agent)
    if is_killed:
        await agent.recovery.journal.safe()
        as_killed(first, second)
    await agent.stop(deadline=0)

    agent = agent_of(clock, [answer], act=executor(), memory=memory_in(second if is_killed else first))
    async with agent:
        again = await question_of(agent)
        await desk_of(agent).decide(again.id, again.digest, decision, by="ann")
        with pytest.raises(DecidedError, match=r"takes no decision any more: it is .*, decided by ann"):
            await desk_of(agent).decide(again.id, again.digest, "approve", by="bob")
        if again.id != asked.id:
            with pytest.raises(DecidedError):
                await desk_of(agent).decide(asked.id, asked.digest, "approve", by="bob")
        status = await agent.wait(run.run_id, 600)

    assert (status.status, status.output) == ("ok", "that is all")
    assert wiped == (["sda"] if decision == "approve" else [])


# -- 18


async def test_a_guard_that_never_answers_denies_an_observer_that_hangs_is_passed_by_and_both_are_cancelled(
    clock: VirtualClock,
) -> None:
    done: list[str] = []
    cancelled: list[str] = []

    @tool(effect="once")
    async def send(to: str) -> str:
        done.append(to)
        return f"sent to {to}"

    script = [{"calls": [{"_tool": "send", "to": to} for to in ("ann", "bob")]}, {"output": "that is all"}]
    agent = agent_of(clock, script, tools=[send])

    async def hang(name: str) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(name)
            raise

    @agent.hook("before_call", timeout=1.0)
    async def guard(ctx: Any) -> None:
        if ctx.value.params["to"] == "ann":
            await hang("before_call")

    @agent.hook("after_call", timeout=1.0)
    async def observer(ctx: Any) -> None:
        if ctx.value.call.params["to"] == "bob":
            await hang("after_call")

    async with agent:
        status = await agent.wait((await agent.submit("send them")).run_id)

    assert (status.status, done) == ("ok", ["bob"])
    assert sorted(cancelled) == ["after_call", "before_call"]
    shown = read_of(model_of(agent).requests[1])
    assert "sent to bob" in shown
    assert "guard" in shown  # who did not answer


# -- 20


def rows(path: Path) -> dict[str, list[Any]]:
    """All that is in a file, by table."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    names = [name for (name,) in connection.execute("select name from sqlite_schema where type = 'table'")]
    found = {name: list(connection.execute(f'select * from "{name}"')) for name in names}
    connection.close()
    return found


async def test_a_day_on_which_nothing_happens_costs_no_request_and_writes_nothing(
    clock: VirtualClock, tmp_path: Path
) -> None:
    sensor = ScriptedSensor(every=300.0)
    sense = Sense([SensorSpec("quiet", sensor)])
    agent = agent_of(clock, [{"output": "done"}], sense=sense, memory=memory_in(tmp_path),
                     loop_interval="adaptive", settings={"agent": {"max_interval": 120.0}})  # fmt: skip
    async with agent:
        assert (await agent.wait((await agent.submit("hello", session="ann")).run_id)).status == "ok"
        await clock.sleep(60.0)
        await agent.recovery.journal.safe()
        before = rows(tmp_path / "memory.db")
        await clock.sleep(24 * 3600.0)
        await agent.recovery.journal.safe()
        after = rows(tmp_path / "memory.db")

    assert sensor.polls > 200
    assert len(model_of(agent).requests) == 1
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == set()


# -- 22


async def test_fifty_overdue_triggers_obey_their_policies_at_a_restart_and_make_no_storm(
    clock: VirtualClock, tmp_path: Path
) -> None:
    policies: list[Any] = ["skip"] * 20 + ["run_once"] * 20 + ["run_all"] * 10

    def at_a_start() -> Agent:
        sensors: list[SensorSpec] = []
        for number, missed in enumerate(policies):
            due = ScheduleSensor(cron="30 * * * *", missed=missed, jitter=60.0, text=f"job {number} is due")
            sensors.append(SensorSpec(f"job {number}", due, every=60.0))  # type: ignore[arg-type]
        return agent_of(clock, [{"output": "dealt with"}], sense=Sense(sensors), memory=memory_in(tmp_path),
                        loop_interval=1.0)  # fmt: skip

    async with at_a_start():
        await clock.sleep(120.0)
    await clock.sleep(5 * 3600 + 3000)
    for start in range(3):
        agent = at_a_start()
        missed, accepted, ended = heard(agent, TriggerMissed), heard(agent, RunAccepted), heard(agent, RunEnded)
        noticed: Counter[str] = Counter()

        @agent.hook("before_plan")
        async def count(ctx: Any, noticed: Counter[str] = noticed) -> None:
            if ctx.run_id is None:
                noticed.update(each.source for each in ctx.value)

        async with agent:
            await clock.sleep(120.0)
            requests = model_of(agent).requests
        if start:
            assert (missed, accepted, requests, noticed) == ([], [], [], Counter())
            continue
        assert len(missed) == 50 * 6
        assert [noticed[f"job {number}"] for number in range(50)] == [0] * 20 + [1] * 20 + [6] * 10
        assert {each.status for each in ended} == {"ok"}
        assert len(accepted) == len(ended) == len(requests) <= 5
