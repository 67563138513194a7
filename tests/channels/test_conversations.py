"""Channels of an agent: each message there becomes one run, and what people are told arrives once, over any death."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import to_builtins

from memory import Memory
from spar import Action, Agent, Decision, Perception
from spar.channels.answers import Answers, digest_of
from spar.channels.conversations import OWNER, ChannelAttachment, Talks
from spar.channels.outbox import MOST_WAITING, Owed, OwedAnswers, TurnRows
from spar.clock import SystemClock
from spar.errors import ConfigError, NoRoomError, PermanentError, TransientError
from spar.events import (
    AssistantDelta,
    ChannelQuarantined,
    ChannelRestored,
    MessageDelivered,
    MessageSent,
    MessageUndeliverable,
    ReasoningDelta,
    RunEnded,
)
from spar.ports.channel import ChannelContext, ChannelLimits, ChannelSpec, Incoming, Outgoing
from spar.testing import MemoryChannel, VirtualClock
from spar.types import replace
from tests.doubles import heard
from tests.effort import growth

ALLOW = {"senders": {"allow": [{"senders": ["chat:alice", "chat:bob", "other:alice"]}]}}
PLAIN = ChannelLimits(text=40)


async def echo(perceptions: Sequence[Perception], context: Any) -> Action | None:
    return Action(output=f"you said {context.run.goal}") if context.run else None


def memory_at(folder: Path) -> Memory:
    return Memory(f"sqlite:///{folder / 'memory.db'}")


def made(clock: VirtualClock, *specs: ChannelSpec, plan: Any = echo, **more: Any) -> Agent:
    attach = ["senders", ChannelAttachment(specs)]
    agent = Agent(plan=plan, clock=clock, settings=more.pop("settings", ALLOW), **more, attach=attach)
    return agent


def plain(*fails: Exception | None, limits: ChannelLimits = PLAIN) -> MemoryChannel:
    return MemoryChannel(limits, fails)


def channels_of(agent: Agent) -> Any:
    return agent.attachments.get("channels")


async def until(clock: VirtualClock, is_so: Any) -> None:
    for _ in range(2_000):
        if is_so():
            return
        await clock.sleep(0.1)
    raise AssertionError("it did not come to be so")


async def test_a_message_is_answered_where_it_came_from(clock: VirtualClock) -> None:
    channel, other = plain(), plain()
    async with made(clock, ChannelSpec("chat", channel), ChannelSpec("other", other)) as agent:
        delivered = heard(agent, MessageDelivered)
        channel.say("hello", "alice", reply={"subject": "hi"})
        channel.say("good day", "bob")
        other.say("hey", "alice")
        await until(clock, lambda: len(delivered) == 3)
        assert channel.texts("alice") == ["you said hello"]
        assert channel.texts("bob") == ["you said good day"]
        assert other.texts("alice") == ["you said hey"]
        assert channel.sent[0].message.reply == {"subject": "hi"}
        assert {each.session for each in delivered} == {"chat:alice", "chat:bob", "other:alice"}
        assert channels_of(agent).snapshot()["chat"]["sent"] == 2


async def test_a_test_message_is_sent_at_once_and_what_is_wrong_is_returned(clock: VirtualClock) -> None:
    channel = plain(None, PermanentError("no such mailbox"))
    async with made(clock, ChannelSpec("chat", channel)) as agent:
        assert await channels_of(agent).test("chat", "alice") == ""
        assert channel.texts("alice") == ["This is a test of the channel 'chat'. Nothing is wrong."]
        assert await channels_of(agent).test("chat", "bob") == "no such mailbox"
        assert (channel.texts("bob"), channels_of(agent).undelivered()) == ([], [])
        with pytest.raises(ValueError, match="channel 'chat' needs the address"):
            await channels_of(agent).test("chat", "")
        with pytest.raises(ValueError, match="'to' has 1000 characters"):
            await channels_of(agent).test("chat", "a" * 1000)
        with pytest.raises(LookupError, match="no channel named 'mail'; known: chat"):
            await channels_of(agent).test("mail", "alice")


async def test_a_message_that_is_delivered_twice_is_one(clock: VirtualClock, tmp_path: Path) -> None:
    channel = plain()
    agent = made(clock, ChannelSpec("chat", channel), memory=memory_at(tmp_path))
    async with agent:
        channel.say("hello", id="m1")
        await until(clock, lambda: channel.texts() == ["you said hello"])
        channel.say("hello", id="m1")
        await until(clock, lambda: len(channel.acknowledged) == 2)
        await clock.sleep(5)
        assert [each.status for each in channel.accepted] == ["accepted", "known"]
    again = plain()
    async with made(clock, ChannelSpec("chat", again), memory=memory_at(tmp_path)):
        again.say("hello", id="m1")
        await until(clock, lambda: len(again.acknowledged) == 1)
        await clock.sleep(5)
        assert [each.status for each in again.accepted] == ["known"]
    assert (channel.texts(), again.texts()) == (["you said hello"], [])


async def test_of_a_session_that_is_forgotten_no_address_is_kept(clock: VirtualClock, tmp_path: Path) -> None:
    channel, memory = plain(), memory_at(tmp_path)
    async with made(clock, ChannelSpec("chat", channel), memory=memory) as agent:
        delivered = heard(agent, MessageDelivered)
        channel.say("hello", "alice")
        channel.say("hello", "bob")
        await until(clock, lambda: len(delivered) == 2)
        rows = agent.agent_state.rows_of(OWNER)
        assert "alice" in str(await rows.list())
        await agent.conversations.resets.forget("chat:alice")
        kept = str(await rows.list())
        assert "alice" not in kept
        assert "bob" in kept


def test_the_addresses_of_sessions_that_nobody_forgets_are_bounded() -> None:
    class Rows(TurnRows):
        def __init__(self) -> None:
            self.values: dict[str, Any] = {}

        def keep(self, key: str, value: Any) -> None:
            self.values[key] = value

        def drop(self, key: str) -> None:
            del self.values[key]

    talks, rows = Talks(), Rows()
    for session in ("a", "b", "c", "a", "d", "e"):
        talks.note(session, ("chat", session), rows, most=3)

    assert list(talks) == ["a", "d", "e"], "the one that is unused for longest goes first"
    assert rows.values == {f"talk/{session}": ("chat", session) for session in ("a", "d", "e")}
    talks.note("a", ("other", "a"), rows, most=3)
    assert talks["a"] == rows.values["talk/a"] == ("other", "a")


async def test_an_unknown_sender_is_not_heard_but_told_how_to_be(clock: VirtualClock) -> None:
    channel, planned = plain(limits=ChannelLimits()), []

    async def plan(perceptions: Sequence[Perception], context: Any) -> Action | None:
        planned.extend(perceptions)
        return None

    async with made(clock, ChannelSpec("chat", channel), plan=plan, settings={}):
        channel.say("let me in", "mallory")
        await until(clock, lambda: channel.texts("mallory"))
        assert "code" in channel.texts("mallory")[0]
        assert [each.status for each in channel.accepted] == ["refused"]
    assert planned == []


async def test_a_long_answer_is_sent_in_parts_that_are_the_whole(clock: VirtualClock) -> None:
    text = "One sentence. Another one, rather longer than the first.\nA line.\n\nA paragraph, and more of it."

    async def plan(perceptions: Sequence[Perception], context: Any) -> Action | None:
        return Action(output=text) if context.run else None

    channel = plain()
    async with made(clock, ChannelSpec("chat", channel), plan=plan):
        channel.say("tell me")
        await until(clock, lambda: sum(map(len, channel.texts())) >= len(text))
    assert "".join(channel.texts()) == text
    assert max(map(len, channel.texts())) <= 40
    assert len({each.message.id for each in channel.sent}) == len(channel.sent)


async def test_what_cannot_be_sent_now_is_tried_again_and_others_do_not_wait(clock: VirtualClock) -> None:
    channel = plain(TransientError("busy"), None, TransientError("busy", retry_after=30.0))
    async with made(clock, ChannelSpec("chat", channel)) as agent:
        channel.say("one", "alice")
        await until(clock, lambda: channel.attempts == 1)
        channel.say("two", "bob")
        await until(clock, lambda: channel.texts("bob"))
        assert channel.texts("alice") == []
        assert [each.attempts for each in channels_of(agent).undelivered()] == [1]
        await until(clock, lambda: channel.texts("alice"))
    assert channel.attempts == 4


async def test_what_can_never_be_sent_is_put_aside_and_shown_until_it_is_tried_again(
    clock: VirtualClock, tmp_path: Path
) -> None:
    channel = plain(PermanentError("no such mailbox"))
    async with made(clock, ChannelSpec("chat", channel), memory=memory_at(tmp_path)) as agent:
        failed = heard(agent, MessageUndeliverable)
        channel.say("one")
        await until(clock, lambda: failed)
        assert failed[0].reason == "no such mailbox"
    again = plain()
    async with made(clock, ChannelSpec("chat", again), memory=memory_at(tmp_path)) as agent:
        (aside,) = channels_of(agent).undelivered()
        assert (aside.state, aside.error) == ("failed", "no such mailbox")
        with pytest.raises(LookupError, match="was put aside"):
            channels_of(agent).holder_of("nothing")
        channels_of(agent).holder_of(aside.id).retry(aside.id)
        await until(clock, lambda: again.texts() == ["you said one"])
        assert channels_of(agent).undelivered() == []


async def test_a_message_that_was_put_aside_goes_on_with_its_unsent_parts(clock: VirtualClock) -> None:
    async def plan(perceptions: Sequence[Perception], context: Any) -> Action | None:
        return Action(output="word " * 15) if context.run else None

    channel = plain(None, PermanentError("blocked"))
    async with made(clock, ChannelSpec("chat", channel), plan=plan) as agent:
        failed = heard(agent, MessageUndeliverable)
        channel.say("tell me")
        await until(clock, lambda: failed)
        channels_of(agent).holder_of(failed[0].message_id).retry(failed[0].message_id)
        await until(clock, lambda: len(channel.sent) == 2)
        await clock.sleep(5)
    assert (channel.attempts, "".join(channel.texts())) == (3, "word " * 15)


async def test_what_was_tried_for_too_long_is_put_aside(clock: VirtualClock) -> None:
    channel = plain(*[TransientError("down")] * 100)
    async with made(clock, ChannelSpec("chat", channel, give_up_after=100.0, max_failures=1000)) as agent:
        failed = heard(agent, MessageUndeliverable)
        channel.say("one")
        await until(clock, lambda: failed)
        assert "down" in failed[0].reason


class Death(MemoryChannel):
    """Fails to send while it is down; what it sends otherwise is known to the test."""

    down = True

    async def send(self, message: Outgoing) -> str:
        if self.down:
            raise TransientError("down")
        return await super().send(message)


@pytest.mark.parametrize("is_written", [True, False], ids=["stopped", "died between the two rows of an answer"])
async def test_an_answer_that_was_not_sent_before_a_stop_is_sent_once_after_it(
    clock: VirtualClock, tmp_path: Path, is_written: bool
) -> None:
    channel = Death(PLAIN)
    async with made(clock, ChannelSpec("chat", channel), memory=memory_at(tmp_path)) as agent:
        sent = heard(agent, MessageSent)
        channel.say("hello")
        await until(clock, lambda: sent)
        rows = agent.agent_state.rows_of(OWNER)
        (key,) = (key for key in await rows.list() if key.startswith("run/"))
        if not is_written:
            rows.keep(key, {**(await rows.list())[key], "told": [], "is_done": False})
    channel.down = False
    async with made(clock, ChannelSpec("chat", channel), memory=memory_at(tmp_path)):
        await until(clock, lambda: channel.texts())
        await clock.sleep(10)
    assert (channel.texts(), channel.attempts) == (["you said hello"], 1)


def deaf(agent: Agent) -> None:
    """Let its channels hear no more of the ends of runs."""
    for unsubscribe in channels_of(agent).answers._subscriptions:
        unsubscribe()


async def test_a_run_that_ended_while_nobody_listened_is_answered_at_the_next_start(
    clock: VirtualClock, tmp_path: Path
) -> None:
    """As after a death between the end of a run and the writing of its delivery."""
    channel = plain()
    agent = made(clock, ChannelSpec("chat", channel), memory=memory_at(tmp_path))
    async with agent:
        deaf(agent)
        channel.say("hello")
        await until(clock, lambda: channel.acknowledged and agent.runs.open == 0)
    assert channel.texts() == []
    async with made(clock, ChannelSpec("chat", channel), memory=memory_at(tmp_path)):
        await until(clock, lambda: channel.texts() == ["you said hello"])
    async with made(clock, ChannelSpec("chat", channel), memory=memory_at(tmp_path)):
        await clock.sleep(10)
    assert channel.texts() == ["you said hello"]


async def test_all_that_changes_of_an_owed_answer_in_one_turn_is_written_once(clock: VirtualClock) -> None:
    written: list[tuple[str, Any]] = []

    class Rows:
        def change(self, rows: Mapping[str, Any]) -> None:
            written.extend((key, list(value["told"])) for key, value in rows.items())

        async def list(self) -> Mapping[str, Any]:
            return {}

    rows = TurnRows(Rows())
    answers = OwedAnswers(rows, (), clock.now())
    owed = Owed("r1", "chat", "alice", clock.now())
    answers.keep(owed)
    answers.tell(owed, "d1")
    assert written == []
    await asyncio.sleep(0)
    assert written == [("run/r1", ["d1"])]
    answers.tell(owed, "d2")
    rows.write()
    await asyncio.sleep(0)
    assert written[1:] == [("run/r1", ["d2"])]


async def test_rows_of_one_turn_are_written_together_and_one_that_cannot_be_stored_keeps_none_back() -> None:
    written: list[Mapping[str, Any]] = []

    class Rows:
        def change(self, rows: Mapping[str, Any]) -> None:
            if "bad" in rows:
                raise ValueError("too large")
            written.append(rows)

    rows = TurnRows(Rows())
    rows.keep("a", 1)
    rows.drop("b")
    await asyncio.sleep(0)
    assert written == [{"a": 1, "b": None}]
    for key in ("c", "bad", "d"):
        rows.keep(key, 2)
    rows.write()
    assert written[1:] == [{"c": 2}, {"d": 2}]


async def test_a_message_that_is_offered_twice_at_once_is_one_run_and_owed_once(
    clock: VirtualClock, tmp_path: Path
) -> None:
    channel = plain()
    async with made(clock, ChannelSpec("chat", channel), memory=memory_at(tmp_path)) as agent:
        spec = channels_of(agent).supervisors["chat"].spec
        offers = (channels_of(agent).accept(spec, Incoming("m1", "alice", "hello")) for _ in range(2))
        one, other = await asyncio.gather(*offers)
        assert sorted((one.status, other.status)) == ["accepted", "known"]  # the writer decides which is first
        assert one.run_id == other.run_id
        rows = agent.agent_state.rows_of(OWNER)
        assert [key for key in await rows.list() if key.startswith("run/")] == [f"run/{one.run_id}"]
        await until(clock, lambda: channel.texts() == ["you said hello"])


async def test_nothing_is_owed_for_a_run_that_was_not_written(clock: VirtualClock, tmp_path: Path) -> None:
    """As after an error of the store, and as after a death just before the run was on disk."""

    async def refuse(*message: Any, on_run: Any, **more: Any) -> Any:
        on_run("lost")
        raise NoRoomError("the disk is full")

    memory = memory_at(tmp_path)
    async with made(clock, ChannelSpec("chat", plain()), memory=memory) as agent:
        channels_of(agent)._submit = refuse
        spec = channels_of(agent).supervisors["chat"].spec
        with pytest.raises(NoRoomError):
            await channels_of(agent).accept(spec, Incoming("m1", "alice", "hello"))
        rows = agent.agent_state.rows_of(OWNER)
        assert [key for key in await rows.list() if key.startswith("run/")] == []
        rows.keep("run/lost", to_builtins(Owed("lost", "chat", "alice", clock.now())))
    channel = plain()
    async with made(clock, ChannelSpec("chat", channel), memory=memory) as agent:
        rows = agent.agent_state.rows_of(OWNER)
        assert (await rows.list())["run/lost"]["is_done"]
        await clock.sleep(5)
    assert channel.attempts == 0


@pytest.mark.parametrize("heard_of", [True, False], ids=["at once", "at the next start"])
async def test_messages_that_steer_a_run_are_answered_once_to_those_who_talk_in_it(
    clock: VirtualClock, tmp_path: Path, heard_of: bool
) -> None:
    """At the next start as after a death between the end of a run and the writing of its delivery."""
    channel, goals = plain(), []

    async def plan(perceptions: Sequence[Perception], context: Any) -> Action | None:
        if not context.run:
            return None
        goals.append([context.run.goal, *(each.text for each in context.run.said)])
        await asyncio.sleep(2)
        return Action(output="done") if len(goals) > 1 else Action(deferred="not yet", next_look=0.1)

    spec = ChannelSpec("chat", channel, session="room", mode="steer")
    async with made(clock, spec, plan=plan, memory=memory_at(tmp_path)) as agent:
        if not heard_of:
            deaf(agent)
        channel.say("go", "alice")
        await clock.sleep(1)
        channel.say("faster", "alice")
        channel.say("and mind the gap", "bob")
        await until(clock, lambda: len(channel.acknowledged) == 3 and agent.runs.open == 0)
        await clock.sleep(5)
    assert goals == [["go"], ["go", "faster", "and mind the gap"]]
    assert bool(channel.sent) is heard_of
    async with made(clock, spec, plan=plan, memory=memory_at(tmp_path)):
        await until(clock, lambda: channel.texts("bob"))
        await clock.sleep(10)
    assert (channel.texts("alice"), channel.texts("bob")) == (["done"], ["done"])


def test_answers_that_an_earlier_process_owed_cost_as_much_as_there_are() -> None:
    class Ended:
        async def wait(self, run_id: str, timeout: float) -> Any:
            return SimpleNamespace(status="ok", reply=f"done: {run_id}")

    class Box(list[str]):
        def deliver(self, id: str, address: str, text: str, **more: Any) -> None:
            self.append(text)

    def settle(number: int) -> None:
        core: Any = SimpleNamespace(clock=SystemClock())
        runs: Any = Ended()
        box: Any = Box()
        owed = [Owed(f"r{index:04}", "chat", "alice", core.clock.now()) for index in range(number)]
        answers = OwedAnswers(TurnRows(None), owed, core.clock.now())
        asyncio.run(Answers(core, runs, answers, {}, {"chat": box}).settle(*answers.open()))
        assert (sorted(box), answers.open()) == ([f"done: {each.run_id}" for each in owed], [])

    assert growth(settle, 200) < 2.2


async def test_hooks_judge_what_is_sent(clock: VirtualClock) -> None:
    channel = MemoryChannel()
    agent = made(clock, ChannelSpec("chat", channel))

    @agent.hook("message_sending")
    async def judge(context: Any) -> Decision:
        return Decision.rewrite(context.value.upper())

    async with agent:
        channel.say("hello")
        await until(clock, lambda: channel.texts())
    assert channel.texts() == ["YOU SAID HELLO"]


async def test_a_silent_run_sends_nothing_and_owes_nothing(clock: VirtualClock, tmp_path: Path) -> None:
    async def plan(perceptions: Sequence[Perception], context: Any) -> Action | None:
        return Action(output="NO_REPLY") if context.run else None

    channel = plain()
    for _ in range(2):
        async with made(clock, ChannelSpec("chat", channel), plan=plan, memory=memory_at(tmp_path)) as agent:
            channel.say("psst", id="once")
            await clock.sleep(10)
            assert agent.runs.open == 0
    assert channel.sent == []


# -- trouble


class Broken(MemoryChannel):
    """Cannot receive; what it is asked to do is counted."""

    works = False

    async def receive(self, context: ChannelContext) -> None:
        self.opened += 1
        if not self.works:
            raise TransientError("refused")
        await super().receive(context)


async def test_a_channel_that_fails_is_quarantined_and_touches_no_other(clock: VirtualClock) -> None:
    broken, well = Broken(PLAIN), plain()
    specs = ChannelSpec("chat", broken, probe_after=100.0), ChannelSpec("other", well)
    async with made(clock, *specs) as agent:
        quarantined, restored = heard(agent, ChannelQuarantined), heard(agent, ChannelRestored)
        await until(clock, lambda: quarantined)
        assert (quarantined[0].channel, quarantined[0].part) == ("chat", "receive")
        assert channels_of(agent).snapshot()["chat"]["receiving"]["state"] == "quarantined"
        well.say("hello")
        await until(clock, lambda: well.texts() == ["you said hello"])
        opened = broken.opened
        await clock.sleep(99)
        assert broken.opened <= opened + 1
        broken.works = True
        broken.say("back again")
        await until(clock, lambda: broken.texts() == ["you said back again"])
        assert [each.part for each in restored] == ["receive"]


class Watched(MemoryChannel):
    """Reports its state, for which it may need any time."""

    reports = 0

    def snapshot(self) -> dict[str, Any]:
        self.reports += 1
        return {"connected": True}


async def test_the_list_of_channels_waits_for_the_report_of_none(clock: VirtualClock) -> None:
    channel = Watched(PLAIN)
    async with made(clock, ChannelSpec("chat", channel)) as agent:
        channels = channels_of(agent)
        listed = await channels.ask("list")
        assert (channel.reports, listed["chat"]["sending"]["state"]) == (0, "ok")
        assert channels.snapshot()["chat"] == {**listed["chat"], "connected": True}


class Deathless(MemoryChannel):
    """Goes on when it is cancelled, until it is released."""

    is_released = False

    async def send(self, message: Outgoing) -> str:
        self.attempts += 1
        while not self.is_released:
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                continue
        return ""


async def test_a_channel_that_hangs_is_left_behind_stops_nothing_and_is_asked_again_once_it_has_come_back(
    clock: VirtualClock,
) -> None:
    hanging, well = Deathless(PLAIN), plain()
    specs = ChannelSpec("chat", hanging, timeout=1.0, max_failures=1_000), ChannelSpec("other", well)
    async with made(clock, *specs) as agent:
        hanging.say("hello")
        await until(clock, lambda: channels_of(agent).snapshot()["chat"]["left_behind"])
        well.say("hello", "alice")
        await until(clock, lambda: well.texts())
        await clock.sleep(600)
        state, attempts = channels_of(agent).snapshot()["chat"], hanging.attempts
        hanging.is_released = True
        await clock.sleep(600)
        assert (attempts, state["left_behind"]) == (1, 1)
        assert "an earlier attempt hangs" in state["sending"]["last_error"]
        assert hanging.attempts == 2
        hanging.is_released = False
        hanging.say("hello again", "bob")
        await until(clock, lambda: channels_of(agent).snapshot()["chat"]["left_behind"])
    assert agent.state == "stopped"
    hanging.is_released = True
    await clock.sleep(2)


class Late(MemoryChannel):
    """Sends after it was cancelled, and returns nothing."""

    async def send(self, message: Outgoing) -> Any:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await super().send(message)


async def test_a_message_that_is_sent_after_its_time_counts_as_sent(clock: VirtualClock) -> None:
    channel = Late(PLAIN)
    async with made(clock, ChannelSpec("chat", channel, timeout=1.0)) as agent:
        channel.say("hello")
        await until(clock, lambda: channels_of(agent).snapshot()["chat"]["sent"])
        await clock.sleep(60)
        assert (channel.attempts, channels_of(agent).snapshot()["chat"]["waiting"]) == (1, 0)


class Wrong(MemoryChannel):
    """Hands over what is no message."""

    async def receive(self, context: ChannelContext) -> None:
        context.ready()
        no_message: Any = {"text": "hi"}
        self.accepted.append(await context.accept(no_message))
        await asyncio.Event().wait()


async def test_what_is_no_message_is_refused_and_does_not_come_again(clock: VirtualClock) -> None:
    channel, empty = Wrong(PLAIN), plain()
    async with made(clock, ChannelSpec("chat", channel), ChannelSpec("other", empty)):
        empty.say("   ")
        empty.say("x", "")
        await until(clock, lambda: len(empty.acknowledged) == 2 and channel.accepted)
    assert {each.status for each in [*channel.accepted, *empty.accepted]} == {"refused"}
    assert "must hand over an Incoming" in channel.accepted[0].reason


async def test_a_channel_with_too_much_to_send_takes_nothing_in(clock: VirtualClock) -> None:
    channel = Death(PLAIN)
    async with made(clock, ChannelSpec("chat", channel)) as agent:
        await until(clock, lambda: channel.opened)
        supervisor = channels_of(agent).supervisors["chat"]
        for number in range(MOST_WAITING):
            supervisor.deliver(f"d{number}", f"to{number}", "x")
        channel.say("hello")
        await clock.sleep(1)
        assert channel.acknowledged == []
        assert "too many messages to send" in channels_of(agent).snapshot()["chat"]["receiving"]["last_error"]


def test_channels_differ_in_name(clock: VirtualClock) -> None:
    with pytest.raises(ConfigError, match="'chat' twice"):
        made(clock, ChannelSpec("chat", plain()), ChannelSpec("chat", plain()))


# -- growing answers


def growing(clock: VirtualClock, pieces: Sequence[str], output: str | None = None) -> Any:
    """A planner whose answer is written a piece a second."""
    agents: list[Agent] = []

    async def plan(perceptions: Sequence[Perception], context: Any) -> Action | None:
        if not context.run:
            return None
        for piece in pieces:
            agents[0].events.publish(AssistantDelta(run_id=context.run.id, text=piece))
            await asyncio.sleep(1)
        return Action(output="".join(pieces) if output is None else output)

    return plan, agents


@asynccontextmanager
async def writing(clock: VirtualClock, channel: MemoryChannel, *pieces: str, **more: Any) -> AsyncIterator[Agent]:
    plan, agents = growing(clock, pieces, more.pop("output", None))
    memory = more.pop("memory", None)
    agent = made(clock, ChannelSpec("chat", channel, **more), plan=plan, memory=memory)
    agents.append(agent)
    async with agent:
        yield agent


async def test_an_answer_grows_by_edits_and_is_one_message(clock: VirtualClock) -> None:
    channel = MemoryChannel(ChannelLimits(can_edit=True, edit_every=1.5, typing_every=5.0))
    seen: list[str] = []
    async with writing(clock, channel, *(f"word{number} " for number in range(10))) as agent:
        delivered = heard(agent, MessageDelivered)
        channel.say("write")
        while not delivered:
            await clock.sleep(0.2)
            if channel.sent and (not seen or seen[-1] != channel.sent[0].text):
                seen.append(channel.sent[0].text)
        seen.append(channel.sent[0].text)
    assert len(channel.sent) == 1
    assert seen[0] == "word0  …"
    assert seen[-1] == "".join(f"word{number} " for number in range(10)).strip() or seen[-1].startswith("word0")
    assert not seen[-1].endswith("…")
    assert 3 <= channel.edits <= 8  # ten pieces a second apart, an edit each 1.5 s at most
    assert channel.typed == ["alice"]


async def test_an_answer_that_grew_is_whole_though_an_edit_failed(clock: VirtualClock) -> None:
    class Moody(MemoryChannel):
        async def edit(self, reference: str, message: Outgoing) -> None:
            await super().edit(reference, message)
            if self.edits == 1:
                raise TransientError("not now")

    channel, pieces = Moody(ChannelLimits(can_edit=True, edit_every=1.5)), [f"word{number} " for number in range(9)]
    async with writing(clock, channel, *pieces) as agent:
        delivered = heard(agent, MessageDelivered)
        channel.say("write")
        await until(clock, lambda: delivered)
        await clock.sleep(5)
    assert (channel.texts(), channel.edits) == (["".join(pieces)], 2), "no more drafts, and the answer once"


async def test_a_channel_that_cannot_edit_gets_the_answer_at_its_end(clock: VirtualClock) -> None:
    channel = MemoryChannel(ChannelLimits(typing_every=2.0))
    async with writing(clock, channel, *["word "] * 5):
        channel.say("write")
        await until(clock, lambda: channel.sent)
    assert channel.texts() == ["word word word word word "]
    assert channel.edits == 0
    assert len(channel.typed) == 3


async def test_nothing_is_shown_of_a_silent_answer_nor_where_hooks_judge(clock: VirtualClock) -> None:
    channel = MemoryChannel(ChannelLimits(can_edit=True, edit_every=0.1))
    async with writing(clock, channel, "NO", "_RE", "PLY") as agent:
        channel.say("psst")
        await until(clock, lambda: channel.acknowledged and agent.runs.open == 0)
    assert channel.sent == []
    async with writing(clock, channel, "secret", output="fine") as agent:
        agent.hooks.add("message_sending", lambda context: None)
        seen: list[str] = []
        channel.say("tell")
        while not channel.sent:
            await clock.sleep(0.1)
        seen += channel.texts()
    assert seen == ["fine"]


async def test_what_was_shown_of_a_run_that_is_called_off_stands(clock: VirtualClock) -> None:
    channel = MemoryChannel(ChannelLimits(can_edit=True, edit_every=0.1))
    async with writing(clock, channel, *["word "] * 50) as agent:
        channel.say("write")
        await until(clock, lambda: channel.sent)
        await agent.abort(channel.accepted[0].run_id)
        await clock.sleep(2)
        text = channel.texts()[0]
        assert text.startswith("word")
        assert not text.endswith("…")
    assert len(channel.sent) == 1


# -- blocks, thoughts, lines about calls

TALE = [f"This is paragraph {number} of a long tale. {'It goes on. ' * 8}".strip() for number in range(4)]
BLOCKS = {**ALLOW, "runs": {"blocks": "text_end", "block_min": 50, "block_max": 200, "reasoning": "reply"}}


class Teller:
    """A planner that writes a tale, thinking before it; `gate` holds it before the last paragraph."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()

    def attach(self, host: Any) -> None:
        self.events = host.events

    async def plan(self, perceptions: Sequence[Perception], context: Any) -> Action | None:
        if context.run is None:
            return None
        self.events.publish(ReasoningDelta(run_id=context.run.id, text="hm"))
        self.events.publish(AssistantDelta(run_id=context.run.id, text="\n\n".join(TALE[:3]) + "\n\n"))
        await self.gate.wait()
        return Action(output="\n\n".join(TALE))


