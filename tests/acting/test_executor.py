import asyncio
import gc
import threading
import time
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from acting import Executor, ToolContext
from acting.run.batch import Batch
from acting.run.runtime import LateMessages
from spar.bus.bus import Events
from spar.clock import SystemClock
from spar.errors import ConfigError, PermanentError, TransientError
from spar.events import (
    ApprovalRequested,
    ApprovalResolved,
    CallCompleted,
    CallEvent,
    CallFailed,
    CallProgressed,
    CallProposed,
    CallSkipped,
    CallStarted,
    WriteConflict,
)
from spar.hooks import Decision, Hooks
from spar.protocols import Context, Host
from spar.protocols.tools import tool
from spar.types import Action, ActionResult, Call, CallResult, Message, Verdict, replace
from tests.forced import forced
from tests.waiting import cancelled, until

QUICK = {"grace": 0.02}


@tool(effect="read")
async def echo(value: Any = None) -> Any:
    return value


@tool(effect="read")
async def add(a: int, b: int = 1) -> int:
    return a + b


@tool
async def fail(text: str = "no") -> None:
    raise ValueError(text)


def statuses(result: ActionResult) -> list[str]:
    return [f"{each.status} {each.reason}".strip() for each in result.results]


def kinds(result: ActionResult) -> list[str]:
    return [each.fault.kind if each.fault else "" for each in result.results]


async def stubbornly(free: asyncio.Event) -> None:
    """Wait whoever cancels it."""
    while not free.is_set():
        with suppress(asyncio.CancelledError):
            await free.wait()


def others() -> set[asyncio.Task[Any]]:
    return asyncio.all_tasks() - {asyncio.current_task()}


# -- what is handed over


@pytest.mark.parametrize(
    "item",
    [
        5, None, "echo", [], {}, {"_tool": ""}, {"_tool": 5}, {"_tool": "echo", "_after": "x"},
        {"_tool": "echo", "_id": 5},
        {"_tool": "echo", "_outputPath": 5}, {"_tool": "echo", 5: 5}, {"_tool": "echo", "_outputMethod": "burn"},
        {"_tool": "echo", "_detach": "yes"}, {"_tool": "echo", "_instance": ""}, {"_tool": "echo", "_delegate": "x"},
        {"_tool": "echo", "_expectSchema": {"type": "x"}},
        {"_tool": "echo", "_scopes": "state"},
        *[
            forced(Call("echo"), **fields)
            for fields in ({"params": None}, {"params": {5: 5}}, {"tool": 5}, {"id": None}, {"after": "ab"},
                           {"after": (1,)}, {"output_path": 5}, {"meta": []})
        ],
        Call("echo", id=""), Call("echo", output_path="†state.x", meta={"_detach": True}),
    ],
)  # fmt: skip
async def test_what_cannot_be_read_as_a_call_is_a_failed_result_and_disturbs_nothing(item: Any) -> None:
    result = await Executor([echo]).run([Call("echo", {"value": 1}), item, Call("echo", {"value": 2})])

    assert statuses(result) == ["ok", "failed", "ok"]
    bad = result.results[1]
    assert (bad.fault.kind, bad.attempts, bad.fault.retryable) == ("bad_call", 0, False)
    assert msgspec.json.encode(result.errors)


async def test_what_is_not_even_a_list_is_one_unreadable_call() -> None:
    for calls in (None, 5, "text"):
        assert kinds(await Executor([echo]).run(calls)) == ["bad_call"]
    assert statuses(await Executor([echo]).run(Call("echo"))) == ["ok"]


async def test_structural_errors_are_told_apart_and_never_attempted() -> None:
    result = await Executor([echo, add]).run(
        [
            Call("nope"),
            Call("add", {"a": "x"}),
            Call("add", {"a": 1, "c": 1}),
            Call("echo", {"value": ["†state..x"]}),
            Call("echo", {"value": "†state.x || †state.y"}),
            Call("echo", output_path="state.x"),
            Call("echo", {"value": "†state.nobody"}),
            Call("echo", after=("nobody",)),
            Call("echo", id="one"),
            Call("echo", id="one"),
            Call("echo", {"value": "†state.mine"}, output_path="†state.mine"),
        ]
    )

    assert kinds(result) == [
        "unknown_tool", "bad_parameters", "bad_parameters", "bad_reference", "bad_reference", "bad_reference",
        "bad_reference", "bad_reference", "", "duplicate_id", "cycle",
    ]  # fmt: skip
    assert {each.attempts for each in result.results if each.status == "failed"} == {0}
    assert result.status == "partial"


# -- data


async def test_what_a_call_writes_others_read_wherever_they_stand_in_the_list() -> None:
    result = await Executor([add]).run(
        [
            Call("add", {"a": "†state.b", "b": "†state.a"}, id="late", output_path="†state.c"),
            Call("add", {"a": 1}, output_path="†state.a"),
            Call("add", {"a": "†state.a"}, output_path="†state.b"),
        ]
    )

    assert result.state == {"a": 2, "b": 3, "c": 5}
    assert result.result("late").call.params == {"a": "†state.b", "b": "†state.a"}


