"""Things of an incident: reads a perception as the state of a thing, with its severity and its identity.

Structured attributes, labels or data decide. Of a text only the first word is read ("RESOLVED: …"), and only where the
sensor called it an alert.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from perception.incidents.entities import Entity, Mentions, mentions_in
from perception.stages import wording
from perception.stages.dedup import count_of
from spar.data.text import safe_line
from spar.records.perceived.incidents import SEVERITIES, Severity, ThingState
from spar.types import Perception

TEXT = 300  # characters of a text that are stored
DATA_LIMIT = 65_536  # characters of a text that is read as data

_SEVERITY: Final[dict[str, Severity]] = {
    **dict.fromkeys(("critical", "crit", "page", "emergency", "emerg", "fatal", "panic", "disaster", "p1"), "critical"),
    **dict.fromkeys(("error", "err", "high", "major", "p2"), "error"),
    **dict.fromkeys(("warning", "warn", "minor", "medium", "average", "p3"), "warning"),
    **dict.fromkeys(("info", "information", "notice", "debug", "trace", "none", "low", "ok", "normal"), "info"),
}  # fmt: skip
_BY_KIND: Final[dict[str, Severity]] = {
    "alert": "error",
    "log.critical": "critical",
    "log.error": "error",
    "log.warning": "warning",
    "host": "warning",
    "anomaly": "warning",
}
_OVER = frozenset(
    ("resolved", "ok", "normal", "recovered", "recovery", "cleared", "inactive", "ended", "over", "closed")
)
_FIRING = frozenset(
    ("firing", "high", "low", "problem", "alarm", "active", "triggered", "failing", "down", "begun", "open")
)
_STATES = ("status", "state", "level", "episode")
#: Attributes that identify an alert of a sensor, the most reliable first.
_IDENTITIES = ("fingerprint", "series", "template_id", "template")


class Sighting(Struct, frozen=True):
    """Perception that was read as the newest state of a thing. `thing` is a digest of the thing's identity.

    `at` is the time that the perception states. `heard_at` is the time that counts for its incident: for a state the
    time of the report, because the state may have begun long before; for an event the time of the event. `is_placed`
    is true when the perception names no host and is assumed to be about this machine.
    """

    perception: Perception
    thing: str
    text: str
    severity: Severity
    state: ThingState
    at: datetime
    heard_at: datetime
    count: int
    mentions: Mentions
    is_placed: bool = False

    @property
    def rank(self) -> int:
        """Return the position of its severity among all severities."""
        return SEVERITIES.index(self.severity)

    @property
    def is_log(self) -> bool:
        """Return whether it is a log line, which reports an event and ends nothing."""
        return self.perception.kind.startswith("log.")


def placed(sighting: Sighting, machine: Entity | None) -> Sighting:
    """Return a reading or a log line without a host as one of this machine."""
    mentions = sighting.mentions
    if machine is None or not sighting.perception.kind.startswith(("host.", "log.")):
        return sighting
    if any(kind == "host" for kind, _ in mentions.entities):
        return sighting
    with_machine = replace(mentions, entities=(*mentions.entities, machine))
    return replace(sighting, mentions=with_machine, is_placed=True)


def tells_nothing(perception: Perception) -> bool:
    """Return whether it is a log line that neither reports a trouble nor ends one."""
    kind = perception.kind
    return kind.startswith("log.") and kind not in _BY_KIND and "severity" not in perception.attributes


def sighting_of(perception: Perception, now: datetime | None = None) -> Sighting:
    """Read a perception as the state of a thing.

    Args: now: the latest time that is believed, because a clock may be wrong.
    """
    data, attributes = _data_of(perception), perception.attributes
    labels = _table(attributes.get("labels")) or _table(data.get("labels"))
    state = _state(perception, data)
    at = perception.at if now is None else min(perception.at, now)
    return Sighting(
        perception,
        _identity(perception, labels, data),
        safe_line(wording.text_of(perception)[: 4 * TEXT], TEXT),
        _severity(perception, labels, data),
        state,
        at,
        at if now is None or state == "event" else now,
        count_of(perception),
        mentions_in(perception, labels),
    )


def _table(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _data_of(perception: Perception) -> Mapping[str, Any]:
    """Return the content as data, also for an alert whose data is written as text; empty when it is not data."""
    content = perception.content
    if isinstance(content, str) and perception.kind.startswith("alert") and content[:1] == "{":
        if len(content) > DATA_LIMIT:
            return {}
        try:
            content = json.loads(content)
        except (ValueError, RecursionError):
            return {}
    return _table(content)


def _severity(perception: Perception, labels: Mapping[str, Any], data: Mapping[str, Any]) -> Severity:
    for table in (perception.attributes, labels, data):
        for name in ("severity", "priority_label", "log_level"):
            value = table.get(name)
            if isinstance(value, str) and (severity := _SEVERITY.get(value.strip().casefold())) is not None:
                return severity
    kind = perception.kind
    return _BY_KIND.get(kind) or _BY_KIND.get(kind.partition(".")[0]) or "info"


def _state(perception: Perception, data: Mapping[str, Any]) -> ThingState:
    kind = perception.kind
    if kind.startswith("log."):
        return "event"
    for table in (perception.attributes, data):
        for name in _STATES:
            value = table.get(name)
            word = value.strip().casefold() if isinstance(value, str) else ""
            if word in _OVER:
                return "over"
            if word in _FIRING:
                return "firing"
    if kind.startswith("alert") and isinstance(perception.content, str):
        first = perception.content[:40].lstrip(" [(*-")[:12].casefold()
        if first.startswith(("resolved", "recovery", "recovered", "ok:")):
            return "over"
        if first.startswith(("firing", "problem", "alarm")):
            return "firing"
    return "event"


def _identity(perception: Perception, labels: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    """Return the digest of a thing; it is the same for all states of the thing in one session, source and trust."""
    what: tuple[object, ...] = ()
    for name in _IDENTITIES:
        for table in (perception.attributes, data):
            value = table.get(name)
            if isinstance(value, (str, int)) and value:
                what = (name, value)
                break
        if what:
            break
    if not what and labels:
        what = ("labels", sorted((str(key), str(value)) for key, value in labels.items()))
    if not what and perception.subject and not perception.kind.startswith(("log.", "alert")):
        what = ("subject", perception.kind, perception.subject)
    if not what:
        # A bare number in a log line is a count; in an alert it may be the name of the thing.
        is_line = perception.kind.startswith("log.")
        words = sorted(word for word in wording.naming(perception) if not (is_line and word.isdigit()))
        what = ("words", perception.kind, perception.subject, words)
    place = (perception.session, perception.source, perception.trust)
    return wording.digest((*place, *what), 8).hex()
