"""Contract suites: `await check_planner(MyPlanner)` checks a part against its port in `spar.protocols`.

Each check takes a factory without arguments (a class, a function, sync or async), because it makes several parts. It
raises an `AssertionError` with one sentence that names the broken duty. Parts are called like by the agent: plain
methods in a thread, with a `Context` for those that take one, after `attach` and entering.

Common arguments: `limit` seconds for each call, `grace` seconds from a cancellation to its end, and the `clock` that
the part gets (the system's by default; real time unless the test runs under a `VirtualClock`). A check tests only what
it can know, not whether a plan is wise or a notice was read.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import math
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, get_args

from spar.clock import Clock
from spar.ids import new_id
from spar.ports.any_part import offers
from spar.ports.channel import DeliversNotices, Notice
from spar.protocols import Effect, SensorContext
from spar.protocols.tools import terms_of
from spar.testing.duties import ODD_TEXTS, Harness, are, are_json, described, is_duration, legal_perceptions, owed
from spar.types import CycleRecord, Experience, Message, Perception

Factory = Callable[[], Any]
GARBAGE = ('"', "AND OR NOT", "*", "NEAR(", "a:b", "((((", "-", "%_", "^", "a" * 100_000, *ODD_TEXTS)


async def check_sensor(
    make_sensor: Factory,
    *,
    provoke: Callable[[], Any] | None = None,
    state_dir: str | None = None,
    clock: Clock | None = None,
    limit: float = 5.0,
    grace: float = 0.5,
) -> None:
    """Check a sensor against `protocols.Sensor`.

    Args: provoke: causes something that the sensor must notice within `limit`, and must not notice once closed;
        state_dir: as in `SensorContext`; clock: the `VirtualClock` of the test, if it has one (under another clock a
        call that blocks never ends there); limit: seconds for each call; grace: seconds for its end once cancelled.
    """
    harness = Harness("sensor", clock, limit, grace)
    pushed: list[Perception] = []
    cursors: list[Any] = [None]

    def push(perception: Perception) -> bool:
        pushed.append(perception)
        return True

    async def step(sensor: Any, name: str, *args: Any) -> Any:
        method = getattr(sensor, name, None)
        return [] if method is None else await harness.run(method, *args)

    async def perform(sensor: Any, name: str, *args: Any, when: str = "") -> Any:
        product = await harness.value(f"sensor.{name}(){when}", step(sensor, name, *args))
        if name == "poll":
            legal_perceptions(f"sensor.poll(){when}", product)
        legal_perceptions("sensor's push", pushed)
        return product

    async def accept(perception: Perception, *, key: str | None = None) -> bool:
        await harness.clock.sleep(0.0)  # a store does not answer at once
        return perception not in pushed and push(perception)

    def context() -> SensorContext:
        return SensorContext("contract", harness.clock, push, state_dir, cursors[-1], cursors.append, accept=accept)

    async def notices(sensor: Any) -> bool:
        assert provoke is not None
        await harness.run(provoke)
        ends_at = harness.clock.monotonic() + limit
        while harness.clock.monotonic() < ends_at:
            if await perform(sensor, "poll") or pushed:
                return True
            await harness.clock.sleep(0.02)
        return False

    @asynccontextmanager
    async def new_sensor() -> AsyncIterator[Any]:
        sensor = await harness.make(make_sensor)
        try:
            yield sensor
        except BaseException:
            with suppress(AssertionError):  # report only the duty that was broken first
                await perform(sensor, "close")
            raise

    async with new_sensor() as sensor:
        every = getattr(sensor, "every", 0.0)
        owed(is_duration(every), f"sensor.every must be seconds from 0, found {every!r}")
        can_notice = callable(getattr(sensor, "poll", None)) or callable(getattr(sensor, "open", None))
        owed(can_notice, "sensor must have poll(), or open() to push from")
        await perform(sensor, "close", when=" of one that never opened")

    async with new_sensor() as sensor:
        await harness.cut("sensor.open()", lambda: step(sensor, "open", context()))
        await perform(sensor, "close", when=" after an opening that was cut short")

    async with new_sensor() as sensor:
        await perform(sensor, "open", context())
        await perform(sensor, "poll")
        if provoke is not None:
            owed(await notices(sensor), f"sensor must notice what was provoked, but noticed nothing within {limit:g} s")
        await harness.cut("sensor.poll()", lambda: step(sensor, "poll"))
        await perform(sensor, "poll", when=" after one that was cancelled")
        await perform(sensor, "close")
        await perform(sensor, "close", when=" a second time")
        await harness.outcome("sensor.poll() of a closed one", step(sensor, "poll"))  # may raise, must end
        if provoke is not None:
            count = len(pushed)
            await harness.run(provoke)
            await harness.clock.sleep(0.05)
            owed(len(pushed) == count, "sensor must not push once it is closed")
        are_json("what sensor checkpoints", *cursors)

        await perform(sensor, "open", context(), when=" again after close")
        await perform(sensor, "poll", when=" after it was opened again")
        await perform(sensor, "close")
    await harness.is_clean()


async def check_tool(
    make_tool: Factory,
    *,
    params: Mapping[str, Any] | None = None,
    clock: Clock | None = None,
    limit: float = 5.0,
    grace: float = 0.5,
) -> None:
    """Check a tool against `protocols.Tool`; a plain typed function (`@tool` or not) against the needs of its schema.

    Args: params: parameters with which the tool succeeds.
    """
    harness = Harness("tool", clock, limit, grace)
    arguments = dict(params or {})
    async with harness.opened(make_tool) as tool:
        owed(callable(tool), f"a tool must be callable, found {described(tool)}")
        (_function_tool if inspect.isroutine(tool) else _object_tool)(tool)
        effect = getattr(tool, "effect", terms_of(tool).effect)

        async def called() -> Any:
            passed = copy.deepcopy(arguments)
            output = await harness.run(tool, **passed)
            owed(passed == arguments, "a tool must leave its parameters as they are, but changed them")
            are_json("what a tool returns", output.data if isinstance(output, Message) else output)
            return output

        await harness.value("calling the tool", called())
        if effect != "once":
            await harness.value(f"calling an {effect!r} tool again", called())
            both = asyncio.gather(called(), called())
            await harness.value("calling the tool twice at once", both)
        await harness.cut("calling the tool", called)
        await harness.value("calling the tool after a call that was cancelled", called())
    await harness.is_clean()


def _object_tool(tool: Any) -> None:
    name, schema = getattr(tool, "name", None), getattr(tool, "schema", None)
    owed(isinstance(name, str) and name, f"a tool must have a name, found {name!r}")
    owed(isinstance(schema, Mapping), f"the tool {name!r} must have a schema, found {described(schema)}")
    assert isinstance(schema, Mapping)
    are_json(f"the schema of the tool {name!r}", schema)
    constant = schema.get("properties", {}).get("_tool", {}).get("const")
    owed(constant == name, f"properties._tool.const of the tool {name!r} must be its name, found {constant!r}")
    effect, timeout = getattr(tool, "effect", None), getattr(tool, "timeout", None)
    owed(
        effect in get_args(Effect),
        f"the effect of the tool {name!r} must be read, idempotent or once, found {effect!r}",
    )
    is_positive = isinstance(timeout, (int, float)) and not math.isnan(timeout) and timeout > 0
    owed(is_positive, f"the timeout of the tool {name!r} must be more than 0 seconds, found {timeout!r}")


def _function_tool(tool: Any) -> None:
    bare = [name for name, item in inspect.signature(tool).parameters.items() if item.annotation is item.empty]
    owed(not bare, f"the tool {tool.__name__!r} must say the types of its parameters, found none for {bare}")
    owed(inspect.getdoc(tool), f"the tool {tool.__name__!r} must say in a docstring what it does")


async def check_store(
    make_store: Factory, *, durable: bool = False, clock: Clock | None = None, limit: float = 5.0, grace: float = 0.5
) -> None:
    """Check a store against `protocols.Store`.

    Args: durable: the factory opens the same data each time, and flushed data must be there again.
    """
    harness = Harness("store", clock, limit, grace)
    mark = f"w{new_id()}"
    values = [None, True, 0, -1.5, "", ODD_TEXTS[2], ODD_TEXTS[4], [1, [2, {"a": None}]], {"ключ": {"nested": ["†"]}}]
    async with harness.opened(make_store) as store:

        async def step(name: str, *args: Any, **named: Any) -> Any:
            method = getattr(store, name, None)
            owed(callable(method), f"a store must have {name}()")
            return await harness.value(f"store.{name}()", harness.run(getattr(store, name), *args, **named))

        async def recalled(query: str, k: int = 5, **filters: Any) -> list[str]:
            experiences = await step("recall", query, k, **filters)
            are("what store.recall() returns", experiences, Experience)
            count = len(experiences)
            owed(count <= k, f"store.recall() must return at most k={k} experiences, found {count}")
            return [item.id for item in experiences]

        owed(await step("load", mark) is None, "store.load() of a key that was never saved must be None")
        for value in values:
            await step("save", mark, value)
            loaded = await step("load", mark)
            owed(loaded == value, f"store must load what was saved, saved {value!r:.60}, found {loaded!r:.60}")
        for text in ODD_TEXTS:
            await step("save", f"{mark}{text[:200]}", text)
        saved = {"list": [1]}
        await step("save", mark, saved)
        saved["list"].append(2)
        owed(await step("load", mark) == {"list": [1]}, "store must keep a copy of what is saved")

        experiences = [Experience(f"{mark}x{number} {text}", lesson=text) for number, text in enumerate(ODD_TEXTS)]
        await asyncio.gather(*(step("store", item) for item in experiences))
        await step("flush")
        for number, item in enumerate(experiences):
            ids = await recalled(f"{mark}x{number}")
            owed(item.id in ids, f"store must recall what was stored and flushed, but not {item.situation!r:.60}")
        again = Experience(f"{mark}again")
        for _ in range(2):
            await step("store", again)
        await step("flush")
        copies = (await recalled(f"{mark}again")).count(again.id)
        owed(copies == 1, f"store must keep one experience for each id, found {copies} of one that was stored twice")
        private = Experience(f"{mark}private", session=f"{mark}session")
        await step("store", private)
        await step("flush")
        inside = await recalled(f"{mark}private", session=f"{mark}session")
        owed(private.id in inside, "store.recall(session=…) must find what was stored in that session")
        outside = await recalled(f"{mark}private", session=f"{mark}elsewhere")
        owed(private.id not in outside, "store.recall(session=…) must not find what was stored in another session")
        for query in GARBAGE:
            await recalled(query)
        owed(await recalled(mark, 0) == [], "store.recall() with k=0 must find nothing")

        cycle = CycleRecord(mark, "contract", "main", harness.clock.now(), 0.1, "acted", (Perception(ODD_TEXTS[1]),))
        for _ in range(2):
            await step("record", cycle)
        await step("flush")
        await harness.cut("store.recall()", lambda: harness.run(store.recall, mark))
        await harness.cut("store.flush()", lambda: harness.run(store.flush))
        await step("flush")
    if durable:
        async with harness.opened(make_store) as store:
            owed(await step("load", mark) == {"list": [1]}, "a durable store must still have what was saved")
            owed(await recalled(f"{mark}again") == [again.id], "a durable store must still have what was flushed")
    await harness.is_clean()


async def check_notifier(
    make_notifier: Factory,
    *,
    make_unreachable: Factory | None = None,
    clock: Clock | None = None,
    limit: float = 5.0,
    grace: float = 0.5,
) -> None:
    """Check a notifier against `protocols.Notifier`, and its `deliver` against `spar.ports.channel`.

    Args: make_unreachable: makes a notifier whose messages cannot arrive.
    """
    harness = Harness("notifier", clock, limit, grace)
    async with harness.opened(make_notifier) as notifier:
        notify = notifier.notify
        for urgency in ("low", "normal", "critical"):
            work = harness.run(notify, "contract", "a test", urgency=urgency)
            answer = await harness.value(f"notify(urgency={urgency!r})", work)
            owed(answer is None, f"notify() must return nothing and raise when it failed, found {described(answer)}")
        await harness.sends("notify()", lambda text, id: harness.run(notify, text[:200], text), ODD_TEXTS)
        await harness.value("notify() after one that was cancelled", harness.run(notify, "contract", "a test"))
        if offers(notifier, DeliversNotices):
            deliver = notifier.deliver
            await harness.sends("deliver()", lambda text, id: deliver(_notice(harness, text, id)), ODD_TEXTS)
    if make_unreachable is not None:
        async with harness.opened(make_unreachable) as notifier:
            _, error = await harness.outcome("notify()", harness.run(notifier.notify, "contract", "to nobody"))
            owed(error, "notify() must raise when the message cannot have arrived")
            if offers(notifier, DeliversNotices):
                lost = _notice(harness, "to nobody", new_id())
                _, error = await harness.outcome("deliver()", notifier.deliver(lost))
                owed(error, "deliver() must raise when the notice cannot have arrived")
    await harness.is_clean()


async def check_attachment(
    make_attachment: Factory,
    *,
    clock: Clock | None = None,
    limit: float = 5.0,
    grace: float = 0.5,
) -> None:
    """Check an attachment against `spar.attaching`: with two agents at once, each of which starts twice and has runs
    about odd texts."""
    from spar.agent.agent import Agent

    harness = Harness("attachment", clock, limit, grace)
    agents = []
    for _ in range(2):
        attachment = await harness.make(make_attachment)
        agents.append(Agent(attach=[attachment], loop_interval="off", clock=harness.clock))
    for start in ("the first start", "the start after a stop"):
        for agent in agents:
            await harness.value(start, agent.start())
        for text in filter(str.strip, ODD_TEXTS):
            for agent in agents:
                receipt = await harness.value("submit()", agent.submit(text))
                await harness.value("wait()", agent.wait(receipt.run_id))
        for agent in agents:
            await harness.value("the stop", agent.stop())
            (item,) = agent.attachments.by_name.values()
            owed(not item.all_failures, f"none of its functions must fail, but {item.all_failures} calls failed")
            owed(not agent.left_behind, "its functions must end when they are cancelled")
    await harness.is_clean()


def _notice(harness: Harness, text: str, id: str) -> Notice:
    return Notice(id, "test", "test", "warning", text[:200], text, harness.clock.now(), "contract")
