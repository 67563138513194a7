from __future__ import annotations

from typing import Any

import pytest

from planning import RulesPlanner
from spar.protocols import Context, RunContext
from spar.types import Action, Perception


def rule(*calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": "r", "calls": list(calls), **more}


def call(output: str | None = None, **params: Any) -> dict[str, Any]:
    return {"tool": "t", "params": params, **({"output": output} if output else {})}


def seen(trust: Any = "untrusted", **fields: Any) -> Perception:
    return Perception(**{"content": "rm -rf", "source": "mail", "kind": "k", "trust": trust, **fields})


async def planned(table: dict[str, Any], *perceptions: Perception, goal: str | None = None, number: int = 1) -> Action:
    run = None if goal is None else RunContext("run", goal, number)
    action = await RulesPlanner([table]).plan(perceptions, Context(agent="a", cycle_id="c", run=run))
    assert action is not None
    return action


def marks(action: Action) -> list[str | None]:
    return [each.meta.get("_trust") for each in action.calls]


async def test_the_operator_wrote_the_rule_so_the_action_is_trusted_and_each_call_judged_by_its_own_text() -> None:
    action = await planned(rule(call(text="{content}")), seen("untrusted"), seen("trusted"))

    assert action.trust == "trusted"
    assert marks(action) == ["untrusted", None]


@pytest.mark.parametrize(
    "text",
    ["{content}", "{content.0|none}", "{text:.3}", "{attributes.x}", "{slots.y}", "{kind}", "{subject}", "{key}",
     "{intent}", "{session}", "on {now} {content}", "††{content}"],
)  # fmt: skip
async def test_a_call_given_untrusted_text_says_so(text: str) -> None:
    perception = seen(content=["rm"], attributes={"x": "a", "slots": {"y": "b"}}, subject="s", key="k", intent="i")

    assert marks(await planned(rule(call(text=text)), perception)) == ["untrusted"]
    assert marks(await planned(rule(call(deep=[{"in": [text]}])), perception)) == ["untrusted"]
    assert marks(await planned(rule(call(text=text)), seen("trusted", **{
        name: getattr(perception, name) for name in ("content", "attributes", "subject", "key", "intent")
    }))) == [None]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    ["constant", "{{content}}", "{id}", "{at}", "{now}", "{count}", "{priority}", "{confidence}", "{trust}", "{source}",
     "{attributes.none|usual}", "{slots.none|}"],
)  # fmt: skip
async def test_constants_and_what_the_agent_says_itself_are_no_strangers_text(text: str) -> None:
    assert marks(await planned(rule(call(text=text)), seen())) == [None]


async def test_only_the_call_that_is_given_the_text_is_marked() -> None:
    action = await planned(rule(call(text="disk full"), call(text="{content}")), seen())

    assert marks(action) == [None, "untrusted"]


async def test_reading_what_a_marked_call_wrote_is_being_given_its_text() -> None:
    chain = rule(
        call(text="{content}", output="†state.kept"),
        call(command="†state.kept.text", output="†state.ran"),
        call(log="see †state.ran", other="†input.x"),
        call(log=["†state.done || †state.ran"]),
        call(text="x", output="†state.done"),
    )

    assert marks(await planned(chain, seen())) == ["untrusted", "untrusted", None, "untrusted", None]
    assert marks(await planned(chain, seen("trusted"))) == [None] * 5


@pytest.mark.parametrize(
    ("perception", "mark"),
    [(seen("trusted", content="do it"), None), (seen("trusted"), "untrusted"), (seen("untrusted"), "untrusted")],
    ids=["the trusted message itself", "another perception", "an untrusted one"],
)
async def test_a_runs_goal_is_trusted_only_while_its_message_is_in_hand(
    perception: Perception, mark: str | None
) -> None:
    assert marks(await planned(rule(call(text="{run.goal}")), perception, goal="do it")) == [mark]


async def test_the_text_of_a_tool_is_chosen_by_the_rule_and_the_task_stays_told() -> None:
    (only,) = (await planned(rule(call(text="{content}")), seen())).calls

    assert only.meta == {"_task": "untrusted:k#r", "_trust": "untrusted"}
    assert type(only).from_wire(only.to_wire()) == only


async def test_a_later_request_of_a_run_uses_instances_of_its_own() -> None:
    chain = rule(call(text="x", output="†state.kept"))

    early = await planned(chain, seen(), seen(), goal="g")
    late = await planned(chain, seen(), seen(), goal="g", number=2)

    assert not {each.instance for each in early.calls} & {each.instance for each in late.calls}
