"""Readers of formats, by name, and the generic one, which reads JSON or text at the configured places."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from perception.sensors.web.pointer import MISSING, Pointer, at_pointer
from perception.sensors.webhook.alerts import read_alerts
from perception.sensors.webhook.body import Noticed, json_of, shown
from perception.sensors.webhook.repository import read_delivery
from spar.data.text import decoded
from spar.ports.webhook import WebhookRefusal, WebhookRequest

Format = Literal["generic", "alertmanager", "github"]
Reader = Callable[[WebhookRequest], Sequence[Noticed]]
#: Kinds that a body may not claim: those of people's messages and of the pipeline; rules and planners trust them.
_RESERVED = ("message", "incident.", "anomaly.")


class Fields(BaseModel):
    """Places of the fields in the JSON of the generic format, as JSON pointers; "" for none."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: Pointer = ""
    """The content of the perception, with the whole body in `attributes.payload`; "": the whole body is the content."""
    kind: Pointer = ""
    subject: Pointer = ""
    key: Pointer = ""
    """The key of the perception; a second perception with the same key is a repetition."""
    severity: Pointer = ""
    value: Pointer = ""
    """A number, for `attributes.value`."""


def is_json(kind: str) -> bool:
    """Return whether a content type is JSON."""
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


def admits(format_: Format, content_type: str) -> bool:
    """Return whether bodies of this content type are read."""
    kind = content_type.partition(";")[0].strip().lower()
    is_text = kind == "application/octet-stream" or (kind.startswith("text/") and kind != "text/html")
    return is_json(kind) or (format_ == "generic" and is_text)


def reader_of(format_: Format, fields: Fields, kind: str) -> Reader:
    """Return the reader of a format; `fields` and `kind` are for the generic one."""
    if format_ == "alertmanager":
        return read_alerts
    if format_ == "github":
        return read_delivery
    return lambda request: [_generic(request, fields, kind)]


def _generic(request: WebhookRequest, fields: Fields, kind: str) -> Noticed:
    if not is_json(request.headers.get("content-type", "").partition(";")[0].strip().lower()):
        text, is_utf8 = decoded(request.body)
        return Noticed(text, kind, None, attributes={} if is_utf8 else {"binary": True})
    value = json_of(request.body)
    values = {name: at_pointer(value, at) for name, at in fields.model_dump().items() if at}
    attributes: dict[str, Any] = {}
    content = value
    if "text" in values:
        if values["text"] is MISSING:
            raise WebhookRefusal(400, f"the body has nothing at {fields.text!r}, which this hook tells", "malformed")
        content, attributes["payload"] = shown(values["text"]), value
    if values.get("severity", MISSING) is not MISSING:
        attributes["severity"] = shown(values["severity"])
    number = values.get("value", MISSING)
    if isinstance(number, (int, float)) and not isinstance(number, bool):
        attributes["value"] = number
    stated_kind = _text(values, "kind")
    if stated_kind is not None and stated_kind.startswith(_RESERVED):
        sentence = f"a body may not be of a kind that begins with any of: {', '.join(_RESERVED)}"
        raise WebhookRefusal(400, sentence, "malformed")
    return Noticed(content, stated_kind or kind, _text(values, "key"), _text(values, "subject"), attributes)


def _text(values: dict[str, Any], name: str) -> str | None:
    value = values.get(name, MISSING)
    return None if value is MISSING or value is None else shown(value)[:1000]
