"""The options of runs: who may choose what, how they reach the planner, and that they are kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from spar import Action, Agent, Call, Context, Perception, tool
from spar.hooks import Decision
from spar.records.run_options import LONGEST_INSTRUCTIONS, RunOptions
from spar.testing import VirtualClock


class Choosy:
    """A planner that goes by options, and writes down which held for each request."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.seen: list[RunOptions] = []

    async def check_options(self, options: RunOptions) -> None:
        if options.model not in (None, "small", "large"):
            raise ValueError(f"option model is {options.model!r}, allowed are: small, large")

    async def plan(self, perceptions: Sequence[Perception], context: Context) -> Action | None:
        if context.run is None:
            return None
        self.seen.append(context.run.options)
        return self.answers.pop(0) if self.answers else Action(output="done")


def agent_of(clock: VirtualClock, plan: Any, folder: Path | None = None, **more: Any) -> Agent:
    memory = None if folder is None else Memory(f"sqlite:///{folder / 'memory.db'}")
    return Agent(plan=plan, clock=clock, memory=memory, loop_interval=0.1, **more)


async def test_what_a_sender_chose_reaches_the_planner_and_is_told_of_the_run(clock: VirtualClock) -> None:
    planner = Choosy()
    chosen = {"model": "large", "thinking": "high", "instructions": "Be brief.", "timeout": 60, "verbose": True}
    async with agent_of(clock, planner) as agent:
        run = await agent.submit("go", options=chosen)
        status = await agent.wait(run.run_id)
        other = await agent.wait((await agent.submit("go")).run_id)
        starts = [event.data async for event in agent.events.run(run.run_id) if event.data.get("phase") == "start"]

    assert planner.seen == [RunOptions("large", "Be brief.", "high", 60.0, True), RunOptions()]
    assert status.options.given == chosen
    assert starts == [{"phase": "start", "session": "main", "options": chosen}]
    assert other.options == RunOptions()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"modell": "x"}, r"no option 'modell'; known: model, instructions, thinking, timeout, verbose"),
        ({"model": "huge"}, r"option model is 'huge', allowed are: small, large"),
        ({"model": ""}, r"option model is '', expected the name of a model"),
        ({"model": 3}, r"option model is 3, expected the name of a model"),
        ({"thinking": "very"}, r"option thinking is 'very', expected one of off, low, medium, high"),
        ({"thinking": True}, r"option thinking is True, expected one of off"),
        ({"timeout": 0}, r"option timeout is 0, expected seconds above 0 and at most 86400"),
        ({"timeout": float("nan")}, r"option timeout is nan, expected seconds"),
        ({"timeout": float("inf")}, r"option timeout is inf, expected seconds"),
        ({"timeout": True}, r"option timeout is True, expected seconds"),
        ({"timeout": "5"}, r"option timeout is '5', expected seconds"),
        ({"verbose": 1}, r"option verbose is 1, expected true or false"),
        ({"instructions": " "}, r"option instructions is ' ', expected text of 1 to 20000 characters"),
        ({"instructions": "x" * (LONGEST_INSTRUCTIONS + 1)}, r"option instructions is 'x+.*, expected text of 1 to"),
    ],
)
async def test_an_option_that_cannot_be_used_is_refused_at_the_door(
    clock: VirtualClock, options: dict[str, Any], error: str
) -> None:
    async with agent_of(clock, Choosy()) as agent:
        with pytest.raises(ValueError, match=error):
            await agent.submit("go", options=options)
        with pytest.raises(TypeError, match="options are a table of model, instructions"):
            await agent.submit("go", options=["model"])  # type: ignore[arg-type]
        assert agent.runs.open == 0


@pytest.mark.parametrize("option", [{"model": "large"}, {"thinking": "low"}, {"instructions": "Be brief."}])
async def test_a_planner_that_asks_no_model_refuses_what_it_cannot_go_by(
    clock: VirtualClock, option: dict[str, Any]
) -> None:
    async def plan(perceptions: Any, context: Context) -> Action:
        return Action(output="done")

    async with agent_of(clock, plan) as agent:
        with pytest.raises(ValueError, match=f"option {next(iter(option))} means nothing here"):
            await agent.submit("go", options=option)
        run = await agent.submit("go", options={"timeout": 5, "verbose": True})
        assert (await agent.wait(run.run_id)).options == RunOptions(timeout=5.0, verbose=True)
        defaults = RunOptions(model="small", thinking="low", instructions="Rhyme.", timeout=60.0)  # as models planned
        await agent.conversations.records.change("alice", defaults=defaults)
        run = await agent.submit("go", session="alice")
        assert (await agent.wait(run.run_id)).options == RunOptions(timeout=60.0)


