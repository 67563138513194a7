"""References with alternatives, output paths with branches and fan-out, instances: as a plan sees them run."""

import asyncio
from typing import Any

import pytest

from acting import Executor
from spar.events import ContractViolation
from spar.protocols.tools import tool
from spar.testing import RecordingEvents
from spar.types import ActionResult, Call, Message


@tool(effect="read")
async def echo(value: Any = None) -> Any:
    return value


@tool(effect="read")
async def later(value: Any = None) -> Any:
    await asyncio.sleep(0.01)
    return value


@tool(effect="read")
async def fail(text: str = "no") -> None:
    raise ValueError(text)


@tool(effect="read", on_error="branch")
async def risky(text: str = "no") -> None:
    raise ValueError(text)


@tool(effect="read")
async def pick(kind: str, data: Any) -> Message:
    return Message(kind, data)


TOOLS = [echo, later, fail, risky, pick]


def became(result: ActionResult) -> list[str]:
    return [f"{each.status} {each.reason}".strip() for each in result.results]


# -- reading


async def test_the_leftmost_alternative_that_is_there_is_taken_and_all_of_a_conjunction_must_be() -> None:
    state = {"b": "b", "c": "c", "d": "d"}
    texts = {
        "†state.a || †state.b": "b",
        "†state.b && †state.c": "c",
        "†state.a && †state.c || †state.d": "d",
        "†state.c&&†state.b||†state.d": "b",
        "††state.b || †state.c": "†state.b || †state.c",
    }
    result = await Executor(TOOLS).run([Call("echo", {"value": each}) for each in texts], state=state)
    assert [each.output for each in result.results] == list(texts.values())


async def test_references_are_resolved_anywhere_inside_a_value_and_nowhere_inside_a_text() -> None:
    value = {"a": ["†state.x", {"b": "†state.y.0"}], "text": "see †state.x", "‡": "††"}
    result = await Executor(TOOLS).run([Call("echo", {"value": value})], state={"x": 1, "y": ["first"]})
    assert result.results[0].output == {"a": [1, {"b": "first"}], "text": "see †state.x", "‡": "†"}


async def test_a_racing_read_takes_what_is_there() -> None:
    calls = [
        Call("later", {"value": 1}, output_path="†state.a"),
        Call("echo", {"value": "†state.a || †state.b"}, id="r"),
    ]
    result = await Executor(TOOLS, fallback="race").run(calls, state={"b": "old"})
    assert result.result("r").output == "old"


async def test_the_root_of_a_kind_can_be_read_and_written() -> None:
    result = await Executor(TOOLS).run(
        [Call("echo", {"value": {"n": 1}}, output_path="†state", output_method="merge"),
         Call("echo", {"value": "†state"}, id="all")],
        state={"old": True},
    )  # fmt: skip
    assert result.result("all").output == {"old": True, "n": 1}


# -- branches


def fork(took: Any) -> list[Call]:
    return [
        Call("pick", {"kind": "state", "data": took}, id="fork", output_path="†state.good || †state.bad"),
        Call("echo", {"value": "†state.good"}, id="if good", output_path="†state.end"),
        Call("echo", {"value": "†state.bad"}, id="if bad", output_path="†state.end"),
        Call("echo", {"value": "†state.end"}, id="join"),
        Call("echo", after=("if bad",), id="after bad"),
    ]


async def test_the_branch_that_was_not_taken_is_skipped_without_a_fault_and_the_join_runs() -> None:
    result = await Executor(TOOLS).run(fork({"good": 1}))

    assert became(result) == ["ok", "ok", "skipped branch", "ok", "skipped branch"]
    assert result.result("join").output == 1
    assert result.result("if bad").fault is None
    assert (result.status, result.errors) == ("ok", ())
    assert result.state == {"good": 1, "end": 1}

    other = await Executor(TOOLS).run(fork({"bad": 2}))
    assert became(other) == ["ok", "skipped branch", "ok", "ok", "ok"]
    assert other.result("join").output == 2


async def test_a_plain_value_goes_to_the_first_alternative() -> None:
    calls = [
        Call("echo", {"value": 5}, output_path="†state.a || †state.b"),
        Call("echo", {"value": "†state.a"}),
        Call("echo", {"value": "†state.b"}),
    ]
    assert became(await Executor(TOOLS).run(calls)) == ["ok", "ok", "skipped branch"]


