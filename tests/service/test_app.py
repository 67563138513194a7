"""The composition root: settings become parts, and a reload changes no more than it must."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import inspect
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from spar import Agent
from spar.agent.agent import build_agent
from spar.config.load import Settings, from_mapping, load
from spar.errors import ConfigError, LifecycleError
from spar.events import ErrorOccurred
from spar.parts.factory import name_of
from spar.parts.registry import default_registry
from spar.service.app import Service, in_force
from spar.service.metrics import Metrics

CONFIG = """
[agent]
loop_interval = 0.01

[[rules]]
name = "greet"
when = { kind = "message" }
answer = "hello {content:.20}"

[[sensors]]
use = "directory"
name = "inbox"
options = { path = "inbox" }

[[tools]]
use = "note"

[service]
port = 0
"""

OWN_TOOLS_MODULE = """
from spar import tool

@tool
async def marked() -> str:
    return "m"

def plain(name: str) -> str:
    "Say it."
    return name
"""
OWN_TOOLS = """
[[tools]]
use = "own_tools:marked"
[[tools]]
use = "own_tools:plain"
[[tools]]
use = "own_tools:plain"
name = "loud"

[[rules]]
name = "call"
when = { kind = "message", pattern = "^call" }
[[rules.calls]]
tool = "loud"
params = { name = "x" }

"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "config.toml").write_text(CONFIG)
    (tmp_path / "inbox").mkdir()
    (tmp_path / "state").mkdir()
    (tmp_path / "workspace").mkdir()
    return tmp_path / "config.toml"


Edit = Callable[[str, str], None]


@pytest.fixture
def edit(file: Path) -> Edit:
    def change(old: str, new: str) -> None:
        if old.endswith(".py"):
            (file.parent / old).write_text(new)
            return
        text = file.read_text()
        assert text.count(old) == 1, old
        file.write_text(text.replace(old, new))

    return change


@pytest.fixture
async def service(file: Path) -> AsyncIterator[Service]:
    """A service without its process, started."""
    overrides = {"agent.max_interval": "0.5", "agent.min_interval": "0.1"}
    loaded = load(file, overrides=overrides, environ={})
    agent = build_agent(loaded)
    service = Service(loaded, agent, reload=lambda: load(file, overrides=overrides, environ={}))
    async with agent:
        yield service


async def ask(agent: Agent, text: str) -> Any:
    return (await agent.wait((await agent.submit(text)).run_id, 10)).output


# -- building


async def test_an_agent_is_what_its_file_says(file: Path) -> None:
    agent = build_agent(load(file, environ={}))

    assert agent.loop_interval == 0.01
    assert agent.home is not None
    assert agent.home.state == str(file.parent / "state")
    async with agent:
        assert await ask(agent, "you") == "hello you"