async def test_context_messages_of_every_shape_can_be_read_and_are_not_changed() -> None:
    context = [
        {"type": "input", "input": {"a": 1}},
        {"type": "state", "state": {"s": {"x": 1, "y": 1}}},
        {"type": "data", "kind": "page", "data": {"title": "t"}},
        {"type": "data", "data": {"d": 1}},
        {"type": "state", "flat": 1},
        {"type": "input", "input": {"a": 2}, "_instance": "other"},
    ]
    before = msgspec.json.encode(context)
    paths = ["†input.a", "†state.s.x", "†state.s.y", "†page.title", "†data.d", "†state.flat"]

    result = await Executor([echo]).run(
        [Call("echo", {"value": paths}), Call("echo", {"value": 9}, output_path="†state.s.z")],
        context=context,
        state={"s": {"x": 2}},
    )

    assert result.results[0].output == [1, 2, 1, "t", 1, 1]
    assert result.state == {"s": {"x": 2, "y": 1, "z": 9}, "flat": 1}
    assert msgspec.json.encode(context) == before


@pytest.mark.parametrize(
    ("method", "value"), [("merge", 1), ("assign", [1]), ("push", 1), ("concat", 1), ("concat", [1])]
)
async def test_a_value_that_does_not_fit_its_method_fails_the_call_and_writes_nothing(method: Any, value: Any) -> None:
    result = await Executor([echo]).run(
        [Call("echo", {"value": value}, output_path="†state.p", output_method=method)], state={"p": "text"}
    )

    assert kinds(result) == ["bad_output"]
    assert (result.results[0].attempts, result.state) == (1, {"p": "text"})


async def test_no_tool_can_change_what_another_call_the_state_or_the_caller_sees() -> None:
    @tool(effect="read")
    async def vandal(value: Any) -> Any:
        value["x"].append("spoilt")
        return value

    mine = {"x": [1]}
    result = await Executor([vandal, echo]).run(
        [
            Call("vandal", {"value": "†state"}, id="1"),
            Call("vandal", {"value": mine}, id="2"),
            Call("echo", {"value": "†state.x"}, after=("1", "2")),
        ],
        state=mine,
    )

    assert result.results[2].output == [1]
    assert (mine, result.state) == ({"x": [1]}, {"x": [1]})
    assert result.results[1].call.params == {"value": {"x": [1]}}


async def test_a_message_is_appended_as_it_is_but_a_dict_that_looks_like_one_is_a_value() -> None:
    @tool(effect="read")
    async def speak() -> Message:
        return Message("state", {"told": True})

    @tool(effect="read")
    async def remote() -> dict[str, Any]:
        return {"type": "state", "state": {"stolen": True}}

    result = await Executor([speak, remote, echo]).run(
        [Call("echo", {"value": "†state.told"}), Call("speak"), Call("remote", output_path="†state.page")]
    )

    assert result.results[0].output is True
    assert result.state == {"told": True, "page": {"type": "state", "state": {"stolen": True}}}


async def test_results_are_json_safe_and_whole_or_the_call_fails() -> None:
    loop: list[Any] = []
    loop += [loop, loop]
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]

    class Odd:
        def __str__(self) -> str:
            raise RuntimeError("unspeakable")

    class Bare:
        pass

    values = {
        "text": "head" + "x" * 5_000_000 + "tail",
        "items": list(range(1_000_000)),
        "loop": loop,
        "deep": deep,
        "number": 10**5000,
        "message": Message("news", "x" * 20_000),
        "odd": Odd(),
        "bare": [Bare()],
        "generator": (n for n in range(3)),
        "twice": {1: "a", "1": "b"},
        "nan": [float("nan"), float("inf")],
        "surrogate": "a\ud800b",
        "set": {2, 1},
        "bytes": b"\xff",
        "keys": {1: 1, None: 2, "\udfff": 3},
    }

    @tool(effect="read")
    async def give(what: str) -> Any:
        return values[what]

    result = await Executor([give], settings={"largest_result": 10_000}).run(
        [Call("give", {"what": what}, id=what) for what in values]
    )

    kinds = {each.call.id: each.fault.kind for each in result.results if each.fault is not None}
    too_large = dict.fromkeys(("text", "items", "loop", "deep", "number", "message"), "too_large")
    assert kinds == too_large | dict.fromkeys(("odd", "bare", "generator", "twice"), "bad_output")
    assert len(msgspec.json.encode(result)) < 20 * 20_000 * 3
    fault = result.result("text").fault
    assert "largest_result allows 10000 bytes" in fault.message
    assert fault.detail["truncated"] is True
    assert fault.detail["output"].startswith("head")
    assert result.result("nan").output == [None, None]
    assert result.result("surrogate").output == "a\ufffdb"
    assert result.result("set").output == [1, 2]


