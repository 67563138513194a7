"""Whatever a planner or a tool comes up with: never a crash, never a hang, one typed result for each call.

What a run hands on (outputs, faults, messages, errors, state) can always be encoded as JSON.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acting.executor import Executor
from acting.run.call_state import wire_of
from acting.tooling import parameters
from spar.data import paths
from spar.data.json_safe import copier
from spar.types import ActionResult, Call, CallResult, Message
from tests.effort import Effort, hang_guard
from tests.forced import forced

DEEP = 3_000
#: What a call may return at most is a 128th of the usual, and so is the work that what is endless makes.
SETTINGS = {"grace": 0.05, "drain": 0.05, "largest_result": 1 << 17}
STATUSES = {"ok", "failed", "skipped", "denied", "timeout", "cancelled", "in_doubt"}


@pytest.fixture(autouse=True)
def _watchdog(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """For code, too, that gives nobody else a turn; the most values of which a call is told are a 32nd of the usual."""
    for module, name in ((paths, "MAX_VALUES"), (parameters, "MAX_VALUES"), (copier, "AGAIN")):
        monkeypatch.setattr(module, name, getattr(module, name) // 32)
    with hang_guard(150):
        yield


async def echo(value: Any = None) -> Any:
    return value


async def number(n: int, name: str = "", items: list[int] | None = None) -> int:
    return n


def blocking(value: Any = None) -> str:
    return str(value)


class Given:
    """A tool that brings a schema."""

    name = "given"
    schema = {  # noqa: RUF012
        "properties": {"n": {"type": "integer"}, "tree": {"$ref": "#/$defs/Tree"}, "when": {"format": "date"}},
        "$defs": {"Tree": {"items": {"$ref": "#/$defs/Tree"}}},
    }

    async def __call__(self, **params: Any) -> Any:
        return params


TOOLS = [echo, number, blocking, Given()]


async def run(calls: Any, tools: Any = TOOLS, *, within: float = 120, **more: Any) -> ActionResult:
    async with asyncio.timeout(within):
        async with Executor(tools, settings=SETTINGS) as executor:
            return checked(await executor.run(calls, **more))


def checked(result: ActionResult) -> ActionResult:
    assert isinstance(result, ActionResult)
    for each in result.results:
        assert isinstance(each, CallResult)
        assert isinstance(each.call, Call)
        assert each.status in STATUSES
        assert (each.fault is None) == (each.status == "ok" or (each.status == "skipped" and each.reason == "branch"))
        encoded(each.output.data if isinstance(each.output, Message) else each.output)
        if each.fault is not None:
            encoded([each.fault.kind, each.fault.message, each.fault.detail])
    encoded([result.messages, result.errors, result.state])
    return result


def encoded(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False, ensure_ascii=False).encode()


class Hostile:
    """Raises whatever is asked of it."""

    def _no(self, *args: Any) -> Any:
        raise RuntimeError("\ud800 no")

    __repr__ = __str__ = __eq__ = __ne__ = __bool__ = __len__ = __iter__ = __getitem__ = __contains__ = _no  # type: ignore[assignment]
    __int__ = __float__ = __index__ = __lt__ = __gt__ = __format__ = __bytes__ = __getattr__ = __reduce__ = _no
    __hash__ = _no  # type: ignore[assignment]


class HostileText(str):
    __slots__ = ()

    def __repr__(self) -> str:
        raise RuntimeError("no")

    __str__ = __eq__ = __len__ = __getitem__ = startswith = encode = __repr__  # type: ignore[assignment]
    __hash__ = str.__hash__


class HostileDict(dict[Any, Any]):
    def items(self) -> Any:
        raise RuntimeError("no")

    keys = values = get = __iter__ = __len__ = __contains__ = __getitem__ = items  # type: ignore[assignment]


class Endless(Mapping[str, Any]):
    def __getitem__(self, key: str) -> Any:
        return key

    def __iter__(self) -> Iterator[str]:
        number = 0
        while True:
            yield str(number)
            number += 1

    def __len__(self) -> int:
        return 1 << 40


def nested(depth: int, leaf: Any = None) -> Any:
    for _ in range(depth):
        leaf = [leaf]
    return leaf


def nested_object(depth: int) -> Any:
    found: Any = {}
    for _ in range(depth):
        found = {"a": found}
    return found


def holding_itself() -> list[Any]:
    found: list[Any] = [1]
    found.append({"again": found})
    return found


def many_times(depth: int = 60) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found, found]
    return found


VALUES: dict[str, Callable[[], Any]] = {
    "nothing": lambda: None,
    "nan": lambda: float("nan"),
    "infinity": lambda: [float("inf"), -float("inf"), 1e999],
    "a lone surrogate": lambda: {"\ud800": "\udfff", "x": ["a\ud83d"]},
    "control characters": lambda: "\x00\x1b[2J\u202e\u2028\ufeff",
    "a huge integer": lambda: 10**5000,
    "huge integers within": lambda: {"a": [10**5000, -(10**4301)]},
    "a key that is a huge integer": lambda: {10**5000: 1},
    "a megabyte of text": lambda: "x" * (1 << 20),
    "two megabytes of text": lambda: {"a": "ü" * (2 << 20)},
    "many items": lambda: list(range(3_000)),
    "deep arrays": lambda: nested(DEEP),
    "deep objects": lambda: nested_object(DEEP),
    "deep, but only just": lambda: nested(130),
    "itself": holding_itself,
    "one thing many times": many_times,
    "bytes": lambda: b"\xff\x00",
    "a bytearray": lambda: bytearray(b"x"),
    "a set": lambda: {1, "a", None},
    "keys that are no text": lambda: {1: 2, None: 3, (1, 2): 4, 1.5: 5, False: 6},
    "an object": object,
    "a type": lambda: int,
    "a function": lambda: echo,
    "an exception": lambda: ValueError("\ud800"),
    "a generator": lambda: (each for each in range(3)),
    "an endless iterator": lambda: iter(int, 1),
    "a hostile object": Hostile,
    "hostile objects within": lambda: {"a": [Hostile()], "b": Hostile()},
    "a hostile text": lambda: HostileText("x"),
    "a hostile object of objects": lambda: HostileDict(a=1),
    "a tuple": lambda: (1, (2,)),
    "a complex number": lambda: 1j,
    "a memoryview": lambda: memoryview(b"x"),
    "an array of references": lambda: ["†state.a", {"b": "††"}, "†"],
    "half a reference": lambda: "†",
    "a reference that is none": lambda: "†..",
    "a reference with a surrogate": lambda: "†state.\ud800",
    "a long reference": lambda: "†state" + ".a" * 10_000,
    "operators only": lambda: "† || && ||",
}


FIELDS = ["_tool", "_id", "_after", "_outputPath", "_outputMethod", "_instance", "_reasoningForCall", "_scopes",
          "_delegate", "_output", "_activity", "_detach", "_expect", "_expectSchema", "_anything"]  # fmt: skip


@pytest.mark.parametrize("make", VALUES.values(), ids=VALUES.keys())
async def test_any_parameters_give_one_result(make: Callable[[], Any]) -> None:
    value = make()
    calls = [
        *({"_tool": tool, "value": value} for tool in ("echo", "blocking", "none of these")),
        *({"_tool": tool, "n": value} for tool in ("number", "given")),
        {"_tool": "given", "tree": value, "when": value},
        {"_tool": "number", "n": 1, "items": value, "name": value},
        Call("echo", {"value": value}),
    ]

    assert len((await run(calls)).results) == len(calls)


@pytest.mark.parametrize("make", VALUES.values(), ids=VALUES.keys())
async def test_any_field_of_a_call_may_hold_anything(make: Callable[[], Any]) -> None:
    value = make()
    calls = [{"_tool": "echo", "value": 1, key: value} for key in FIELDS]

    found = await run([*calls, {"_tool": "echo", "_id": "sane", "value": 2}])

    assert len(found.results) == len(calls) + 1
    assert found.results[-1].output == 2


@pytest.mark.parametrize("make", VALUES.values(), ids=VALUES.keys())
async def test_a_call_may_be_anything_itself(make: Callable[[], Any]) -> None:
    found = await run([make(), {"_tool": "echo", "_id": "sane", "value": 2}])

    assert len(found.results) == 2
    assert found.results[0].status == "failed"
    assert found.results[1].output == 2


@pytest.mark.parametrize("make", VALUES.values(), ids=VALUES.keys())
async def test_the_fields_of_a_call_object_are_not_trusted_either(make: Callable[[], Any]) -> None:
    fields = ("tool", "params", "id", "output_path", "output_method", "instance", "after", "reason", "meta")
    found = await run([*(forced(Call("echo"), **{name: make()}) for name in fields), Call("echo", {}, id="sane")])

    assert len(found.results) == 10
    assert found.results[-1].status == "ok"


RETURNED = {**VALUES, "an endless mapping": Endless}


@pytest.mark.parametrize("make", RETURNED.values(), ids=RETURNED.keys())
async def test_a_tool_may_return_anything(make: Callable[[], Any]) -> None:
    async def odd() -> Any:
        return make()

    def odd_too() -> Any:
        return make()

    async def odder() -> Any:
        return Message(kind="k", data=make())

    found = await run(
        [
            {"_tool": "odd", "_id": "a"},
            {"_tool": "odd_too", "_id": "b", "_outputPath": "†state.a.b"},
            {"_tool": "odder", "_id": "c"},
            {"_tool": "echo", "value": "†state.a", "_after": ["a", "b", "c"]},
        ],
        [odd, odd_too, odder, echo],
    )

    assert len(found.results) == 4


class WorseError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text either")

    __repr__ = __str__


class BaseError(BaseException):
    pass


def _group() -> BaseException:
    found: BaseException = ExceptionGroup("g", [ValueError("\ud800"), WorseError()])
    for _ in range(200):
        found = BaseExceptionGroup("g", [found, BaseError()])
    return found


def _chained() -> BaseException:
    found = ValueError("x")
    found.__cause__ = found.__context__ = ValueError("y")
    found.__cause__.__cause__ = found
    return found


RAISED: dict[str, Callable[[], BaseException]] = {
    "no text": WorseError,
    "a surrogate": lambda: ValueError("\ud800\x00"),
    "ten megabytes": lambda: ValueError("x" * (10 << 20)),
    "a huge integer": lambda: ValueError(10**5000),
    "hostile arguments": lambda: ValueError(Hostile()),
    "a base exception": BaseError,
    "generator exit": GeneratorExit,
    "stop iteration": lambda: StopIteration(5),
    "stop async iteration": StopAsyncIteration,
    "a cancellation": asyncio.CancelledError,
    "a time-out": TimeoutError,
    "a group": _group,
    "a chain that ends in itself": _chained,
    "out of memory": MemoryError,
    "recursion": RecursionError,
    "an assertion": AssertionError,
}


@pytest.mark.parametrize("make", RAISED.values(), ids=RAISED.keys())
async def test_a_tool_may_raise_anything(make: Callable[[], BaseException]) -> None:
    async def odd() -> Any:
        raise make()

    async def late() -> Any:
        await asyncio.sleep(0)
        raise make()

    def threaded() -> Any:
        raise make()

    names = ["odd", "late", "threaded"]
    found = await run(
        [*({"_tool": name, "_id": name} for name in names), {"_tool": "echo", "value": 1}], [odd, late, threaded, echo]
    )

    assert len(found.results) == 4
    assert all(each.status in ("failed", "cancelled", "timeout", "in_doubt") for each in found.results[:3])
    assert found.results[3].output == 1


async def test_a_tool_that_recurses_without_end_fails_alone() -> None:
    async def endless(n: int = 0) -> Any:
        return await endless(n + 1)

    found = await run([{"_tool": "endless"}, {"_tool": "echo", "value": 1}], [endless, echo])

    assert [each.status for each in found.results] == ["failed", "ok"]


@pytest.mark.parametrize("make", VALUES.values(), ids=VALUES.keys())
def test_any_call_can_be_told(make: Callable[[], Any]) -> None:
    value = make()

    for fields in ({"params": {"value": value}}, {"meta": {"_x": value, 1: 2}}, {"params": value}, {"tool": value},
                   {"id": value}, {"output_path": value, "after": value}, {"meta": value}):  # fmt: skip
        call = forced(Call("echo"), **fields)
        told = wire_of(call)
        encoded(told)
        assert all(type(key) is str for key in told)


# -- many calls


async def test_a_call_whose_arguments_could_not_be_read_is_not_made_without_them() -> None:
    made = []

    async def wipe(path: str = "/") -> None:
        made.append(path)

    result = await Executor([wipe]).run([{"_tool": "wipe", "_bad": '{"path": "/tmp/x'}])

    [wrong] = result.results
    assert (wrong.status, wrong.attempts, made) == ("failed", 0, [])
    assert (wrong.fault.kind, wrong.fault.message) == ("bad_call", 'its arguments cannot be read: \'{"path": "/tmp/x\'')


async def test_thousands_of_calls_at_once_each_have_a_result_and_twice_as_many_are_twice_the_work() -> None:
    async def work(calls: int) -> int:
        with Effort() as counted:
            found = await run([{"_tool": "echo", "value": number} for number in range(calls)])
        assert [each.output for each in found.results] == list(range(calls))
        return counted.steps

    await work(1)
    assert await work(4_000) < 2.3 * await work(2_000)


async def test_thousands_of_calls_of_nonsense_each_have_a_result() -> None:
    kinds: list[Callable[[int], Any]] = [
        lambda n: {"_tool": f"unknown{n}"},
        lambda n: {"_tool": "number", "n": "x" * 1000},
        lambda n: None,
        lambda n: {"_tool": "echo", "_id": "same"},
        lambda n: {"_tool": "echo", "_after": [f"nobody{n}"]},
        lambda n: {"_tool": "echo", "value": f"†state.nothing{n}"},
        lambda n: {},
        lambda n: {"_tool": "echo", "value": "†"},
    ]

    found = await run([kinds[n % len(kinds)](n) for n in range(4_000)])

    assert len(found.results) == 4_000
    assert sum(each.status == "ok" for each in found.results) == 1


async def test_circles_end() -> None:
    size = 2000
    ring = [
        {"_tool": "echo", "_id": str(n), "value": f"†state.v{(n + 1) % size}", "_outputPath": f"†state.v{n}"}
        for n in range(size)
    ]
    waits = [{"_tool": "echo", "_id": f"w{n}", "_after": [f"w{(n + 1) % size}"]} for n in range(size)]

    found = await run([*ring, *waits, {"_tool": "echo", "_id": "self", "_after": ["self"]}])

    assert len(found.results) == 2 * size + 1
    assert all(each.status in ("failed", "skipped") for each in found.results)


# -- streams


async def test_a_stream_may_yield_anything_and_then_break() -> None:
    async def stream() -> AsyncIterator[Any]:
        for make in VALUES.values():
            yield make()
        yield {"_tool": "echo", "_id": "sane", "value": 1}
        raise WorseError

    found = await run(stream())

    assert len(found.results) == len(VALUES) + 1
    encoded([found.fault.kind, found.fault.message])


@pytest.mark.parametrize("make", RAISED.values(), ids=RAISED.keys())
async def test_a_stream_may_raise_anything(make: Callable[[], BaseException]) -> None:
    class Stream:
        def __aiter__(self) -> Stream:
            return self

        async def __anext__(self) -> Any:
            raise make()

    class Items:
        def __iter__(self) -> Items:
            return self

        def __next__(self) -> Any:
            raise make()

    for source in (Stream(), Items()):
        assert (await run(source)).results == ()


def is_endless(make: Callable[[], Any]) -> bool:
    """A list of calls without an end has none; it is cancelled like any run (below)."""
    value = make()
    return value is not None and hasattr(type(value), "__next__") and not hasattr(value, "send")


ENDING = {name: make for name, make in VALUES.items() if not is_endless(make)}


@pytest.mark.parametrize("make", ENDING.values(), ids=ENDING.keys())
async def test_the_calls_may_be_anything(make: Callable[[], Any]) -> None:
    await run(make())


async def test_a_stream_that_ignores_its_cancellation_does_not_hold_the_run() -> None:
    is_over = asyncio.Event()

    async def stream() -> AsyncIterator[Any]:
        yield {"_tool": "echo", "value": 1}
        while not is_over.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                if is_over.is_set():
                    raise

    async with asyncio.timeout(60):
        task = asyncio.create_task(Executor(TOOLS, settings={"grace": 0.05}).run(stream()))
        await asyncio.sleep(0.02)
        task.cancel()
        await asyncio.wait([task], timeout=1)
        is_over.set()
        was_done = task.done()
        await asyncio.wait([task])

    assert task.cancelled() or was_done or task.done()


@pytest.mark.parametrize("make", VALUES.values(), ids=VALUES.keys())
async def test_an_approver_may_answer_anything(make: Callable[[], Any]) -> None:
    from spar.protocols.tools import tool

    @tool(approval="ask")
    async def guarded() -> str:
        return "done"

    async def confirm(call: Call) -> Any:
        return make()

    found = await run([{"_tool": "guarded"}], [guarded], confirm=confirm)

    assert [each.status for each in found.results] == ["denied"]


# -- fuzz

TEXTS = st.text() | st.sampled_from(
    ["†", "††", "†state.a", "†state.a || †state.b", "echo", "number", "given", "a", "b", "\ud800"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=8,
)
NAMES = st.sampled_from(["_tool", "_id", "_after", "_outputPath", "_outputMethod", "_instance", "_detach",
                         "_scopes", "_activity", "_delegate", "_output", "_expect", "_expectSchema", "value",
                         "n", "name", "items", "tree"])  # fmt: skip
SANE = st.fixed_dictionaries(
    {"_tool": st.sampled_from(["echo", "number", "blocking", "given"])},
    optional={
        "_id": st.sampled_from(["a", "b", "c"]),
        "_after": st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=2),
        "_outputPath": st.sampled_from(["†state.a", "†state.b", "†state.a.x", "†data.k", "†state.a || †state.b"]),
        "_outputMethod": st.sampled_from(["set", "merge", "push", "concat", "assign"]),
        "value": JSON | st.sampled_from(["†state.a", "†state.b.0", "†state.a.x || †state.b"]),
        "n": st.integers() | st.sampled_from(["†state.a", "5", 2.0**60]),
    },
)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.one_of(SANE, st.dictionaries(NAMES | TEXTS, JSON, max_size=5), JSON), max_size=8), st.booleans())
def test_nothing_that_can_be_said_in_json_breaks_a_run(calls: list[Any], is_stream: bool) -> None:
    async def stream() -> AsyncIterator[Any]:
        for each in calls:
            yield each

    found = asyncio.run(run(stream() if is_stream else calls))

    assert len(found.results) == len(calls)
