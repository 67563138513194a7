"""What a run says while it goes on: through the agent, to those who talk with it, and never silently to nobody."""

from __future__ import annotations

from typing import Any

import pytest

from acting import Executor
from acting.tools.say import SayTool
from spar.bus.bus import Events
from spar.clock import SystemClock
from spar.errors import ConfigError
from spar.parts.registry import Registry
from spar.protocols import Context, Host, RunContext
from spar.types import Action, ActionResult, Call


class People:
    """Those who are told things; `knows` is what they are not told again."""

    def __init__(self, *knows: str) -> None:
        self.told: list[tuple[str, str, str, str]] = []
        self._knows = set(knows)

    async def deliver(self, run_id: str, session: str, route: str, text: str) -> bool:
        self.told.append((run_id, session, route, text))
        return text not in self._knows


def saying(people: People | None) -> Executor:
    clock = SystemClock()
    executor = Executor([SayTool()])
    deliver = people.deliver if people is not None else None
    executor.attach(Host("a", clock, Events("a", clock=clock), None, lambda: None, deliver=deliver))
    return executor


async def say(executor: Executor, run_id: str | None = "r1", **params: Any) -> ActionResult:
    run = RunContext(run_id, "goal") if run_id else None
    return await executor.act(Action((Call("say", params),)), Context("a", "c1", "chat", run))


async def test_it_is_said_to_those_who_talk_with_the_session_of_the_run() -> None:
    people = People()

    result = await say(saying(people), text="half of it is done")

    assert people.told == [("r1", "chat", "chat", "half of it is done")]
    assert result.results[0].output == {"delivered": True}


async def test_it_is_said_by_another_route_that_is_named() -> None:
    people = People()

    await say(saying(people), text="look", to="ops")

    assert people.told == [("r1", "chat", "ops", "look")]


async def test_what_was_not_delivered_is_said_with_the_reason_and_is_no_failure() -> None:
    result = await say(saying(People("again")), text="again")

    assert result.status == "ok"
    assert result.results[0].output["delivered"] is False
    assert "'chat' the same before" in result.results[0].output["why"]


async def test_a_call_that_belongs_to_no_run_says_it_for_none() -> None:
    people = People()

    await say(saying(people), None, text="good morning")

    assert people.told == [("", "chat", "chat", "good morning")]


@pytest.mark.parametrize("executor", [saying(None), Executor([SayTool()])], ids=["no delivery", "no agent"])
async def test_where_nobody_can_be_told_it_fails_and_says_so(executor: Executor) -> None:
    result = await say(executor, text="hello")

    assert (result.status, result.errors[0]["error"]["kind"]) == ("failed", "permanent")
    assert "needs an agent that delivers" in result.errors[0]["error"]["message"]


@pytest.mark.parametrize("params", [{}, {"text": ""}, {"text": " \n"}, {"text": 7}, {"text": "x" * 20_001},
                                    {"text": "x", "to": "y" * 201}, {"text": "x", "urgent": True}])  # fmt: skip
async def test_what_is_no_saying_is_refused_before_anybody_hears_it(params: dict[str, Any]) -> None:
    people = People()

    result = await say(saying(people), **params)

    assert (result.status, people.told) == ("failed", [])


RULES = [
    {"tool": "say", "params": {"to": "?*"}, "trust": "untrusted", "decision": "ask"},
    {"tool": "say", "trust": "untrusted", "decision": "auto"},
]


@pytest.mark.parametrize(
    ("rules", "params", "found"),
    [([], {}, "parked"), ([], {"to": "boss"}, "parked"), (RULES, {"to": "boss"}, "parked"), (RULES, {}, ""),
     (RULES, {"to": ""}, "")],
)  # fmt: skip
async def test_what_follows_from_text_from_outside_is_asked_about_unless_a_rule_lets_it(
    rules: list[Any], params: dict[str, Any], found: str
) -> None:
    people = People()
    executor = Executor([SayTool()], settings={"approval": {"hold": 0.0, "rules": rules}})
    clock = SystemClock()
    host = Host("a", clock, Events("a", clock=clock), None, lambda: None, deliver=people.deliver)
    executor.attach(host)
    call = Call("say", {"text": "your account is locked", **params}, meta={"_trust": "untrusted"})

    result = await executor.act(Action((call,)), Context("a", "c1", "chat", RunContext("r1", "goal")))

    assert (result.results[0].reason, len(people.told)) == (found, 0 if found else 1)
    await executor.aclose()


def test_it_is_configured_like_any_tool_and_has_no_options() -> None:
    assert isinstance(Registry().build("spar.tools", ("tools", 0), "say"), SayTool)
    with pytest.raises(ConfigError):
        Registry().build("spar.tools", ("tools", 0), "say", {"louder": True})
