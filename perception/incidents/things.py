"""Things of an incident: reads a perception as the state of a thing, with its severity and its entities."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from perception.incidents.entities import Entity, Mentions, mentions_in
from perception.stages import wording
from perception.stages.fuse import new_count
from perception.stages.states import Report, labels_of, report_of, thing_of
from spar.data.text import safe_line
from spar.records.perceived import SEVERITIES, Severity, ThingState
from spar.types import Perception

TEXT = 300  # characters of a text that are stored

_SEVERITY: Final[dict[str, Severity]] = {
    **dict.fromkeys(("critical", "crit", "page", "emergency", "emerg", "fatal", "panic", "disaster", "p1"), "critical"),
    **dict.fromkeys(("error", "err", "high", "major", "p2"), "error"),
    **dict.fromkeys(("warning", "warn", "minor", "medium", "average", "p3"), "warning"),
    **dict.fromkeys(("info", "information", "notice", "debug", "trace", "none", "low", "ok", "normal"), "info"),
}  # fmt: skip
_BY_KIND: Final[dict[str, Severity]] = {
    "log.critical": "critical",
    **dict.fromkeys(("alert", "log.error"), "error"),
    **dict.fromkeys(("log.warning", "host", "anomaly"), "warning"),
}  # fmt: skip


class Sighting(Struct, frozen=True):
    """Perception that was read as the newest state of a thing. `thing` is a digest of the thing's identity, `place` one
    of what its states follow one another at, `state_digest` one of the state; "" for a log line.
    `is_begin`: it is a begin that is reported only once.

    `at` is the time that the perception states. `heard_at` is the time that counts for its incident: for a state the
    time of the report, because the state may have begun long before; for an event the time of the event. `is_placed`
    is true when the perception names no host and is assumed to be about this machine.
    """

    perception: Perception
    thing: str
    place: str
    state_digest: str
    is_begin: bool
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
    report = report_of(perception)
    labels = labels_of(perception.attributes, report.data)
    where = (perception.session, perception.source, perception.trust)
    what = thing_of(perception, report)
    thing = wording.digest((*where, *what), 8).hex()
    place, text = thing, wording.text_of(perception)
    if what[0] == "words" and perception.subject:  # other words may be another state of the same thing
        place = wording.digest((*where, "place", report.stem, perception.subject), 8).hex()
    at = perception.at if now is None else min(perception.at, now)
    return Sighting(perception, thing, place, _state_digest(perception, thing, report, text), report.is_begin,
                    safe_line(text[: 4 * TEXT], TEXT), _severity(perception, labels, report.data), report.state, at,
                    at if now is None or report.state == "event" else now, new_count(perception),
                    mentions_in(perception, labels))  # fmt: skip


def _state_digest(perception: Perception, thing: str, report: Report, text: str) -> str:
    """Return a digest of the state: what the sensor calls it, else the content, but for a number that is measured."""
    if perception.kind.startswith("log."):
        return ""
    is_told = report.state != "event" or isinstance(perception.attributes.get("value"), (int, float))
    return wording.digest((thing, report.state, "" if is_told else text), 8).hex()


def _severity(perception: Perception, labels: Mapping[str, Any], data: Mapping[str, Any]) -> Severity:
    for table in (perception.attributes, labels, data):
        for name in ("severity", "priority_label", "log_level"):
            value = table.get(name)
            if isinstance(value, str) and (severity := _SEVERITY.get(value.strip().casefold())) is not None:
                return severity
    kind = perception.kind
    return _BY_KIND.get(kind) or _BY_KIND.get(kind.partition(".")[0]) or "info"
