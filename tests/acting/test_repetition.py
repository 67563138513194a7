from __future__ import annotations

import tracemalloc
from typing import Any

import msgspec
import pytest

from acting import Executor
from acting.repetition import MOST_DIGESTS, MOST_RUNS, LoopGuard, Notice, with_notice
from spar.protocols import Context, RunContext
from spar.protocols.tools import tool
from spar.types import Action, ActionResult, Call, CallResult, Fault
from tests.effort import effort

Batch = list[tuple[dict[str, Any], CallResult]]


def ended(output: Any = None, tool: str = "look", status: Any = "ok", reason: str = "", **params: Any) -> Any:
    return params, CallResult(Call(tool, params), status, reason, output)


def failed(message: str, **params: Any) -> Any:
    return params, CallResult(Call("look", params), "failed", fault=Fault("io", message))


def verdicts(batches: list[Batch], run_id: str | None = "run") -> list[str]:
    guard = LoopGuard()
    found = [guard.note(run_id, batch) for batch in batches]
    return [notice.verdict if notice else "" for notice in found]


# -- what is a repetition


SAME, OTHER = [ended("same", x=1)], [ended("news", tool="other")]
#: What is repeated, and what is said of it.
REPEATED: dict[str, tuple[list[Batch], list[str]]] = {
    "the same three times is told and once more ends the run": ([SAME] * 5, ["", "", "told", "ended", "ended"]),
    "errors repeat like results": ([[failed("gone")]] * 4, ["", "", "told", "ended"]),
    "a large plan": ([[ended(n, n=n) for n in range(5_000)]] * 4, ["", "", "told", "ended"]),
    "news after the notice begins anew": (
        [SAME, SAME, SAME, OTHER, SAME, SAME, SAME, SAME],
        ["", "", "told", "", "", "", "told", "ended"],
    ),
}


@pytest.mark.parametrize("case", REPEATED)
def test_what_is_repeated_is_told_and_ends_the_run_if_it_goes_on(case: str) -> None:
    batches, said = REPEATED[case]

    assert verdicts(batches) == said


def test_what_is_said_names_tool_and_times() -> None:
    guard = LoopGuard()
    notices = [guard.note("run", [ended("same")]) for _ in range(4)]

    told, over = notices[2], notices[3]
    assert isinstance(told, Notice)
    assert isinstance(over, Notice)
    assert told.data["kind"] == "no_progress"
    assert (told.data["times"], told.data["tools"], told.fault) == (3, ["look"], None)
    assert over.fault.kind == "no_progress"
    assert over.fault.message.startswith("no_progress: look gave the same for the same parameters 4 times")
    assert not over.fault.retryable


#: Results that are no repetition.
NEWS: dict[str, list[Batch]] = {
    "another result": [[ended(n)] for n in range(9)],
    "other parameters": [[ended("same", page=n)] for n in range(9)],
    "parameters that are times": [[ended("same", at=n)] for n in range(9)],
    "another tool": [[ended("same", tool=f"t{n}")] for n in range(9)],
    "with news in the same batch": [[ended("same"), ended(n, tool="work")] for n in range(9)],
    "with other work between": [[ended("same")] if n % 2 else [ended(n, tool="work")] for n in range(20)],
    "another message": [[failed(f"line {n}: unexpected end")] for n in range(9)],
    "a list that grows": [[ended({"lines": ["x"] * n})] for n in range(9)],
    "a day that is news": [[ended({"status": "pending", "updated": f"2026-01-0{n}"})] for n in range(1, 9)],
    "a number": [[ended({"done": n, "of": 100})] for n in range(9)],
    "a countdown": [[ended(f"{n} of 100 files, ready in {90 - n} s")] for n in range(9)],
    "a commit": [[ended({"branch": "main", "commit": f"{n}" * 40})] for n in range(9)],
    "a thousand equal calls of one plan": [[ended("ok")] * 1_000] * 2,
    "an object that is a time": [[ended({"at": n})] for n in range(1, 9)],
    "a text that is a time": [[ended(f"2026-01-01T10:00:0{n}")] for n in range(1, 9)],
    "a date that is an object": [[ended({"date": {"left": n}})] for n in range(1, 9)],
    "a time that is a list": [[ended({"ok": True, "time": [n]})] for n in range(1, 9)],
}


@pytest.mark.parametrize("case", NEWS)
def test_news_is_no_repetition(case: str) -> None:
    assert not any(verdicts(NEWS[case]))


# -- what cannot run, and what was denied


