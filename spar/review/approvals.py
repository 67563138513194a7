"""An approval as a person reads it: exactly what would run, why it asks, and what could deceive the eye.

Whoever answers has only this text to go by, and what it shows may come from an attacker. So it is drawn from the bound
values themselves, by `spar.data.text`, and never shortened where something is decided; warnings stand below. Pure
functions; who prints them where is not their affair.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from spar.data.text import BLANKS, is_hidden, quoted, value_lines, visible
from spar.records.approvals import Approval, Grant
from spar.types import Call

#: Scripts that belong together in one word, after "highly restrictive" of Unicode Technical Standard 39, section 5.2.
_TOGETHER = (
    {"LATIN", "CJK", "HIRAGANA", "KATAKANA"},
    {"LATIN", "CJK", "BOPOMOFO"},
    {"LATIN", "CJK", "HANGUL"},
)
#: Letters in common use beside any script.
_COMMON = "µªº"


# -- warnings


def warnings(call: Call) -> list[str]:
    """What of a call's text could deceive the eye even so: words of mixed scripts, long blanks, hidden characters."""
    found: dict[str, None] = {}  # in order, once each
    hidden = 0
    for text in _texts(call):
        for word in re.findall(r"\w+", text):
            if not word.isascii() and (mixture := _mixture(word)):
                found[mixture] = None
        longest = max((len(run.group()) for run in BLANKS.finditer(text)), default=0)
        if longest:
            found[f"a run of {longest} blanks pushes what follows it out of sight"] = None
        hidden += sum(character not in "\n\t" and is_hidden(character) for character in text)
    if hidden:
        found[f"{hidden} characters that cannot be seen are shown as escapes"] = None
    return list(found)


def _mixture(word: str) -> str:
    """What is to be said of a word whose letters are of scripts that do not go together, else ""."""
    scripts: dict[str, str] = {}
    for letter in word:
        if unicodedata.category(letter) in ("Lu", "Ll", "Lt", "Lo") and letter not in _COMMON:
            scripts.setdefault(unicodedata.name(letter, "UNNAMED").partition(" ")[0], letter)
    if len(scripts) < 2 or any(scripts.keys() <= together for together in _TOGETHER):
        return ""
    strange = ", ".join(
        f"{visible(letter)} is {unicodedata.name(letter, 'unnamed').lower()}, U+{ord(letter):04X}"
        for letter in scripts.values()
        if not letter.isascii()
    )
    return f"{quoted(word)} mixes scripts ({strange}): it may not be the word that it looks like"


def _texts(call: Call) -> Iterator[str]:
    """Every text that a call carries to its tool, keys included."""
    yield call.tool
    yield call.reason
    waiting: list[Any] = [call.params]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping):
            waiting += [*map(str, item), *item.values()]
        elif isinstance(item, (list, tuple)):
            waiting += item


# -- an approval


def full(approval: Approval, now: datetime) -> str:
    """All that a person needs to decide; the call is shown whole."""
    call = approval.call
    is_open = approval.status == "pending"
    parked = ", parked: it goes on in the cycle after the answer" if is_open and approval.is_parked else ""
    about = [f"session {visible(approval.session)}"]
    about += [f"run {visible(approval.run_id)}"] if approval.run_id else []
    about += [f"cycle {visible(approval.cycle_id)}"] if approval.cycle_id else []
    rows = [
        ("status", approval.status + parked),
        ("tool", visible(call.tool)),
        ("effect", _EFFECTS.get(approval.effect, visible(approval.effect))),
        ("trust", _TRUST.get(approval.trust, visible(approval.trust))),
        ("why", visible(approval.why) or "as every call of this tool does"),
        ("of", ", ".join(about)),
        ("asked", f"{_moment(approval.asked_at)} ({span((now - approval.asked_at).total_seconds())} ago)"),
        ("digest", visible(approval.digest)),
    ]
    if approval.status in ("pending", "approved"):
        left = (approval.expires_at - now).total_seconds()
        rows.append(("expires", f"in {span(left)}, to a denial" if left > 0 else "has expired: it is a denial"))
    if approval.decided_at is not None:
        by = f" by {visible(approval.decided_by)}" if approval.decided_by else ""
        rows.append(("decided", f"{_moment(approval.decided_at)}{by}"))
    rows += [(name, visible(text)) for name, text in (("reason", approval.reason), ("grant", approval.grant)) if text]
    lines = [f"approval {visible(approval.id)}", *(f"  {name:11}{text}" for name, text in rows)]
    lines += _call_lines("what would run" if is_open else "the call", call)
    if approval.original is not None:
        lines += _call_lines("as it was first asked for", approval.original)
    lines += [f"  WARNING    {warning}" for warning in warnings(call)]
    return "\n".join(lines)


def summary(approval: Approval, now: datetime, room: int = 60) -> str:
    """One line for a list; of each text at most `room` characters, and how many more there are."""
    params = " ".join(line.strip() for line in value_lines(approval.call.params))
    parts = (
        visible(approval.id),
        f"{approval.status:8}",
        f"{span((now - approval.asked_at).total_seconds()):>10} ago",
        _cut(visible(approval.session), room),
        _cut(visible(approval.call.tool), room),
        *(["untrusted"] if approval.trust == "untrusted" else []),
        *(["WARNING"] if warnings(approval.call) else []),
        _cut(params, room),
    )
    return "  ".join(parts)


def grant_line(grant: Grant, now: datetime) -> str:
    """A grant on one line, whole: it decides on calls that nobody sees any more."""
    params = " ".join(line.strip() for line in value_lines(grant.params))
    left = (grant.expires_at - now).total_seconds()
    where = f"session {visible(grant.session)}" if grant.session else "every session"
    by = f", by {visible(grant.granted_by)}" if grant.granted_by else ""
    return (
        f"{visible(grant.id)}  {visible(grant.tool)} with {params}  in {where}, for {span(left)}{by}, "
        f"used {grant.uses} times"
    )


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[:room]}… ({len(text) - room} characters more)"


_EFFECTS = {
    "read": "read: it changes nothing",
    "idempotent": "idempotent: doing it twice is doing it once",
    "once": "once: it changes something and cannot be repeated safely",
}
_TRUST = {
    "trusted": "trusted",
    "untrusted": "untrusted: text from outside may have decided on this call",
}


def _call_lines(title: str, call: Call) -> list[str]:
    lines = [f"  {title}", f"    {visible(call.tool)}", *value_lines(call.params, 2)]
    if call.reason:
        lines.append(f"    the plan says why: {visible(call.reason)}")
    if call.output_path is not None:
        lines.append(f"    writes its result to {visible(call.output_path)} ({call.output_method})")
    return lines


def _moment(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def span(seconds: float) -> str:
    """A duration in its two largest units."""
    left = max(0, int(seconds))
    found: list[str] = []
    for name, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        number, left = divmod(left, size)
        if number or (name == "s" and not found):
            found.append(f"{number} {name}")
    return " ".join(found[:2])