async def test_the_next_call_gets_all_of_a_large_result() -> None:
    @tool(effect="read")
    async def rows(n: int) -> object:
        return {"meta": {"total": n}, "rows": [{"id": i, "name": f"n{i}"} for i in range(n)]}

    @tool(effect="read")
    async def total(rows: list[dict[str, Any]]) -> int:
        return sum(row["id"] for row in rows)

    result = await Executor([rows, total]).run(
        [Call("rows", {"n": 40_000}, output_path="†state.r"), Call("total", {"rows": "†state.r.rows"})]
    )

    assert result.results[1].output == 799_980_000
    assert len(result.state["r"]["rows"]) == 40_000
    assert len(result.results[0].output["rows"]) == 40_000


# -- order, parallelism, failure


async def test_a_tool_that_cancels_its_own_task_costs_no_other_call_its_turn() -> None:
    @tool(effect="read")
    async def quit() -> None:
        task = asyncio.current_task()
        task.cancel()
        await asyncio.sleep(1)

    calls = [Call("quit"), Call("echo", {"value": 1}), Call("quit"), Call("echo", {"value": 2})]
    result = await asyncio.wait_for(Executor([quit, echo], settings={"max_parallel": 1}).run(calls), 30)

    assert [each.status for each in result.results] == ["cancelled", "ok", "cancelled", "ok"]
    assert not others()


async def test_many_waiting_calls_all_start_within_a_few_turns_of_the_loop() -> None:
    started: list[int] = []
    turns = 0

    @tool(effect="read")
    async def wait(n: int) -> None:
        started.append(n)
        await asyncio.sleep(0.05)

    async with Executor([wait]) as executor:  # a thread has made what validates the parameters
        running = asyncio.create_task(executor.run([Call("wait", {"n": n}) for n in range(60)]))
        while len(started) < 60:
            await asyncio.sleep(0)
            turns += 1
        assert turns < 15
        await running


async def test_the_interpreter_finds_the_attributes_of_a_batch_without_a_dictionary() -> None:
    batches: list[Any] = []

    async def look() -> None:
        batches.extend(item for item in gc.get_objects() if isinstance(item, Batch))

    assert statuses(await Executor([look]).run([Call("look")])) == ["ok"]
    assert max(len(vars(batch)) for batch in batches) <= 29  # as many keys as objects of a class can share


async def test_independent_calls_run_side_by_side_within_the_limit() -> None:
    running = most = 0

    @tool(effect="read")
    async def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.05)
        running -= 1

    await Executor([work]).run([Call("work") for _ in range(20)])
    assert most == 20
    most = 0
    await Executor([work], settings={"max_parallel": 3}).run([Call("work") for _ in range(20)])
    assert most == 3


async def test_a_tools_concurrency_holds_across_runs_and_does_not_hold_back_other_tools() -> None:
    running = most = 0

    @tool(effect="read", concurrency=2)
    async def narrow() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.002)
        running -= 1

    executor = Executor([narrow, echo], settings={"max_parallel": 4})
    first, second = await asyncio.gather(
        *(executor.run([*(Call("narrow") for _ in range(6)), Call("echo")]) for _ in range(2))
    )

    assert most == 2
    assert (first.status, second.status) == ("ok", "ok")


async def test_blocking_functions_run_in_threads_side_by_side() -> None:
    meeting = threading.Barrier(3, timeout=30)

    def meet() -> str:
        meeting.wait()
        return threading.current_thread().name

    result = await Executor([meet]).run([Call("meet") for _ in range(3)])

    assert result.status == "ok"
    assert threading.main_thread().name not in {each.output for each in result.results}


async def test_a_failing_call_leaves_its_siblings_alone_and_what_depends_on_it_is_skipped() -> None:
    result = await Executor([echo, fail]).run(
        [
            Call("fail", id="f", output_path="†state.f"),
            Call("echo", {"value": "†state.f.x"}, id="reader", output_path="†state.g"),
            Call("echo", {"value": "†state.g"}, id="second"),
            Call("echo", after=("f",), id="follower"),
            Call("echo", after=("follower",), id="after follower"),
            Call("echo", id="free"),
            Call("echo", {"zz": 1}, id="refused", output_path="†state.r"),
            Call("echo", {"value": "†state.r"}),
            Call("echo", after=("refused",)),
        ]
    )

    assert statuses(result) == ["failed", *["skipped dep_failed"] * 4, "ok", "failed", *["skipped dep_failed"] * 2]
    assert {error["call"]["_id"] for error in result.errors} == {"f", "refused"}
    assert result.status == "partial"