async def test_from_config_takes_overrides(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPAR_SERVICE__PORT", raising=False)

    agent = Agent.from_config(str(file), agent__name="other", agent__loop_interval="2s")

    assert (agent.name, agent.loop_interval) == ("other", 2.0)


async def test_building_opens_nothing(file: Path) -> None:
    build_agent(load(file, environ={}))

    assert list((file.parent / "state").iterdir()) == []


async def test_a_tool_may_be_a_function_an_object_or_renamed(
    file: Path, edit: Edit, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit("own_tools.py", OWN_TOOLS_MODULE)
    monkeypatch.syspath_prepend(str(file.parent))
    edit("[[rules]]", f"{OWN_TOOLS}[[rules]]")

    agent = build_agent(load(file, environ={}))

    import own_tools  # type: ignore[import-not-found]

    assert name_of(own_tools.plain) == "plain"
    action = await agent.step_plan(__import__("spar").Perception("call it", kind="message", trust="trusted"))
    result = await agent.step_act(action)
    assert [(r.call.tool, r.status, r.output) for r in result.results] == [("loud", "ok", "x")]
    await agent.stop()


async def test_the_file_may_say_the_terms_of_a_tool(file: Path, edit: Edit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(file.parent))
    (file.parent / "termed_tools.py").write_text(OWN_TOOLS_MODULE)
    edit(
        '[[tools]]\nuse = "note"\n',
        '[[tools]]\nuse = "note"\nrate = "10/min"\ntimeout = "5s"\n\n'
        '[[tools]]\nuse = "termed_tools:plain"\nconcurrency = 2\nresources = ["door"]\napproval = "deny"\n',
    )
    agent = build_agent(load(file, environ={}))
    tools = agent.setup.modules["act"].part.tools

    assert (tools["note"].terms.rate, tools["note"].terms.timeout) == ("10/min", 5.0)
    terms = tools["plain"].terms
    assert (terms.concurrency, terms.resources, terms.approval, terms.name) == (2, ("door",), "deny", "plain")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('rate = "5"', "rate"),
        ("concurrency = -1", "concurrency"),
        ('approval = "maybe"', "approval"),
        ("timeout = 0", "timeout"),
    ],
)
def test_terms_that_make_no_sense_are_refused_with_their_line(file: Path, edit: Edit, line: str, told: str) -> None:
    edit('[[tools]]\nuse = "note"\n', f'[[tools]]\nuse = "note"\n{line}\n')
    with pytest.raises(ConfigError, match=rf"config\.toml:\d+: tools\[0\]\.{told}"):
        build_agent(load(file, environ={}))


def test_no_module_of_spar_hides_a_public_name() -> None:
    import spar

    for name in spar.__all__:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(f"spar.{name}")
        assert not inspect.ismodule(getattr(spar, name)), name


async def test_tools_of_one_name_are_refused(file: Path, edit: Edit) -> None:
    edit("[[tools]]", '[[tools]]\nuse = "note"\n\n[[tools]]')

    with pytest.raises(ConfigError, match=r"config\.toml:\d+: tools\[1\]\.use: 'note' is the name of another tool"):
        build_agent(load(file, environ={}))


async def test_a_part_that_is_no_sensor_is_refused_with_its_line(file: Path, edit: Edit) -> None:
    edit("[[tools]]", '[[sensors]]\nuse = "fractions:Fraction"\n\n[[tools]]')

    with pytest.raises(ConfigError, match=r"config\.toml:\d+: sensors\[\d\]\.use: .*an object with open, poll or hear"):
        build_agent(load(file, environ={}))


async def test_a_part_that_is_no_module_is_refused_with_its_line(file: Path, edit: Edit) -> None:
    edit("[[tools]]", '[reflect]\nuse = "argparse:Namespace"\n\n[[tools]]')

    with pytest.raises(ConfigError, match=r"config\.toml:\d+: reflect\.use: .*no method 'reflect'"):
        build_agent(load(file, environ={}))


OWN_PLUGINS = """
class Shout:
    def __init__(self, sign: str = "!") -> None:
        self.sign = sign

    def register(self, agent):
        from spar import Decision

        agent.hooks.add("message_sending", lambda ctx: Decision.rewrite(ctx.value.upper() + self.sign), priority=5)
"""


async def test_a_plug_in_registers_hooks_which_the_status_names(
    file: Path, edit: Edit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(file.parent))
    (file.parent / "own_plugins.py").write_text(OWN_PLUGINS)
    edit("[[tools]]", '[[plugins]]\nuse = "own_plugins:Shout"\noptions = { sign = "?" }\n\n[[tools]]')

    agent = build_agent(load(file, environ={}))

    [name] = agent.hooks.snapshot()["message_sending"]
    assert "Shout.register" in name
    async with agent:
        assert await ask(agent, "you") == "HELLO YOU?"


