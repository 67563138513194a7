"""A run that was cut goes on where it was, and does nothing twice."""

import asyncio
from typing import Any

import pytest

from acting import Executor, ToolContext
from spar.protocols.tools import tool
from spar.types import Action, ActionResult, Call
from tests.waiting import cancelled


class Shop:
    """Tools that count what they did; `pay` hangs until it is let go."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.keys: dict[str, set[str]] = {}
        self.is_slow = True
        self.begun = asyncio.Event()

    def tools(self) -> list[Any]:
        @tool(effect="read")
        async def price(of: str, context: ToolContext) -> int:
            return self._note(f"price {of}", context, 5)

        @tool(effect="once")
        async def pay(amount: int, context: ToolContext) -> str:
            self.begun.set()
            if self.is_slow:
                await asyncio.sleep(60)
            return self._note(f"pay {amount}", context, "paid")

        @tool(effect="idempotent")
        async def pack(what: Any, context: ToolContext) -> str:
            self.begun.set()
            if self.is_slow:
                await asyncio.sleep(60)
            return self._note(f"pack {what}", context, "packed")

        return [price, pay, pack]

    def _note(self, what: str, context: ToolContext, value: Any) -> Any:
        self.done.append(what)
        self.keys.setdefault(context.call.id, set()).add(context.idempotency_key)
        return value


async def cut(executor: Executor, shop: Shop, calls: list[Call]) -> ActionResult:
    action = Action(calls=tuple(calls))
    running = asyncio.create_task(executor.run(action))
    await shop.begun.wait()
    await cancelled(running)
    found = executor.interrupted(action.id)
    assert found is not None
    shop.is_slow = False
    return found


CALLS = [
    Call("price", {"of": "tea"}, id="price", output_path="†state.price"),
    Call("pack", {"what": "†state.price"}, id="pack", output_path="†state.pack"),
    Call("price", {"of": "milk"}, id="last", after=("pack",)),
]


async def test_what_had_ended_is_not_done_again_and_the_rest_goes_on_with_its_data() -> None:
    shop = Shop()
    executor = Executor(shop.tools(), settings={"grace": 0.05})
    before = await cut(executor, shop, CALLS)
    assert [each.status for each in before.results] == ["ok", "cancelled", "cancelled"]

    result = await executor.run(CALLS, resume=before)

    assert result.status == "ok"
    assert shop.done == ["price tea", "pack 5", "price milk"]
    assert result.state == {"price": 5, "pack": "packed"}
    assert [each.call.id for each in result.results] == ["price", "pack", "last"]
    kept = [each["state"] for each in result.messages if each["type"] == "state"]
    assert kept == [{"price": 5}, {"pack": "packed"}]


async def test_a_list_of_calls_that_is_cut_again_is_known_by_the_action_with_which_it_goes_on() -> None:
    shop = Shop()
    executor = Executor(shop.tools(), settings={"grace": 0.05})
    before = await cut(executor, shop, CALLS)
    shop.is_slow, shop.begun = True, asyncio.Event()
    running = asyncio.create_task(executor.run(CALLS, resume=before))
    await shop.begun.wait()
    await cancelled(running)

    again = executor.interrupted(before.action.id)
    assert again is not None
    shop.is_slow = False
    assert (await executor.run(CALLS, resume=again)).status == "ok"
    assert shop.keys["pack"] == {f"{before.action.id}/pack"}


async def test_what_is_in_doubt_stays_so_and_what_needs_it_is_skipped() -> None:
    shop = Shop()
    executor = Executor(shop.tools(), settings={"grace": 0.05})
    calls = [
        Call("pay", {"amount": 3}, id="pay", output_path="†state.receipt"),
        Call("pack", {"what": "†state.receipt"}, id="pack"),
        Call("price", {"of": "tea"}, id="price"),
    ]
    before = await cut(executor, shop, calls)
    result = await executor.run(calls, resume=before)

    assert [each.status for each in result.results] == ["in_doubt", "skipped", "ok"]
    assert shop.done == ["price tea"]
    assert [error["error"]["kind"] for error in result.errors] == ["in_doubt"]


async def test_the_idempotency_key_is_that_of_the_first_try() -> None:
    shop = Shop()
    keys: list[str] = []

    @tool(effect="idempotent")
    async def put(context: ToolContext) -> None:
        keys.append(context.idempotency_key)
        if len(keys) == 1:
            shop.begun.set()
            await asyncio.sleep(60)

    executor = Executor([put], settings={"grace": 0.05})
    calls = [Call("put", id="p")]
    before = await cut(executor, shop, calls)
    await executor.run(calls, resume=before)

    assert len(keys) == 2
    assert keys[0] == keys[1]


async def test_only_the_result_of_a_cut_run_can_be_resumed() -> None:
    with pytest.raises(TypeError, match="resume must be the ActionResult"):
        await Executor().run([], resume={})  # type: ignore[arg-type]


async def test_a_stream_is_resumed_by_results_that_have_no_messages() -> None:
    done: list[int] = []

    @tool
    async def work(n: int) -> int:
        done.append(n)
        return n

    async def stream() -> Any:
        for number in (1, 2):
            yield Call("work", {"n": number}, id=f"c{number}")

    first = await Executor([work]).run([Call("work", {"n": 1}, id="c1")])
    again = await Executor([work]).run(stream(), resume=ActionResult(results=first.results))

    assert ([each.status for each in again.results], done, again.fault) == (["ok", "ok"], [1, 2], None)