async def test_a_resolved_value_of_the_wrong_type_is_found_before_the_tool_runs() -> None:
    result = await Executor([echo, add]).run(
        [Call("echo", {"value": "x"}, output_path="†state.x"), Call("add", {"a": "†state.x"})]
    )

    assert (kinds(result)[1], result.results[1].attempts) == ("bad_parameters", 0)


async def test_two_that_write_one_place_without_knowing_of_each_other_are_told_and_the_last_to_end_wins() -> None:
    events = Events()
    seen: list[WriteConflict] = []
    events.subscribe(WriteConflict, seen.append)

    @tool(effect="read")
    async def wait(seconds: float, value: int) -> int:
        await asyncio.sleep(seconds)
        return value

    executor = Executor([wait, echo], events=events)
    result = await executor.run(
        [
            Call("wait", {"seconds": 0.02, "value": 1}, id="slow", output_path="†state.x"),
            Call("wait", {"seconds": 0.001, "value": 2}, id="fast", output_path="†state.x"),
        ]
    )
    assert result.state == {"x": 1}
    assert [(each.path, each.calls) for each in seen] == [("†state.x", ("fast", "slow"))]

    seen.clear()
    await executor.run(
        [
            Call("echo", {"value": 1}, id="a", output_path="†state.x"),
            Call("echo", {"value": 2}, after=("a",), output_path="†state.x"),
            Call("echo", {"value": 3}, output_path="†state.y"),
        ]
    )
    assert seen == []


# -- time


async def test_a_late_call_is_cancelled_at_its_deadline_and_its_siblings_go_on() -> None:
    cancelled = False

    @tool(timeout=0.02)
    async def hang() -> None:
        nonlocal cancelled
        try:
            await asyncio.Event().wait()
        finally:
            cancelled = True

    result = await Executor([hang, echo], settings=QUICK).run(
        [Call("hang", id="h"), Call("echo"), Call("echo", after=("h",))]
    )

    assert cancelled
    assert statuses(result) == ["timeout", "ok", "skipped dep_failed"]
    assert result.results[0].is_in_doubt  # it must not be repeated unknowingly
    assert "may have had its effect" in result.results[0].fault.message
    assert "did not end within 0.02 s" in str(result.results[0].fault)
    assert others() == set()


async def test_a_tool_that_ignores_cancellation_is_left_behind() -> None:
    free = asyncio.Event()

    @tool(timeout=0.01, concurrency=1)
    async def stubborn() -> str:
        await stubbornly(free)
        return "too late"

    executor = Executor([stubborn, echo], settings=QUICK)
    result = await asyncio.wait_for(executor.run([Call("stubborn"), Call("stubborn"), Call("echo")]), 30)

    assert statuses(result) == ["timeout", "timeout", "ok"]
    assert executor.snapshot()["left_behind"] == 2
    free.set()
    await until(lambda: executor.snapshot()["left_behind"] == 0)


async def test_a_thread_that_blocks_past_its_deadline_is_left_behind() -> None:
    free = threading.Event()

    @tool(timeout=0.02)
    def block() -> None:
        free.wait(60)

    result = await asyncio.wait_for(Executor([block], settings=QUICK).run([Call("block")]), 30)

    free.set()
    assert statuses(result) == ["timeout"]


@pytest.mark.parametrize("ends", ["late", "cancelled", "detached", "ended"])
async def test_a_thread_can_see_that_nobody_waits_for_it_any_more(ends: str) -> None:
    seen, begun, is_over = list[bool](), asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    @tool(effect="read", timeout=0.05 if ends == "late" else 60, retries=1)
    def work(context: ToolContext) -> None:
        def look() -> None:
            while not context.is_cancelled:
                time.sleep(0.001)
            is_over.set()

        seen.append(context.is_cancelled)
        loop.call_soon_threadsafe(begun.set)
        if ends == "ended":
            threading.Thread(target=look, daemon=True).start()
        elif context.attempt == 1:
            look()

    executor = Executor([work], settings={**QUICK, "drain": 0.0})
    running = asyncio.create_task(executor.run([Call("work", meta={"_detach": True} if ends == "detached" else {})]))
    await begun.wait()
    if ends == "cancelled":
        running.cancel()
    await asyncio.wait([running])
    await executor.aclose()

    assert await asyncio.to_thread(is_over.wait, 30)
    assert not any(seen)


async def test_a_late_answer_within_the_grace_time_is_still_late() -> None:
    @tool(timeout=0.01)
    async def slow() -> str:
        try:
            await asyncio.sleep(5)
        except asyncio.CancelledError:
            return "cleaned up"
        return "done"

    result = await Executor([slow, echo]).run([Call("slow", id="s"), Call("echo")])

    assert statuses(result) == ["timeout", "ok"]
    assert result.results[0].output is None