def unable(kind: str = "unknown_tool", tool: str = "gone", **params: Any) -> Any:
    return params, CallResult(Call(tool, params), "failed", fault=Fault(kind, f"{tool} {params} is wrong"))


def denied(tool: str = "act", kind: str = "denied", **params: Any) -> Any:
    return params, CallResult(Call(tool, params), "denied", kind, fault=Fault(kind, "no"))


KINDS = ["unknown_tool", "bad_parameters", "bad_reference", "bad_call", "duplicate_id", "cycle"]


@pytest.mark.parametrize(
    "batches",
    [
        [[unable()] for _ in range(8)],
        [[unable(x=n)] for n in range(8)],
        [[unable(tool=f"tool {n}", x=n)] for n in range(8)],
        [[unable("bad_parameters", tool="look", x=n)] for n in range(8)],
        [[unable(KINDS[n % 6], x=n)] for n in range(8)],
        [[unable(x=n), unable(KINDS[n % 6], x=n)] for n in range(8)],
    ],
    ids=["the same", "other parameters", "other tools", "parameters that never fit", "other errors", "several"],
)
def test_calls_that_cannot_run_are_told_of_the_second_time_and_end_the_run_the_sixth(batches: list[Batch]) -> None:
    assert verdicts(batches)[:6] == ["", "told", "told", "told", "told", "ended"]


def test_from_the_third_time_on_the_planner_is_told_not_to_retry() -> None:
    guard = LoopGuard()
    notices = [guard.note("run", [unable(x=n)]) for n in range(6)]

    said_then = [notice.message if notice else "" for notice in notices]
    assert ["do not retry" in message for message in said_then] == [False, False, True, True, True, False]
    assert "gone could not run, 2 times" in said_then[1]
    assert notices[-1].fault.kind == "no_progress"


def test_what_is_known_already_between_them_is_no_news() -> None:
    look = [ended("same")]

    batches = [look, *[[unable(x=n)] if n % 2 else look for n in range(1, 12)]]

    assert "ended" in verdicts(batches)[:8]


def test_news_lets_a_planner_try_again_but_a_tool_that_is_not_there_never_comes() -> None:
    wrong = [[unable("bad_parameters", x=n), ended(n)] for n in range(40)]
    missing = [[unable(x=n), ended(n)] for n in range(9)]

    assert not any(verdicts(wrong))
    assert verdicts(missing)[:8] == ["", *["told"] * 6, "ended"]


def test_a_denial_is_final_for_its_call_in_its_run() -> None:
    guard = LoopGuard()
    news = iter(range(100))
    found = []
    for _ in range(3):
        found.append((guard.is_refused("run", "act", {"x": 1}), guard.note("run", [denied(x=1), ended(next(news))])))
        guard.note("run", [ended(next(news))])

    assert [is_refused for is_refused, _ in found] == [False, False, True]
    assert [notice.verdict if notice else "" for _, notice in found] == ["", "told", "ended"]
    assert not guard.is_refused("run", "act", {"x": 2})
    assert not guard.is_refused("other run", "act", {"x": 1})
    assert not guard.is_refused(None, "act", {"x": 1})


def test_other_calls_that_are_denied_once_each_end_nothing() -> None:
    assert not any(verdicts([[denied(x=n)] for n in range(20)]))
    assert verdicts([[denied(kind="expired")]] * 3) == ["", "told", "ended"]


def test_two_calls_that_take_turns_are_found_also_if_each_says_when() -> None:
    batches = [[ended({"ok": True, "at": n, "id": f"{n:08}-0000-4000-8000-{n:012}"}, tool=("ping", "pong")[n % 2])]
             for n in range(8)]  # fmt: skip

    assert verdicts(batches)[:7] == ["", "", "", "", "", "told", "ended"]


def test_runs_are_judged_each_by_itself_and_what_belongs_to_none_never() -> None:
    guard = LoopGuard()

    assert not any(guard.note(f"run {n}", [ended("same")]) for n in range(9))
    assert not any(verdicts([[ended("same")]] * 9, run_id=None))


@pytest.mark.parametrize(
    "still_open",
    [ended(reason="parked", status="skipped"), ended(reason="steered", status="skipped"), ended(status="cancelled")],
)
def test_a_tick_of_which_something_is_open_is_not_judged(still_open: Any) -> None:
    assert not any(verdicts([[ended("same"), still_open]] * 9))
    assert not any(verdicts([[]] * 9))


# -- what changes by itself


