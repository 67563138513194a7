"""Readers of formats, by name; the generic one, which takes JSON or text and looks where the configuration points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from perception.sensors.web.pointer import MISSING, Pointer, at_pointer
from perception.sensors.webhook.alerts import read_alerts
from perception.sensors.webhook.body import json_of, shown, text_of
from perception.sensors.webhook.repository import read_delivery
from perception.sensors.webhook.terms import Noticed
from spar.ports.webhook import WebhookRefusal, WebhookRequest

Format = Literal["generic", "alertmanager", "github"]
Reader = Callable[[WebhookRequest], Sequence[Noticed]]
#: Kinds that a body may not say of itself: what people say, and what the pipeline tells; rules and planners go by them.
_OURS = ("message", "incident.", "anomaly.")


class Fields(BaseModel):
    """Where in the JSON of the generic format something stands, as JSON pointers; "" for nowhere."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: Pointer = ""
    """What is told; the whole then stands under `attributes.payload`. Nowhere: the whole is the content."""
    kind: Pointer = ""
    subject: Pointer = ""
    key: Pointer = ""
    """What tells one thing from another: of two with the same the second is known already."""
    severity: Pointer = ""
    value: Pointer = ""
    """A number, for `attributes.value`."""


def is_json(kind: str) -> bool:
    """Return whether a content type is JSON."""
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


def admits(format_: Format, content_type: str) -> bool:
    """Return whether a body of this content type is read."""
    kind = content_type.partition(";")[0].strip().lower()
    return is_json(kind) or (format_ == "generic" and (kind.startswith("text/") or kind == "application/octet-stream"))


def reader_of(format_: Format, fields: Fields, kind: str) -> Reader:
    """Return the reader of a format; `fields` and `kind` are for the generic one."""
    if format_ == "alertmanager":
        return read_alerts
    if format_ == "github":
        return read_delivery
    return lambda request: [_generic(request, fields, kind)]


def _generic(request: WebhookRequest, fields: Fields, kind: str) -> Noticed:
    if not is_json(request.headers.get("content-type", "").partition(";")[0].strip().lower()):
        text, is_utf8 = text_of(request.body)
        return Noticed(text, kind, None, attributes={} if is_utf8 else {"binary": True})
    value = json_of(request.body)
    found = {name: at_pointer(value, at) for name, at in fields.model_dump().items() if at}
    attributes: dict[str, Any] = {}
    content = value
    if "text" in found:
        if found["text"] is MISSING:
            raise WebhookRefusal(400, f"the body has nothing at {fields.text!r}, which this hook tells", "malformed")
        content, attributes["payload"] = shown(found["text"]), value
    if found.get("severity", MISSING) is not MISSING:
        attributes["severity"] = shown(found["severity"])
    number = found.get("value", MISSING)
    if isinstance(number, (int, float)) and not isinstance(number, bool):
        attributes["value"] = number
    said = _text(found, "kind")
    if said is not None and said.startswith(_OURS):
        sentence = f"a body may not be of a kind that begins with any of: {', '.join(_OURS)}"
        raise WebhookRefusal(400, sentence, "malformed")
    return Noticed(
        content,
        said or kind,
        _text(found, "key"),
        _text(found, "subject"),
        attributes,
    )


def _text(found: dict[str, Any], name: str) -> str | None:
    value = found.get(name, MISSING)
    return None if value is MISSING or value is None else shown(value)[:1000]
