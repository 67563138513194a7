"""Operations on settings: those in force with their origins, and a check of those that a reload would apply."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from spar.operations.operation import AgentStore, Nothing, operation

if TYPE_CHECKING:
    from spar.service.app import Service


class SettingRow(Struct, frozen=True):
    """Setting in force: its dotted key, its value, where that was set ("default": nowhere), and whether a change of it
    applies at a reload or after a restart. Secrets are masked."""

    key: str
    value: Any
    origin: str
    applies: Literal["reload", "restart"]


class ConfigCheck(Struct, frozen=True):
    """Result of a check: what is wrong, one sentence each; the settings that a reload would change, and those that
    would change only after a restart."""

    problems: list[str]
    changed: list[str]
    needs_restart: list[str]


@operation("config show", "GET /v1/config", "read", where="service", is_stored=True)
async def show_settings(store: AgentStore, given: Nothing) -> list[SettingRow]:
    """Return the settings in force with their origins."""
    from spar.config.load import reloads, show

    values = json.loads(show(store.configuration(), origins=True, form="json"))
    return [SettingRow(key, row["value"], row["from"], "reload" if reloads(key) == "live" else "restart")
            for key, row in values.items()]  # fmt: skip


@operation("config check", "POST /v1/config:check", "operate")
async def check(service: Service, given: Nothing) -> ConfigCheck:
    """Say what a reload would change, or what is wrong with the configuration, without applying anything."""
    from spar.errors import SparError

    try:
        changed, needs_restart = await service.check()
    except SparError as error:
        return ConfigCheck(str(error).splitlines(), [], [])
    return ConfigCheck([], list(changed), list(needs_restart))
