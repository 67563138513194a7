"""Difference of two decisions, as plain values; pure.

Ids, times and the order of arrival are left out: they are others in each decision. A call is recognized by its tool,
its parameters, its place and the calls that it waits for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import unified_diff
from typing import Any, Final

from msgspec import Struct

from spar.data.scrub import masked
from spar.decoding import decode, encode
from spar.replay.tally import Part
from spar.types import ASKED, Action, Call, CallResult

#: Fields of a plan that are compared, besides its calls.
_OF_PLAN: Final = ("goal", "output", "deferred", "degraded", "next_look", "said")
#: Lines of a text's difference, and characters of each.
_MOST_LINES, _LONGEST = 12, 160
#: The reason of a plan that a model made, which names its request.
_ASKED: Final = " was asked (request "
_RULE: Final = re.compile(r"rule '(.*)'")
_MATCHED: Final = re.compile(r"rule '([^;]*)' matched(?: \d+ times)?(?:; |$)")


class Change(Struct, frozen=True, omit_defaults=True):
    """Difference: the part, what of it, and its value as recorded and as decided now (None: it is not there).

    `rule` and `tool` are those of a call.
    """

    part: Part
    what: str
    recorded: Any = None
    now: Any = None
    rule: str = ""
    tool: str = ""

    @property
    def kind(self) -> str:
        """Return the change without its values, by which like ones are counted."""
        verb = "no more" if self.now is None else "new" if self.recorded is None else "other"
        return f"{verb}: {self.what}"


def rule_of(call: Call) -> str:
    """Return the name of the rule that planned a call; "" for another planner."""
    match = _RULE.fullmatch(call.reason)
    return match[1] if match is not None else ""


def matched_rules(reason: str) -> dict[str, None]:
    """Return the names of the rules that matched, by the reason of a plan."""
    return dict.fromkeys(_MATCHED.findall(reason))


def changes_of(recorded: Action | None, now: Action | None) -> list[Change]:
    """Return the differences of two plans and their calls."""
    one, other = recorded or Action(), now or Action()
    return [*_of_plan(one, other), *_of_calls(one.calls, other.calls)]


def _of_plan(one: Action, other: Action) -> Iterator[Change]:
    for name in _OF_PLAN:
        before, after = getattr(one, name), getattr(other, name)
        if before != after and (before := _plain(before)) != (after := _plain(after)):
            yield Change("plan", name, before or None, after or None)
    if one.reason != other.reason and not any(_ASKED in action.reason for action in (one, other)):
        yield from _of_reasons(one.reason, other.reason)
    before, after = _answers(one), _answers(other)
    if before != after:
        yield Change("plan", "answer", _plain(before) or None, _plain(after) or None)


def _of_reasons(before: str, after: str) -> Iterator[Change]:
    """Yield the rules that matched in one of two plans alone, and the other sentences about them."""
    rules = [matched_rules(reason) for reason in (before, after)]
    for name in dict.fromkeys((*rules[0], *rules[1])):
        if (name in rules[0]) != (name in rules[1]):
            recorded, now = ("matched" if name in names else None for names in rules)
            yield Change("plan", f"rule {name!r}", recorded, now, rule=name)
    rest = [_MATCHED.sub("", reason).strip("; ") for reason in (before, after)]
    if rest[0] != rest[1]:
        yield Change("plan", "reason", _plain(rest[0]) or None, _plain(rest[1]) or None)


def _answers(action: Action) -> list[dict[str, Any]]:
    """Return the answers of a plan, with the numbers of the calls that they depend on."""
    numbers = {call.id: number for number, call in enumerate(action.calls, 1)}
    return [{"text": answer.text, "on_failure": answer.on_failure, "calls": [numbers.get(id, 0) for id in answer.calls]}
            for answer in action.answers]  # fmt: skip


def _of_calls(recorded: Sequence[Call], now: Sequence[Call]) -> Iterator[Change]:
    before, after = values_of(recorded), values_of(now)
    if before == after:
        return
    before, after = [_plain(value) for value in before], [_plain(value) for value in after]
    left = list(range(len(after)))
    unmatched = []
    for number, value in enumerate(before):
        if (same := next((index for index in left if after[index] == value), None)) is None:
            unmatched.append(number)
        else:
            left.remove(same)
    for number in unmatched:
        call = recorded[number]
        rule, what = rule_of(call), named(call)
        alike = next((index for index in left if named(now[index]) == what), None)
        if alike is None:
            yield Change("calls", what, before[number], None, rule, call.tool)
            continue
        left.remove(alike)
        yield Change("calls", what, before[number], after[alike], rule, call.tool)
    for index in left:
        yield Change("calls", named(now[index]), None, after[index], rule_of(now[index]), now[index].tool)


def named(call: Call) -> str:
    """Return the name of a call for people: its tool, and its rule."""
    rule = rule_of(call)
    return f"{call.tool} by rule {rule!r}" if rule else call.tool


def values_of(calls: Sequence[Call]) -> list[dict[str, Any]]:
    """Return the calls of a plan without ids: a call that another one waits for is named by its number."""
    numbers = {call.id: number for number, call in enumerate(calls, 1)}
    values = []
    for call in calls:
        value: dict[str, Any] = {"tool": call.tool, "params": call.params}
        if call.output_path is not None:
            value["output_path"] = call.output_path
        if call.output_method != "set":
            value["output_method"] = call.output_method
        if call.instance is not None and not rule_of(call):  # with a rule it depends on the other rules that fired
            value["instance"] = call.instance
        if call.after:
            value["after"] = [numbers.get(id, 0) for id in call.after]
        if call.reason:
            value["reason"] = call.reason
        if ASKED in call.meta:
            value["ask"] = call.meta[ASKED]
        values.append(value)
    return values


def results_of(recorded: Sequence[CallResult], planned: Sequence[Call], now: Sequence[Call]) -> list[dict[str, Any]]:
    """Return the calls of a plan with their recorded results; one that was never made has the status "unknown".

    One that was cut off, so that its result is not recorded, has "no result".

    Args: planned: the calls of the recorded plan; now: those of the new one.
    """
    by_id = {result.call.id: result for result in recorded}
    if values_of(planned) == values_of(now):
        results = [by_id.get(call.id) for call in planned]
        return [{"tool": call.tool, "params": call.params, "status": "no result" if result is None else result.status}
                for call, result in zip(now, results, strict=True)]  # fmt: skip
    known = [(_plain(value), by_id.get(call.id)) for value, call in zip(values_of(planned), planned, strict=True)]
    rows = []
    for value in map(_plain, values_of(now)):
        place = next((index for index, (before, _) in enumerate(known) if before == value), None)
        status = "unknown" if place is None else "no result"
        if place is not None and (result := known.pop(place)[1]) is not None:
            status = result.status
        rows.append({"tool": value["tool"], "params": value["params"], "status": status})
    return rows


def request_changes(recorded: Mapping[str, Any], now: Mapping[str, Any]) -> list[Change]:
    """Return the differences of two requests to a model, as their notes have them: the lines that differ."""
    changes = []
    for name in dict.fromkeys((*recorded, *now)):
        before, after = _lines(recorded.get(name)), _lines(now.get(name))
        if name in ("digest", "kind") or before == after:
            continue
        lines = [line[:_LONGEST] for line in unified_diff(before, after, lineterm="", n=0) if line[:2] not in
                 ("--", "++", "@@")]  # fmt: skip
        gone = [line[1:] for line in lines if line.startswith("-")][:_MOST_LINES]
        new = [line[1:] for line in lines if line.startswith("+")][:_MOST_LINES]
        changes.append(Change("request", name, gone or None, new or None))
    return changes


def _lines(value: Any) -> list[str]:
    """Return a part of a request as lines."""
    plain = _plain(value)
    if plain in (None, "", [], {}):
        return []
    if isinstance(plain, str):
        return plain.splitlines()
    if isinstance(plain, list):
        return [line for item in plain for line in _lines(item)]
    if isinstance(plain, dict) and isinstance(plain.get("text"), str):
        others = {key: item for key, item in plain.items() if key != "text"}
        return [*plain["text"].splitlines(), encode(others).decode()]
    if isinstance(plain, dict):
        return [f"{key}: {encode(item).decode()}" for key, item in plain.items()]
    return [str(plain)]


def _plain(value: Any) -> Any:
    """Return a value as its record has it: as JSON, with secrets masked."""
    return masked(decode(encode(value), Any))
