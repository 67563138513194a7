"""A session begins anew: by a reset, after a rest, at an hour of the day; nothing of before is read then."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from memory import Memory
from memory.care.integrity import verify
from spar import Action, Agent, Call, Context, Perception, tool
from spar.errors import ConfigError, LifecycleError
from spar.events import RunEnded, SessionReset
from spar.hooks import HookContext
from spar.records.session import Origin, SessionRecord
from spar.testing import VirtualClock
from tests.doubles import heard


class Reader:
    """A planner that answers each run after some seconds, and writes down what it could read of its session."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.read: list[list[str]] = []
        self.agent: Agent | None = None

    async def plan(self, perceptions: Sequence[Perception], context: Context) -> Action | None:
        if context.run is None or self.agent is None:
            return None
        entries = await self.agent.conversations.transcripts.read(context.session)
        self.read.append([entry.body["text"] for entry in entries if entry.kind == "user"])
        await self.agent.clock.sleep(self.seconds)
        return Action(output=f"heard {context.run.goal}")


def agent_of(clock: VirtualClock, reader: Reader, folder: Path | None, **more: Any) -> Agent:
    memory = None if folder is None else Memory(f"sqlite:///{folder / 'memory.db'}", ballast=0)
    agent = reader.agent = Agent(plan=reader.plan, clock=clock, memory=memory, loop_interval=60.0, **more)
    return agent


