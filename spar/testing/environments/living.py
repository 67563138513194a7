"""Lives: an agent of the ordinary configuration lives in an environment, in virtual time."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping
from contextlib import nullcontext
from datetime import datetime
from functools import partial
from typing import Any

from spar.agent.agent import build_agent
from spar.clock import Clock
from spar.config.lines import Sources
from spar.config.load import Loaded, from_mapping
from spar.config.registry import Registry
from spar.config.tables.budgets import BudgetSettings
from spar.testing.clock import START, VirtualClock
from spar.testing.environments.adapter import EnvironmentAdapter
from spar.testing.environments.environment import Environment, LivedEpisode
from spar.types import Learning, replace

#: Virtual seconds without the end of an episode after which something is wrong with the agent or the environment.
PATIENCE = 3600.0
#: Real seconds that time stands still for the memory's threads: on a busy machine a decision must not go without it.
THREADS = 30.0


async def live(
    environment: Environment,
    episodes: int,
    *,
    learning: Learning = "on",
    seed: int = 0,
    memory: str = "sqlite://:memory:",
    settings: Mapping[str, Any] | None = None,
    clock: VirtualClock | None = None,
    start: datetime = START,
    life: str = "",
) -> list[LivedEpisode]:
    """Let an agent live through so many episodes; return how each one went.

    Args: learning: what `[memory] learning` is; seed: what the environment draws from; memory: the url of its memory,
    on disk another life goes on with it; settings: tables as in `config.toml`, in the place of those of `settings_for`
    table by table; clock: the one that the running loop has already; start: when it begins, where there is none;
    life: a name for these episodes, which no other ones in the same memory have.
    Raises: ConfigError; TimeoutError when an episode does not end.
    """
    async with VirtualClock(start=start, patience=THREADS) if clock is None else nullcontext(clock) as virtual:
        with tempfile.TemporaryDirectory() as folder:
            adapter = EnvironmentAdapter(environment, episodes, seed=seed, life=life)
            tables = {**settings_for(environment, learning, memory, folder), **(settings or {})}
            async with agent_in(adapter, tables, virtual) as agent:
                if (embedding := getattr(agent.memory, "embedding", None)) is not None:
                    adapter.rest = partial(_embedded, embedding)
                adapter.begin()
                async with asyncio.timeout(PATIENCE * max(1, episodes)):
                    return await adapter.wait()


async def _embedded(embedding: Any) -> None:
    """Embed what waits for idle time, which virtual time has none of."""
    while await embedding.step():
        pass


def agent_in(adapter: EnvironmentAdapter, tables: Mapping[str, Any], clock: Clock) -> Any:
    """Return an agent of these settings, not yet started, that lives in the environment of an adapter.

    There are no budgets unless the settings give them. Raises: ConfigError.
    """
    settings = from_mapping(tables)
    if "budgets" not in tables:
        settings = replace(settings, budgets=BudgetSettings.off())
    agent = build_agent(Loaded(settings, Sources()), clock=clock, registry=_Given(adapter))
    adapter.register(agent)
    return agent


def settings_for(environment: Environment, learning: Learning, memory: str, folder: str) -> dict[str, Any]:
    """Return the configuration of an agent in an environment: one rule, which may take any of its tools.

    Observations come as they are: what looks alike is neither left out nor joined to an incident.
    """
    tools = [offer.name for offer in environment.offers]
    kept = {"url": memory, "durability": "off", "ballast": 0}
    return {
        "agent": {"name": environment.name, "loop_interval": "off"},
        "sensors": [{"use": environment.name, "name": environment.name}],
        "perception": {"dedup": {"enabled": False}, "incidents": {"enabled": False}},
        "tools": [{"use": name} for name in tools],
        "rules": [
            {
                "name": environment.name,
                "when": {"source": environment.name, "attributes": {"done": False}},
                "calls": [{"tool": tools}],
            }
        ],
        "memory": kept if learning == "on" else {**kept, "learning": learning},
        "service": {"state_dir": f"{folder}/state", "workspace": f"{folder}/workspace"},
    }


class _Given(Registry):
    """The parts in the box, and those of an environment by their names."""

    def __init__(self, adapter: EnvironmentAdapter) -> None:
        super().__init__(allow_plugins=False)
        self._given: dict[tuple[str, str], Any] = {("spar.tools", tool.name): tool for tool in adapter.tools}
        self._given["spar.sensors", adapter.environment.name] = adapter

    def resolve(self, group: str, use: Any, path: Any = ()) -> Any:
        given = self._given.get((group, use))
        return super().resolve(group, use, path) if given is None else given
