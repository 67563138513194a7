"""Sessions as people see them: what the operations on sessions answer, without a service."""

from __future__ import annotations

from types import SimpleNamespace

from spar import Agent
from spar.operations import sessions
from spar.operations.operation import Caller
from spar.operations.sessions import SessionKey, SessionPage, SessionsChoice, SessionView


def _store(agent: Agent) -> SimpleNamespace:
    return SimpleNamespace(agent=agent, memory=agent.memory, agent_name=agent.name)


async def listed(agent: Agent, limit: int = 50, after: str = "") -> SessionPage:
    return await sessions.list_sessions.run(_store(agent), SessionsChoice(limit, after), Caller(""))


async def shown(agent: Agent, key: str) -> SessionView:
    return await sessions.show.run(_store(agent), SessionKey(key), Caller(""))