@pytest.fixture(params=["journal", "memory only"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path if request.param == "journal" else None


async def say(agent: Agent, text: str, session: str = "alice", **more: Any) -> Any:
    return await agent.wait((await agent.submit(text, session=session, **more)).run_id, 600)


async def test_after_a_reset_nothing_of_before_is_read(clock: VirtualClock, folder: Path | None) -> None:
    reader = Reader()
    async with agent_of(clock, reader, folder) as agent:
        await say(agent, "one")
        await say(agent, "two")
        await say(agent, "aside", "bob")
        record = await agent.reset("alice", by="tom")
        await say(agent, "three")
        await say(agent, "four")
        await say(agent, "again", "bob")

    assert record.id == "alice#2"
    assert reader.read == [[], ["one"], [], [], ["three"], ["aside"]]


async def test_the_run_in_hand_and_those_that_wait_end_with_the_reason_and_later_ones_are_served(
    clock: VirtualClock, folder: Path | None
) -> None:
    reader = Reader(60)
    agent = agent_of(clock, reader, folder)
    ended: list[tuple[str, str]] = []
    agent.events.subscribe(RunEnded, lambda event: ended.append((event.run_id, event.error)))
    async with agent:
        runs = [await agent.submit(text, session="alice") for text in ("first", "second", "third")]
        other = await agent.submit("other", session="bob")
        await clock.sleep(5)
        await agent.reset("alice")
        answers = [await agent.wait(run.run_id, 0) for run in runs]
        after = await agent.submit("after", session="alice")
        assert (await agent.wait(after.run_id, 600)).output == "heard after"
        assert (await agent.wait(other.run_id, 600)).output == "heard other"

    assert [(each.status, each.error, each.reply) for each in answers] == [("error", "reset", None)] * 3
    assert sorted(ended) == sorted([*[(run.run_id, "reset") for run in runs], (after.run_id, ""), (other.run_id, "")])
    assert reader.read == [[], [], []]


async def test_resets_that_are_asked_for_at_the_same_time_or_of_what_has_just_begun_are_one(
    clock: VirtualClock, folder: Path | None
) -> None:
    agent = agent_of(clock, Reader(60), folder)
    events = heard(agent, SessionReset)
    async with agent:
        run = await agent.submit("one", session="alice")
        await clock.sleep(1)
        records = await asyncio.gather(*[agent.reset("alice") for _ in range(5)])
        assert (await agent.wait(run.run_id, 0)).error == "reset"
        records += [await agent.reset("alice") for _ in range(3)]
    assert {record.id for record in records} == {"alice#2"}
    assert [(event.session_id, event.ordinal, event.reason) for event in events] == [("alice#2", 2, "reset")]


async def test_a_session_that_nothing_was_said_in_cannot_be_reset(clock: VirtualClock, folder: Path | None) -> None:
    async with agent_of(clock, Reader(), folder) as agent:
        with pytest.raises(LookupError, match="no session 'alise'; a session begins with its first message"):
            await agent.reset("alise")
    with pytest.raises(LifecycleError):
        await agent.reset("alise")


async def test_hooks_hear_that_a_conversation_has_ended_and_that_a_new_one_begins(
    clock: VirtualClock, folder: Path | None
) -> None:
    told: list[tuple[str, str, str]] = []
    agent = agent_of(clock, Reader(), folder)
    for point in ("session_start", "session_end"):

        @agent.hook(point)
        async def note(ctx: HookContext) -> None:
            told.append((ctx.point, ctx.session, ctx.reason))

    async with agent:
        await say(agent, "one")
        await say(agent, "two")
        await agent.reset("alice")
        await say(agent, "three")

    start, end = ("session_start", "alice", ""), ("session_end", "alice", "reset")
    assert told == [start, end, start, ("session_end", "alice", "stop")]


async def test_the_transcript_keeps_what_was_said_before_and_says_who_began_anew(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with agent_of(clock, Reader(60), tmp_path) as agent:
        run = await agent.submit("one", session="alice")
        await clock.sleep(1)
        await agent.reset("alice", by="tom")
        await say(agent, "two")
        whole = await agent.memory.transcripts.tail("main", "alice")

    kinds = [entry.kind for entry in whole]
    assert kinds == ["user", "end", "reset", "user", "turn", "end"]
    assert whole[1].run_id == run.run_id
    assert whole[1].body["error"] == "reset"
    assert (whole[2].body["by"], whole[2].body["begun"]) == ("tom", "alice#2")
    assert verify(str(tmp_path / "memory.db")).is_whole


async def test_a_reset_cuts_the_calls_in_hand_and_what_they_had_done_stays_known(
    clock: VirtualClock, tmp_path: Path
) -> None:
    begun, told = list[str](), list[str]()

    @tool(effect="once")
    async def send(to: str) -> str:
        begun.append(to)
        await clock.sleep(60)
        return "sent"

    async def plan(perceptions: Sequence[Perception], context: Context) -> Action | None:
        told.extend(perception.kind for perception in perceptions if perception.kind == "call.in_doubt")
        return Action((Call("send", {"to": "x"}),), output="sent") if context.run is not None else None

    agent = Agent(plan=plan, tools=[send], clock=clock, loop_interval=0.1, memory=Memory(f"sqlite:///{tmp_path}/m.db"))
    async with agent:
        run = await agent.submit("go", session="alice")
        await clock.sleep(5)
        await agent.reset("alice")
        assert (await agent.wait(run.run_id, 0)).error == "reset"
        [cycle] = await agent.memory.cycles(session="alice")
        assert cycle["outcome"] == "interrupted"
        [doubt] = await agent.recovery.restart.doubts.list()
        assert doubt.run_id == run.run_id, "the next conversation is told nothing of it"
        await clock.sleep(1)
        assert told == []
    async with agent:  # nothing of it goes on
        await clock.sleep(60)
        assert (await agent.wait(run.run_id, 0)).error == "reset"
        assert agent.runs.open == 0

    assert begun == ["x"]


async def test_title_defaults_and_origin_outlive_resets_and_restarts(clock: VirtualClock, tmp_path: Path) -> None:
    async with agent_of(clock, Reader(), tmp_path) as agent:
        await say(agent, "one", origin=Origin("mail", "inbox", "alice@example.org"))
        await agent.conversations.records.change("alice", title="Holidays")
        await agent.reset("alice")
    async with agent_of(clock, Reader(), tmp_path) as agent:
        record = await agent.conversations.records.get("alice")
        await clock.sleep(60)
        await say(agent, "two", origin=Origin("http"))
        later = await agent.conversations.records.get("alice")

    assert (record.id, record.title, record.origin) == (
        "alice#2", "Holidays", Origin("mail", "inbox", "alice@example.org"),
    )  # fmt: skip
    assert (later.origin, later.created_at) == (record.origin, record.created_at)
    assert later.used_at > record.used_at


# -- by itself


async def test_a_session_that_rested_for_long_begins_anew_with_its_next_message(
    clock: VirtualClock, folder: Path | None
) -> None:
    reader = Reader()
    agent = agent_of(clock, reader, folder, settings={"sessions": {"idle": "1h"}})
    events = heard(agent, SessionReset)
    async with agent:
        await say(agent, "one")
        await clock.sleep(3_000)
        await say(agent, "two")
        await clock.sleep(4_000)
        await say(agent, "three")

    assert reader.read == [[], ["one"], []]
    assert [(event.session_id, event.reason) for event in events] == [("alice#2", "idle")]


async def test_a_rest_counts_from_the_end_of_the_last_run_and_no_run_is_ended_for_it(
    clock: VirtualClock, folder: Path | None
) -> None:
    reader = Reader(5_000)
    settings = {"sessions": {"idle": "1h"}, "runs": {"timeout": 0}, "agent": {"phases": {"plan": {"timeout": 0}}}}
    async with agent_of(clock, reader, folder, settings=settings) as agent:
        first = await agent.submit("one", session="alice")
        await clock.sleep(4_000)
        second = await agent.submit("two", session="alice")  # the first one goes on
        assert (await agent.wait(second.run_id, 60_000)).status == "ok"
        assert (await agent.wait(first.run_id, 0)).status == "ok"
        await clock.sleep(3_000)  # of its rest; its message is older than an hour
        await say(agent, "three")

    assert reader.read == [[], ["one"], ["one", "two"]]


async def test_a_session_that_was_idle_while_no_process_ran_begins_anew(clock: VirtualClock, tmp_path: Path) -> None:
    reader = Reader()
    settings = {"sessions": {"idle": "1h"}}
    async with agent_of(clock, reader, tmp_path, settings=settings) as agent:
        await say(agent, "one")
    await clock.sleep(7_200)
    async with agent_of(clock, reader, tmp_path, settings=settings) as agent:
        await say(agent, "two")
        await say(agent, "three")
        assert (await agent.conversations.records.get("alice")).ordinal == 2

    assert reader.read == [[], [], ["two"]]


async def test_conversations_end_at_the_hour_that_is_set(clock: VirtualClock, folder: Path | None) -> None:
    reader = Reader()
    tick = (clock.now().astimezone(ZoneInfo("Europe/Berlin")) + timedelta(minutes=30)).replace(second=0, microsecond=0)
    settings = {"sessions": {"reset_at": f"{tick:%H:%M}", "timezone": "Europe/Berlin"}}
    async with agent_of(clock, reader, folder, settings=settings) as agent:
        await clock.sleep((tick - clock.now()).total_seconds() - 600)
        await say(agent, "before")
        await say(agent, "still before")
        await clock.sleep(900)
        await say(agent, "after")
        await say(agent, "still after")

    assert reader.read == [[], ["before"], [], ["after"]]


async def test_two_messages_that_come_at_once_begin_one_new_conversation(
    clock: VirtualClock, folder: Path | None
) -> None:
    reader = Reader()
    async with agent_of(clock, reader, folder, settings={"sessions": {"idle": "1h"}}) as agent:
        await say(agent, "one")
        await clock.sleep(9_000)
        runs = await asyncio.gather(*[agent.submit(text, session="alice") for text in ("two", "three")])
        for run in runs:
            assert (await agent.wait(run.run_id, 60)).status == "ok"
        assert (await agent.conversations.records.get("alice")).ordinal == 2

    assert sorted(len(each) for each in reader.read) == [0, 0, 1]


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ("reset_at", "4", "must be a time of day like '04:00', or 'off'"),
        ("reset_at", "24:00", "must be a time of day like '04:00', or 'off'"),
        ("timezone", "Mars", 'no time zone is named \'Mars\'; known: "local", "UTC"'),
        ("idle", "-1s", "must be"),
    ],
)
def test_settings_that_mean_nothing_are_refused(key: str, value: str, error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        Agent(settings={"sessions": {key: value}})


async def test_nothing_is_held_for_sessions_at_rest_but_what_is_known_of_them(
    clock: VirtualClock, tmp_path: Path
) -> None:
    settings = {"sessions": {"idle": "1d", "reset_at": "04:00"}}
    async with agent_of(clock, Reader(), tmp_path, settings=settings) as agent:
        for number in range(50):
            await agent.submit("hello", session=f"s{number}")
        await clock.sleep(60)

        assert set(agent.sessions.by_key) == {"main"}
        assert agent.conversations.hooks._begun == {}


def test_a_record_says_its_id() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert SessionRecord("a#b", now, now, now, 3).id == "a#b#3"
