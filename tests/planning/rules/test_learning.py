"""Memory changes what rules decide where they leave something open: it is asked only there, and each change is told."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from memory.experiences.search import Recalled
from planning import RulesPlanner
from planning.rules.remembered import EPISODE_LIMIT, RECALL_LIMIT
from spar.clock import SystemClock
from spar.data.learning.abilities import ability_key
from spar.errors import ConfigError
from spar.hooks import Hooks
from spar.protocols import Context, Host
from spar.protocols.tools import ToolTerms
from spar.testing import RecordingEvents
from spar.testing.clock import VirtualClock
from spar.types import Ability, Action, Experience, Perception, Remedy, TriedCall, Trust, replace

KEY = "alert#mend"
TEXT = "the disk is full"
CHOICE: dict[str, Any] = {"name": "mend", "calls": [{"tool": ["a", "b"], "params": {"x": 1}}]}


class Memory:
    """Experiences, and what was asked for."""

    def __init__(self, *experiences: Experience, error: Exception | None = None, seconds: float = 0.0) -> None:
        self.experiences, self.error, self.seconds = experiences, error, seconds
        self.queries: list[str] = []

    async def recall(self, query: str, k: int = 5, **filters: Any) -> list[Experience]:
        self.queries.append(query)
        await asyncio.sleep(self.seconds)
        if self.error is not None:
            raise self.error
        found = [each for each in self.experiences if all(getattr(each, key) == filters[key] for key in filters)]
        return found[:k]


class Searched(Memory):
    """A memory that says how near what it finds is; keeps the situations it is asked for."""

    def __init__(self, *experiences: Experience) -> None:
        super().__init__(*experiences)
        self.situations: list[str] = []

    async def search(self, query: str, k: int = 5, *, situation: str, **filters: Any) -> list[Recalled]:
        self.situations.append(situation)
        return [Recalled(each, nearness=0.9) for each in await self.recall(query, k, **filters)]


def lived(tool: str, worked: bool, text: str = TEXT, **fields: Any) -> Experience:
    call = {name: fields.pop(name) for name in ("params", "cause", "remedy") if name in fields}
    tried = TriedCall(tool, status="ok" if worked else "failed", success=worked,
                      **{"params": {"x": 1}, "cause": "" if worked else "permission", **call})  # fmt: skip
    at = datetime.now(UTC) - timedelta(seconds=5)
    return Experience(
        f"alert: {text}", success=worked, calls=(tried,), **{"key": KEY, "trust": "trusted", "at": at, **fields}
    )


def alert(text: str = TEXT, **fields: Any) -> Perception:
    return Perception(text, **{"kind": "alert", "trust": "trusted", **fields})


async def planned(
    rule: dict[str, Any], memory: Any = None, perception: Perception | None = None, **given: Any
) -> Action:
    planner = given.pop("planner", None) or RulesPlanner([rule])
    action = await planner.plan([perception or alert()], Context("a", "c", memory=memory, **given))
    assert action is not None
    return action


async def test_a_memory_that_can_tell_situations_apart_is_told_which_one_is_decided_on() -> None:
    memory = Searched(lived("b", True, "no room is left"))

    action = await planned(CHOICE, memory)

    assert [call.tool for call in action.calls] == ["b"]
    assert memory.situations == [KEY]


def failing(tool: str, task: str = KEY) -> dict[str, Ability]:
    return {ability_key(tool, task): Ability(tool, task, 0.33, 0.236, 1)}


@pytest.mark.parametrize(
    ("learning", "tool", "why"),
    [
        ("on", "b", "by memory instead of a: b worked 1 of 1 times"),
        ("observe", "a", "memory would have decided instead of a"),
    ],
)
async def test_the_tool_that_worked_in_such_a_situation_is_called_unless_that_is_only_observed_and_the_action_says_why(
    learning: Any, tool: str, why: str
) -> None:
    worked, failed = lived("b", True), lived("a", False)

    action = await planned(CHOICE, Memory(worked, failed), learning=learning)

    [call], [learnt] = action.calls, action.learnt
    assert call.tool == tool
    assert (learnt.call_id, learnt.instead_of, learnt.is_used) == (call.id, "a", learning == "on")
    assert learnt.cases == (worked.id, failed.id)
    assert why in action.reason


@pytest.mark.parametrize("off", [{"learning": "off"}, {"rule": {**CHOICE, "learn": False}}], ids=["setting", "rule"])
async def test_where_nothing_is_learnt_the_memory_is_not_asked_and_the_first_tool_is_called(
    off: dict[str, Any],
) -> None:
    memory = Memory(lived("b", True), lived("a", False))

    action = await planned(off.pop("rule", CHOICE), memory, abilities=failing("a"), **off)

    assert ([call.tool for call in action.calls], action.learnt, memory.queries) == (["a"], (), [])


async def test_where_there_is_nothing_to_decide_the_memory_is_not_asked() -> None:
    memory = Memory(lived("note", False))

    await planned({"name": "mend", "calls": [{"tool": "note"}]}, memory)
    await planned({"name": "mend", "calls": [{"tool": "note"}]}, memory, abilities=failing("other"))

    assert memory.queries == []


async def test_a_single_call_that_failed_for_good_in_this_situation_is_left_out_and_looked_at_again_later() -> None:
    rule = {"name": "mend", "calls": [{"tool": "a", "params": {"x": 1}}]}
    memory = Memory(lived("a", False))

    action = await planned(rule, memory, abilities=failing("a"))

    assert action.calls == ()
    assert "a failed once in this situation with these parameters (permission)" in action.reason
    assert action.next_look is not None
    assert 0 < action.next_look <= 600
    other = await planned(rule, memory, alert("all else"), abilities=failing("a"))
    failed, known = lived("a", False, key="message#mend", said=TEXT), failing("a", "message#mend")
    asked_again = await planned(rule, Memory(failed), alert(kind="message"), abilities=known)  # by a person
    assert [call.tool for each in (other, asked_again) for call in each.calls] == ["a", "a"]


async def test_each_situation_of_a_plan_is_recalled_once_and_only_so_many_of_them() -> None:
    memory = Memory()
    planner = RulesPlanner([CHOICE])
    many = [alert(f"disk {'x' * n} is full") for n in range(RECALL_LIMIT + 10)]

    action = await planner.plan([*many, *many], Context("a", "c", memory=memory))

    assert len(action.calls) == 2 * len(many)
    assert len(memory.queries) == RECALL_LIMIT
    assert f"only {RECALL_LIMIT} situations were recalled" in action.reason


async def test_a_memory_that_fails_is_no_reason_not_to_decide_and_asked_once_in_a_plan() -> None:
    memory = Memory(error=OSError("disk gone"))
    many = [alert(f"disk {'x' * n} is full") for n in range(10)]

    action = await RulesPlanner([CHOICE]).plan(many, Context("a", "c", memory=memory))

    assert [call.tool for call in action.calls] == ["a"] * 10
    assert "decided without memory, which failed: disk gone" in action.reason
    assert len(memory.queries) == 1


async def test_a_memory_that_does_not_answer_is_not_waited_for_without_end(clock: VirtualClock) -> None:
    action = await planned(CHOICE, Memory(seconds=1e6), clock=clock)

    assert [call.tool for call in action.calls] == ["a"]
    assert "did not answer within 2 s" in action.reason


async def test_a_parameter_that_a_strangers_case_lends_makes_the_call_untrusted() -> None:
    rule = {"name": "mend", "calls": [{"tool": ["a"], "params": {"x": 1}}]}
    failed = lived("a", False, remedy=Remedy("other_parameter", parameter="x"), trust="untrusted")
    failed = replace(failed, calls=(replace(failed.calls[0], trust="untrusted"),))
    strange = lived("a", True, params={"x": 2}, trust="untrusted")

    taken = await planned(rule, Memory(failed, strange), alert(trust="untrusted"), abilities=failing("a"))
    own = await planned(rule, Memory(failed, strange), abilities=failing("a"))

    assert (taken.calls[0].params, taken.calls[0].meta["_trust"]) == ({"x": 2}, "untrusted")
    assert (own.calls[0].params, own.calls[0].meta.get("_trust")) == ({"x": 1}, None)


# -- any of the tools


def desk(**terms: ToolTerms) -> Host:
    tools = {
        name: SimpleNamespace(name=name, schema={"required": ["_tool"]}, terms=each) for name, each in terms.items()
    }
    return Host("a", SystemClock(), RecordingEvents("a"), Hooks(), lambda: None, tools=lambda: tools)


ANY: dict[str, Any] = {"name": "mend", "calls": [{"any_of_tools": ["restart_*"], "params": {"x": 1}}]}


def any_of(rule: dict[str, Any], host: Host) -> RulesPlanner:
    planner = RulesPlanner([rule], tools=["note"])
    planner.attach(host)
    return planner


async def test_any_tool_of_a_pattern_may_be_called_the_harmless_first() -> None:
    host = desk(
        restart_a=ToolTerms(effect="once"), restart_b=ToolTerms(effect="idempotent"), stop=ToolTerms(effect="read")
    )

    plain = await planned(ANY, Memory(), planner=any_of(ANY, host))
    known = await planned(ANY, Memory(lived("restart_a", True), lived("restart_b", False)), planner=any_of(ANY, host))

    assert [call.tool for call in plain.calls] == ["restart_b"]
    assert [call.tool for call in known.calls] == ["restart_a"]


async def test_of_tools_that_must_not_be_repeated_none_is_tried_out_unless_it_is_written_or_a_person_is_asked() -> None:
    once, asked = desk(restart_a=ToolTerms(effect="once")), desk(restart_a=ToolTerms(effect="once", approval="ask"))
    written = {"name": "mend", "calls": [{"any_of_tools": ["restart_a", "restart_*"], "params": {"x": 1}}]}

    left_out = await planned(ANY, Memory(), planner=any_of(ANY, once))

    assert left_out.calls == ()
    assert "no tool of such a name can be called" in left_out.reason
    assert (await planned(ANY, Memory(), planner=any_of(ANY, asked))).calls[0].tool == "restart_a"
    assert (await planned(written, Memory(), planner=any_of(written, once))).calls[0].tool == "restart_a"


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"calls": [{"tool": "a", "any_of_tools": "b"}]}, "take one"),
        ({"learn": False, "calls": [{"any_of_tools": "b"}]}, "'any_of_tools' means nothing"),
        ({"learn": False, "calls": [{"tool": "a", "min_ability": 0.5}]}, "'min_ability' means nothing"),
        ({"calls": [{"any_of_tools": []}]}, "any_of_tools"),
    ],
)
def test_what_cannot_be_meant_is_said_at_start(rule: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        RulesPlanner([{"name": "r", **rule}])


# -- step by step


async def test_the_calls_of_an_episode_that_worked_are_replayed_where_it_began_and_steps_that_failed_are_avoided() -> (
    None
):
    calls = tuple(TriedCall(tool, success=True) for tool in ("b", "a", "b"))
    sequence = Experience("step: state a", success=True, calls=calls, key="step#mend", trust="trusted")
    failed = lived("a", False, "state h", key="step#mend")
    planner = RulesPlanner([CHOICE])

    async def steps(memory: Memory, episode: str, states: list[int]) -> list[str]:
        tools = []
        for number, state in enumerate(states):
            step = alert(f"state {'abcdefgh'[state]}", kind="step", attributes={"episode": episode, "step": number})
            action = await planner.plan([step], Context("a", "c", memory=memory))
            tools.append(action.calls[0].tool)
        return tools

    assert await steps(Memory(sequence), "e1", [0, 1, 2]) == ["b", "a", "b"]
    assert {(await steps(Memory(failed), f"e{n}", [7]))[0] for n in range(2, 12)} == {"b"}
    assert len({(await steps(Memory(), f"e{n}", [3]))[0] for n in range(20, 40)}) == 2


async def test_a_flood_of_episodes_in_one_session_leaves_those_of_another() -> None:
    calls = tuple(TriedCall(tool, success=True) for tool in ("b", "a", "b"))
    sequence = Experience("step: state a", success=True, calls=calls, key="step#mend", trust="trusted")
    planner, memory = RulesPlanner([CHOICE]), Memory(sequence)

    async def step(session: str, source: str, episode: str, number: int) -> str:
        at = alert(f"state {'abc'[number]}", kind="step", session=session, source=source,
                   attributes={"episode": episode, "step": number})  # fmt: skip
        action = await planner.plan([at], Context("a", "c", session, memory=memory))
        return action.calls[0].tool

    taken = [await step("quiet", "game", "e", 0)]
    for number in range(2 * EPISODE_LIMIT):
        await step("loud", f"game {number}", "e", 0)
        await step("loud", f"game {number}", f"e{number}", 1)

    assert [*taken, *[await step("quiet", "game", "e", number) for number in (1, 2)]] == ["b", "a", "b"]


async def test_what_was_lived_here_is_recalled_however_much_others_live_through() -> None:
    others = [lived("b", True, session="loud", params={"x": number}) for number in range(100)]
    own = lived("a", True, count=3)

    for key in (KEY, "alert[shop]#mend"):
        known = [replace(each, key=key) for each in (*others, own)]
        action = await planned(CHOICE, Memory(*known), alert(subject=None if key == KEY else "shop"))
        assert [call.tool for call in action.calls] == ["a"]


async def test_what_happened_with_these_very_things_is_recalled_however_many_texts_are_like_it() -> None:
    others = [lived("b", True, key=f"alert[db{number}]#mend") for number in range(30)]
    own = lived("a", True, key="alert[shop]#mend", count=3)

    action = await planned(CHOICE, Memory(*others, own), alert(subject="shop"))

    assert [call.tool for call in action.calls] == ["a"]


# -- sequences with their parameters


def maze(*names: str) -> Host:
    """Return a host with tools that need to be told where to."""
    schema = {"properties": {"_tool": {}, "to": {"type": "string"}, "x": {}}, "required": ["_tool", "to"]}
    terms = ToolTerms(effect="idempotent")
    tools = {name: SimpleNamespace(name=name, schema=schema, terms=terms) for name in names}
    return Host("a", SystemClock(), RecordingEvents("a"), Hooks(), lambda: None, tools=lambda: tools)


ESCAPE = (TriedCall("go", {"to": "hall", "x": 1}, success=True), TriedCall("open", {"to": "door7"}, success=True))
RULE_OF_MAZE: dict[str, Any] = {"name": "mend", "calls": [{"any_of_tools": ["go", "open"]}]}


def escaped(trust: Trust = "trusted", tried: Trust = "trusted") -> Experience:
    calls = tuple(replace(call, trust=tried) for call in ESCAPE)
    return Experience("step: state a", success=True, calls=calls, key="step#mend", trust=trust)


async def steps_taken(planner: RulesPlanner, memory: Memory, **fields: Any) -> list[Action | None]:
    taken = []
    for number in range(2):
        at = alert(f"state {'ab'[number]}", kind="step", attributes={"episode": "e", "step": number}, **fields)
        taken.append(await planner.plan([at], Context("a", "c", memory=memory)))
    return taken


@pytest.mark.parametrize(("trust", "mark"), [("trusted", None), ("untrusted", "untrusted")])
async def test_the_calls_of_a_sequence_are_made_again_with_their_parameters_those_of_strangers_as_untrusted_ones(
    trust: Trust, mark: str | None
) -> None:
    taken = await steps_taken(any_of(RULE_OF_MAZE, maze("go", "open")), Memory(escaped(trust, trust)), trust=trust)

    calls = [call for action in taken if action is not None for call in action.calls]
    assert [(call.tool, call.params) for call in calls] == [("go", {"to": "hall", "x": 1}), ("open", {"to": "door7"})]
    assert [call.meta.get("_trust") for call in calls] == [mark, mark]
    assert "open was the next call of a sequence that worked from here, with its 'to'" in taken[1].reason


async def test_the_parameters_of_the_rule_stand_before_those_of_a_sequence() -> None:
    rule = {"name": "mend", "calls": [{"any_of_tools": ["go", "open"], "params": {"to": "{content}"}}]}

    taken = await steps_taken(any_of(rule, maze("go", "open")), Memory(escaped()))

    calls = [call for action in taken if action is not None for call in action.calls]
    assert [(call.tool, call.params) for call in calls] == [
        ("go", {"to": "state a", "x": 1}), ("open", {"to": "state b"})
    ]  # fmt: skip


async def test_without_a_parameter_that_a_tool_needs_its_call_is_not_made_again() -> None:
    for memory in (Memory(escaped(tried="untrusted")), Memory(escaped("untrusted", "untrusted")), Memory()):
        taken = await steps_taken(any_of(RULE_OF_MAZE, maze("go", "open")), memory)
        assert [action.calls for action in taken if action is not None] == [(), ()]
    other = any_of({"name": "mend", "calls": [{"any_of_tools": ["stop*"]}]}, maze("go", "open", "stop"))
    assert [action.calls for action in await steps_taken(other, Memory(escaped())) if action is not None] == [(), ()]