@pytest.mark.parametrize(
    ("use", "told"),
    [
        ('"own_plugins:Shuot"', r"config\.toml:\d+.*plugins\[0\]\.use.*own_plugins"),
        ('"none"', r"no plug-in named 'none'"),
        ('"own_plugins:Shout"\noptions = { sing = "?" }', r"config\.toml:\d+.*sing.*did you mean .*sign"),
    ],
)
def test_a_plug_in_that_cannot_be_used_is_refused_with_its_line(
    file: Path, edit: Edit, monkeypatch: pytest.MonkeyPatch, use: str, told: str
) -> None:
    monkeypatch.syspath_prepend(str(file.parent))
    (file.parent / "own_plugins.py").write_text(OWN_PLUGINS)
    edit("[[tools]]", f"[[plugins]]\nuse = {use}\n\n[[tools]]")
    with pytest.raises(ConfigError, match=told):
        build_agent(load(file, environ={}))


def test_plugins_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPAR_PLUGINS", raising=False)
    assert default_registry().allow_plugins
    for word in ("off", "OFF"):
        monkeypatch.setenv("SPAR_PLUGINS", word)
        assert not default_registry().allow_plugins


# -- reloading


async def test_a_changed_rule_is_in_force_at_once(service: Service, edit: Edit) -> None:
    agent = service.agent
    edit("hello {content:.20}", "good day {content:.20}")

    done = await service.reload()

    assert done.changed == ("rules",)
    assert await ask(agent, "you") == "good day you"
    assert agent.state == "running"


async def test_a_reload_rebuilds_only_what_the_change_concerns(service: Service, edit: Edit) -> None:
    agent = service.agent

    def parts() -> dict[str, Any]:
        return {phase: module.part for phase, module in agent.setup.modules.items()}

    before = parts()
    await service.reload()
    assert parts() == before

    edit("hello", "good day")
    await service.reload()
    assert {phase for phase, part in parts().items() if part is not before[phase]} == {"plan"}

    before = parts()
    edit('options = { path = "inbox" }', 'options = { path = "inbox", settle = 2 }')
    await service.reload()
    assert {phase for phase, part in parts().items() if part is not before[phase]} == {"sense"}

    before = parts()
    edit("[[tools]]", '[[tools]]\nuse = "files"\n[[tools]]')
    await service.reload()
    assert {phase for phase, part in parts().items() if part is not before[phase]} == {"plan", "act"}


async def test_a_reload_makes_a_tool_once_for_all_modules_that_know_it(
    service: Service, file: Path, edit: Edit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(file.parent))
    edit("counted_tools.py", COUNTED_TOOLS)
    edit("[[tools]]", '[[tools]]\nuse = "counted_tools:Loud"\n[[tools]]')

    assert (await service.reload()).changed == ("tools",)

    import counted_tools  # type: ignore[import-not-found]

    assert len(counted_tools.made) == 1


COUNTED_TOOLS = """
made = []

class Loud:
    name = "loud"

    def __init__(self) -> None:
        made.append(self)

    async def __call__(self) -> str:
        return "x"
"""


async def test_pace_and_limits_change_without_a_new_part(service: Service, edit: Edit) -> None:
    agent = service.agent
    edit("loop_interval = 0.01", "loop_interval = 0.02")

    done = await service.reload()

    assert done.changed == ("agent.loop_interval",)
    assert agent.loop_interval == 0.02


async def test_overrides_survive_a_reload(service: Service, edit: Edit) -> None:
    edit("loop_interval = 0.01", "loop_interval = 0.02\nmax_interval = 9.0")

    await service.reload()

    assert service.agent.settings.agent.max_interval == 0.5


async def test_what_needs_a_restart_is_said_every_time_and_not_applied(service: Service, edit: Edit) -> None:
    edit("port = 0", 'port = 1\nworkspace = "elsewhere"\ndrain = 3')

    for _ in range(2):
        done = await service.reload()
        assert set(done.needs_restart) == {"service.port", "service.workspace"}

    assert service.loaded.settings.service.port == 0
    assert service.loaded.settings.service.workspace == "workspace"
    assert service.loaded.settings.service.drain == 3


