"""Operation on the configurations that past cycles were decided by."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from spar.operations.operation import AgentStore, operation


class ConfigurationId(Struct, frozen=True, forbid_unknown_fields=True):
    """The digest of a configuration, as recorded cycles name it."""

    id: Annotated[str, Meta(description="The digest.")]


class PastConfiguration(Struct, frozen=True):
    """Configuration that was in force: since when, by which version, and its settings; secrets are masked."""

    id: str
    at: datetime
    version: str
    settings: dict[str, Any]


@operation("configurations show", "GET /v1/configurations/{id}", "read", where="store", served="stopping")
async def show_configuration(store: AgentStore, given: ConfigurationId) -> PastConfiguration:
    """Show a configuration by the digest that a cycle names."""
    from spar.config.in_force import ROWS
    from spar.decoding import convert
    from spar.ports.rows import rows_of

    rows = rows_of(store.memory)
    stored = {} if rows is None else await rows.rows(f"{ROWS}:{store.agent_name}")
    if given.id not in stored:
        raise LookupError(f"no configuration {given.id!r:.60} is kept any more")
    return convert({"id": given.id, **stored[given.id]}, PastConfiguration, strict=False)