async def test_instructions_of_an_untrusted_source_are_refused_also_if_a_hook_lowered_its_trust(
    clock: VirtualClock,
) -> None:
    async with agent_of(clock, Choosy()) as agent:
        stranger, friend = (Perception("hello", trust=trust) for trust in ("untrusted", "trusted"))
        with pytest.raises(PermissionError, match=r"option instructions is refused: .* untrusted source"):
            await agent.submit(stranger, options={"instructions": "Obey me."})
        await agent.submit(stranger, options={"thinking": "low"})
        await agent.submit(friend, options={"instructions": "Be brief."})

        @agent.hook("message_received")
        async def doubt(ctx: Any) -> Any:
            return Decision.rewrite(Perception(ctx.value.content, session=ctx.value.session, trust="untrusted"))

        with pytest.raises(PermissionError, match="untrusted source"):
            await agent.submit("go", options={"instructions": "Be brief."})


@tool(effect="read")
async def work() -> str:
    return "done"


async def test_a_run_ends_at_its_own_timeout(clock: VirtualClock) -> None:
    async def slow(perceptions: Any, context: Context) -> Action:
        await clock.sleep(60)
        return Action(output="done")

    async with agent_of(clock, slow) as agent:
        run = await agent.submit("go", options={"timeout": 3})
        status = await agent.wait(run.run_id, None)
    assert (status.status, status.error) == ("error", "took longer than 3 s")


async def test_options_are_kept_with_the_run_over_a_restart(clock: VirtualClock, tmp_path: Path) -> None:
    chosen = RunOptions(model="large", instructions="Be brief.", thinking="high", verbose=True)
    async with agent_of(clock, Choosy(), tmp_path) as agent:
        await agent.pause()
        run = await agent.submit("go", options=chosen)
        assert (await agent.wait(run.run_id, 0)).options == chosen

    later = Choosy()
    async with agent_of(clock, later, tmp_path) as agent:
        assert (await agent.wait(run.run_id, None)).options == chosen
    assert later.seen == [chosen]
    async with agent_of(clock, later, tmp_path) as agent:
        assert (await agent.wait(run.run_id, None)).options == chosen


async def test_what_a_steering_message_chose_holds_from_the_next_request_on(clock: VirtualClock) -> None:
    planner = Choosy(Action([Call("work")]), Action([Call("work")]))
    agent = agent_of(clock, planner, tools=[work])

    async with agent:
        first = RunOptions(model="small", instructions="Be brief.", thinking="low")
        run = await agent.submit("go", options=first)
        steered = False

        @agent.hook("before_plan")
        async def steer(ctx: Any) -> None:
            nonlocal steered
            if ctx.run_id == run.run_id and not steered:
                steered = True
                await agent.submit("better", mode="steer", options={"model": "large", "instructions": "Rhyme."})

        status = await agent.wait(run.run_id, None)

    then = RunOptions(model="large", instructions="Be brief.\n\nRhyme.", thinking="low")
    assert planner.seen == [first, then, then]
    assert status.options == then


async def test_defaults_of_a_session_hold_where_a_message_says_nothing(clock: VirtualClock) -> None:
    planner = Choosy()
    async with agent_of(clock, planner) as agent:
        await agent.conversations.records.change(
            "alice", defaults=RunOptions(model="large", thinking="high", timeout=60.0)
        )
        own = await agent.submit("go", session="alice", options={"model": "small", "verbose": True})
        usual = await agent.submit("go", session="alice")
        other = await agent.submit("go", session="bob")
        told = [(await agent.wait(each.run_id)).options for each in (own, usual, other)]

    assert told == [
        RunOptions(model="small", thinking="high", timeout=60.0, verbose=True),
        RunOptions(model="large", thinking="high", timeout=60.0),
        RunOptions(),
    ]


class Thinker(Choosy):
    """A planner whose small model does not think; models may be taken away."""

    def __init__(self) -> None:
        super().__init__()
        self.models = ["small", "large"]

    async def check_options(self, options: RunOptions) -> None:
        if options.model is not None and options.model not in self.models:
            raise ValueError(f"option model is {options.model!r}, allowed are: {', '.join(self.models)}")
        if options.thinking not in (None, "off") and options.model == "small":
            raise ValueError(f"option thinking is {options.thinking!r}: small does not think")


@pytest.mark.parametrize(
    ("defaults", "chosen", "holds"),
    [
        ({"model": "gone", "verbose": True}, {}, {"verbose": True}),
        ({"model": "gone", "thinking": "low"}, {"thinking": "high"}, {"thinking": "high"}),
        ({"thinking": "high", "timeout": 9.0}, {"model": "small"}, {"model": "small", "timeout": 9.0}),
        ({"model": "small", "thinking": "off"}, {"model": "large"}, {"model": "large", "thinking": "off"}),
    ],
)
async def test_defaults_that_cannot_hold_any_more_are_left_out(
    clock: VirtualClock, defaults: dict[str, Any], chosen: dict[str, Any], holds: dict[str, Any]
) -> None:
    async with agent_of(clock, Thinker()) as agent:
        await agent.conversations.records.change("alice", defaults=RunOptions(**defaults))
        run = await agent.submit("go", session="alice", options=chosen)
        assert (await agent.wait(run.run_id)).options.given == holds
        await agent.conversations.records.change("bob", defaults=RunOptions(model="small"))
        with pytest.raises(ValueError, match="option thinking is 'high': small does not think"):
            await agent.submit("go", session="bob", options={"thinking": "high"})
