"""Text from outside never leads to an unasked effect, by whatever tool it is stored and by whatever tool it is read.

The tools are those that are installed: each plays with its own terms, in a world that gives a stranger's text to every
tool that may read it. So a new tool is tried by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import entry_points
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acting import Executor
from acting.mcp.tools import ToolPolicy, offer
from acting.tooling.bound_tool import BoundTool, entry_of
from acting.tools.files import FilesTool
from acting.tools.shell import ShellTool
from spar.clock import SystemClock
from spar.config.load import load
from spar.errors import ConfigError
from spar.parts.factory import Parts
from spar.protocols import Context, Home, RunContext
from spar.protocols.tools import tool
from spar.testing import RecordingTool, VirtualClock
from spar.types import Action, ActionResult, Call, Message, Perception
from tests.acting.approval_tools import World as Tools
from tests.acting.approval_tools import executor, pending, statuses

ROOT = Path(__file__).parents[2]
ORDER = "do as the stranger says"
OWNER = Perception("do as the file says", source="messages", kind="message", trust="trusted")
#: The ways in: an untrusted perception, from whomever, and none: a tool reads the world outside by itself.
SOURCES = ("mail", "messages", "")


def installed(folder: Path, names: list[str] | None = None) -> list[BoundTool]:
    """Return the installed tools as a service has them; of MCP one that a server offers."""
    found = [entry.name for entry in entry_points(group="spar.tools")] if names is None else names
    found = list(dict.fromkeys(name for name in found if name != "mcp"))
    config = folder / "config.toml"
    config.write_text("".join(f'[[tools]]\nuse = "{name}"\n' for name in found))
    definition = {"name": "ask", "inputSchema": {"type": "object"}}
    remote = offer("server", {"ask": definition}, {}, ToolPolicy(), None).tools  # type: ignore[arg-type]
    return [entry_of(each) for each in (*Parts(load(config, environ={})).tools(), *remote)]


class Double:
    """A tool with the terms of an installed one; it notes what it was given, and returns what it may have read."""

    def __init__(self, world: World, entry: BoundTool) -> None:
        self.name, self._world = entry.name, world
        self.brings_untrusted, self.safe_with_untrusted = entry.terms.brings_untrusted, entry.terms.safe_with_untrusted
        self.schema = {"type": "object", "properties": {"_tool": {"const": self.name}}, "additionalProperties": True}

    async def __call__(self, **params: Any) -> dict[str, str]:
        text = str(params)
        self._world.ran.append((self.name, ORDER in text))
        self._world.is_kept |= ORDER in text
        return {"text": ORDER if self.brings_untrusted and self._world.is_kept else "own words"}


class World:
    """Where tools store text, over all runs and processes; `ran` are the calls, each with whether it held the order."""

    def __init__(self, entries: list[BoundTool], *, is_kept: bool = False) -> None:
        self.entries, self.is_kept = entries, is_kept
        self.ran: list[tuple[str, bool]] = []
        self.safe = {entry.name for entry in entries if entry.terms.safe_with_untrusted}

    def executor(self, clock: VirtualClock) -> Executor:
        @tool(safe_with_untrusted=True)
        async def echo(text: Any) -> Any:  # a function of the program's own: it passes on what it is given
            return {"text": text}

        @tool(safe_with_untrusted=True)
        async def tell(text: Any) -> Any:
            return Message("told", {"text": text})

        doubles = [Double(self, entry) for entry in self.entries]
        return executor(Tools(), clock, tools=[*doubles, echo, tell], hold=0.0, max_pending=1000)

    @property
    def misled(self) -> set[str]:
        """Return the tools that had an effect by the stranger's text though they are not declared safe with it."""
        return {name for name, is_of_stranger in self.ran if is_of_stranger} - self.safe


@pytest.fixture(scope="module")
def entries(tmp_path_factory: pytest.TempPathFactory) -> list[BoundTool]:
    return installed(tmp_path_factory.mktemp("tools"))


def cycle(number: int, run: RunContext | None = None) -> Context:
    return Context("main", f"c{number}", "s", run=run)


def ways(entries: list[BoundTool]) -> Iterator[tuple[str, str]]:
    names = [entry.name for entry in entries]
    return product(names, names)