@pytest.mark.parametrize(
    "output",
    [
        lambda n: {"status": "ok", "at": n, "duration": n / 3, "date": f"2026-01-0{n}", "Timestamp": f"{n}"},
        lambda n: {"rows": [{"id": 1, "meta": {"elapsed_ms": n, "v": 1}}]},
        lambda n: f"ready since 2026-01-01T10:00:0{n}.5Z, all well",
        lambda n: ["x", f"2026-01-01 10:00:0{n}"],
        lambda n: f"<Job object at 0x7f0000{n}>",
        lambda n: {"ok": True, "requestId": f"r-{n}", "created_at": 1.7e9 + n, "Server-Time": n, "trace_id": f"{n}"},
        lambda n: f"job 3f2504e0-4f89-11d3-9a0c-0305e82c330{n} was queued",
        lambda n: {"log": f"10:00:0{n}.12 no change", "headers": {"Date": f"Fri, 0{n} Jan 2026 10:00:0{n} GMT"}},
        lambda n: f"3 failed, 1 passed in 0.0{n}s",
    ],
    ids=["keys", "nested", "in a text", "in a list", "an address", "more keys", "a uuid", "a clock", "how long"],
)
def test_when_a_result_was_made_does_not_hide_a_repetition(output: Any) -> None:
    assert verdicts([[ended(output(n))] for n in range(1, 5)]) == ["", "", "told", "ended"]


# -- odd, large, many


class Opaque:
    pass


def deep() -> Any:
    value: Any = 1
    for _ in range(100_000):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        "\ud800",
        2**200,
        {1, 2},
        b"\xff",
        {1: 2},
        deep(),
        Opaque(),
        {"\ud800": ["\udfff"]},
        "x" * 3_000_000,
    ],
    ids=["nan", "surrogate", "huge", "set", "bytes", "number keys", "deep", "object", "surrogates within", "long"],
)
def test_whatever_a_call_holds_is_compared_or_new_and_never_raises(value: Any) -> None:
    assert verdicts([[({"value": value}, CallResult(Call("look"), "ok", output=value))]] * 4)[:2] == ["", ""]
    assert verdicts([[ended("same", value="\ud800")]] * 4) == ["", "", "told", "ended"]


def test_what_is_remembered_is_bounded() -> None:
    guard = LoopGuard()
    for n in range(3 * MOST_DIGESTS):
        guard.note("long", [ended(n)])
    for n in range(3 * MOST_RUNS):
        guard.note(f"run {n}", [ended("same")])

    assert len(guard._runs) == MOST_RUNS
    assert guard.note("run 0", [ended("same")]) is None
    tracemalloc.start()
    for n in range(5 * MOST_DIGESTS):
        guard.note("long", [ended(n)])
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 400_000


def test_it_costs_a_few_steps_a_call_however_many_they_are_and_nothing_without_a_run() -> None:
    guard = LoopGuard()

    def cost(run_id: str | None, calls: int) -> int:
        batch = [ended({"id": n, "at": "2026-01-01T00:00:00Z", "ok": True}, text="hello", n=n) for n in range(calls)]
        return effort(lambda: guard.note(run_id, batch))

    assert all(cost("run", calls) < 150 * calls for calls in (10, 100, 1_000))
    assert cost(None, 1_000) == cost(None, 1)


# -- what becomes of the result


def test_the_planner_is_told_by_a_message_before_those_of_errors_and_the_end_is_the_fault_of_the_last_result() -> None:
    error = {"call": {}, "error": {}}
    result = ActionResult(messages=({"type": "data", "kind": "error", "data": error},), errors=(error,))

    told = with_notice(result, Notice("told", "again", 3, ("look",)))

    assert [message["kind"] for message in told.messages] == ["guard", "error"]
    assert told.messages[0]["data"]["message"] == "again"
    assert (told.status, told.fault) == ("ok", None)
    assert with_notice(result, None) is result
    over = with_notice(ActionResult(), Notice("ended", "again", 4))
    assert (over.status, over.fault.message) == ("partial", "no_progress: again")
    earlier = Fault("denied", "a hook was faster")
    assert with_notice(ActionResult(fault=earlier), Notice("ended", "again", 4)).fault is earlier


# -- after a restart


def batch(*results: CallResult, messages: Any = (), output: Any = None) -> ActionResult:
    return ActionResult(Action(output=output), results=results, messages=tuple(messages))


def came(output: Any, *, attempts: int = 1, status: Any = "ok", tool: str = "look", **params: Any) -> CallResult:
    return CallResult(Call(tool, params), status, output=output, attempts=attempts)


