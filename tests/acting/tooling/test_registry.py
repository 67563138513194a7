import functools
import subprocess
import sys
from typing import Any, ClassVar

import pytest

from acting import Executor
from acting.tooling.bound_tool import entry_of
from acting.tooling.context import ToolContext
from acting.tooling.registry import Catalog
from spar.clock import SystemClock
from spar.errors import ConfigError
from spar.protocols.tools import tool
from spar.types import Call


@tool(effect="read", timeout=5, retries=2)
async def look(where: str = "") -> str:
    """Look."""
    return where


def plain(n: int) -> int:
    return n + 1


class Door:
    name = "door"
    schema: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {"_tool": {"const": "door"}, "open": {"type": "boolean"}},
        "required": ["open"],
    }
    effect = "idempotent"
    timeout = 3.0
    concurrency = 2

    async def __call__(self, **params: Any) -> Any:
        return params


def test_functions_and_objects_become_entries_with_their_terms() -> None:
    catalog = Catalog([look, plain, Door()])

    assert list(catalog) == ["look", "plain", "door"]
    assert (catalog["look"].terms.effect, catalog["look"].terms.retries) == ("read", 2)
    assert (catalog["plain"].terms.effect, catalog["plain"].terms.timeout) == ("once", 60.0)
    assert (catalog["door"].terms.effect, catalog["door"].terms.timeout, catalog["door"].slots.limit) == (
        "idempotent",
        3.0,
        2,
    )
    assert catalog["door"].schema["additionalProperties"] is False


def test_of_two_tools_with_one_name_the_later_one_counts_and_an_unknown_one_is_told_with_those_known() -> None:
    @tool(name="plain")
    def other(n: str) -> str:
        return n

    assert Catalog([plain, other])["plain"].target is other
    assert Catalog([plain, look]).unknown("x") == "no tool named 'x'; known: look, plain"
    assert Catalog().unknown("x") == "no tool named 'x'; known: none"


async def test_async_and_blocking_functions_partials_methods_and_objects_can_all_be_invoked() -> None:
    class Box:
        def weigh(self, extra: int = 0) -> int:
            return 40 + extra

    class Asking(Door):
        async def __call__(self, context: ToolContext, **params: Any) -> Any:
            return context

    async def wrapped(n: int) -> int:
        return n

    clock, call = SystemClock(), Call("any")
    assert await entry_of(look).invoke({"where": "up"}, clock, call) == "up"
    assert await entry_of(plain).invoke({"n": 1}, clock, call) == 2
    assert await entry_of(Box().weigh).invoke({"extra": 2}, clock, call) == 42
    assert await entry_of(functools.partial(wrapped, n=3)).invoke({}, clock, call) == 3
    assert await entry_of(tool(name="late")(lambda: wrapped(5))).invoke({}, clock, call) == 5
    assert await entry_of(Door()).invoke({"open": True}, clock, call) == {"open": True}
    assert entry_of(Asking()).parameters.context == "context"


@pytest.mark.parametrize(
    ("terms", "key"),
    [
        ({"effect": "reads"}, "effect"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"timeout": "5"}, "timeout"),
        ({"retries": -1}, "retries"),
        ({"retries": 1.5}, "retries"),
        ({"approval": "maybe"}, "approval"),
        ({"detach": 1}, "detach"),
        ({"concurrency": -1}, "concurrency"),
    ],
)
def test_terms_that_make_no_sense_are_refused_by_name(terms: dict[str, Any], key: str) -> None:
    def f() -> None: ...

    with pytest.raises(ConfigError, match=f"tool 'f': {key} is"):
        entry_of(tool(**terms)(f))


@pytest.mark.parametrize("thing", [5, "name", None, Door, {"properties": {"_tool": {"const": "x"}}}])
def test_what_is_no_tool_is_refused(thing: Any) -> None:
    with pytest.raises(ConfigError):
        entry_of(thing)