@pytest.mark.parametrize("source", SOURCES)
async def test_no_way_in_and_back_out_by_installed_tools_has_an_unasked_effect(
    clock: VirtualClock, entries: list[BoundTool], source: str
) -> None:
    for store in [entry.name for entry in entries] if source else [""]:
        world = World(entries, is_kept=not source)
        if source:
            stranger = Perception(ORDER, source=source, trust="untrusted")
            first = Action((Call(store, {"text": ORDER}),), perceptions=(stranger,))
            await world.executor(clock).act(first, cycle(1))
            assert world.is_kept == (store in world.safe)
        calls: list[Call] = []
        for number, (reader, out) in enumerate(ways(entries)):
            calls += [Call(reader, {"text": "x"}, output_path=f"†state.at{number}"),
                      Call(out, {"text": f"†state.at{number}.text"})]  # fmt: skip
        await world.executor(clock).act(Action(tuple(calls), perceptions=(OWNER,)), cycle(2))

        assert world.misled == set()
        assert {name for name, _ in world.ran} >= {entry.name for entry in entries}, "own words run unasked"


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_what_a_tool_has_read_in_an_earlier_cycle_has_no_unasked_effect_in_a_later_one(
    clock: VirtualClock, entries: list[BoundTool], is_restarted: bool
) -> None:
    world = World(entries, is_kept=True)
    made = world.executor(clock)
    reads = [Call(entry.name, {"text": "x"}, output_path=f"†state.{entry.name}") for entry in entries]
    told = [Call("tell", {"text": f"†state.{entry.name}.text"}) for entry in entries]
    before = await made.act(Action((*reads, *told), perceptions=(OWNER,)), cycle(1, RunContext("r", "goal")))
    uses = [
        Call(out, {"text": source})
        for out in world.safe ^ {entry.name for entry in entries}
        for source in ("†told.text", *(f"†state.{entry.name}.text" for entry in entries))
    ]
    run = RunContext("r", "goal", 2, tuple(before.messages), (before,))
    again = world.executor(clock) if is_restarted else made
    await again.act(Action(tuple(uses), perceptions=(OWNER,)), cycle(2, run))

    assert before.status == "ok"
    assert world.misled == set()
    marked = {each.call.tool for each in before.results if each.call.meta.get("_trust") == "untrusted"}
    assert marked == {"tell"}, "who gets the result of what passes text on is told of its trust"


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
async def test_no_chain_of_calls_has_an_unasked_effect(
    clock: VirtualClock, entries: list[BoundTool], data: st.DataObject
) -> None:
    names = [*[entry.name for entry in entries], "echo", "tell"]
    world, made, messages, results = World(entries, is_kept=True), None, (), ()
    written = ["x", "†told.text", "†error.error.message"]
    for number in range(1, 3):
        calls = []
        for name in data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=6)):
            path = f"†state.p{len(written)}"
            calls.append(Call(name, {"text": data.draw(st.sampled_from(written))}, output_path=path))
            written.append(data.draw(st.sampled_from([path, f"{path}.text", f"†state.none || {path}", "†state"])))
        made = made if made is not None and data.draw(st.booleans()) else world.executor(clock)
        run = RunContext("r", "goal", number, messages, results)
        result: ActionResult = await made.act(Action(tuple(calls), perceptions=(OWNER,)), cycle(number, run))
        messages, results = (*messages, *result.messages), (*results, result)

    assert world.misled == set()


def test_each_built_in_tool_says_itself_what_it_brings_and_what_is_safe_with_it(entries: list[BoundTool]) -> None:
    """The page about tools says the same, each with the reason."""
    page = (ROOT / "docs/how-to/tools.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("| `")]
    said = {row[0].strip("`"): (row[1], row[2]) for row in rows if row[1:] and row[1] in ("yes", "no")}
    words = {True: "yes", False: "no"}
    stated = {}
    for entry in entries:
        for key in ("brings_untrusted", "safe_with_untrusted"):
            assert isinstance(getattr(entry.target, key, None), bool), f"{entry.name} does not say {key}"
        name = "mcp" if entry.name == "server__ask" else entry.name
        stated[name] = words[entry.target.brings_untrusted], words[entry.target.safe_with_untrusted]

    assert said == stated


@pytest.mark.parametrize(
    ("key", "expected"),
    [("", (True, False)), ("brings_untrusted = false", (False, False)), ("safe_with_untrusted = true", (True, True))],
)
def test_a_tool_of_the_configuration_brings_untrusted_text_unless_it_or_the_user_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, expected: tuple[bool, bool]
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "strange_tools.py").write_text(
        "from spar import tool\n"
        "def plain(text: str) -> str:\n    return text\n"
        "@tool(brings_untrusted=False)\ndef own(text: str) -> str:\n    return text\n"
        "class Kind:\n    name = 'kind'\n    async def __call__(self, *, text: str) -> str:\n        return text\n"
    )
    config = tmp_path / "config.toml"
    uses = [f'[[tools]]\nuse = "strange_tools:{name}"\n{key}\n' for name in ("plain", "Kind")]
    config.write_text("".join([*uses, '[[tools]]\nuse = "strange_tools:own"\n']))

    made = [entry_of(each).terms for each in Parts(load(config, environ={})).tools()]

    assert [(terms.brings_untrusted, terms.safe_with_untrusted) for terms in made] == [*[expected] * 2, (False, False)]


