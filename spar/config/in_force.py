"""Configurations as they were in force: readable values, kept once under their digest, and how two of them differ.

Each recorded cycle names the digest of the configuration that it was decided by. Settings of the process, its log and
its traces decide nothing, and are left out. Secrets are masked.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from spar.config.load import different, entries, from_mapping, show

if TYPE_CHECKING:
    from spar.config.tables.settings import Loaded, Settings

#: The name of the rows with the configurations by digest, and how many are kept.
ROWS, MOST = "configurations", 100
#: Tables that decide nothing.
_OF_PROCESS: Final = ("service", "log", "tracing")
#: Tables by which a past decision is explained.
_EXPLAINING: Final = ("rules", "approval")


def readable(loaded: Loaded) -> dict[str, Any]:
    """Return the settings that decide, as JSON values that people may read."""
    table: dict[str, Any] = json.loads(show(loaded, form="json"))
    return {name: value for name, value in table.items() if name not in _OF_PROCESS}


def digest_of(values: Mapping[str, Any]) -> str:
    """Return the digest of readable settings."""
    return hashlib.blake2b(json.dumps(values, sort_keys=True).encode(), digest_size=8).hexdigest()


def differing(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the keys whose values differ; a table of a list has its name in the key."""
    return different(dict(entries(then)), dict(entries(now)))


def explaining(now: Settings, then: Mapping[str, Any]) -> Settings:
    """Return the present settings with the rules and the policy of another time. Raises: ConfigError if they are of no
    use to this version."""
    from msgspec.structs import replace

    past = from_mapping({name: then[name] for name in _EXPLAINING if name in then})
    return replace(now, **{name: getattr(past, name) for name in _EXPLAINING})