class Api:
    def __init__(self, factor: int) -> None:
        self.factor = factor

    def get(self, n: int) -> int:
        """Multiply.

        Args:
            n: by this
        """
        return n * self.factor

    async def ask(self, n: int) -> int:
        return n * self.factor


async def test_terms_can_be_given_to_somebody_elses_method_without_touching_it() -> None:
    api = Api(3)
    get, ask = tool(effect="read", rate="10/s")(api.get), tool(name="other")(api.ask)

    executor = Executor([get, ask])
    result = await executor.run([Call("get", {"n": 2}), Call("other", {"n": 5})])

    assert (get(2), [each.output for each in result.results]) == (6, [6, 15])
    assert executor.tools["get"].terms.rate == "10/s"
    assert executor.tools["get"].schema["description"] == "Multiply."
    assert executor.tools["get"].schema["properties"]["n"]["description"] == "by this"
    assert not hasattr(api.get, "__spar_tool__")


def test_a_generator_is_refused_when_it_is_registered() -> None:
    async def pieces(n: int) -> Any:
        yield n

    def steps(n: int) -> Any:
        yield n

    class Stream:
        name, effect, timeout = "stream", "read", 1.0
        schema: ClassVar[dict[str, Any]] = {"properties": {"_tool": {"const": "stream"}}}

        async def __call__(self) -> Any:
            yield 1

    for each in (pieces, steps, functools.partial(pieces, 1), Stream()):
        with pytest.raises(ConfigError, match="is a generator, which returns no value"):
            Executor([each])
    with pytest.raises(ConfigError, match="activity 'x' is a generator"):
        Executor([], activities={"x": pieces})


def test_a_partial_of_a_function_has_the_types_of_its_parameters() -> None:
    entry = entry_of(functools.partial(plain))

    assert entry.schema["properties"]["n"] == entry_of(plain).schema["properties"]["n"] == {"type": "integer"}
    with pytest.raises(ValueError, match="parameter 'n' is 'much'"):
        entry.parameters.validate({"n": "much"})


#: Notes in which threads pydantic makes its adapters.
WATCHED = """
import asyncio, sys, threading
from acting import Executor
from spar import Call

makers = []
def note(frame, event, argument):
    if event == "call" and frame.f_code.co_qualname == "TypeAdapter.__init__":
        makers.append(threading.current_thread() is threading.main_thread())
threading.setprofile(note)
sys.setprofile(note)

async def gaze() -> str: return "wall"

class Shelf:
    name, now = "shelf", []
    def tools(self): return self.now

async def without_parameters():
    async with Executor([gaze]) as executor:
        result = await executor.run([Call("gaze"), Call("gaze", {"x": 1})])
    assert result.results[0].output == "wall"
    assert "no parameter 'x'; known: none" in result.results[1].fault.message
    assert executor.tools["gaze"].schema["properties"] == {"_tool": {"const": "gaze"}}
    assert "pydantic" not in sys.modules

async def first_run(is_opened):
    async def look(where: str, times: int = 1) -> str: return where
    async def peep(where: str, times: int = 1) -> str: return where
    async def calls():
        yield Call("look", {"where": "here"}, id="a", output_path="\u2020state.a")
        peep.name, shelf.now = "peep", [peep]
        shelf.on_change()
        yield Call("peep", {"where": "\u2020state.a", "times": 2})
    makers.clear()
    shelf = Shelf()
    executor = Executor([look, shelf])
    if is_opened:
        await executor.__aenter__()
        assert makers == [False], makers
    first, second = await asyncio.gather(executor.run(calls()), executor.run([Call("look", {"where": "x"})]))
    assert (first.status, second.status) == ("ok", "ok"), (first.errors, second.errors)
    assert makers == [False, False], makers

asyncio.run(without_parameters())
asyncio.run(first_run(False))
asyncio.run(first_run(True))
"""


def test_the_first_run_makes_what_validates_its_calls_in_a_thread_and_needs_no_pydantic_without_parameters() -> None:
    subprocess.run([sys.executable, "-c", WATCHED], check=True, timeout=120)