@pytest.mark.parametrize(
    ("name", "path"),
    [("fail", "†state.a || †state.error"), ("fail", "†state.a || †state.x.failed"), ("risky", "†state.a || †state.b")],
)
async def test_a_throw_goes_to_the_branch_that_is_there_for_it(name: str, path: str) -> None:
    last = path.split(" || ")[1]
    calls = [
        Call(name, {"text": "broken"}, id="f", output_path=path),
        Call("echo", {"value": "†state.a"}, id="well"),
        Call("echo", {"value": last}, id="badly"),
    ]
    result = await Executor(TOOLS).run(calls)

    assert became(result) == ["failed handled", "skipped branch", "ok"]
    assert result.result("badly").output == {"code": "bad_input", "message": "broken"}
    assert result.errors == ()
    assert result.status == "ok"
    assert not [each for each in result.messages if each.get("kind") == "error"]


async def test_a_throw_without_such_a_branch_is_an_error_and_skips_what_depended_on_it() -> None:
    calls = [Call("fail", output_path="†state.a || †state.b"), Call("echo", {"value": "†state.a"})]
    result = await Executor(TOOLS).run(calls)
    assert became(result) == ["failed", "skipped dep_failed"]
    assert len(result.errors) == 1


async def test_fan_out_writes_one_value_to_each_place() -> None:
    result = await Executor(TOOLS).run(
        [
            Call("echo", {"value": [1]}, output_path="†state.a && †data.b.c"),
            Call("echo", {"value": "†data.b.c.0"}, id="r"),
        ]
    )
    assert result.result("r").output == 1
    assert result.state == {"a": [1]}
    told = [each for each in result.messages if each.get("_outputMethod")]
    assert [each["type"] for each in told][:2] == ["state", "data"]


# -- messages


async def test_a_message_beside_what_was_declared_is_noticed_and_refused_if_strict() -> None:
    heard = RecordingEvents()
    calls = [Call("pick", {"kind": "state", "data": {"a": 1, "z": 2}}, output_path="†state.a")]
    lenient = await Executor(TOOLS, events=heard).run(calls)
    assert lenient.state == {"a": 1, "z": 2}
    assert [event.part for event in heard.of(ContractViolation)] == ["pick"]

    strict = await Executor(TOOLS, strict=True).run(calls)
    assert strict.state == {}
    assert strict.results[0].fault.kind == "bad_output"
    assert "†state.z" in strict.results[0].fault.message

    fine = [Call("pick", {"kind": "state", "data": {"a": {"deep": 1}}}, output_path="†state.a.deep || †state.b")]
    assert (await Executor(TOOLS, strict=True).run(fine)).status == "ok"


# -- instances


async def test_each_instance_reads_and_writes_its_own_over_what_is_global() -> None:
    who = ("ann", "bob")
    calls = [Call("echo", {"value": f"{each}'s"}, output_path="†state.name", instance=each) for each in who]
    both = ["†state.name", "†state.town"]
    calls += [Call("echo", {"value": both}, id=f"read {each}", instance=each) for each in who]
    calls += [Call("echo", {"value": "†state.town"}, id="global")]
    result = await Executor(TOOLS).run(calls, state={"town": "Oslo"})

    assert result.result("read ann").output == ["ann's", "Oslo"]
    assert result.result("read bob").output == ["bob's", "Oslo"]
    assert result.state == {"town": "Oslo"}
    told = [each for each in result.messages if each["type"] == "state"]
    assert [each["_instance"] for each in told] == ["ann", "bob"]


async def test_messages_of_a_tick_can_be_the_context_of_the_next_one() -> None:
    executor = Executor(TOOLS)
    first = await executor.run([
        Call("echo", {"value": 1}, output_path="†state.list", output_method="push"),
        Call("echo", {"value": [2, 3]}, output_path="†state.list", output_method="concat", after=()),
        Call("echo", {"value": {"k": 1}}, output_path="†data.o && †state.o", output_method="merge"),
        Call("echo", {"value": "mine"}, output_path="†state.who", instance="ann"),
    ])  # fmt: skip
    second = await executor.run(
        [Call("echo", {"value": ["†state.list", "†data.o", "†state.who"]}, instance="ann", id="r")],
        context=first.messages,
    )
    assert second.result("r").output == [[1, 2, 3], {"k": 1}, "mine"]
    assert second.state == first.state