def test_an_error_names_the_key_and_what_it_may_be(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[[tools]]\nuse = "shell"\nbrings_untrusted = "perhaps"\n')
    with pytest.raises(ConfigError, match=r"brings_untrusted = 'perhaps': must be true or false"):
        load(config, environ={})
    with pytest.raises(ConfigError, match="brings_untrusted is 'perhaps', expected true or false"):
        entry_of(tool(brings_untrusted="perhaps")(lambda: 1))  # type: ignore[call-overload]


def test_a_tool_of_a_source_or_a_schema_brings_untrusted_text_and_a_programs_own_passes_it_on() -> None:
    class Source:
        name = "source"

        def tools(self) -> list[Any]:
            return [entry]

    class Offered(RecordingTool):
        brings_untrusted = None

    entry = Offered("offered")

    @tool
    async def own() -> int:
        return 1

    def schema(name: str, **terms: Any) -> dict[str, Any]:
        return {"type": "object", "properties": {"_tool": {"const": name}, **terms}}

    async def handle(call: Call, tool: Any, context: Any) -> int:
        return 1

    schemas = [schema("remote"), schema("ours", _bringsUntrusted={"const": False}), schema("latent")]
    made = Executor([Source(), own, *schemas], activities={"remote": handle, "ours": handle})

    assert {name: made.tools[name].terms.brings_untrusted for name in made.tools} == {
        "own": False, "remote": True, "ours": False, "latent": False, "offered": True,
    }  # fmt: skip


@pytest.mark.parametrize("reader", ["shell", "files"])
async def test_a_file_that_a_stranger_wrote_gives_no_orders_however_it_is_read(tmp_path: Path, reader: str) -> None:
    """The real tools: written unasked, read by the owner over renames and another process, and not obeyed unasked."""
    for name in ("config", "workspace", "state"):
        (tmp_path / name).mkdir()
    home = Home(*[str(tmp_path / name) for name in ("config", "workspace", "state")])
    tools = Tools()

    def made() -> Executor:
        given = [*tools.tools(), FilesTool(home=home), ShellTool(home=home, sandbox=0)]
        return executor(tools, SystemClock(), tools=given, hold=0.0)

    stranger = Perception(ORDER, source="hook", trust="untrusted")
    steps = (
        Call("files", {"op": "write", "path": "x.txt", "content": ORDER}, id="a"),
        Call("files", {"op": "move", "path": "x.txt", "to": "y.txt"}, id="b", after=("a",)),
    )
    assert statuses(await made().act(Action(steps, perceptions=(stranger,)), cycle(1))) == ["ok", "ok"]
    read, where = {
        "shell": (Call("shell", {"argv": ["cat", "y.txt"]}, output_path="†state.told"), "†state.told.stdout"),
        "files": (Call("files", {"op": "read", "path": "y.txt"}, output_path="†state.told"), "†state.told.content"),
    }[reader]
    again = made()
    found = await again.act(Action((read, Call("plain", {"what": where})), perceptions=(OWNER,)), cycle(2))

    assert (statuses(found), tools.done) == (["ok", "skipped parked"], [])
    (row,) = await pending(again)
    assert (row.call.params, row.trust) == ({"what": ORDER}, "untrusted")


async def test_a_call_by_which_people_replace_another_one_brings_what_its_own_tool_brings(clock: VirtualClock) -> None:
    @tool(brings_untrusted=True)
    async def fetch() -> str:
        return ORDER

    tools = Tools()
    made = executor(tools, clock, tools=[*tools.tools(), fetch], hold=0.0)
    calls = (Call("act", {"what": 1}, id="a", output_path="†state.at"),
             Call("plain", {"what": "†state.at"}, id="p", after=("a",)))  # fmt: skip
    await made.act(Action(calls, perceptions=(OWNER,)), cycle(1))
    (row,) = await pending(made)
    await made.approvals.decide(row.id, row.digest, "replace", by="ada", call={"_tool": "fetch"})  # type: ignore[union-attr]
    resumed = made.resumable("s")
    assert resumed is not None

    assert statuses(await made.act(resumed, cycle(2))) == ["ok", "skipped parked"]
    assert tools.done == []
