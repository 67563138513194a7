"""Settings in force with their origins, and the check of what a reload would apply."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from spar.agent.agent import build_agent
from spar.config.load import load, load_again
from spar.operations.operation import Caller, Nothing
from spar.operations.setup import ConfigCheck, check, show_settings
from spar.service.app import Service

CONFIG = """
[agent]
name = "anna"
[[rules]]
name = "greet"
when = { pattern = "hello" }
answer = "hi"
[memory]
use = "sqlite"
url = "sqlite://:memory:"
[plan.options.model]
api_key = "sk-very-secret-0123456789"
"""


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    (tmp_path / "config.toml").write_text(CONFIG.partition("[plan")[0])
    environ = {"SPAR_LOG__LEVEL": "debug"}
    loaded = load(tmp_path / "config.toml", environ=environ)
    agent = build_agent(loaded)
    async with agent:
        yield Service(loaded, agent, reload=partial(load_again, loaded, environ=environ))


async def checked(service: Service, text: str) -> ConfigCheck:
    service.loaded.path.write_text(text)
    return await check.run(service, Nothing(), Caller("ann"))


async def test_each_setting_says_where_it_comes_from_and_when_a_change_applies(service: Service) -> None:
    rows = {row.key: row for row in await show_settings.run(service, Nothing(), Caller("ann"))}

    name, level, port = rows["agent.name"], rows["log.level"], rows["service.port"]
    assert (name.value, name.origin, name.applies) == ("anna", f"{service.loaded.path}:3", "restart")
    assert (level.value, level.origin, level.applies) == ("debug", "SPAR_LOG__LEVEL", "reload")
    assert (port.origin, port.applies) == ("default", "restart")
    assert rows["rules"].value[0]["name"] == "greet"


async def test_a_secret_is_masked(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(CONFIG)
    loaded = load(tmp_path / "config.toml", environ={})

    rows = await show_settings.run(Service(loaded, build_agent(load(None, environ={}))), Nothing(), Caller("ann"))

    assert "very-secret" not in repr(rows)
    assert any("api_key" in row.key for row in rows)


async def test_a_check_says_what_a_reload_would_change_and_applies_nothing(service: Service) -> None:
    text = CONFIG.partition("[plan")[0]
    before = service.loaded

    assert await checked(service, text) == ConfigCheck([], [], [])
    answer = await checked(service, text.replace("hello", "good day").replace('"anna"', '"berta"'))
    assert answer == ConfigCheck([], ["rules"], ["agent.name"])
    answer = await checked(service, text.replace("[agent]", "[agnet]"))
    assert "agnet" in answer.problems[0]
    answer = await checked(service, text + '[[tools]]\nuse = "mine:nothing"\n')
    assert "mine" in answer.problems[0]
    assert service.loaded is before