@pytest.mark.parametrize(
    ("effect", "error", "attempts"),
    [
        ("read", TransientError("busy", retry_after=0.001), 3),
        ("idempotent", ConnectionError("gone"), 3),
        ("once", TransientError("busy"), 1),
        ("read", PermanentError("never"), 1),
        ("read", TransientError("busy", retry_after=3600), 1),
    ],
)
async def test_only_what_may_be_repeated_and_may_help_is_retried(
    effect: Any, error: Exception, attempts: int, clock: Any
) -> None:
    @tool(effect=effect, retries=2)
    async def shaky() -> None:
        raise error

    result = await Executor([shaky], clock=clock).run([Call("shaky")])

    assert (statuses(result), result.results[0].attempts) == (["failed"], attempts)


@pytest.mark.parametrize(
    ("effect", "status"), [("read", "cancelled"), ("idempotent", "cancelled"), ("once", "in_doubt")]
)
async def test_a_tool_that_cancels_itself_does_not_cancel_the_run_and_may_have_had_its_effect(
    effect: Any, status: str
) -> None:
    @tool(effect=effect)
    async def give_up() -> None:
        raise asyncio.CancelledError

    result = await Executor([give_up, echo]).run([Call("give_up"), Call("echo")])

    assert statuses(result) == [status, "ok"]


# -- cancelling


async def test_cancelling_a_run_cancels_its_calls_leaves_no_task_and_tells_what_became_of_them() -> None:
    started: list[str] = []

    @tool(effect="once")
    async def pay() -> None:
        started.append("pay")
        await asyncio.Event().wait()

    @tool(effect="read")
    async def look() -> None:
        started.append("look")
        await asyncio.Event().wait()

    executor = Executor([pay, look, echo], settings=QUICK)
    action = Action(calls=[Call("echo"), Call("pay", id="p"), Call("look", id="l"), Call("echo", after=("l",))])
    run = asyncio.create_task(executor.act(action))
    await until(lambda: len(started) == 2)
    await cancelled(run)
    assert others() == set()
    result = executor.interrupted(action.id)
    assert result.status == "interrupted"
    assert statuses(result) == ["ok", "in_doubt", "cancelled", "cancelled"]
    assert [each.attempts for each in result.results] == [1, 1, 1, 0]
    assert executor.interrupted(action.id) is None


async def test_cancelling_is_not_stalled_by_a_tool_that_ignores_it() -> None:
    free = asyncio.Event()

    @tool
    async def stubborn() -> None:
        await stubbornly(free)

    executor = Executor([stubborn], settings=QUICK)
    run = asyncio.create_task(executor.run([Call("stubborn")]))
    await until(lambda: executor.snapshot()["running"])
    run.cancel()
    done, _ = await asyncio.wait([run], timeout=30)

    assert done
    assert run.cancelled()
    free.set()
    await until(lambda: not others())


# -- detached


async def test_a_detached_call_is_not_waited_for_and_closing_drains_it() -> None:
    ended = False

    @tool
    async def background() -> None:
        nonlocal ended
        await asyncio.sleep(0.02)
        ended = True

    events = Events()
    seen: list[str] = []
    events.subscribe(CallEvent, lambda event: seen.append(type(event).__name__))
    async with Executor([background, echo], events=events) as executor:
        result = await executor.run([Call("background", id="b", meta={"_detach": True}), Call("echo", after=("b",))])

        assert statuses(result) == ["ok detached", "ok"]
        assert not ended
        assert executor.snapshot()["detached"] == 1
    assert ended
    assert seen.count("CallCompleted") == 2
    assert others() == set()


async def test_nothing_that_detached_calls_bring_is_dropped_however_many_there_are() -> None:
    @tool(detach=True, effect="read")
    async def background(n: int) -> Message:
        if n % 2:
            raise ValueError(f"later {n}")
        return Message("news", {"n": n})

    executor = Executor([background], settings={"max_detached": 1000})
    first = await executor.run([Call("background", {"n": n}) for n in range(300)])
    await until(lambda: executor.snapshot()["detached"] == 0)
    second = await executor.run([])

    news = [each["data"]["n"] for each in (*first.messages, *second.messages) if each["kind"] == "news"]
    assert news == list(range(0, 300, 2))
    assert [each["error"]["message"] for each in (*first.errors, *second.errors)] == [
        f"later {n}" for n in range(1, 300, 2)
    ]


async def test_what_a_detached_call_brings_is_for_its_own_session() -> None:
    @tool(detach=True, effect="read")
    async def background() -> Message:
        return Message("news", 1)

    executor = Executor([background])
    await executor.act(Action((Call("background"),)), Context("main", "c1", "mine"))
    await until(lambda: executor.snapshot()["detached"] == 0)
    other = await executor.act(Action(()), Context("main", "c2", "other"))
    mine = await executor.act(Action(()), Context("main", "c3", "mine"))

    assert (len(other.messages), len(mine.messages)) == (0, 1)


