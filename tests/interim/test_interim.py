"""Messages of a run before its end: blocks of its answer, thoughts, lines about its calls."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from spar import Action, Agent, Call, Context, Decision, Perception, tool
from spar.errors import ConfigError
from spar.events import AssistantDelta, MessageSent, ReasoningDelta
from spar.interim.interim import MOST_THOUGHTS, line_of
from spar.protocols import Host
from spar.testing import VirtualClock
from spar.types import CallResult, CallStatus, Fault
from tests.doubles import heard

ONE, TWO, THREE = ("This is block one. " * 6, "This is block two. " * 6, "And this is three.")
TEXT = f"{ONE}\n\n{TWO}\n\n{THREE}"
SHOWN = [ONE.strip(), TWO.strip(), THREE]


@tool(effect="read")
async def look(at: str, password: str = "") -> str:
    """Look at something."""
    if at == "nothing":
        raise OSError("there is nothing")
    return at


class Writer:
    """A planner that writes its answers in pieces: a script of texts, `Reset`s, calls, thoughts, for each request."""

    def __init__(self, *script: Sequence[Any]) -> None:
        self.script = [list(each) for each in script]
        self.gate = asyncio.Event()
        self.gate.set()

    def attach(self, host: Host) -> None:
        self.events = host.events

    async def plan(self, perceptions: Sequence[Perception], context: Context) -> Action | None:
        run = context.run
        if run is None:
            return None
        for item in self.script[min(run.number, len(self.script)) - 1]:
            if isinstance(item, Action):
                return item
            if item == "wait":
                await self.gate.wait()
            elif isinstance(item, str):
                for at in range(0, len(item), 7):
                    self.events.publish(AssistantDelta(run_id=run.id, text=item[at : at + 7]))
            elif isinstance(item, tuple):
                self.events.publish(ReasoningDelta(run_id=run.id, text=item[0], request=run.number))
            else:
                self.events.publish(AssistantDelta(run_id=run.id, text="", **item))
        return None


RESET: dict[str, bool] = {"reset": True}
ENDS: dict[str, bool] = {"ends": True}


def agent_of(plan: Any, clock: VirtualClock, memory: Any = None, **runs: Any) -> Agent:
    runs = {"block_min": 50, "block_max": 150, **runs}
    return Agent(plan=plan, tools=[look], clock=clock, memory=memory, settings={"runs": runs}, loop_interval=0.1)


async def told(agent: Agent, **options: Any) -> tuple[list[tuple[str, str]], Any]:
    """What people were told of one run, each with its kind, and how the run ended."""
    found = heard(agent, MessageSent)
    async with agent:
        status = await agent.wait((await agent.submit("tell me", options=options or None)).run_id)
    return [(each.kind, each.text) for each in found], status


def answers(*texts: str) -> list[tuple[str, str]]:
    return [("answer", text) for text in texts]


def holding(folder: Path, word: bytes) -> list[Path]:
    """The files of a folder that hold a word."""
    return [file for file in folder.iterdir() if word in file.read_bytes()]


# -- blocks


@pytest.mark.parametrize("is_kept", [False, True])
@pytest.mark.parametrize("is_guarded", [False, True])
@pytest.mark.parametrize("blocks", ["text_end", "message_end"])
async def test_an_answer_is_told_in_blocks_and_not_once_more_at_the_end(
    clock: VirtualClock, tmp_path: Path, blocks: str, is_guarded: bool, is_kept: bool
) -> None:
    memory = Memory(f"sqlite:///{tmp_path / 'memory.db'}") if is_kept else None
    agent = agent_of(Writer([TEXT, Action(output=TEXT)]), clock, memory, blocks=blocks)
    asked: list[tuple[str, str]] = []
    if is_guarded:
        agent.hooks.add("message_sending", lambda ctx: asked.append((ctx.reason, ctx.value)))

    messages, status = await told(agent)

    assert messages == answers(*SHOWN)
    assert (status.output, status.reply) == (TEXT, TEXT)
    assert asked == (messages if is_guarded else [])


async def test_blocks_are_numbered_and_stand_in_the_stream_of_the_run(clock: VirtualClock) -> None:
    agent = agent_of(Writer([TEXT, Action(output=TEXT)]), clock, blocks="text_end")
    found = heard(agent, MessageSent)
    async with agent:
        run_id = (await agent.submit("tell me")).run_id
        await agent.wait(run_id)
        events = [event async for event in agent.events.run(run_id)]

    assert [(each.part, each.is_answer) for each in found] == [(1, True), (2, True), (3, True)]
    sent = [(event.data["sent"], event.data["part"]) for event in events if "sent" in event.data]
    assert sent == list(zip(SHOWN, (1, 2, 3), strict=True))


async def test_blocks_are_told_while_the_answer_is_written_with_text_end_only(clock: VirtualClock) -> None:
    for blocks, early in (("text_end", 2), ("message_end", 0)):
        writer = Writer([TEXT, "wait", Action(output=TEXT)])
        writer.gate.clear()
        agent = agent_of(writer, clock, blocks=blocks)
        found = heard(agent, MessageSent)
        async with agent:
            run_id = (await agent.submit("tell me")).run_id
            await clock.sleep(1.0)
            assert len(found) == early
            writer.gate.set()
            await agent.wait(run_id)
        assert len(found) == 3


OTHER, TWICE = f"{ONE}\n\n{THREE} But otherwise.", f"{ONE}\n\n{ONE}"
IN_BLOCKS = {"blocks": "text_end"}
#: What a planner writes, the settings, and what people are told.
TOLD: dict[str, tuple[list[Any], dict[str, str], list[str]]] = {
    "an answer that is not written piece by piece": ([Action(output=TEXT)], IN_BLOCKS, SHOWN),
    "without blocks an answer is told whole": ([TEXT, Action(output=TEXT)], {}, [TEXT]),
    "an answer that is begun anew tells only what is new": (
        [f"{ONE}\n\n{TWO}\n\n", RESET, OTHER, Action(output=OTHER)],
        IN_BLOCKS,
        [ONE.strip(), TWO.strip(), f"{THREE} But otherwise."],
    ),
    "an answer that says the same twice": ([TWICE, Action(output=TWICE)], IN_BLOCKS, [ONE.strip(), ONE.strip()]),
    "an answer that differs from what was written": (
        [ONE + "\n\n", Action(output=THREE)],
        IN_BLOCKS,
        [ONE.strip(), THREE],
    ),
    "silence is silent in blocks": ([Action(output="NO_REPLY")], IN_BLOCKS, []),
    "of a silent answer no thoughts are told": ([("hm",), Action(output="NO_REPLY")], {"reasoning": "reply"}, []),
}


@pytest.mark.parametrize("case", TOLD)
async def test_what_people_are_told_of_an_answer_is_what_is_new_and_said(case: str, clock: VirtualClock) -> None:
    script, settings, shown = TOLD[case]

    messages, status = await told(agent_of(Writer(script), clock, **settings))

    assert messages == answers(*shown)
    assert status.silent == (not shown)


async def test_text_beside_calls_is_told_where_it_ends(clock: VirtualClock) -> None:
    script = ["I look first.", ENDS, RESET, Action([Call("look", {"at": "it"})])], [THREE, Action(output=THREE)]

    for blocks, before in (("text_end", ["I look first."]), ("message_end", [])):
        messages, _ = await told(agent_of(Writer(*script), clock, blocks=blocks))
        assert messages == answers(*before, THREE)


@pytest.mark.parametrize("blocks", ["text_end", "message_end"])
async def test_a_hook_changes_and_keeps_back_single_blocks(clock: VirtualClock, blocks: str) -> None:
    agent = agent_of(Writer([TEXT, Action(output=TEXT)]), clock, blocks=blocks)

    @agent.hook("message_sending")
    async def judge(ctx: Any) -> Decision | None:
        if "two" in ctx.value:
            return Decision.deny("not this")
        return Decision.rewrite("Censored.") if "one" in ctx.value else None

    messages, status = await told(agent)

    assert messages == answers("Censored.", THREE)
    assert (status.output, status.reply) == (f"Censored.{THREE}", f"Censored.{THREE}")


async def test_what_was_told_is_not_told_again_by_the_next_process(clock: VirtualClock, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    writer = Writer([TEXT, "wait", Action(output=TEXT)])
    writer.gate.clear()
    first = agent_of(writer, clock, Memory(url), blocks="text_end")
    before = heard(first, MessageSent)
    async with first:
        run_id = (await first.submit("tell me")).run_id
        await clock.sleep(1.0)
    writer.gate.set()
    second = agent_of(writer, clock, Memory(url), blocks="text_end")
    after = heard(second, MessageSent)
    async with second:
        status = await second.wait(run_id)
        rows = second.agent_state.rows_of("blocks")
        await clock.sleep(1.0)
        left = await rows.list()

    assert [each.text for each in before] == SHOWN[:2]
    assert [each.text for each in after] == SHOWN[2:]
    assert [each.part for each in after] == [3]
    assert status.reply == TEXT
    assert left == {}


@pytest.mark.parametrize("is_over_processes", [False, True])
async def test_what_hooks_changed_before_stays_changed_when_it_is_written_again(
    clock: VirtualClock, tmp_path: Path, is_over_processes: bool
) -> None:
    memory = f"sqlite:///{tmp_path / 'memory.db'}"
    again = ["wait"] if is_over_processes else [RESET, TEXT]
    writer = Writer([TEXT, *again, Action(output=TEXT)])
    found: list[str] = []

    def begin() -> Agent:
        agent = agent_of(writer, clock, Memory(memory), blocks="text_end")
        agent.hooks.add("message_sending", lambda ctx: Decision.rewrite("Censored.") if "one" in ctx.value else None)
        agent.events.subscribe(MessageSent, lambda event: found.append(event.text))
        return agent

    if is_over_processes:
        writer.gate.clear()
    async with begin() as agent:
        run_id = (await agent.submit("tell me")).run_id
        await clock.sleep(1.0)
        status = await agent.wait(run_id, 0 if is_over_processes else 30)
    writer.gate.set()
    if is_over_processes:
        async with begin() as agent:
            status = await agent.wait(run_id)

    assert found == ["Censored.", SHOWN[1], SHOWN[2]]
    assert status.reply == f"Censored.{TWO}\n\n{THREE}"


# -- thoughts


@pytest.mark.parametrize("is_guarded", [False, True])
async def test_thoughts_are_told_before_the_reply_where_that_is_wanted(clock: VirtualClock, is_guarded: bool) -> None:
    script = [("Let me",), (" see.",), Action([Call("look", {"at": "it"})])], [("So.",), Action(output=THREE)]

    for reasoning, before in (("reply", [("reasoning", "Let me see.\n\nSo.")]), ("stream", []), ("off", [])):
        agent = agent_of(Writer(*script), clock, reasoning=reasoning)
        if is_guarded:
            agent.hooks.add("message_sending", lambda ctx: None)
        assert (await told(agent))[0] == [*before, ("answer", THREE)]


async def test_a_hook_may_keep_thoughts_back_and_secrets_never_stand_in_them(clock: VirtualClock) -> None:
    secret = "The header is Authorization: Bearer abcdefghijklmnop1234567890."
    agent = agent_of(Writer([(secret,), Action(output=THREE)]), clock, reasoning="reply")
    messages, _ = await told(agent)
    assert messages[0][0] == "reasoning"
    assert "abcdefghijklmnop" not in messages[0][1]

    agent = agent_of(Writer([(secret,), Action(output=THREE)]), clock, reasoning="reply")
    agent.hooks.add("message_sending", lambda ctx: Decision.deny("no") if ctx.reason == "reasoning" else None)
    assert (await told(agent))[0] == answers(THREE)


@pytest.mark.parametrize("piece", [100_000, 7])
async def test_a_secret_at_the_end_of_long_thoughts_is_not_cut_into_a_part_that_stays(
    clock: VirtualClock, piece: int
) -> None:
    secret = "ghp_abcdefghijklmnop1234567890"
    for before in range(MOST_THOUGHTS - len(secret), MOST_THOUGHTS, 5):
        thoughts = f"{'x' * (before - 1)} {secret} and more {'y' * 5_000}"
        pieces = [(thoughts[at : at + piece],) for at in range(0, len(thoughts), piece)]
        agent = agent_of(Writer([*pieces, Action(output=THREE)]), clock, reasoning="reply")

        text = (await told(agent))[0][0][1]

        assert "ghp_" not in text
        assert len(text) < MOST_THOUGHTS + 100


async def test_thoughts_are_a_stream_of_the_run_and_in_no_transcript_tape_or_memory(
    clock: VirtualClock, tmp_path: Path
) -> None:
    path = tmp_path / "memory.db"
    writer = Writer([("wonder",), ("ment",), "An answer", Action(output="An answer")])
    agent = agent_of(writer, clock, Memory(f"sqlite:///{path}"), reasoning="stream")
    async with agent:
        run_id = (await agent.submit("tell me")).run_id
        await agent.wait(run_id)
        events = [event async for event in agent.events.run(run_id)]

    thoughts = [event.data for event in events if event.stream == "reasoning"]
    assert thoughts == [{"text": "wonderment", "reset": False, "request": 1}]
    assert [event.data["text"] for event in events if "reset" in event.data and event.stream == "assistant"] == [
        "An answer"
    ]
    assert holding(tmp_path, b"wonder") == []


# -- lines about calls


@pytest.mark.parametrize("is_guarded", [False, True])
async def test_who_wants_it_is_told_of_each_call_in_a_line(clock: VirtualClock, is_guarded: bool) -> None:
    calls = [Call("look", {"at": "it", "password": "hunter2"}), Call("look", {"at": "nothing"})]
    script = [Action(calls)], [Action(output=THREE)]

    for verbose in (True, False):
        agent = agent_of(Writer(*script), clock)
        if is_guarded:
            agent.hooks.add("message_sending", lambda ctx: None)
        found = heard(agent, MessageSent)
        async with agent:
            run_id = (await agent.submit("tell me", options={"verbose": verbose})).run_id
            await agent.wait(run_id)
            events = [event.data for event in [each async for each in agent.events.run(run_id)]
                      if event.stream == "verbose"]  # fmt: skip
        lines = [each.text for each in found if each.kind == "verbose"]
        assert [each["line"] for each in events] == lines
        if not verbose:
            assert lines == []
            continue
        assert sorted(lines) == ['look at="it" password="***" ✓ 0 ms', 'look at="nothing" ✗ 0 ms: there is nothing']
        assert {each["tool"] for each in events} == {"look"}
        assert found[-1].kind == "answer"


async def test_calls_of_the_same_tool_with_the_same_result_each_have_a_line(clock: VirtualClock) -> None:
    script = [Action([Call("look", {"at": "it"}), Call("look", {"at": "it"})])], [Action(output=THREE)]

    messages, _ = await told(agent_of(Writer(*script), clock), verbose=True)

    assert messages == [("verbose", 'look at="it" ✓ 0 ms')] * 2 + answers(THREE)


# -- settings


@pytest.mark.parametrize(
    ("runs", "error"),
    [
        ({"reasoning": "on"}, "runs.reasoning"),
        ({"blocks": "yes"}, "runs.blocks"),
        ({"block_min": 0}, "runs.block_min"),
        ({"block_max": 99}, "runs.block_max"),
        ({"block_min": 2_000}, r"runs.block_min.*must be <= runs.block_max \(1200\)"),
    ],
)
def test_settings_that_make_no_sense_are_refused(runs: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        Agent(settings={"runs": runs})


@pytest.mark.parametrize(
    ("result", "line"),
    [
        (CallResult(Call("note", {"text": "a"}), "ok", duration=0.0124), 'note text="a" ✓ 12 ms'),
        (CallResult(Call("look"), "ok", duration=2.25), "look ✓ 2.2 s"),
        (CallResult(Call("look", {"n": 3, "deep": True}), "ok", duration=125.0), "look n=3 deep=true ✓ 2 min 5 s"),
        (CallResult(Call("fetch", {"url": "x"}), "failed", fault=Fault("oserror", "no\nroute"), duration=0.5),
         'fetch url="x" ✗ 500 ms: no route'),
        (CallResult(Call("pay"), "denied", reason="denied"), "pay ✗ denied 0 ms: denied"),
        (CallResult(Call("pay"), "skipped", reason="dep_failed"), "pay –: dep_failed"),
        (CallResult(Call("pay"), "in_doubt"), "pay in_doubt 0 ms"),
    ],
)  # fmt: skip
def test_a_call_that_has_ended_is_one_line(result: CallResult, line: str) -> None:
    assert line_of(result) == line


def test_nothing_in_a_line_looks_like_a_secret() -> None:
    params = {"password": "hunter2", "header": "Authorization: Bearer abcdefghijklmnop1234567890", "text": "x"}

    line = line_of(CallResult(Call("http", params), "ok"))

    assert "hunter2" not in line
    assert "abcdefghijklmnop" not in line
    assert 'text="x"' in line


@pytest.mark.parametrize("status", ["ok", "failed"])
def test_a_line_is_short_and_one_whatever_a_call_holds(status: CallStatus) -> None:
    params = {f"name\n{number}" * 50: {"deep": ["x\u202e" * 10_000]} for number in range(1_000)}
    fault = Fault("odd", "why\n" * 10_000) if status == "failed" else None

    line = line_of(CallResult(Call("t", params), status, fault=fault))

    assert len(line) < 1_200
    assert "\n" not in line
    assert "\u202e" not in line
    assert "(and 994 more)" in line
