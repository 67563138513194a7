"""The state of the journal, read from its rows: functions of a connection that only read.

A cycle that was cut off is put together from its facts: what it was to do, which calls ended and how, and which of
those that had started may have had an effect that must not be repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from memory import events
from memory.codec.columns import safe
from memory.codec.decoding import decode, read
from memory.journal import statements
from spar.records.journal import DeadLetter, Doubt, Item, Unfinished
from spar.types import Action, ActionResult, Call, CallResult, Fault, Message, replace

if TYPE_CHECKING:
    from apsw import Connection

T = TypeVar("T")

#: How a call may have ended that is to be made again when its cycle goes on.
_NOT_FINAL = ("cancelled", "skipped")
#: Why a call was skipped that is not to be made again: it goes on elsewhere, or the planner says whether it is made.
_PUT_OFF = ("parked", "steered")


def open_ids(connection: Connection) -> dict[str, str]:
    """Return the cycles that have begun and not ended, with the names of their agents."""
    return {str(id): str(agent) for id, agent in connection.execute("SELECT id, agent FROM open_cycle")}


def interrupted(connection: Connection, work: str) -> ActionResult | None:
    """Return the results of the calls of an action without a cycle."""
    found = with_calls(connection, Unfinished(work, "main"))
    return None if found.action is None else ActionResult(found.action, "interrupted", found.known)


def items(connection: Connection, agent: str, missed: list[str]) -> list[Item]:
    """Accepted work that waits, the oldest first."""
    return list(_read(connection, missed, "item", Item, "agent = ? AND state = 'waiting' ORDER BY at, id", safe(agent)))


def known_item(connection: Connection, agent: str, id: str, key: str | None) -> Item | None:
    """Return the item that has this id, or for this agent this key, whatever has become of it."""
    found = connection.execute(
        "SELECT id, session, kind, at, state, body FROM item WHERE id = ? OR (agent = ? AND key = ?)",
        (safe(id), safe(agent), None if key is None else safe(key)),
    ).fetchone()
    if found is None:
        return None
    name, session, kind, at, state, body = found
    if state == "waiting":
        return decode(str(body), Item)
    when = datetime.fromtimestamp(float(str(at)), UTC)
    blank = msgspec.convert({"id": name, "perception": {}, "kind": kind, "session": session}, Item)
    return replace(blank, at=when, key=key)


def run(connection: Connection, agent: str, run_id: str) -> tuple[Item | None, dict[str, Any] | None]:
    """A run's item while it waits, its answer once it has ended."""
    found = connection.execute(
        "SELECT state, body FROM item WHERE id = ? AND agent = ? AND kind = 'run'", (safe(run_id), safe(agent))
    ).fetchone()
    if found is None:
        return None, None
    state, body = map(str, found)
    if state == "waiting":
        return decode(body, Item), None
    if state == "dead":
        letter = decode(body, DeadLetter)
        return None, {"run_id": run_id, "status": "error", "error": letter.reason}
    return None, decode(body, dict[str, Any]).get("answer")


def recent_ids(connection: Connection, agent: str, number: int) -> list[str]:
    rows = statements.rows(
        connection, "SELECT id FROM item WHERE agent = ? ORDER BY at DESC LIMIT ?", safe(agent), number
    )
    return [str(id) for (id,) in rows]


def dead_letters(connection: Connection, agent: str, missed: list[str]) -> list[DeadLetter]:
    """Return the dead letters, the oldest first."""
    where = "agent = ? AND state = 'dead' ORDER BY at, id"
    return list(_read(connection, missed, "item", DeadLetter, where, safe(agent)))


def doubts(connection: Connection, agent: str, missed: list[str], *, is_open: bool) -> list[Doubt]:
    """Calls in doubt, the oldest first."""
    where = "agent = ?" + (" AND answer IS NULL" if is_open else "") + " ORDER BY at, id"
    return list(_read(connection, missed, "doubt", Doubt, where, safe(agent)))


def call(connection: Connection, doubt: Doubt) -> Call:
    """A call in doubt with the values that it was started with; as it was planned where they are not known any more."""
    for id, kind, body, _ in events.of_work(connection, safe(doubt.cycle_id)):
        if id == doubt.call.id and kind == "started" and "values" in (told := decode(body, dict[str, Any])):
            return replace(doubt.call, params=told["values"], after=())
    return replace(doubt.call, after=())