@pytest.mark.parametrize(
    "change", [("answer =", "anwser ="), ("0.01", "-1"), ('use = "note"', 'use = "nonsense"'), ("[agent]", "[agent")]
)
async def test_a_bad_file_changes_nothing_and_is_told(service: Service, edit: Edit, change: tuple[str, str]) -> None:
    agent, heard = service.agent, []
    agent.events.subscribe(ErrorOccurred, heard.append)
    modules, settings = agent.setup.modules, agent.settings
    edit(*change)

    with pytest.raises(ConfigError, match=r"config\.toml:\d+"):
        await service.reload()

    assert (agent.setup.modules, agent.settings, agent.state) == (modules, settings, "running")
    assert [(event.phase, event.policy) for event in heard] == [("reload", "continue")]
    assert await ask(agent, "you") == "hello you"


async def test_a_reload_never_aborts_work(service: Service, edit: Edit) -> None:
    agent = service.agent
    runs = [await agent.submit(f"number {number}", session=f"s{number % 3}") for number in range(30)]

    for number in range(5):
        edit("hello" if not number else f"hello{number - 1}", f"hello{number}")
        await service.reload()

    outputs = [(await agent.wait(run.run_id, 20)).output for run in runs]
    assert all(str(output).startswith("hello") for output in outputs)
    assert agent.stats.outcomes["interrupted"] == 0


async def test_reloads_at_the_same_time_take_turns(service: Service, edit: Edit) -> None:
    edit("hello", "good day")

    done = await asyncio.gather(*(service.reload() for _ in range(4)))

    assert [event.changed for event in done] == [("rules",), (), (), ()]
    assert service.agent.state == "running"


async def test_a_paused_agent_stays_paused_when_it_is_reloaded(service: Service, edit: Edit) -> None:
    agent = service.agent
    await agent.pause()
    edit("hello", "good day")

    await service.reload()

    assert agent.state == "paused"
    await agent.resume()
    assert await ask(agent, "you") == "good day you"


async def test_a_stopped_agent_is_not_reloaded(service: Service) -> None:
    await service.agent.stop()

    with pytest.raises(LifecycleError, match="cannot reload an agent that is stopped"):
        await service.reload()


def test_only_live_settings_are_taken_into_force() -> None:
    old = from_mapping(
        {"agent": {"name": "a"}, "log": {"level": "info", "format": "json"}, "memory": {"url": "sqlite:///a"}}
    )
    new = from_mapping({
        "agent": {"name": "b", "min_interval": 0.1}, "log": {"level": "debug", "format": "pretty"},
        "memory": {"url": "sqlite:///b", "learning": "observe"}, "service": {"drain": 1, "port": 1},
    })  # fmt: skip

    now: Settings = in_force(old, new)

    assert (now.agent.name, now.agent.min_interval) == ("a", 0.1)
    assert (now.log.level, now.log.format) == ("debug", "json")
    assert (now.memory.options, now.memory.learning) == ({"url": "sqlite:///a"}, "observe")
    assert (now.service.drain, now.service.port) == (1.0, 8420)


# -- probes


async def test_the_probes_tell_the_states_apart(service: Service) -> None:
    agent = service.agent
    assert (service.alive()[0], service.started()[0], service.ready()[0]) == (True, True, True)

    await agent.pause()
    assert service.ready()[0]
    agent.health.judge.alert("failing", "for a test")
    assert not service.ready()[0]
    agent.health.recovered("failing")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(agent.core.ledger.journal), "refusal", "no lease")
        assert not service.ready()[0]
        assert service.ready()[1]["refusal"] == "no lease"

    await agent.stop()
    assert (service.alive()[0], service.started()[0], service.ready()[0]) == (True, False, False)


async def test_a_status_is_plain_and_complete(service: Service) -> None:
    import json

    from spar.decoding import encode

    status = json.loads(encode(service.status()))

    assert status["agent"]["modules"]["sense"]["sensors"]["inbox"]["state"] == "ok"
    assert isinstance(service.metrics, Metrics)