@pytest.mark.parametrize("before", [1, 2, 3])
def test_a_new_process_counts_on_from_what_the_earlier_ticks_came_to(before: int) -> None:
    guard = LoopGuard()

    guard.recall("run", [batch(came("same", x=1))] * before)
    found = [guard.note("run", [ended("same", x=1)]) for _ in range(before, 4)]

    assert [notice.verdict if notice else "" for notice in found] == ["", "", "told", "ended"][before:]


def test_a_new_process_knows_what_was_denied_and_what_could_not_run() -> None:
    guard = LoopGuard()
    was_denied, could_not = denied(x=1)[1], unable(x=1)[1]

    guard.recall("run", [batch(was_denied, could_not), batch(was_denied, could_not)])

    assert guard.is_refused("run", "act", {"x": 1})
    assert [verdict(guard.note("run", [unable(x=n)])) for n in range(4)] == ["told", "told", "told", "ended"]


def verdict(notice: Notice | None) -> str:
    return notice.verdict if notice else ""


def test_what_is_known_of_a_run_is_not_counted_twice() -> None:
    guard = LoopGuard()
    earlier = [batch(came("same"))]

    guard.note("run", [ended("same")])
    guard.recall("run", earlier)
    guard.recall("run", earlier)

    assert guard.note("run", [ended("same")]) is None


def test_results_that_came_back_from_the_store_are_the_same() -> None:
    guard = LoopGuard()
    output = {"rows": [1, 2.5, "x", None], "took": 0.3}
    stored = msgspec.json.encode([batch(came(output, x=(1, 2)))] * 2)

    guard.recall("run", msgspec.json.decode(stored, type=list[ActionResult]))

    notice = guard.note("run", [ended(dict(output, took=0.9), x=[1, 2])])
    assert notice.verdict == "told"


def test_what_a_call_referred_to_is_read_from_what_had_been_written() -> None:
    guard = LoopGuard()
    save = came("saved", tool="save", text="†state.page", note="††literal")
    earlier = [batch(save, messages=[{"type": "state", "state": {"page": page}}]) for page in ("a", "a", "b", "b")]

    guard.recall("run", earlier)

    saved = [guard.note("run", [ended("saved", tool="save", text=page, note="†literal")]) for page in "cbb"]
    assert [notice.verdict if notice else "" for notice in saved] == ["", "", ""]
    assert guard.note("run", [ended("saved", tool="save", text="b", note="†literal")]) is not None


def test_what_cannot_be_told_any_more_is_news() -> None:
    guard = LoopGuard()
    lost = came("saved", tool="save", text="†state.gone")

    guard.recall("run", [batch(lost), batch(lost, messages=[{"no": "type"}]), batch(came("same")), batch(came("same"))])

    notice = guard.note("run", [ended("same")])
    assert (notice.verdict, notice.times) == ("told", 3)
    assert guard.note("run", [ended("saved", tool="save")]) is None


def test_ticks_that_were_not_judged_are_not_judged_afterwards() -> None:
    guard = LoopGuard()
    parked = CallResult(Call("look"), "skipped", "parked")

    guard.recall("run", [batch(came("same"), output="an answer"), batch(came("same"), parked), batch()] * 3)

    assert not any(guard.note("run", [ended("same")]) for _ in range(2))


# -- in an executor


async def acted(made: Executor, count: int, call: Any) -> list[str]:
    """How the batches of one run ended, until one ended the run."""
    found: list[str] = []
    for number in range(count):
        run = RunContext("r1", "goal", number + 1)
        result = await made.act(Action((call(number),)), Context("main", f"c{number}", "s", run=run))
        found.append(result.fault.kind if result.fault else "")
        if found[-1]:
            break
    return found


async def test_a_planner_that_calls_what_is_not_there_is_stopped_after_a_few_requests() -> None:
    assert await acted(Executor([]), 20, lambda n: Call(f"tool {n}", {"x": n})) == [*[""] * 5, "no_progress"]


async def test_people_who_said_no_are_asked_once_more_and_then_the_run_is_over() -> None:
    asked: list[Call] = []

    @tool(approval="ask")
    async def wipe(disk: str) -> None: ...

    def no(call: Call) -> bool:
        asked.append(call)
        return False

    made = Executor([wipe])
    made.confirm = no

    assert await acted(made, 20, lambda n: Call("wipe", {"disk": "a"})) == ["", "", "no_progress"]
    assert len(asked) == 2
    await made.act(Action((Call("wipe", {"disk": "b"}),)), Context("main", "c", "s", run=RunContext("r1", "goal")))
    assert len(asked) == 3  # another call is another question