async def test_blocks_go_to_channels_that_cannot_edit_and_growing_answers_to_those_that_can(
    clock: VirtualClock,
) -> None:
    cannot, can = plain(limits=ChannelLimits(text=400)), plain(limits=ChannelLimits(text=4_000, can_edit=True))
    teller = Teller()
    agent = made(clock, ChannelSpec("chat", cannot, reasoning=True), ChannelSpec("other", can), plan=teller,
                 settings=BLOCKS)  # fmt: skip
    async with agent:
        cannot.say("a tale", "alice")
        await until(clock, lambda: len(cannot.texts("alice")) == 3)
        assert cannot.texts("alice") == TALE[:3]
        teller.gate.set()
        await until(clock, lambda: len(cannot.texts("alice")) == 5)
        assert cannot.texts("alice") == [*TALE[:3], "hm", TALE[3]]
        can.say("a tale", "alice")
        await until(clock, lambda: can.texts("alice") == ["\n\n".join(TALE)])


async def test_blocks_that_were_sent_are_not_sent_again_after_a_crash(clock: VirtualClock, tmp_path: Path) -> None:
    channel, teller = plain(limits=ChannelLimits(text=400)), Teller()
    first = made(clock, ChannelSpec("chat", channel), plan=teller, settings=BLOCKS, memory=memory_at(tmp_path))
    async with first:
        channel.say("a tale", "alice")
        await until(clock, lambda: len(channel.texts("alice")) == 3)
    teller.gate.set()
    second = made(clock, ChannelSpec("chat", channel), plan=teller, settings=BLOCKS, memory=memory_at(tmp_path))
    async with second:
        await until(clock, lambda: len(channel.texts("alice")) == 4)
        await clock.sleep(5.0)

    assert channel.texts("alice") == TALE