def test_what_waits_too_long_for_a_tick_is_dropped_oldest_first_and_told() -> None:
    told: list[tuple[str, str]] = []
    late = LateMessages(lambda session, fault: told.append((session, fault.kind)), limit=100)
    for number in range(4):
        late.add("a" if number < 2 else "b", {"data": str(number) * 30}, is_error=number == 3)

    errors, messages = late.take("a")
    assert (len(errors), messages, told) == (1, [], [("a", "dropped"), ("a", "dropped")])
    assert errors[0]["call"] is None
    assert "2 messages or errors of detached calls were dropped" in errors[0]["error"]["message"]
    assert [len(found) for found in late.take("b")] == [1, 1]
    assert late.take("a") == ([], [])


async def test_detached_calls_are_bounded_and_cancelled_when_they_outlast_the_drain() -> None:
    @tool
    async def forever() -> None:
        await asyncio.Event().wait()

    executor = Executor([forever], settings={"max_detached": 1, "drain": 0.01, "grace": 0.02})
    result = await executor.run([Call("forever", meta={"_detach": True}) for _ in range(2)])
    await executor.aclose()

    assert statuses(result) == ["ok detached", "failed"]
    assert kinds(result)[1] == "resources"
    assert others() == set()


# -- approval


@tool(approval="ask")
async def risky(value: Any = None) -> Any:
    return value


@tool(approval="deny")
async def forbidden() -> None: ...


async def _async_yes(call: Call) -> bool:
    return True


@pytest.mark.parametrize(
    ("confirm", "status"),
    [
        (None, "denied denied"),
        (lambda call: True, "ok"),
        (lambda call: Verdict.approve(), "ok"),
        (_async_yes, "ok"),
        (lambda call: False, "denied denied"),
        (lambda call: Verdict.deny("no"), "denied denied"),
        (lambda call: 1, "denied denied"),
        (lambda call: None, "denied denied"),
        (lambda call: "yes", "denied denied"),
        (lambda call: Verdict("edit"), "denied denied"),
        (lambda call: 1 / 0, "denied denied"),
    ],
)
async def test_only_a_clear_yes_lets_a_call_run(confirm: Any, status: str) -> None:
    result = await Executor([risky]).run([Call("risky")], confirm=confirm)

    assert statuses(result) == [status]
    assert len(result.errors) == (status != "ok")


async def test_only_calls_that_need_it_are_asked_about_once_they_are_ready_with_their_values() -> None:
    asked: list[Call] = []

    def confirm(call: Call) -> bool:
        asked.append(call)
        call.params["value"].append("changed by the approver")
        return True

    result = await Executor([risky, echo, forbidden]).run(
        [
            Call("risky", {"value": "†state.x"}, id="r"),
            Call("echo", {"value": [1]}, output_path="†state.x"),
            Call("risky", {"value": "†state.nobody"}),
            Call("forbidden"),
        ],
        confirm=confirm,
    )

    assert [call.id for call in asked] == ["r"]
    assert asked[0].params["value"][0] == 1
    assert statuses(result) == ["ok", "ok", "failed", "denied denied"]
    assert result.results[0].output == [1]


async def test_an_edit_replaces_all_parameters_and_is_checked_again() -> None:
    async def ask(verdict: Verdict) -> ActionResult:
        return await Executor([risky]).run(
            [Call("risky", {"value": 1}, id="r")], confirm=lambda call: verdict, state={"x": 7}
        )

    edited = await ask(Verdict.edit({"value": "†state.x"}))
    assert edited.results[0].output == 7
    assert edited.results[0].call.meta["_original"]["value"] == 1
    for params, kind in (
        ({"other": 1}, "bad_parameters"),
        ({"value": "†state.no"}, "bad_reference"),
        ({1: 1}, "bad_call"),
    ):
        refused = await ask(Verdict.edit(params))  # type: ignore[arg-type]
        assert (statuses(refused), kinds(refused), refused.results[0].attempts) == (["failed"], [kind], 0)


async def test_a_replacement_keeps_the_id_and_the_output_path_unless_it_names_one() -> None:
    async def replaced(new: Call) -> ActionResult:
        return await Executor([risky, add, forbidden]).run(
            [Call("risky", id="r", output_path="†state.out"), Call("add", {"a": 1}, id="next", after=("r",))],
            confirm=lambda call: Verdict.replace(new),
        )

    result = await replaced(Call("add", {"a": 4}, id="another"))
    assert (result.results[0].call.id, result.results[0].call.tool, result.state) == ("r", "add", {"out": 5})
    assert result.results[0].call.meta["_original"]["_tool"] == "risky"
    assert result.results[1].status == "ok"
    assert (await replaced(Call("add", {"a": 4}, output_path="†state.else"))).state == {"else": 5}
    assert kinds(await replaced(Call("nope")))[0] == "unknown_tool"
    assert statuses(await replaced(Call("forbidden")))[0] == "denied denied"


