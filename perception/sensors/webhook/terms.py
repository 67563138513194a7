"""Result type of the readers of formats."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field


class Noticed(Struct, frozen=True):
    """One thing that a request reports. `key` identifies it; None: only the request itself does."""

    content: Any
    kind: str
    key: str | None
    subject: str | None = None
    attributes: dict[str, Any] = field(default_factory=dict)
