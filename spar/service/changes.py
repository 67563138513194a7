"""Record of what changed in the settings and the tools of an agent: one small row for each change.

The present settings are compared with those of the row before at each start and after each reload, the tools a minute
later and then every hour, since some come from servers that need time. Values are masked, and long ones are cut.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from spar import __version__
from spar.config.in_force import MOST as MOST_KEPT
from spar.config.load import entries, masked
from spar.data.json_safe import shortened

if TYPE_CHECKING:
    from spar.config.load import Settings
    from spar.ports.rows import OwnRows

#: The name of the rows; the keys of the present state, and of the time since when changes are recorded.
ROWS: Final = "changes"
PRESENT, SINCE = "present", "since"
#: Changes that are kept, and bytes of a value.
MOST, LONGEST = 1_000, 500

Recorded = Literal["version", "setting", "tool"]


class ChangeRecord:
    """Record of the changes of one agent.

    Args:
        rows: The rows of the record, None without a memory.
        now: Returns the time of day.
        tools: Returns the tools that can be called now.
        configurations: The rows with whole configurations.
    """

    def __init__(self, rows: Callable[[], OwnRows | None], now: Callable[[], datetime],
                 tools: Callable[[], Mapping[str, Any]],
                 configurations: Callable[[], OwnRows | None] = lambda: None) -> None:  # fmt: skip
        self._rows, self._configurations, self._now, self._tools = rows, configurations, now, tools
        #: Who asks for changes has the tools looked at, also while a start or a reload looks at the settings.
        self._looking = asyncio.Lock()

    async def look_at_settings(self, settings: Settings) -> None:
        """Record how the settings and the version differ from those before. Raises: what the memory raises."""
        async with self._looking:
            await self._take({"setting": _settings_of(settings), "version": {"spar": __version__}})

    async def keep_configuration(self, digest: str, values: Mapping[str, Any]) -> None:
        """Keep the readable settings in force under their digest, by which cycles name them. Raises: what the memory
        raises."""
        rows = self._configurations()
        if rows is None:
            return
        stored = dict(await rows.list())
        if digest not in stored:
            rows.keep(digest, {"at": self._now().isoformat(), "version": __version__, "settings": values})
        for old in sorted(stored, key=lambda key: str(stored[key]["at"]))[: max(len(stored) + 1 - MOST_KEPT, 0)]:
            rows.drop(old)

    async def look_at_tools(self) -> None:
        """Record how the tools differ from those before. Raises: what the memory raises."""
        async with self._looking:
            await self._take({"tool": {name: _digest(tool.schema) for name, tool in self._tools().items()}})

    async def _take(self, state: Mapping[Recorded, Mapping[str, Any]]) -> None:
        rows = self._rows()
        if rows is None:
            return
        state = msgspec.json.decode(msgspec.json.encode(state))  # as the rows have it
        await rows.safe()  # what the last look has written
        stored = dict(await rows.list())
        present = stored.get(PRESENT, {})
        if SINCE not in stored:
            rows.keep(SINCE, self._now().isoformat())
        changes = [(kind, what, before.get(what), values.get(what))
                   for kind, values in state.items() if (before := present.get(kind)) is not None
                   for what in dict.fromkeys([*before, *values]) if before.get(what) != values.get(what)]  # fmt: skip
        if any(present.get(kind) != values for kind, values in state.items()):
            rows.keep(PRESENT, {**present, **state})
        at = self._now().isoformat()
        for number, change in enumerate(changes[:MOST]):
            rows.keep(f"{at} {number:04}", change)
        past = sorted(key for key in stored if key not in (PRESENT, SINCE))
        for key in past[: max(len(past) + len(changes) - MOST, 0)]:
            rows.drop(key)


def _settings_of(settings: Settings) -> dict[str, Any]:
    """Return each setting by its key as it may be read; a table of a list has its name in the key."""
    return {key: _shown(value) for key, value in entries(masked(settings))}


def _shown(value: Any) -> Any:
    """Return a setting, a long one by its beginning and a digest."""
    beginning, is_cut = shortened(value, LONGEST)
    return {"beginning": beginning, "digest": _digest(value)} if is_cut else beginning


def _digest(value: Any) -> str:
    return hashlib.blake2b(msgspec.json.encode(value, enc_hook=repr, order="sorted"), digest_size=8).hexdigest()
