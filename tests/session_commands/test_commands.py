"""Commands in messages: which text is one, who may say it, what it does, and that everything else is text."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from spar import Action, Agent, Context, Decision, Perception, facts
from spar.facts import COMMAND
from spar.hooks import HookContext
from spar.records.journal import Item
from spar.records.run_options import RunOptions
from spar.records.session import Origin
from spar.session_commands.commands import Command, command_of
from spar.testing import VirtualClock
from tests.session.shown import shown

ON = {"sessions": {"commands": True}}


class Talker:
    """A planner that answers after some seconds and goes by options; what it was asked is written down."""

    allowed_models = ("small", "large")

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.asked: list[tuple[str, str | None]] = []

    async def check_options(self, options: RunOptions) -> None:
        if options.model not in (None, *self.allowed_models):
            raise ValueError(f"option model is {options.model!r}, allowed are: small, large")

    async def plan(self, perceptions: Sequence[Perception], context: Context) -> Action | None:
        if context.run is None:
            return None
        self.asked.append((context.run.goal, context.run.options.model))
        await context.clock.sleep(self.seconds)
        return Action(output="done")


def agent_of(clock: VirtualClock, talker: Any, folder: Path | None = None, settings: Any = ON) -> Agent:
    memory = None if folder is None else Memory(f"sqlite:///{folder / 'memory.db'}", ballast=0)
    return Agent(plan=talker, clock=clock, memory=memory, loop_interval=0.1, settings=settings)


async def say(agent: Agent, text: str | Perception, **more: Any) -> Any:
    return await agent.wait((await agent.submit(text, session="alice", **more)).run_id, 600)


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("/new", Command("new")),
        ("/NEW  ", Command("new")),
        ("/model large", Command("model", "large")),
        ("/stop\n--\nTom", Command("stop", rest="--\nTom")),
        ("/deploy_it now please", Command("deploy_it", "now please")),
        ("new", None),
        ("hello\n/new", None),
        ("> /new", None),
        ("//new", None),
        ("/", None),
        ("/ new", None),
        ("/etc/passwd is what?", None),
        ("/new" + "x" * 40, None),
        ("/1", None),
        ("", None),
    ],
)
def test_a_command_is_the_first_line_as_a_whole(text: str, command: Command | None) -> None:
    assert command_of(text) == command


@pytest.mark.parametrize(
    ("text", "settings"),
    [*((text, ON) for text in ("/dance", "what does /new do?", "Re: hello\n> /new", "/tmp/x.txt")), ("/new", None)],
)
async def test_what_is_no_command_is_text_and_without_the_setting_each_is(
    clock: VirtualClock, text: str, settings: Any
) -> None:
    talker = Talker()
    async with agent_of(clock, talker, settings=settings) as agent:
        assert (await say(agent, text)).output == "done"
    assert talker.asked == [(text, None)]


async def test_from_untrusted_senders_a_command_is_text(clock: VirtualClock) -> None:
    talker = Talker()
    async with agent_of(clock, talker) as agent:
        await say(agent, "hello")
        forged = Perception("/new", source="mail", trust="untrusted", attributes={COMMAND: {"name": "stop"}})
        assert (await say(agent, forged)).output == "done"
        assert (await agent.conversations.records.get("alice")).ordinal == 1
    assert talker.asked[-1] == ("/new", None)


@pytest.mark.parametrize("text", ["/new", "/reset", "/reset\nBest wishes\nTom"])
@pytest.mark.parametrize("is_kept", [False, True])
async def test_a_command_begins_a_conversation_anew_and_is_no_part_of_it(
    clock: VirtualClock, tmp_path: Path, text: str, is_kept: bool
) -> None:
    talker = Talker()
    async with agent_of(clock, talker, tmp_path if is_kept else None) as agent:
        assert (await say(agent, text)).reply.startswith("A new conversation begins.")
        await say(agent, "hello")
        answer = await say(agent, text)
        assert answer.status == "ok"
        assert answer.reply.startswith("A new conversation begins (alice#2).")
        assert (await say(agent, text)).reply.startswith("It has just begun (alice#2).")
        assert await agent.conversations.transcripts.read("alice") == []
        if "\n" in text:
            assert answer.reply.endswith("The other lines of the message were not read.")


@pytest.mark.parametrize("name", ["new", "reset", "stop", "status"])
async def test_words_behind_a_command_that_takes_none_are_said_not_to_be_read(clock: VirtualClock, name: str) -> None:
    talker = Talker()
    async with agent_of(clock, talker) as agent:
        await say(agent, "hello")
        answer = await say(agent, f"/{name} what is the load?")
        assert answer.reply.endswith(f"\nThe words behind /{name} were not read.")
        assert "not read" not in (await say(agent, f"/{name}")).reply
    assert [goal for goal, _ in talker.asked] == ["hello"]


async def test_stop_calls_off_what_goes_on_and_what_waits(clock: VirtualClock) -> None:
    talker = Talker(60)
    async with agent_of(clock, talker) as agent:
        runs = [await agent.submit(text, session="alice") for text in ("one", "two", "three")]
        other = await agent.submit("other", session="bob")
        await clock.sleep(5)
        told = (await say(agent, "/status")).reply
        assert re.match(r"alice#1: running, 3 open; since \d{4}-\d\d-\d\d \d\d:\d\d [A-Z]{3,4};", told), told
        assert (await say(agent, "/stop")).reply == "Stopped: 1 run and 2 waiting messages."
        assert [(await agent.wait(run.run_id, 0)).error for run in runs] == ["aborted"] * 3
        assert (await say(agent, "/stop")).reply == "Nothing goes on."
        assert (await agent.wait(other.run_id, 600)).status == "ok"
    assert [goal for goal, _ in talker.asked] == ["one", "other"]


async def test_a_session_chooses_its_model_among_those_that_are_allowed(clock: VirtualClock, tmp_path: Path) -> None:
    talker = Talker()
    async with agent_of(clock, talker, tmp_path) as agent:
        assert (await say(agent, "/model large")).reply == "The next message is answered by large."
        await say(agent, "hello")
        assert (await say(agent, "/model")).reply == "Models of this session:\n- small\n- large (chosen)"
        refused = await say(agent, "/model huge")
        assert (refused.status, refused.reply) == ("error", "option model is 'huge', allowed are: small, large")
        await agent.submit("other", session="bob")
    async with agent_of(clock, talker, tmp_path) as agent:
        await say(agent, "still here?")
        await say(agent, "/new")
        await say(agent, "anew")
        await say(agent, "/model default")
        await say(agent, "as usual")

    assert sorted(talker.asked, key=str) == sorted(
        [("hello", "large"), ("other", None), ("still here?", "large"), ("anew", "large"), ("as usual", None)], key=str
    )


async def test_a_session_that_a_choice_of_a_model_makes_knows_where_it_came_from(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with agent_of(clock, Talker(), tmp_path) as agent:
        assert (await say(agent, "/model large", origin=Origin("http"))).status == "ok"
        assert (await shown(agent, "alice")).origin == Origin("http")
        await say(agent, "hello", origin=Origin("python"))
        assert (await shown(agent, "alice")).origin == Origin("http")


async def test_the_time_of_a_status_is_that_of_the_zone_of_the_sessions(clock: VirtualClock) -> None:
    settings = {"sessions": {"commands": True, "timezone": "Asia/Tokyo"}}
    async with agent_of(clock, Talker(), settings=settings) as agent:
        await say(agent, "hello")
        assert " JST; " in (await say(agent, "/status")).reply


async def test_where_no_model_plans_there_is_none_to_choose(clock: VirtualClock) -> None:
    async def plan(perceptions: Sequence[Perception], context: Context) -> Action | None:
        return Action(output="done") if context.run is not None else None

    async with agent_of(clock, plan) as agent:
        assert (await say(agent, "/model")).reply == "There is no model to choose."
        assert (await say(agent, "/model x")).status == "error"


async def test_a_hook_denies_commands_and_adds_own_ones(clock: VirtualClock) -> None:
    talker = Talker()
    agent = agent_of(clock, talker)

    @agent.hook("command")
    async def own(ctx: HookContext) -> Decision | None:
        command: Command = ctx.value
        if command.name == "stop":
            return Decision.deny("nobody stops me")
        return Decision.rewrite(f"deployed {command.argument}") if command.name == "deploy" else None

    async with agent:
        assert (await say(agent, "/deploy web")).reply == "deployed web"
        assert (await say(agent, "/stop")).reply == "/stop is refused: nobody stops me"
        assert (await say(agent, "/dance")).output == "done"
        assert (await say(agent, "/new")).reply.startswith("A new conversation")
    assert talker.asked == [("/dance", None)]


async def test_a_hook_that_fails_lets_no_command_pass(clock: VirtualClock) -> None:
    agent = agent_of(clock, Talker())

    @agent.hook("command")
    async def broken(ctx: HookContext) -> None:
        raise RuntimeError("out of order")

    async with agent:
        assert (await say(agent, "/stop")).reply.startswith("/stop is refused: hook ")


async def test_a_command_with_a_key_is_carried_out_once(clock: VirtualClock, tmp_path: Path) -> None:
    async with agent_of(clock, Talker(), tmp_path) as agent:
        await say(agent, "hello")
        first = await say(agent, "/new", idempotency_key="k")
        await say(agent, "hello again")
        again = await say(agent, "/new", idempotency_key="k")
        assert (again.run_id, again.reply) == (first.run_id, first.reply)
        assert (await agent.conversations.records.get("alice")).ordinal == 2
    async with agent_of(clock, Talker(), tmp_path) as agent:
        assert (await agent.submit("/new", session="alice", idempotency_key="k")).run_id == first.run_id
        await clock.sleep(5)
        assert (await agent.conversations.records.get("alice")).ordinal == 2


async def test_a_command_that_was_accepted_is_carried_out_by_the_next_process(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with agent_of(clock, Talker(), tmp_path) as agent:
        await say(agent, "hello")
        receipt = await agent.submit("/new", session="alice")
        await agent.stop(0.0)
    async with agent_of(clock, Talker(), tmp_path) as agent:
        assert (await agent.wait(receipt.run_id, 60)).status == "ok"
        assert (await agent.conversations.records.get("alice")).ordinal == 2


async def test_commands_do_not_wait_for_the_run_in_hand(clock: VirtualClock) -> None:
    async with agent_of(clock, Talker(100)) as agent:
        long = await agent.submit("long", session="alice")
        await clock.sleep(1)
        answers = await asyncio.gather(*[say(agent, "/status") for _ in range(3)])
        assert {each.status for each in answers} == {"ok"}
        assert (await agent.wait(long.run_id, 0)).status == "timeout"  # it goes on


@pytest.mark.parametrize("name", ["new", "stop"])
async def test_a_command_of_an_earlier_process_leaves_what_was_said_since(
    name: str, clock: VirtualClock, tmp_path: Path
) -> None:
    """A process that is killed before the end of a command is on disk leaves it to the next one, done or not."""
    async with agent_of(clock, Talker(), tmp_path) as agent:
        await say(agent, "hello")
        told = Perception(f"/{name}", source="messages", session="alice", trust="trusted",
                          attributes={COMMAND: {"name": name, "argument": "", "rest": "", "answer": None}})  # fmt: skip
        at = agent.clock.now()
        await clock.sleep(1)
        if name == "new":
            await agent.reset("alice")  # as the command did
        assert (await say(agent, "again")).status == "ok"
        since = Perception("since", source="messages", kind="message", session="alice", trust="trusted")
        for item in (Item("left", told, "run", "alice", at=at),
                     Item("since", since, "run", "alice", at=agent.clock.now())):  # fmt: skip
            await agent.memory.journal.commit(facts.WorkAccepted(session="main", item=item), agent.name)
    async with agent_of(clock, Talker(100), tmp_path) as agent:
        assert (await agent.wait("left", 60)).status == "ok"
        assert (await agent.wait("since", 600)).status == "ok"
        assert (await agent.conversations.records.get("alice")).ordinal == (2 if name == "new" else 1)
