"""States of things: whether a perception begins or ends something, and which thing it is a state of.

`PAIRS` is the only table of words that mean begin and end. They count as the value of a field in `STATE_NAMES`, as the
last part of a kind ("anomaly.opened"), and as the first word of an alert's text ("RESOLVED: …").
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from msgspec import Struct

from perception.stages import wording
from perception.stages.wording import STATE_NAMES
from spar.types import Perception

State = Literal["firing", "over", "event"]

#: Words that begin something, with the words that end it.
PAIRS: Final[tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]] = (
    (("firing", "problem", "alarm", "triggered", "active"), ("resolved", "recovery", "recovered", "cleared",
                                                             "inactive")),
    (("opened", "open"), ("closed",)),
    (("begun",), ("ended", "over")),
    (("high", "low"), ("normal",)),
    (("down", "failing"), ("up", "ok")),
    (("unhealthy", "degraded"), ("healthy", "operational")),
    (("offline", "unreachable", "unavailable"), ("online", "reachable", "available")),
    (("lost", "missing", "silent"), ("found", "restored", "back", "heard")),
)  # fmt: skip
_STATE_OF: Final[dict[str, State]] = {
    **{word: "firing" for begins, _ in PAIRS for word in begins},
    **{word: "over" for _, ends in PAIRS for word in ends},
}
_BEGINS_OF: Final[dict[str, tuple[str, ...]]] = {end: begins for begins, ends in PAIRS for end in ends}
#: Begins that are reported once, when they happen: each is a new one, also when the end before it was not heard.
_ONCE: Final = frozenset(("opened", "begun"))
#: Words that may also name what is measured ("net.up"): at the end of a kind they count only if no field gives a
#: state or a value.
_AMBIGUOUS: Final = frozenset(("up", "down", "high", "low", "normal", "ok", "open", "over", "active"))
#: Words that count at the beginning of a text without a sign behind them.
_CALLS: Final = frozenset((*PAIRS[0][0][:3], *PAIRS[0][1][:3]))
#: Fields that identify a thing, the most reliable first, and the kinds for which they do.
_IDENTITIES: Final = (("fingerprint", ""), ("series", ""), ("template_id", "log."), ("template", "log."))
DATA_LIMIT = 65_536  # characters of a text that is read as data


class Report(Struct, frozen=True):
    """Statement of a perception about a thing.

    `stem` is its kind without the word of a begin or an end; `is_begin`: it is a begin that is reported only once;
    `data` is the content as data, empty for other content.
    """

    stem: str
    state: State
    is_begin: bool
    data: Mapping[str, Any]


def report_of(perception: Perception) -> Report:
    """Read what a perception says about its thing: from fields, then the kind, then the first word of an alert."""
    kind, attributes, data = perception.kind, perception.attributes, _data_of(perception)
    if kind.startswith("log."):  # a line reports an event, whatever it says
        return Report(kind, "event", False, data)
    anomaly = table_of(attributes.get("anomaly"))
    word = next((word for table in (attributes, anomaly, data) for word in _words(table)), "")
    stem, _, last = kind.rpartition(".")
    if last not in _STATE_OF or (last in _AMBIGUOUS and (word or "value" in attributes)):
        stem, last = kind, ""
    word = word or last or _first_word(perception)
    turn = anomaly.get("state")  # perhaps what a sensor has put there
    is_begin = last in _ONCE or (isinstance(turn, str) and turn in _ONCE and _STATE_OF.get(word) == "firing")
    return Report(stem, _STATE_OF.get(word, "event"), is_begin, data)


def begins_of(kind: str) -> Iterator[str]:
    """Yield the kinds of the begins that a kind ends."""
    stem, dot, last = kind.rpartition(".")
    for word in _BEGINS_OF.get(last, ()):
        yield f"{stem}{dot}{word}"


def thing_of(perception: Perception, report: Report) -> tuple[object, ...]:
    """Return what identifies the thing; it is the same for all its states of one session, source and trust."""
    subject = perception.subject
    if (named := _named(perception, report)) is not None:
        return named
    if subject and not perception.kind.startswith(("log.", "alert")):
        return "subject", report.stem, subject
    # A bare number in a log line is a count; in an alert it may be the name of the thing.
    is_line = perception.kind.startswith("log.")
    words = sorted(word for word in wording.naming(perception) if not (is_line and word.isdigit()))
    return "words", report.stem, subject, words


def place_of(perception: Perception, report: Report) -> tuple[object, ...]:
    """Return what identifies the place whose states follow one another: the subject, else the thing."""
    if perception.subject:
        return "subject", perception.subject
    named = _named(perception, report)
    return named or ("words", report.stem, sorted(wording.naming(perception, has_fields=True)))


def _named(perception: Perception, report: Report) -> tuple[object, ...] | None:
    """Return the identity that the fields of a perception give to its thing."""
    attributes, data = perception.attributes, report.data
    for name, prefix in _IDENTITIES:
        for table in (attributes, data) if perception.kind.startswith(prefix) else ():
            value = table.get(name)
            if isinstance(value, (str, int)) and value:
                return (name, value) if name != "series" else (name, report.stem, perception.subject, value)
    if labels := labels_of(attributes, data):
        return "labels", sorted((str(key), str(value)) for key, value in labels.items() if key not in STATE_NAMES)
    return None


def labels_of(attributes: Mapping[str, Any], data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the labels of a perception; empty when it has none."""
    return table_of(attributes.get("labels")) or table_of(data.get("labels"))


def table_of(value: object) -> Mapping[str, Any]:
    """Return a mapping as it is; an empty one for other values."""
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
    return table_of(content)


def _words(table: Mapping[str, Any]) -> Iterator[str]:
    """Yield the words of begin or end in the fields of a table."""
    if not table:
        return
    for name in STATE_NAMES:
        value = table.get(name)
        if isinstance(value, str) and (word := value.strip().casefold()) in _STATE_OF:
            yield word


def _first_word(perception: Perception) -> str:
    """Return the first word of an alert's text in small letters, if the text calls its state by it; else ""."""
    content = perception.content
    if not perception.kind.startswith("alert") or not isinstance(content, str):
        return ""
    head = content[:40].lstrip(" [(*-").casefold()
    word = head[: next((place for place, sign in enumerate(head) if not sign.isalpha()), len(head))]
    return word if word in _CALLS or head[len(word) : len(word) + 1] in (":", "]", ")") else ""