class Fatal(MemoryChannel):
    """Keeps the files as a process leaves them that dies while the first piece of an answer is sent. A draft is sent
    when its run has ended."""

    def __init__(self, limits: ChannelLimits, folder: Path) -> None:
        super().__init__(limits)
        self.folder, self.left, self.has_ended = folder / "alive", folder / "dead", asyncio.Event()
        self.folder.mkdir()

    async def reach(self, message: Outgoing) -> None:
        if message.kind == "draft":
            self.attempts += 1
            await self.has_ended.wait()
        elif not self.left.exists():
            shutil.copytree(self.folder, self.left, ignore=shutil.ignore_patterns("*.lock"))

    async def send(self, message: Outgoing) -> str:
        await self.reach(message)
        return await super().send(message)

    async def edit(self, reference: str, message: Outgoing) -> None:
        await self.reach(message)
        await super().edit(reference, message)


async def test_a_process_that_dies_of_a_block_has_noted_it_and_the_next_sends_the_rest_in_order(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async def plan(perceptions: Sequence[Perception], context: Any) -> Action | None:
        return Action(output="\n\n".join(TALE)) if context.run else None

    channel, again = Fatal(ChannelLimits(text=400), tmp_path), plain(limits=ChannelLimits(text=400))
    memory = memory_at(channel.folder)
    async with made(clock, ChannelSpec("chat", channel), plan=plan, settings=BLOCKS, memory=memory):
        channel.say("a tale", "alice")
        await until(clock, channel.left.exists)
    memory = memory_at(channel.left)
    async with made(clock, ChannelSpec("chat", again), plan=plan, settings=BLOCKS, memory=memory):
        await until(clock, lambda: TALE[3] in again.texts("alice"))
        await clock.sleep(5.0)

    by_id = {sent.message.id: sent.text for sent in (channel.sent[0], *again.sent)}
    assert list(by_id.values()) == TALE, "a block may come again, as the same message"


async def test_a_process_that_dies_as_the_answer_replaces_its_draft_has_noted_which_message_that_is(
    clock: VirtualClock, tmp_path: Path
) -> None:
    channel = Fatal(ChannelLimits(can_edit=True), tmp_path)

    async def plan(perceptions: Sequence[Perception], context: Any) -> Action | None:
        if not context.run:
            return None
        agent.events.publish(AssistantDelta(run_id=context.run.id, text="word"))
        while not channel.attempts:
            await asyncio.sleep(0)
        return Action(output="word by word")

    agent = made(clock, ChannelSpec("chat", channel), plan=plan, memory=memory_at(channel.folder))
    agent.events.subscribe(RunEnded, lambda event: channel.has_ended.set())
    async with agent:
        channel.say("write")
        await until(clock, channel.left.exists)
    async with made(clock, ChannelSpec("chat", channel), memory=memory_at(channel.left)):
        await until(clock, lambda: channel.edits > 1)
        await clock.sleep(5.0)

    assert channel.texts() == ["word by word"]


class Mortal(MemoryChannel):
    """Keeps the files as a process leaves them that dies at a moment: `shown`, when the second part of a growing answer
    has been shown; `sent`, when the first was sent, before the process knows of that; `ending`, when nothing more
    follows and that is to be shown."""

    def __init__(self, dies: str, folder: Path) -> None:
        super().__init__(ChannelLimits(can_edit=True, edit_every=0.1))
        self.dies, self.folder, self.left, self.is_alive = dies, folder / "alive", folder / "dead", True
        self.folder.mkdir()

    def reach(self, moment: str) -> None:
        if moment == self.dies and not self.left.exists():
            shutil.copytree(self.folder, self.left, ignore=shutil.ignore_patterns("*.lock"))
            self.is_alive = False

    async def send(self, message: Outgoing) -> str:
        reference = await super().send(message)
        self.reach("sent")
        return reference

    async def edit(self, reference: str, message: Outgoing) -> None:
        if not message.text.endswith("…"):
            self.reach("ending")
        if self.is_alive or not self.folder.exists():
            await super().edit(reference, message)
            self.reach("shown")


@pytest.mark.parametrize("dies", ["shown", "ending"])
async def test_what_was_shown_of_a_run_that_is_called_off_stands_though_a_process_died(
    dies: str, clock: VirtualClock, tmp_path: Path
) -> None:
    channel = Mortal(dies, tmp_path)
    async with writing(clock, channel, *["word "] * 50, memory=memory_at(channel.folder)) as agent:
        channel.say("write")
        await until(clock, lambda: channel.edits)
        run_id = channel.accepted[0].run_id
        if dies == "ending":
            await agent.abort(run_id)
        await until(clock, channel.left.exists)
    shutil.rmtree(channel.folder)
    async with made(clock, ChannelSpec("chat", channel), plan=growing(clock, [])[0], memory=memory_at(channel.left),
                    settings={**ALLOW, "agent": {"loop_interval": 1.0}}) as agent:  # fmt: skip
        if dies == "shown":
            await agent.abort(run_id)
        await clock.sleep(5.0)

    assert len(channel.sent) == 1
    assert channel.texts()[0].startswith("word")
    assert not channel.texts()[0].endswith("…")


async def test_a_process_that_dies_as_it_shows_the_first_part_of_an_answer_leaves_no_second_message(
    clock: VirtualClock, tmp_path: Path
) -> None:
    channel = Mortal("sent", tmp_path)
    async with writing(clock, channel, *["word "] * 50, memory=memory_at(channel.folder)):
        channel.say("write")
        await until(clock, channel.left.exists)
    shutil.rmtree(channel.folder)
    async with made(clock, ChannelSpec("chat", channel), memory=memory_at(channel.left)) as agent:
        delivered = heard(agent, MessageDelivered)
        await until(clock, lambda: delivered)
        await clock.sleep(5.0)

    assert channel.texts() == ["you said write"]


async def test_an_answer_that_ended_with_its_process_is_gone_on_with_block_by_block(
    clock: VirtualClock, tmp_path: Path
) -> None:
    channel = plain(limits=ChannelLimits(text=400))
    agent = made(clock, ChannelSpec("chat", channel), settings=BLOCKS, memory=memory_at(tmp_path))
    async with agent:
        channel.say("x", "alice")
        await until(clock, lambda: len(channel.texts("alice")) == 1)
        run_id = channel.sent[0].message.run_id
        owed = channels_of(agent)._owed.get(run_id)
        assert owed is not None
        tale = replace(owed, is_done=False, told=(f"{digest_of(TALE[0])}.1", f"{digest_of(TALE[1])}.2"))
        channels_of(agent).answers._send_other_blocks(tale, "\n\n".join(TALE))
        await until(clock, lambda: len(channel.texts("alice")) == 3)

    assert channel.texts("alice")[1:] == TALE[2:]


async def test_a_line_that_was_down_is_tried_again_sooner_than_a_broken_channel(clock: VirtualClock) -> None:
    channel = Death(PLAIN)
    async with made(clock, ChannelSpec("chat", channel)) as agent:
        quarantined = heard(agent, ChannelQuarantined)
        channel.say("one", "alice")
        channel.say("two", "bob")
        await until(clock, lambda: quarantined)
        assert quarantined[0].part == "send"
        channel.down = False
        began = clock.monotonic()
        await until(clock, lambda: channel.texts("alice") and channel.texts("bob"))
        assert clock.monotonic() - began < 60  # and not probe_after, ten minutes


class Slow(MemoryChannel):
    """Takes a second to send."""

    async def send(self, message: Outgoing) -> str:
        await asyncio.sleep(1)
        return await super().send(message)


async def test_a_stop_waits_for_the_message_that_is_being_sent(clock: VirtualClock, tmp_path: Path) -> None:
    channel = Slow(PLAIN)
    async with made(clock, ChannelSpec("chat", channel), memory=memory_at(tmp_path)) as agent:
        sent = heard(agent, MessageSent)
        channel.say("one")
        await until(clock, lambda: sent)
        await clock.sleep(0.3)
        channel.say("two", "bob")
        await until(clock, lambda: len(sent) == 2)
    assert channel.texts("alice") == ["you said one"]
    assert channel.attempts == 1
    async with made(clock, ChannelSpec("chat", channel), memory=memory_at(tmp_path)):
        await until(clock, lambda: channel.texts("bob"))
        await clock.sleep(10)
    assert channel.attempts == 2
