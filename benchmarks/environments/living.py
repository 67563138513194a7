"""Agents in environments: an agent of the ordinary configuration runs in an environment, in virtual time."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping
from contextlib import nullcontext
from datetime import datetime
from functools import partial
from typing import Any

from benchmarks.environments.adapter import EnvironmentAdapter
from benchmarks.environments.environment import Environment, LivedEpisode
from spar.agent.agent import build_agent
from spar.clock import Clock
from spar.config.lines import Sources
from spar.config.load import Loaded, from_mapping
from spar.config.tables.agent import BudgetSettings
from spar.parts.registry import Registry
from spar.testing.clock import START, VirtualClock
from spar.types import Learning, replace

#: Virtual seconds for one episode; a longer one shows an error of the agent or the environment.
PATIENCE = 3600.0
#: Real seconds for which time stops for the memory's threads, so that also on a busy machine each decision has it.
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
    """Let an agent live through so many episodes; return the course of each.

    Args: learning: the value of `[memory] learning`; seed: seed of the environment; memory: the url of its memory,
    which several lives can share on disk; settings: tables as in `config.toml`, which replace those of `settings_for`
    table by table; clock: the one that the running loop has already; start: the start time, where there is no clock;
    life: a name for these episodes that is unique in the memory.

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
    """Embed the waiting texts, which otherwise waits for idle time that virtual time does not have."""
    while await embedding.step():
        pass


def agent_in(adapter: EnvironmentAdapter, tables: Mapping[str, Any], clock: Clock) -> Any:
    """Return an agent of these settings, not yet started, in the environment of an adapter.

    There are no budgets unless the settings define them. Raises: ConfigError.
    """
    settings = from_mapping(tables)
    if "budgets" not in tables:
        settings = replace(settings, budgets=BudgetSettings.off())
    agent = build_agent(Loaded(settings, Sources()), clock=clock, registry=_EnvironmentRegistry(adapter))
    adapter.register(agent)
    return agent


def settings_for(environment: Environment, learning: Learning, memory: str, folder: str) -> dict[str, Any]:
    """Return the configuration of an agent in an environment: one rule, which may choose any of its tools.

    Observations are passed on unchanged: similar ones are neither dropped nor joined to an incident.
    """
    tools = [offer.name for offer in environment.offers]
    memory_table = {"url": memory, "durability": "off", "ballast": 0}
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
        "memory": memory_table if learning == "on" else {**memory_table, "learning": learning},
        "service": {"state_dir": f"{folder}/state", "workspace": f"{folder}/workspace"},
    }


class _EnvironmentRegistry(Registry):
    """Registry of the built-in parts, and of the parts of an environment by their names."""

    def __init__(self, adapter: EnvironmentAdapter) -> None:
        super().__init__(allow_plugins=False)
        self._parts: dict[tuple[str, str], Any] = {("spar.tools", tool.name): tool for tool in adapter.tools}
        self._parts["spar.sensors", adapter.environment.name] = adapter

    def resolve(self, group: str, use: Any, path: Any = ()) -> Any:
        part = self._parts.get((group, use))
        return super().resolve(group, use, path) if part is None else part
