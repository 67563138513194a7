"""Tools from a source that is opened with the executor and may change while it is."""

from typing import Any

from acting import Executor
from spar.protocols.tools import tool
from spar.testing import VirtualClock
from spar.types import Call


class Offered:
    effect, timeout, rate = "read", 10.0, ""

    def __init__(self, name: str, value: Any = None) -> None:
        self.name, self.value = name, value
        self.schema = {"properties": {"_tool": {"const": name}}}

    async def __call__(self) -> Any:
        return self.value


class Shelf:
    """A source; what is on it shows only once it is open."""

    name = "shelf"

    def __init__(self, *offered: Offered) -> None:
        self.on_change: Any = None
        self.later, self.now = list(offered), list[Offered]()
        self.attached: list[Any] = []

    async def __aenter__(self) -> "Shelf":
        self.now = self.later
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.now = []

    def attach(self, host: Any) -> None:
        self.attached.append(host)

    def tools(self) -> list[Any]:
        return self.now

    def snapshot(self) -> dict[str, Any]:
        return {"offers": len(self.now)}


async def test_what_a_source_offers_can_be_called_once_it_is_open() -> None:
    shelf = Shelf(Offered("shelf__cup", "tea"))
    executor = Executor([shelf])
    early = await executor.run([Call("shelf__cup")])
    assert early.results[0].fault.kind == "unknown_tool"

    async with executor:
        result = await executor.run([Call("shelf__cup")])
        assert result.results[0].output == "tea"
        assert executor.snapshot()["parts"] == {"shelf": {"offers": 1}}


async def test_a_change_is_seen_by_the_next_call_and_keeps_what_has_not_changed() -> None:
    cup, jar = Offered("shelf__cup"), Offered("shelf__jar", 7)
    shelf = Shelf(cup)
    async with Executor([shelf]) as executor:
        entry = executor.tools["shelf__cup"]
        shelf.now = [cup, jar]
        shelf.on_change()
        assert executor.tools["shelf__cup"] is entry
        assert (await executor.run([Call("shelf__jar")])).results[0].output == 7
        shelf.now = [jar]
        shelf.on_change()
        gone = (await executor.run([Call("shelf__cup")])).results[0].fault
        assert gone.kind == "unknown_tool"


async def test_a_source_cannot_take_the_name_of_a_tool_that_was_given_by_hand() -> None:
    @tool(effect="read")
    async def read_file() -> str:
        return "mine"

    async with Executor([read_file, Shelf(Offered("read_file", "theirs"))]) as executor:
        assert (await executor.run([Call("read_file")])).results[0].output == "mine"
        assert "taken" in executor.snapshot()["refused"]["read_file"]


async def test_a_tool_that_cannot_be_used_is_told_and_the_others_are_there() -> None:
    bad = Offered("shelf__bad")
    bad.timeout = -1.0
    async with Executor([Shelf(bad, Offered("shelf__cup", 1))]) as executor:
        result = await executor.run([Call("shelf__bad", id="bad"), Call("shelf__cup", id="cup")])

    assert result.result("cup").output == 1
    fault = result.result("bad").fault
    assert "timeout is -1.0" in fault.message


async def test_a_tool_that_comes_back_with_another_rate_is_limited_by_that_one(clock: VirtualClock) -> None:
    slow, fast = Offered("shelf__cup"), Offered("shelf__cup")
    slow.rate, fast.rate = "1/h", "10/s"
    shelf = Shelf(slow)
    async with Executor([shelf], clock=clock) as executor:
        await executor.run([Call("shelf__cup")])
        shelf.now = [fast]
        shelf.on_change()
        before = clock.monotonic()
        await executor.run([Call("shelf__cup"), Call("shelf__cup")])
        assert clock.monotonic() - before < 1.0

        shelf.now = [slow]
        shelf.on_change()
        await executor.run([Call("shelf__cup")])
        assert clock.monotonic() - before >= 3600.0