def unfinished(connection: Connection, agent: str, missed: list[str]) -> list[Unfinished]:
    """Return the cycles that are open, in the order in which they began, with what is known of their calls."""
    found = []
    for id, body, attempts in statements.rows(
        connection, "SELECT id, body, attempts FROM open_cycle WHERE agent IN (?, '') ORDER BY id", safe(agent)
    ):
        try:
            cycle = decode(str(body), Unfinished)
            found.append(replace(with_calls(connection, cycle), attempts=int(attempts)))
        except ValueError as error:
            missed.append(f"open_cycle {str(id)[:100]!r}: {error}")
    return found


def with_calls(connection: Connection, cycle: Unfinished) -> Unfinished:
    """A cycle with what the facts know of its action and calls."""
    history = CallHistory()
    for call, kind, body, _ in events.of_work(connection, safe(cycle.cycle_id)):
        history.add(call, kind, body)
    return history.completed(cycle)


class CallHistory:
    """The history of the calls of one cycle, built from its events in their order."""

    def __init__(self) -> None:
        self._head: Action | None = None
        self._calls: list[Call] = []
        self._effect = ""
        self._started: dict[str, tuple[int, str]] = {}  # by call: which attempt, with which effect
        self._ended: dict[str, CallResult] = {}

    def add(self, call: str, kind: str, body: str) -> None:
        if kind == "acting":
            told = decode(body, dict[str, Any])
            self._head, self._effect = read(told["action"], Action), str(told.get("effect", ""))
            self._calls.clear()
        elif kind == "planned":
            self._calls += [_call(wire) for wire in decode(body, list[dict[str, Any]])]
        elif kind == "started":
            told = decode(body, dict[str, Any])
            self._started[call] = int(told["attempt"]), str(told["effect"])
            if (before := self._ended.get(call)) is not None and before.status in _NOT_FINAL:
                del self._ended[call]  # it was put off and has begun again since
        elif kind == "ended":
            self._ended.pop(call, None)  # later beginnings count later
            self._ended[call] = _result(call, decode(body, dict[str, Any]))

    def completed(self, cycle: Unfinished) -> Unfinished:
        """Return the cycle with its action and its known results."""
        if self._head is None:
            return cycle
        calls = {call.id: call for call in reversed(self._calls)}  # of two with one id the first counts
        known = [
            replace(result, call=calls[id])
            for id, result in self._ended.items()
            if id in calls and (result.status not in _NOT_FINAL or result.reason in _PUT_OFF)
        ]
        settled = {result.call.id for result in known} | {
            id for id, result in self._ended.items() if result.status in _NOT_FINAL
        }
        cut = {id: attempt for id, (attempt, effect) in self._started.items() if effect == "once"}
        if self._effect == "once":  # an actor that tells nothing of its calls had begun
            cut = dict.fromkeys(calls, 1)
        known += [_in_doubt(calls[id], attempt) for id, attempt in cut.items() if id in calls and id not in settled]
        action = replace(self._head, calls=tuple(self._calls), perceptions=cycle.perceptions)
        return replace(cycle, action=action, known=tuple(known))


def _in_doubt(call: Call, attempt: int) -> CallResult:
    message = f"tool {call.tool!r} was on its way when the process ended and may have had its effect: find out"
    why = Fault("in_doubt", message, call.tool, "act", retryable=False)
    return CallResult(call, "in_doubt", fault=why, attempts=attempt)


def _call(wire: Mapping[str, Any]) -> Call:
    try:
        return Call.from_wire(wire)
    except ValueError:  # it was none when it was planned: it fails again
        id = wire.get("_id")
        return Call(str(wire.get("_tool") or "?"), {}, id=id) if isinstance(id, str) else Call("?")


def _result(call: str, told: dict[str, Any]) -> CallResult:
    is_message = told.pop("is_message", False)
    result = read({**told, "call": {"tool": "?", "id": call}}, CallResult)
    return replace(result, output=read(result.output, Message)) if is_message else result


def _read(
    connection: Connection, missed: list[str], table: str, kind: type[T], where: str, *bindings: Any
) -> Iterator[T]:
    """Return the rows that can be read: one that was damaged is `missed`, and must not keep the others."""
    for id, body in statements.rows(connection, f"SELECT id, body FROM {table} WHERE {where}", *bindings):
        try:
            yield decode(str(body), kind)
        except ValueError as error:
            missed.append(f"{table} {str(id)[:100]!r}: {error}")
