from __future__ import annotations

import contextlib
import tomllib
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planning import RulesPlanner
from planning.rule_counts import WRITTEN_AFTER
from planning.rules import cooldowns
from spar.clock import SystemClock
from spar.data.learning.abilities import ability_key
from spar.errors import ConfigError
from spar.protocols import Context, Host, RunContext
from spar.testing import RecordingEvents, VirtualClock
from spar.types import Ability, Perception, replace
from tests.doubles import KeptRows
from tests.effort import Effort

FILE_A_REPORT = tomllib.loads("""
[[rules]]
name = "file a report"
when = { source = "inbox", kind = "file.*", pattern = "disk (?P<unit>[a-z]+)" }
unless = { attributes = { draft = true } }
answer = "I filed {content:.6}"
goal = "see to {slots.unit}"
next_look = 5
[[rules.calls]]
name = "keep"
tool = "note"
params = { text = "{content}", tags = ["{kind}", "x"], n = 3 }
output = "†state.kept"
[[rules.calls]]
tool = "send"
params = { id = "†state.kept.id", goal = "{run.goal|none}" }
after = ["keep"]
""")["rules"]


class StillClock(SystemClock):
    """A clock that only moves when it is told to."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def monotonic(self) -> float:
        return self.seconds

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.seconds)


def context(**fields: Any) -> Context:
    return Context(agent="a", cycle_id="c", **{"clock": StillClock(), **fields})


def report(content: Any = "disk sda is full", **fields: Any) -> Perception:
    return Perception(content, **{"source": "inbox", "kind": "file.new", **fields})


def note(**rule: Any) -> dict[str, Any]:
    return {"name": "note it", "calls": [{"tool": "note", "params": {"text": "{content}"}}], **rule}


async def test_a_rule_becomes_calls_an_answer_a_goal_and_the_next_look() -> None:
    perception = report()

    action = await RulesPlanner(FILE_A_REPORT, tools=["note", "send"]).plan([perception], context())

    keep, send = action.calls
    assert (keep.tool, keep.output_path) == ("note", "†state.kept")
    assert keep.params == {"text": "disk sda is full", "tags": ["file.new", "x"], "n": 3}
    assert (send.tool, send.after, send.params) == ("send", (keep.id,), {"id": "†state.kept.id", "goal": "none"})
    assert (action.output, action.goal, action.next_look) == ("I filed disk s", "see to sda", 5)
    assert action.perceptions == (perception,)
    assert "file a report" in action.reason
    assert not action.degraded


async def test_nothing_that_matches_is_nothing_to_do() -> None:
    planner = RulesPlanner(FILE_A_REPORT)

    assert await planner.plan([report(kind="message"), report(attributes={"draft": True})], context()) is None
    assert await planner.plan([], context()) is None
    assert await RulesPlanner().plan([report()]) is None


async def test_a_rule_without_calls_only_keeps_the_later_rules_away() -> None:
    planner = RulesPlanner([{"name": "ignore", "when": {"kind": "file.*"}}, note()])

    assert await planner.plan([report()], context()) is None
    assert await planner.plan([report(kind="x")], context()) is not None


async def test_the_most_urgent_perception_comes_first_and_ids_are_unique() -> None:
    low, high = Perception("low", priority=0.1), Perception("high", priority=0.9)

    action = await RulesPlanner([note()]).plan([low, high, low], context())

    assert [call.params["text"] for call in action.calls] == ["high", "low", "low"]
    assert len({call.id for call in action.calls}) == 3
    assert action.perceptions == (low, high, low)


async def test_the_first_match_wins_unless_the_rule_goes_on() -> None:
    first, second = note(name="first"), note(name="second")

    stopped = await RulesPlanner([first, second]).plan([report()], context())
    both = await RulesPlanner([{**first, "stop": False}, second]).plan([report()], context())

    assert [len(stopped.calls), len(both.calls)] == [1, 2]


def fused(head: Perception, *parts: Perception) -> Perception:
    return replace(head, evidence=(*parts, head))


async def noted(planner: RulesPlanner, perception: Perception) -> list[Any]:
    action = await planner.plan([perception], context())
    return [] if action is None else [call.params["text"] for call in action.calls]


CPU, DISK = Perception("cpu high", subject="h1"), Perception("disk full", subject="h1")
CPU_DISK = [note(name="cpu", when={"pattern": "^cpu"}), note(name="disk", when={"pattern": "^disk"})]
LINES = [Perception(f"line {i}", subject="h1") for i in range(5)]
OK = Perception("web is ok", subject="web")
BEFORE = Perception("web is firing", subject="web", attributes={"superseded": OK.id})
SAID = tuple(Perception(text, kind="message") for text in ("first", "second"))
UNIT = {"name": "r", "calls": [{"tool": "note", "params": {"text": "{attributes.unit}"}}]}
#: Rules, a perception that was fused from others, and what is noted.
FUSED: dict[str, tuple[list[dict[str, Any]], Perception, list[str]]] = {
    "rules see what it was fused from": (CPU_DISK, fused(CPU, DISK), ["cpu high", "disk full"]),
    "the head first": (CPU_DISK, fused(DISK, CPU), ["disk full", "cpu high"]),
    "each rule is used once": (
        [note(name="lines", when={"pattern": "line"}), note(name="all")],
        fused(*LINES),
        ["line 0"],
    ),
    "and the next one if it goes on": (
        [note(name="lines", when={"pattern": "line"}, stop=False), note(name="all")],
        fused(*LINES),
        ["line 0", "line 0"],
    ),
    "a state that a newer one has replaced runs no rule": (
        [note(name="repair", when={"pattern": "firing"}), note(name="thank", when={"pattern": "ok"})],
        fused(OK, BEFORE),
        ["web is ok"],
    ),
    "parts of what people said are not looked at again": (
        [note(name="second", when={"pattern": "^second"})],
        Perception("first\nsecond", kind="message", evidence=SAID),
        [],
    ),
    "a rule that cannot be used for the head is asked about the parts": (
        [UNIT],
        fused(Perception("a", subject="h"), Perception("b", subject="h", attributes={"unit": "nginx"})),
        ["nginx"],
    ),
}


@pytest.mark.parametrize("case", FUSED)
async def test_rules_are_asked_about_the_parts_of_a_perception(case: str) -> None:
    rules, perception, texts = FUSED[case]

    assert await noted(RulesPlanner(rules), perception) == texts


async def test_rules_are_asked_in_their_order_however_they_are_found() -> None:
    names = ["general", "by source", "by kind", "glob"]
    whens: list[dict[str, Any]] = [{}, {"source": "inbox"}, {"kind": "file.new"}, {"kind": "file.*"}]
    rules = [
        {"name": name, "when": when, "answer": name, "stop": False} for name, when in zip(names, whens, strict=True)
    ]

    forwards = await RulesPlanner(rules).plan([report()], context())
    backwards = await RulesPlanner(rules[::-1]).plan([report()], context())

    assert forwards.output == "\n".join(names)
    assert backwards.output == "\n".join(names[::-1])


async def test_a_cooldown_holds_per_subject_and_ends_by_the_clock() -> None:
    planner, clock = RulesPlanner([note(cooldown=60), note(name="later")]), StillClock()
    disk, host = report(subject="disk"), report(subject="host")

    first = await planner.plan([disk, host, disk], context(clock=clock))
    clock.seconds += 59.9
    cooling = await planner.plan([disk], context(clock=clock))
    clock.seconds += 0.1
    again = await planner.plan([disk], context(clock=clock))

    assert len(first.calls) == 2
    assert cooling is None
    assert again is not None
    counts = planner.snapshot()["rules"]["note it"]
    assert (counts.pop("last_at"), counts.pop("since")) == (clock.now(), None)
    assert counts == {"matched": 5, "fired": 3, "cooled_down": 2, "failed": 0, "left_out": 0}


def with_rows(rules: list[dict[str, Any]], rows: KeptRows, clock: StillClock) -> RulesPlanner:
    planner = RulesPlanner(rules)
    planner.attach(Host("main", clock, RecordingEvents(), None, lambda: None, rows=lambda name: rows))
    return planner


async def test_a_cooldown_goes_on_in_the_next_process_for_its_rule_and_subject() -> None:
    rows, clock = KeptRows(), StillClock()
    rules = [
        {"name": name, "cooldown": 300, "answer": answer, "stop": False}
        for name, answer in (("load", "high"), ("other", "other"))
    ]
    one, two = Perception(subject="a|b"), Perception(subject="c")
    first = await with_rows(rules[:1], rows, clock).plan([one], context(clock=clock))
    clock.seconds = 7.0  # the monotonic clock of another process, 100 s later by the wall clock
    rows.rows = {key: at - 100.0 - 93.0 for key, at in rows.rows.items()}

    after = with_rows(rules[::-1], rows, clock)
    again = await after.plan([one], context(clock=clock))
    clock.seconds += 198
    still = await after.plan([one, two], context(clock=clock))
    clock.seconds += 3
    over = await after.plan([one], context(clock=clock))

    assert first.output == "high"
    assert again.output == "other"
    assert still.output == "other\nhigh"
    assert over.output == "high"


async def test_cooldowns_that_are_over_or_of_rules_that_are_gone_are_forgotten_at_the_start() -> None:
    rows, clock = KeptRows(), StillClock()
    rules = [{"name": name, "cooldown": 60, "answer": name, "stop": False} for name in ("short", "gone")]
    await with_rows(rules, rows, clock).plan([Perception(subject="s")], context(clock=clock))
    assert len(rows.rows) == 2
    clock.seconds += 30

    planner = with_rows(rules[:1], rows, clock)
    await planner.plan([], context(clock=clock))

    assert (len(rows.rows), planner.snapshot()["cooldowns"]) == (1, 1)
    clock.seconds += 30
    await with_rows(rules[:1], rows, clock).plan([], context(clock=clock))
    assert rows.rows == {}


async def test_counts_go_on_in_the_next_process_and_beside_the_planner_that_is_replaced(clock: VirtualClock) -> None:
    kept: defaultdict[str, KeptRows] = defaultdict(KeptRows)
    rules = [{"name": name, "when": {"kind": name}, "answer": name} for name in ("often", "never", "gone")]

    async def seen(planner: RulesPlanner, number: int) -> None:
        for _ in range(number):
            await planner.plan([Perception(kind="often")], context())

    def planner_of(number: int) -> RulesPlanner:
        planner = RulesPlanner(rules[:number])
        planner.attach(Host("main", clock, RecordingEvents(), None, lambda: None, rows=lambda name: kept[name]))
        return planner

    async with planner_of(3) as first:
        await seen(first, 2)
        began = first.snapshot()["rules"]["never"]["since"]
        async with planner_of(2) as second:
            await seen(first, 3)  # its last cycles, beside the one that takes its place
            await seen(second, 4)
    assert kept["rules"].rows["often"]["fired"] == 9
    async with planner_of(2) as third:
        counts = third.snapshot()["rules"]
        await seen(third, 1)
        assert third.snapshot()["rules"]["often"]["fired"] == 10
        await clock.sleep(WRITTEN_AFTER + 0.1)
        assert kept["rules"].rows["often"]["fired"] == 10, "what a killed process has counted"
    assert {name: (row["fired"], row["matched"]) for name, row in counts.items()} == {"often": (9, 9), "never": (0, 0)}
    assert counts["never"]["since"] == began
    assert (counts["never"]["last_at"], kept["rules"].rows.keys()) == (None, {"often", "never"})


async def test_a_planner_that_is_replaced_leaves_the_rules_of_its_successor_alone(clock: VirtualClock) -> None:
    kept: defaultdict[str, KeptRows] = defaultdict(KeptRows)
    rules = [{"name": name, "when": {"kind": name}, "answer": name} for name in ("stays", "new", "gone")]
    planners = [RulesPlanner([rules[0], rules[2]]), RulesPlanner(rules[:2])]
    for planner in planners:
        planner.attach(Host("main", clock, RecordingEvents(), None, lambda: None, rows=lambda name: kept[name]))

    former, successor = planners
    await former.__aenter__()
    async with successor:
        await successor.plan([Perception(kind="new")], context())
        await clock.sleep(WRITTEN_AFTER + 0.1)
        await former.__aexit__()  # after its last cycle
        assert {name: row["fired"] for name, row in kept["rules"].rows.items()} == {"stays": 0, "new": 1}


async def test_counts_that_cannot_be_written_are_written_later() -> None:
    rows, clock = KeptRows(), StillClock()
    rows.is_broken = True
    async with with_rows([{"name": "load", "answer": "high"}], rows, clock) as planner:
        await planner.plan([Perception()], context(clock=clock))
        assert planner.snapshot()["rules"]["load"]["fired"] == 1
        rows.is_broken = False
    assert rows.rows["load"]["fired"] == 1


async def test_rules_work_while_earlier_cooldowns_cannot_be_read_and_a_bad_row_keeps_no_other_from_going_on() -> None:
    rows, clock = KeptRows(), StillClock()
    rules = [{"name": "load", "cooldown": 300, "answer": "high"}]
    await with_rows(rules, rows, clock).plan([Perception(subject="s")], context(clock=clock))
    (good,) = rows.rows
    rows.rows = {"{": 1.0, "[1, 2]": 1.0, '["load", []]': 1.0, "7": 1.0, **rows.rows}

    planner = with_rows(rules, rows, clock)
    action = await planner.plan([Perception(subject="s")], context(clock=clock))
    assert action is None or action.output is None, "its cooldown goes on"
    assert list(rows.rows) == [good]
    assert planner.snapshot()["cooldowns_forgotten"] == 4

    rows.is_broken = True
    planner = with_rows(rules, rows, clock)
    blind = await planner.plan([Perception(subject="t")], context(clock=clock))
    rows.is_broken = False
    seeing = await planner.plan([Perception(subject="s"), Perception(subject="t")], context(clock=clock))
    assert blind.output == "high"
    assert "cooldowns of earlier processes cannot be read: no disk" in blind.reason
    assert seeing is None


@pytest.fixture
def few_cooldowns(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(cooldowns, "COOLDOWN_LIMIT", 1_000)
    return 1_000


async def test_cooldowns_of_endless_subjects_do_not_grow_without_end(few_cooldowns: int) -> None:
    planner = RulesPlanner([{"name": "seen", "cooldown": 60, "answer": "x"}])
    perceptions = [Perception(subject=f"{number}-{'x' * 300}") for number in range(few_cooldowns + 10)]

    await planner.plan(perceptions, context())

    snapshot = planner.snapshot()
    assert (snapshot["cooldowns"], snapshot["cooldowns_forgotten"]) == (few_cooldowns, 10)
    assert await planner.plan([perceptions[-1]], context()) is None


async def test_the_cooldown_that_began_longest_ago_is_forgotten_first(few_cooldowns: int) -> None:
    planner, clock = RulesPlanner([{"name": "seen", "cooldown": 60, "answer": "x"}]), StillClock()
    again, once = Perception(subject="again"), Perception(subject="once")

    await planner.plan([again, once], context(clock=clock))
    clock.seconds += 60
    await planner.plan([again], context(clock=clock))
    await planner.plan([Perception(subject=f"{n}") for n in range(few_cooldowns - 1)], context(clock=clock))

    assert await planner.plan([again], context(clock=clock)) is None


async def test_one_perception_that_lacks_something_does_not_block_the_others_and_is_told() -> None:
    planner = RulesPlanner([{"name": "level", "cooldown": 60, "answer": "level {attributes.level}"}, note(name="else")])
    good, bad = Perception(attributes={"level": 3}, subject="g"), Perception("odd", priority=0.9, subject="b")

    action = await planner.plan([bad, good], context())

    assert action.output == "level 3"
    assert [call.params["text"] for call in action.calls] == ["odd"]
    assert "{attributes.level}" in action.reason
    assert bad.id in action.reason
    assert planner.snapshot()["rules"]["level"]["failed"] == 1
    assert planner.snapshot()["cooldowns"] == 1


async def test_a_rule_that_can_only_fail_still_says_so_and_a_long_list_of_troubles_is_cut() -> None:
    planner = RulesPlanner([{"name": "r", "answer": "{slots.x}"}])

    action = await planner.plan([Perception()], context())
    many = await planner.plan([Perception() for _ in range(1000)], context())

    assert (action.calls, action.output) == ((), None)
    assert "rule 'r' not used" in action.reason
    assert len(many.reason) <= 2000


async def test_content_that_is_no_json_is_read_as_far_as_it_can_be() -> None:
    endless: list[Any] = []
    endless.append(endless)
    planner = RulesPlanner([note(when={"pattern": "x"})])

    action = await planner.plan([Perception(endless), Perception("x")], context())

    assert [call.params["text"] for call in action.calls] == ["x"]
    assert planner.snapshot()["rules"]["note it"]["failed"] == 0


async def test_what_was_learnt_chooses_the_tool() -> None:
    rule = {"name": "r", "calls": [{"tool": ["curl", "wget"]}]}
    abilities = {ability_key("curl", "k/fetch"): Ability("curl", "k/fetch", 0.1, 0.05, 30)}

    fetch = await RulesPlanner([rule]).plan(
        [Perception(kind="k", intent="fetch", trust="trusted")], context(abilities=abilities)
    )
    other = await RulesPlanner([rule]).plan([Perception(kind="k")], context(abilities=abilities))

    assert (fetch.calls[0].tool, other.calls[0].tool) == ("wget", "curl")
    assert fetch.calls[0].meta == {"_task": "k/fetch#r"}


async def test_a_tool_known_to_fail_is_left_out_with_all_that_needs_it_and_the_reason() -> None:
    rule = {
        "name": "r",
        "answer": "done",
        "calls": [
            {"name": "a", "tool": "weak", "min_ability": 0.5, "output": "†state.a"},
            {"name": "b", "tool": "note", "params": {"x": "†state.a.id"}, "output": "†state.b"},
            {"name": "c", "tool": "note", "after": ["b"]},
            {"name": "d", "tool": "note", "params": {"x": ["†state.a || †input.x"]}},
        ],
    }
    abilities = {ability_key("weak", ""): Ability("weak", "", 0.2, 0.1, 9)}
    planner = RulesPlanner([rule])

    action = await planner.plan([Perception()], context(abilities=abilities))
    without_d = RulesPlanner([{**rule, "calls": rule["calls"][:3]}])
    nothing = await without_d.plan([Perception()], context(abilities=abilities))

    assert [call.params for call in action.calls] == [{"x": ["†state.a || †input.x"]}]
    assert "call 'a' of rule 'r' is left out" in action.reason
    assert planner.snapshot()["rules"]["r"]["left_out"] == 3
    assert (nothing.calls, nothing.output) == ((), None)


async def test_two_firings_that_write_one_place_do_not_read_each_other() -> None:
    planner = RulesPlanner(FILE_A_REPORT)

    one = await planner.plan([report()], context())
    two = await planner.plan([report(), report("disk sdb is full")], context())

    assert {call.instance for call in one.calls} == {None}
    assert [call.instance for call in two.calls] == ["file a report#0"] * 2 + ["file a report#1"] * 2


async def test_foreign_text_in_an_answer_stays_as_it_is() -> None:
    action = await RulesPlanner([{"name": "echo", "answer": "{content}"}]).plan(
        [Perception("†state.secret")], context()
    )

    assert action.output == "†state.secret"


async def test_run_time_and_intent_slots_can_be_named() -> None:
    rule = {"name": "r", "answer": "{run.goal} {now} {slots.unit}", "when": {"intent": "restart"}}
    run = RunContext("r1", "mend it")

    action = await RulesPlanner([rule]).plan(
        [Perception(intent="restart", attributes={"slots": {"unit": "nginx"}})], context(run=run)
    )

    assert action.output == "mend it 2026-01-01T00:01:40+00:00 nginx"


CALL_A, CALL_B = {"tool": "note", "name": "a"}, {"tool": "note", "name": "b"}


@pytest.mark.parametrize(
    ("rule", "path", "says"),
    [
        ({"nmae": "x"}, ("nmae",), "did you mean 'name'"),
        ({"name": ""}, ("name",), "length >= 1"),
        ({"name": "first"}, ("name",), "two rules are named 'first'"),
        ({"when": {"sorce": "x"}}, ("when", "sorce"), "did you mean 'source'"),
        ({"when": {"kind": 3}}, ("when", "kind"), "found 3"),
        ({"when": {"trust": "maybe"}}, ("when", "trust"), "trusted, untrusted"),
        ({"when": {"min_priority": 2}}, ("when", "min_priority"), "<= 1"),
        ({"when": {"pattern": "("}}, ("when", "pattern"), "regular expression"),
        ({"unless": {"pattern": r"(a+)\1"}}, ("unless", "pattern"), "no back-references"),
        ({"unless": {}}, ("unless",), "never match"),
        ({"cooldown": -1}, ("cooldown",), "found -1"),
        ({"cooldown": float("nan")}, ("cooldown",), "found nan"),
        ({"next_look": "soon"}, ("next_look",), "found 'soon'"),
        ({"stop": "yes"}, ("stop",), "true or false"),
        ({"answer": "{foo}"}, ("answer",), "known: content"),
        ({"answer": "†state.x"}, ("answer",), "before the calls run"),
        ({"when": {"pattern": "(?P<unit>x)"}, "answer": "{slots.uni}"}, ("answer",), "known: unit"),
        ({"calls": [{}]}, ("calls", 0), "must have 'tool'"),
        ({"calls": [{"tool": "nix"}]}, ("calls", 0, "tool"), "known: note"),
        ({"calls": [{"tool": ["note", "nix"]}]}, ("calls", 0, "tool"), "'nix'"),
        ({"calls": [{"tool": []}]}, ("calls", 0, "tool"), "length >= 1"),
        ({"calls": [{"tool": "note", "prams": {}}]}, ("calls", 0, "prams"), "did you mean 'params'"),
        ({"calls": [{**CALL_A, "params": {"t": [{"x": "{foo}"}]}}]}, ("calls", 0, "params", "t", 0, "x"), "{foo}"),
        ({"calls": [{**CALL_A, "params": {"x": "†state.{id}"}}]}, ("calls", 0, "params", "x"), "no placeholders"),
        ({"calls": [{**CALL_A, "params": {"x": "†state..a"}}]}, ("calls", 0, "params", "x"), "not a reference"),
        ({"calls": [{**CALL_A, "params": {"x": "†state.a"}}]}, ("calls", 0, "params"), "no other call"),
        (
            {"calls": [{**CALL_A, "params": {"x": "†state.a"}, "output": "†state.a"}]},
            ("calls", 0, "params"),
            "no other",
        ),
        ({"calls": [{**CALL_A, "output": "kept"}]}, ("calls", 0, "output"), "not a reference"),
        ({"calls": [{**CALL_A, "after": ["z"]}]}, ("calls", 0, "after"), "known: a"),
        ({"calls": [CALL_A, CALL_A]}, ("calls", 1, "name"), "named 'a'"),
        ({"calls": [{**CALL_A, "after": ["a"]}]}, ("calls", 0), "wait for one another"),
        ({"calls": [{**CALL_A, "after": ["b"]}, {**CALL_B, "after": ["a"]}]}, ("calls", 0), "wait for one another"),
        (
            {"calls": [{**CALL_A, "params": {"x": "†state.b"}}, {**CALL_B, "after": ["a"], "output": "†state.b"}]},
            ("calls", 0),
            "wait for one another",
        ),
    ],
)
def test_a_rule_that_cannot_be_read_is_refused_with_its_place(
    rule: dict[str, Any], path: tuple[str | int, ...], says: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        RulesPlanner([{"name": "first"}, {"name": "second", **rule}], tools=["note"])

    assert caught.value.path[:2] == ("rules", 1)
    assert caught.value.path[2 : 2 + len(path)] == path
    assert says in str(caught.value)


def test_a_rule_without_a_name_and_a_rule_that_is_no_table_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"rules\[0\] must have 'name'; write for example: name = "):
        RulesPlanner([{}])
    with pytest.raises(ConfigError, match="a rule is a table"):
        RulesPlanner(["x"])  # type: ignore[list-item]


def test_a_reader_of_a_joined_path_waits_for_the_earlier_writer_only() -> None:
    RulesPlanner([{"name": "r", "calls": [
        {"tool": "t", "output": "†state.x"},
        {"tool": "t", "name": "reader", "params": {"x": "†state.x"}},
        {"tool": "t", "after": ["reader"], "output": "†state.x"},
    ]}])  # fmt: skip


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_any_table_is_a_rule_or_a_configuration_error(value: Any) -> None:
    for key in ("when", "unless", "calls", "answer", "cooldown"):
        with contextlib.suppress(ConfigError):
            RulesPlanner([{"name": "r", key: value}])


@given(JSON, st.dictionaries(st.text(max_size=8), JSON, max_size=3), st.floats(0, 1))
async def test_no_perception_makes_the_planner_raise(content: Any, attributes: dict[str, Any], priority: float) -> None:
    planner = RulesPlanner([
        {"name": "a", "when": {"pattern": "(?P<x>.+)", "attributes": {"level": ["high", {"above": 1}]}}},
        {"name": "b", "stop": False, "answer": "{content} {attributes} {slots} {attributes.slots.x|y}"},
        note(when={"min_priority": 0.1, "count": {"at_least": 1}}),
    ])  # fmt: skip

    action = await planner.plan([Perception(content, attributes=attributes, priority=priority)], context())

    assert action is not None


async def effort_of(when: Callable[[int], Any], rules: int, perceptions: int) -> int:
    """What it takes to plan when the last of the rules are about these perceptions, if any is."""
    planner = RulesPlanner([note(name=f"r{number}", when=when(number - rules)) for number in range(rules)])
    seen = [Perception(f"t {n}", source=f"s{n}", kind=f"kind{-n}", intent="none") for n in range(1, perceptions + 1)]
    await planner.plan(seen, context())  # what is only done the first time is done
    with Effort() as counted:
        await planner.plan(seen, context())
    return counted.steps


@pytest.mark.parametrize(
    "when",
    [
        lambda number: {"kind": f"kind{number}"},
        lambda number: {"source": f"s{-number}", "kind": "k*"},
        lambda number: {"kind": [f"kind{number}", f"other{number}"], "pattern": "t"},
    ],
)
async def test_rules_about_kinds_and_sources_that_nothing_has_cost_nothing(when: Any) -> None:
    assert await effort_of(when, 1000, 20) < 1.1 * await effort_of(when, 20, 20)


@pytest.mark.parametrize(
    "when", [lambda number: {"kind": f"no{number}.*"}, lambda number: {"intent": f"i{number}", "subject": "s*"}]
)
async def test_a_rule_that_has_to_be_asked_says_no_in_a_few_steps(when: Any) -> None:
    assert await effort_of(when, 500, 20) < 30 * 500 * 20


#: Rules of few kinds, in a few orders, on perceptions that were fused from others.
_KINDS = st.sampled_from(["a", "b", "c"])
_WRITTEN = st.lists(
    st.fixed_dictionaries(
        {"when": st.fixed_dictionaries({"kind": _KINDS}), "stop": st.booleans()},
        optional={"unless": st.fixed_dictionaries({"source": _KINDS})},
    ),
    min_size=1, max_size=5,
)  # fmt: skip
_PARTS = st.lists(st.builds(lambda kind: Perception("y", kind=kind), _KINDS), max_size=2).map(tuple)
_SEEN = st.builds(
    lambda kind, source, parts: Perception("x", kind=kind, source=source, evidence=parts), _KINDS, _KINDS, _PARTS
)


@given(_WRITTEN, _SEEN)
async def test_what_is_explained_is_what_was_decided(written: list[dict[str, Any]], perception: Perception) -> None:
    planner = RulesPlanner([{**note(**rule), "name": f"rule {number}"} for number, rule in enumerate(written)])

    explained = list(planner.explain([perception]))
    action = await planner.plan([perception], context())

    fired = {name for name in planner.rule_names if action is not None and f"{name!r} matched" in action.reason}
    assert {look.rule for look in explained if look.matches} == fired
    assert [look.rule for look in explained] == planner.rule_names
    assert planner.snapshot()["rules"][planner.rule_names[0]]["matched"] <= 1  # an explanation counts nothing


def test_of_the_parts_of_a_perception_the_one_that_meets_most_conditions_is_explained() -> None:
    part = Perception("7", kind="host.load", attributes={"load": 0.7})
    notice = Perception("load", kind="incident.opened", evidence=(part,))
    planner = RulesPlanner([{"name": "load", "when": {"kind": "host.load", "attributes": {"load": {"above": 0.9}}}}])

    (look,) = planner.explain([notice])

    assert (look.matches, look.why) == (False, "attributes.load = { above = 0.9 } is not met: 0.7")
