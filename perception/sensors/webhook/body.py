"""Bodies of untrusted requests as JSON within bounds of depth and number, and what the readers of formats return."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from spar.ports.webhook import WebhookRefusal

#: Bounds of JSON: levels of nesting, values.
DEEPEST: Final = 64
MOST_VALUES: Final = 100_000


class Noticed(Struct, frozen=True):
    """One thing that a request reports. `key` identifies it; None: only the request itself does."""

    content: Any
    kind: str
    key: str | None
    subject: str | None = None
    attributes: dict[str, Any] = field(default_factory=dict)


def json_of(body: bytes) -> Any:
    """Return a body as a JSON value. Raises: WebhookRefusal."""
    try:
        value = msgspec.json.decode(body)
    except RecursionError:
        raise WebhookRefusal(400, f"the JSON is nested deeper than {DEEPEST} levels", "malformed") from None
    except (msgspec.DecodeError, UnicodeError):
        raise WebhookRefusal(400, "the body is no JSON in UTF-8", "malformed") from None
    _demand_bounded(value)
    return value


def object_of(body: bytes) -> dict[str, Any]:
    """Return a body as a JSON object. Raises: WebhookRefusal."""
    value = json_of(body)
    if not isinstance(value, dict):
        raise WebhookRefusal(400, "the body must be a JSON object", "malformed")
    return value


def texts(value: object) -> dict[str, str]:
    """Return the members of an object as texts; nothing for another value."""
    if not isinstance(value, Mapping):
        return {}
    return {str(key): item if isinstance(item, str) else shown(item) for key, item in value.items()}


def shown(value: Any) -> str:
    """Return a text itself, another value as its JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _demand_bounded(value: Any) -> None:
    level: list[Any] = [value]
    count = 0
    for _ in range(DEEPEST):
        if not level:
            return
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
        count += len(level)
        if count > MOST_VALUES:
            raise WebhookRefusal(400, f"the JSON has more than {MOST_VALUES} values", "malformed")
        level = below
    if level:
        raise WebhookRefusal(400, f"the JSON is nested deeper than {DEEPEST} levels", "malformed")
