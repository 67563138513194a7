from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import to_builtins

from reflection import Reflect
from spar.clock import SystemClock
from spar.data.learning.abilities import AgedAbilities, KnownAbilities
from spar.protocols import Context
from spar.types import (
    Ability,
    Action,
    ActionResult,
    ActionStatus,
    Call,
    CallResult,
    CallStatus,
    Experience,
    Fault,
    Perception,
    Reflection,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class NoonClock(SystemClock):
    def now(self) -> datetime:
        return NOON


def context(**fields: Any) -> Context:
    return Context(agent="a", cycle_id="c1", session="ops", **{"clock": NoonClock(), **fields})


def alert(**fields: Any) -> Perception:
    return Perception(
        "nginx is down, password=hunter2", **{"kind": "alert", "subject": "nginx", "trust": "trusted", **fields}
    )


RESTART = Call("restart", {"unit": "nginx"}, id="r", meta={"_task": "alert"})
NOTE = Call("note", {"text": "hunter2"}, id="n", meta={"_task": "alert"})


def acted(*results: CallResult, perceptions: tuple[Perception, ...] = (), **fields: Any) -> ActionResult:
    action = Action(calls=tuple(item.call for item in results), perceptions=perceptions or (alert(),))
    return ActionResult(action=action, results=results, **fields)


def only(reflection: Reflection) -> Experience:
    assert len(reflection.experiences) == 1
    return reflection.experiences[0]


async def test_what_worked_is_remembered_with_its_situation() -> None:
    result = acted(CallResult(RESTART, "ok", duration=2.0), CallResult(NOTE, "ok"))

    reflection = await Reflect().reflect(result, context())

    experience = only(reflection)
    assert reflection.result is result
    assert (reflection.score, reflection.successes, reflection.failures) == (1.0, (RESTART, NOTE), ())
    assert reflection.next_look is None
    assert experience.situation == "alert about nginx: nginx is down, password=***"
    assert experience.action == "restart(unit) → note(text)"
    assert experience.outcome == "ok: 2 of 2 calls finished"
    assert experience.lesson == "for alert: restart, note worked"
    assert (experience.success, experience.task, experience.cause) == (True, "alert", "")
    assert (experience.session, experience.origin, experience.at) == ("ops", "c1", NOON)
    assert [(item.tool, item.task, item.trials, item.latency) for item in reflection.abilities] == [
        ("restart", "alert", 1, 2.0),
        ("note", "alert", 1, 0.0),
    ]


async def test_why_something_failed_is_remembered_with_the_remedy() -> None:
    refused = Fault.of(ConnectionRefusedError("port 80"))
    result = acted(CallResult(RESTART, "failed", fault=refused), CallResult(NOTE, "skipped", "dep_failed"),
                   status="failed")  # fmt: skip

    reflection = await Reflect(look_again=7).reflect(result, context())

    experience = only(reflection)
    assert (reflection.score, experience.success, reflection.next_look) == (0.0, False, 7.0)
    assert [failure.call.id for failure in reflection.failures] == ["r", "n"]
    assert experience.cause.startswith("restart: the other side took no connection: port 80")
    assert "check that it runs" in experience.lesson
    assert "port 80" not in experience.lesson
    assert [(item.tool, round(item.estimate, 3)) for item in reflection.abilities] == [("restart", 0.333)]


async def test_the_prior_is_settable() -> None:
    reflection = await Reflect(task_prior=0.9).reflect(acted(CallResult(RESTART, "ok")), context())

    assert reflection.abilities[0].estimate == pytest.approx(2.8 / 3)


async def test_without_a_noted_task_the_most_urgent_perception_names_it() -> None:
    call = CallResult(Call("t"), "ok")
    perceptions = (alert(priority=0.1), alert(kind="mail", intent="report_problem", priority=0.9))

    reflection = await Reflect().reflect(acted(call, perceptions=perceptions), context())

    assert reflection.abilities[0].task == "mail/report_problem[nginx]"
    assert only(reflection).task == "mail/report_problem"
    assert reflection.abilities[2].task == "mail"
    assert only(reflection).situation == (
        "alert about nginx: nginx is down, password=***; mail (report_problem) about nginx: nginx is down, password=***"
    )


@pytest.mark.parametrize(
    ("trusts", "wanted"),
    [(("trusted", "trusted"), "trusted"), (("trusted", "untrusted"), "untrusted"), ((), "untrusted")],
)
async def test_an_experience_is_as_trustworthy_as_its_weakest_perception(trusts: tuple[str, ...], wanted: str) -> None:
    result = ActionResult(
        action=Action(output="x", perceptions=tuple(Perception(trust=trust) for trust in trusts))  # type: ignore[arg-type]
    )

    assert only(await Reflect().reflect(result, context())).trust == wanted


async def test_what_follows_from_recalled_text_is_marked_so_and_content_is_never_quoted() -> None:
    recalled = alert(source="memory")

    experience = only(await Reflect().reflect(acted(CallResult(NOTE, "ok"), perceptions=(recalled,)), context()))

    assert experience.origin == "memory:c1"
    assert "hunter2" not in str(to_builtins(experience))


async def test_a_phase_that_broke_is_remembered_as_a_failure() -> None:
    result = ActionResult(action=Action(calls=(RESTART,)), status="failed", fault=Fault("timeout", "30 s"))

    reflection = await Reflect().reflect(result, context())

    assert only(reflection).success is False
    assert only(reflection).cause == "it took longer than it may: 30 s"
    assert only(reflection).action == "restart(unit)"
    assert reflection.next_look == 5.0


async def test_the_soonest_retry_is_proposed() -> None:
    asked = Fault("transient", "busy", detail={"retry_after": 60})
    result = acted(
        CallResult(RESTART, "failed", fault=asked), CallResult(NOTE, "failed", fault=Fault("permanent", "x"))
    )

    assert (await Reflect().reflect(result, context())).next_look == 60.0


TEXT = st.text(st.characters(exclude_categories=()), max_size=30)
FAULTS = st.none() | st.builds(
    Fault,
    TEXT | st.sampled_from(["timeout", "unknown_tool", "transient"]),
    TEXT,
    retryable=st.booleans(),
    detail=st.dictionaries(st.sampled_from(["type", "retry_after"]), st.none() | TEXT | st.floats() | st.lists(TEXT)),
)
CALLS = st.builds(
    Call,
    TEXT,
    st.dictionaries(TEXT, st.none() | TEXT, max_size=3),
    meta=st.dictionaries(st.sampled_from(["_task", "_expect"]), st.none() | TEXT | st.integers(), max_size=2),
)
PERCEPTIONS = st.builds(Perception, TEXT, TEXT, TEXT, subject=st.none() | TEXT, intent=TEXT, priority=st.floats(0, 1))
RESULTS = st.builds(
    CallResult,
    CALLS,
    st.sampled_from(get_args(CallStatus)),
    TEXT | st.sampled_from(["dep_failed", "branch", "steered", "parked", "denied", "expired", "detached", "handled"]),
    fault=FAULTS,
    duration=st.floats(),
)
ACTIONS = st.none() | st.builds(
    Action, st.lists(CALLS, max_size=3), perceptions=st.lists(PERCEPTIONS, max_size=8), output=st.none() | TEXT
)


@settings(max_examples=50)
@given(
    st.builds(
        ActionResult,
        ACTIONS,
        st.sampled_from(get_args(ActionStatus)),
        st.lists(RESULTS, max_size=8).map(tuple),
        fault=FAULTS,
    )
)
async def test_no_result_makes_it_raise_and_every_field_stays_bounded(result: ActionResult) -> None:
    reflection = await Reflect().reflect(result, context())

    assert 0 <= reflection.score <= 1
    assert not {failure.call.id for failure in reflection.failures} & {call.id for call in reflection.successes}
    for ability in reflection.abilities:
        assert 0 < ability.estimate < 1
    for experience in reflection.experiences:
        for name in ("situation", "action", "outcome", "cause", "lesson", "task"):
            text = getattr(experience, name)
            assert len(text) <= 500
            text.encode()


@pytest.mark.parametrize("is_failing", [False, True])
async def test_a_large_plan_is_reflected_on_in_slices_and_its_tools_are_compared_once(is_failing: bool) -> None:
    fault = Fault("permission", "no") if is_failing else None
    known = KnownAbilities(Ability(f"t{number}", "alert", 0.7, 0.1, 30) for number in range(50))
    reads = Counter[str]()

    class Counting(AgedAbilities):
        def get(self, key: str, default: Any = None) -> Any:
            reads[key] += 1
            return super().get(key, default)

    async def turns_of(calls: int) -> int:
        items = [CallResult(Call(f"t{n % 50}"), "failed" if is_failing else "ok", fault=fault) for n in range(calls)]
        result = acted(*items)
        turns, is_over = 0, False

        async def count() -> None:
            nonlocal turns
            while not is_over:
                turns += 1
                await asyncio.sleep(0)

        others = asyncio.create_task(count())
        reflection = await Reflect().reflect(result, context(abilities=Counting(known, SystemClock().now)))
        is_over = True
        await others
        assert sum(ability.trials for ability in reflection.abilities if ability.task == "alert") == calls + 30 * 50
        assert len([failure for failure in reflection.failures if failure.advice and failure.advice.tool]) == (
            calls if is_failing else 0
        )
        return turns

    turns, few = await turns_of(1_000), sum(reads.values())
    assert turns >= 20
    reads.clear()
    await turns_of(2_000)
    assert sum(reads.values()) == few