async def test_text_from_outside_does_not_become_a_reference_when_an_approver_hands_it_back() -> None:
    result = await Executor([risky]).run(
        [Call("risky", {"value": ["†input.text", 1]})],
        context=[{"type": "input", "input": {"text": "†state.secret"}}],
        state={"secret": "s3cret"},
        confirm=lambda call: Verdict.edit({"value": [call.params["value"][0], 2]}),
    )

    assert result.results[0].output == ["†state.secret", 2]


async def test_an_approver_that_is_late_denies_even_if_it_ignores_cancellation() -> None:
    free = asyncio.Event()
    events = Events()
    seen: list[str] = []
    events.subscribe(CallEvent, lambda event: seen.append(type(event).__name__))

    async def slow(call: Call) -> bool:
        await stubbornly(free)
        return True

    executor = Executor([risky, echo], approval_timeout=0.01, events=events)
    result = await asyncio.wait_for(executor.run([Call("risky")], confirm=slow), 30)
    free.set()

    assert statuses(result) == ["denied expired"]
    assert seen == ["CallProposed", "ApprovalRequested", "ApprovalExpired", "CallSkipped"]
    await until(lambda: not others())


# -- hooks and events


async def test_a_hook_before_a_call_may_deny_rewrite_or_ask() -> None:
    async def guard(ctx: Any) -> Decision | None:
        call = ctx.value
        if call.params.get("value") == "bad":
            return Decision.deny("not that")
        if call.params.get("value") == "old":
            return Decision.rewrite(replace(call, params={"value": "new"}))
        if call.params.get("value") == "ask":
            return Decision.require_approval("are you sure")
        if call.params.get("value") == "junk":
            return Decision.rewrite("junk")
        return None

    hooks = Hooks()
    hooks.add("before_call", guard)
    result = await Executor([echo], hooks=hooks).run(
        [Call("echo", {"value": each}) for each in ("bad", "old", "ask", "junk", "fine")], confirm=lambda call: False
    )

    assert statuses(result) == ["denied denied", "ok", "denied denied", "denied denied", "ok"]
    assert [each.output for each in result.results] == [None, "new", None, None, "fine"]


async def test_a_hook_that_ends_the_run_lets_nothing_further_start() -> None:
    hooks = Hooks()
    hooks.add("before_call", lambda ctx: Decision.stop_run("enough") if ctx.value.id == "stop" else None)

    result = await Executor([echo], hooks=hooks).run(
        [
            Call("echo", id="a"),
            Call("echo", id="stop", after=("a",)),
            Call("echo", after=("stop",)),
            Call("echo", {"value": "†state.no"}),
        ]
    )

    assert statuses(result) == ["ok", "denied denied", "skipped dep_failed", "skipped dep_failed"]
    assert result.fault.message == "enough"


async def test_hooks_see_each_result_and_may_change_what_is_kept_of_it() -> None:
    seen: list[CallResult] = []

    def redact(ctx: Any) -> Decision | None:
        return Decision.rewrite(replace(ctx.value, output="***")) if ctx.value.output == "secret" else None

    hooks = Hooks()
    hooks.add("after_call", lambda ctx: seen.append(ctx.value))
    hooks.add("result_persist", redact)
    result = await Executor([echo, fail], hooks=hooks).run(
        [Call("echo", {"value": "secret"}, output_path="†state.x"), Call("fail"), Call("echo", {"value": 1})]
    )

    assert [each.status for each in seen] == ["ok", "failed", "ok"]
    assert (result.results[0].output, result.state) == ("***", {"x": "***"})


async def test_events_tell_the_life_of_each_call_in_order() -> None:
    @tool(effect="read")
    async def report(context: ToolContext) -> str:
        context.progress(0.5)
        await asyncio.sleep(0)
        return context.agent

    @tool(effect="read")
    def blocking(context: ToolContext) -> None:
        context.progress({"done": 1})

    events = Events()
    seen: dict[str, list[Any]] = {}
    events.subscribe(CallEvent, lambda event: seen.setdefault(event.call.id, []).append(event))
    executor = Executor([report, blocking, fail, risky, echo], events=events)

    await executor.run(
        [
            Call("report", id="report"),
            Call("blocking", id="blocking"),
            Call("fail", id="fail"),
            Call("risky", id="risky"),
            Call("echo", id="skipped", after=("fail",)),
            Call("nope", id="nope"),
        ],
        confirm=lambda call: True,
    )

    assert {id: [type(each) for each in found] for id, found in seen.items()} == {
        "report": [CallProposed, CallStarted, CallProgressed, CallCompleted],
        "blocking": [CallProposed, CallStarted, CallProgressed, CallCompleted],
        "fail": [CallProposed, CallStarted, CallFailed],
        "risky": [CallProposed, ApprovalRequested, ApprovalResolved, CallStarted, CallCompleted],
        "skipped": [CallProposed, CallSkipped],
        "nope": [CallProposed, CallFailed],
    }
    assert seen["fail"][-1].result.status == "failed"
    assert seen["report"][2].progress == 0.5


async def test_anything_with_publish_will_do_and_cannot_disturb_the_run() -> None:
    class Broken:
        def publish(self, event: Any) -> None:
            raise RuntimeError("no")

    assert statuses(await Executor([echo], events=Broken()).run([Call("echo")])) == ["ok"]


# -- being a part


async def test_the_agents_clock_events_and_hooks_are_taken_unless_given_by_hand() -> None:
    class Attached:
        name, effect, timeout = "attached", "read", 1.0
        host: Host | None = None

        def attach(self, host: Host) -> None:
            self.host = host

        async def __call__(self) -> str:
            return "ok"

    events, mine, hooks = Events(), Events(), Hooks()
    seen: list[Any] = []
    events.subscribe(CallCompleted, seen.append)
    hooks.add("before_call", lambda ctx: Decision.deny(ctx.agent))
    host = Host("main", SystemClock(), events, hooks, wake=lambda: None)
    part = Attached()
    ours, theirs = Executor([echo, part], hooks=Hooks()), Executor([echo], events=mine)
    ours.attach(host)
    theirs.attach(host)

    assert statuses(await ours.run([Call("echo")])) == ["ok"]
    assert len(seen) == 1
    denied = await theirs.run([Call("echo")])
    assert denied.results[0].fault.message == "main"
    assert len(seen) == 1
    assert part.host is host


async def test_tool_objects_are_opened_and_closed_with_the_executor_in_reverse_order() -> None:
    log: list[str] = []

    class Part:
        effect, timeout = "read", 1.0

        def __init__(self, name: str, *, breaks: bool = False) -> None:
            self.name, self.breaks = name, breaks

        async def __aenter__(self) -> None:
            if self.breaks:
                raise OSError("cannot open")
            log.append(f"+{self.name}")

        async def __aexit__(self, *exc: object) -> None:
            log.append(f"-{self.name}")

        async def __call__(self) -> None: ...

    for _ in range(2):
        async with Executor([Part("a"), echo, Part("b")]):
            pass
    assert log == ["+a", "+b", "-b", "-a"] * 2
    log.clear()
    with pytest.raises(OSError, match="cannot open"):
        async with Executor([Part("a"), Part("b", breaks=True)]):
            pass
    assert log == ["+a", "-a"]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"activities": {"x": 5}}, "activity"),
        ({"journal": object()}, "journal"),
        ({"fallback": "maybe"}, "fallback"),
        ({"approval_timeout": -1}, "approval_timeout"),
        ({"settings": {"max_paralel": 1}}, "max_paralel"),
        ({"settings": {"max_parallel": 0}}, "max_parallel"),
        ({"settings": {"largest_result": 1.5}}, "largest_result"),
        ({"settings": {"grace": float("nan")}}, "grace"),
        ({"settings": {"drain": -1}}, "drain"),
        ({"settings": {"order": "plann"}}, "order is 'plann', expected 'parallel' or 'plan'"),
        ({"settings": {"approval": {"hold": "1 s"}}}, "approval.hold is '1 s', expected a number"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        Executor(**options)


# -- planner's garbage


async def test_a_chain_of_ten_thousand_calls_gives_other_tasks_their_turn() -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    watcher = asyncio.create_task(other())
    calls = [Call("echo", id=f"c{at}", after=(f"c{at - 1}",) if at else ()) for at in range(10_000)]
    result = await Executor([echo]).run(calls)
    watcher.cancel()
    await asyncio.wait([watcher])

    assert result.status == "ok"
    assert turns > 100


def test_the_policy_says_what_it_decides_about_a_call_and_nobody_is_asked() -> None:
    asked: list[Any] = []
    events = Events()
    events.subscribe(ApprovalRequested, asked.append)
    rules = [{"tool": "add", "params": {"a": 1}, "decision": "deny"}]
    executor = Executor([echo, add, fail], events=events, settings={"approval": {"rules": rules}})

    def ruling(call: Call, trust: Any = "trusted") -> tuple[str, str]:
        return executor.ruling(call, trust, "main")

    assert ruling(Call("echo")) == ("auto", "")
    assert ruling(Call("add", {"a": 1})) == ("deny", "rule 1 of the approval rules forbids it")
    assert ruling(Call("add", {"a": "†state.a"}))[0] == "auto"
    assert ruling(Call("fail"), "untrusted")[0] == "ask"
    assert ruling(Call("echo", meta={"_ask": "it failed before"})) == ("ask", "it failed before")
    assert ruling(Call("absent")) == ("", "there is no tool 'absent'")
    assert Executor([echo]).ruling(Call("echo"), "untrusted", "main") == ("auto", "")
    assert asked == []
