"""Readers of the journal's state, from its rows. They write nothing.

An open cycle is put together from its facts: its action, the results of the calls that ended, and the calls that had
started and may have had an effect that must not be repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from memory import events
from memory.codec.columns import safe, seconds
from memory.codec.decoding import decode, read
from memory.journal import statements
from spar.decoding import convert
from spar.records.journal import DeadLetter, Doubt, Item, Unfinished
from spar.types import Action, ActionResult, Call, CallResult, Fault, Message, replace

if TYPE_CHECKING:
    from apsw import Connection

    from spar.records.runs import RunRow

T = TypeVar("T")

#: Statuses of calls that have ended without a result, and run again when their cycle continues.
_NOT_FINAL = ("cancelled", "skipped")
#: Reasons of skipped calls that do not run again: the call waits for an approval, or a new plan decides about it.
_PUT_OFF = ("parked", "steered")


def open_ids(connection: Connection) -> dict[str, str]:
    """Return the cycles that have begun and not ended, with the names of their agents."""
    return {str(id): str(agent) for id, agent in connection.execute("SELECT id, agent FROM open_cycle")}


def interrupted(connection: Connection, work: str) -> ActionResult | None:
    """Return the known results of an action that ran without a cycle; None if the action is unknown."""
    history = with_calls(connection, Unfinished(work, "main"))
    return None if history.action is None else ActionResult(history.action, "interrupted", history.known)


def items(connection: Connection, agent: str, missed: list[str]) -> list[Item]:
    """Return the items that wait, the oldest first. Descriptions of rows that cannot be read are added to `missed`."""
    return list(_read(connection, missed, "item", Item, "agent = ? AND state = 'waiting' ORDER BY at, id", safe(agent)))


def known_item(connection: Connection, agent: str, id: str, key: str | None) -> Item | None:
    """Return the item that has this id, or this agent's item that has this key, whatever happened to it.

    Of an item that does not wait any more, only the id, kind, session, time and key are returned.
    """
    row = connection.execute(
        "SELECT id, session, kind, at, state, body FROM item WHERE id = ? OR (agent = ? AND key = ?)",
        (safe(id), safe(agent), None if key is None else safe(key)),
    ).fetchone()
    if row is None:
        return None
    known_id, session, kind, accepted, state, body = row
    if state == "waiting":
        return decode(str(body), Item)
    at = _moment(accepted)
    blank = convert({"id": known_id, "perception": {}, "kind": kind, "session": session}, Item)
    return replace(blank, at=at, key=key)


def run(connection: Connection, agent: str, run_id: str) -> tuple[Item | None, dict[str, Any] | None]:
    """Return a pair: the run's item while it waits, or its answer once it has ended; both None for an unknown run."""
    row = connection.execute(
        "SELECT state, body FROM item WHERE id = ? AND agent = ? AND kind = 'run'", (safe(run_id), safe(agent))
    ).fetchone()
    if row is None:
        return None, None
    state, body = map(str, row)
    if state == "waiting":
        return decode(body, Item), None
    if state == "dead":
        letter = decode(body, DeadLetter)
        return None, {"run_id": run_id, "status": "error", "error": letter.reason}
    return None, decode(body, dict[str, Any]).get("answer")


def run_rows(
    connection: Connection, agent: str, limit: int, before: str | None, since: datetime | None, missed: list[str], *,
    is_open: bool,
) -> list[RunRow]:  # fmt: skip
    """Return the runs of an agent, the newest first; one that waits has begun if cycles have worked on it.

    Args: before: the id of the last run that was read; is_open: only those that have not ended.
    Raises: LookupError for a `before` that is no run.
    """
    from spar.records.runs import RunRow, unknown_place

    if before is not None and run(connection, agent, before) == (None, None):
        raise unknown_place("run", before)
    wheres, bindings = ["agent = ?", "kind = 'run'"], list[Any]([safe(agent)])
    for where, value in (
        ("(at, id) < (SELECT at, id FROM item WHERE id = ?)", before and safe(before)),
        ("at >= ?", since and seconds(since)),
        ("state = ?", "waiting" if is_open else None),
    ):
        if value is not None:
            wheres.append(where)
            bindings.append(value)
    sql = (
        f"SELECT id, session, at, state, body FROM item WHERE {' AND '.join(wheres)} ORDER BY at DESC, id DESC LIMIT ?"
    )
    rows, begun = [], _run_ids(connection, agent)
    for id, session, at, state, body in statements.rows(connection, sql, *bindings, limit):
        try:
            known = _run_row(str(id), str(state), str(body), begun)
            rows.append(convert({"run_id": id, "session": session, "accepted_at": _moment(at), **known}, RunRow))
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            missed.append(f"item {str(id)[:100]!r}: {error}")
    return rows


def _run_row(id: str, state: str, body: str, begun: set[str]) -> dict[str, Any]:
    """Return the state and the times of a run, from its row."""
    if state == "waiting":
        return {"status": "running" if id in begun or decode(body, Item).past else "queued"}
    if state == "dead":
        return {"status": "error", "ended_at": decode(body, DeadLetter).at}
    answer = decode(body, dict[str, Any]).get("answer") or {}
    return {"status": "ok", **{name: answer[name] for name in ("status", "started_at", "ended_at") if name in answer}}


def _run_ids(connection: Connection, agent: str) -> set[str]:
    """Return the runs to which the open cycles of an agent belong, as far as their rows can be read."""
    bodies = statements.rows(connection, "SELECT body FROM open_cycle WHERE agent = ?", safe(agent))
    ids = set()
    for (body,) in bodies:
        with suppress(ValueError):
            ids.add(decode(str(body), Unfinished).run_id or "")
    return ids


def _moment(at: Any) -> datetime:
    return datetime.fromtimestamp(float(at), UTC)


def recent_ids(connection: Connection, agent: str, number: int) -> list[str]:
    """Return the ids of the items accepted last, whatever happened to them; the newest first."""
    rows = statements.rows(
        connection, "SELECT id FROM item WHERE agent = ? ORDER BY at DESC LIMIT ?", safe(agent), number
    )
    return [str(id) for (id,) in rows]


def dead_letters(connection: Connection, agent: str, missed: list[str]) -> list[DeadLetter]:
    """Return the dead letters, the oldest first."""
    where = "agent = ? AND state = 'dead' ORDER BY at, id"
    return list(_read(connection, missed, "item", DeadLetter, where, safe(agent)))


def doubts(connection: Connection, agent: str, missed: list[str], *, is_open: bool) -> list[Doubt]:
    """Return the calls in doubt, the oldest first; with `is_open` only those without an answer."""
    where = "agent = ?" + (" AND answer IS NULL" if is_open else "") + " ORDER BY at, id"
    return list(_read(connection, missed, "doubt", Doubt, where, safe(agent)))


def cut_calls(connection: Connection, agent: str, missed: list[str]) -> list[Doubt]:
    """Return the calls of open cycles that have begun and may have had their effect; the oldest cycle first.

    They are in doubt if no process works on these cycles.
    """
    return [
        Doubt(f"{cycle.cycle_id}/{result.call.id}", result.call, cycle.cycle_id, cycle.session, cycle.run_id,
              cycle.opened_at, result.fault.message if result.fault else "", cycle.action.id if cycle.action else "")
        for cycle in unfinished(connection, agent, missed)
        if not cycle.effect
        for result in cycle.known
        if result.is_in_doubt
    ]  # fmt: skip


def call(connection: Connection, doubt: Doubt) -> Call:
    """Return a call in doubt with the parameter values that it was started with.

    If no fact has these values any more, the call is returned as it was planned.
    """
    for id, kind, body, _ in events.of_work(connection, safe(doubt.cycle_id)):
        if id == doubt.call.id and kind == "started" and "values" in (start := decode(body, dict[str, Any])):
            return replace(doubt.call, params=start["values"], after=())
    return replace(doubt.call, after=())


def unfinished(connection: Connection, agent: str, missed: list[str]) -> list[Unfinished]:
    """Return the open cycles and detached calls, in the order of their ids, with the known results of their calls."""
    cycles = []
    for id, body, attempts in statements.rows(
        connection, "SELECT id, body, attempts FROM open_cycle WHERE agent IN (?, '') ORDER BY id", safe(agent)
    ):
        try:
            cycle = decode(str(body), Unfinished)
            cycles.append(replace(with_calls(connection, cycle), attempts=int(attempts)))
        except ValueError as error:
            missed.append(f"open_cycle {str(id)[:100]!r}: {error}")
    return cycles


def with_calls(connection: Connection, cycle: Unfinished) -> Unfinished:
    """Return a cycle with its action and the known results of its calls, read from its facts."""
    history = CallHistory()
    for call, kind, body, _ in events.of_work(connection, safe(cycle.cycle_id)):
        history.add(call, kind, body)
    return history.completed(cycle)


class CallHistory:
    """History of the calls of one cycle, built from its facts in their order."""

    def __init__(self) -> None:
        self._head: Action | None = None  # the action without its calls
        self._calls: list[Call] = []
        self._effect = ""  # of the whole action, if the actor does not record its calls
        self._started: dict[str, tuple[int, str]] = {}  # number of the attempt and effect of the tool, by call id
        self._ended: dict[str, CallResult] = {}  # by call id, in the order of the ends

    def add(self, call: str, kind: str, body: str) -> None:
        """Add a fact: the id of the call that it is about, its kind and its body. Other kinds change nothing."""
        if kind == "acting":
            fact = decode(body, dict[str, Any])
            self._head, self._effect = read(fact["action"], Action), str(fact.get("effect", ""))
            self._calls.clear()
        elif kind == "planned":
            self._calls += [_call(wire) for wire in decode(body, list[dict[str, Any]])]
        elif kind == "started":
            fact = decode(body, dict[str, Any])
            self._started[call] = int(fact["attempt"]), str(fact["effect"])
            if (before := self._ended.get(call)) is not None and before.status in _NOT_FINAL:
                del self._ended[call]  # the call was put off and has begun again
        elif kind == "ended":
            self._ended.pop(call, None)  # the order is that of the last ends
            self._ended[call] = _result(call, decode(body, dict[str, Any]))

    def completed(self, cycle: Unfinished) -> Unfinished:
        """Return the cycle with its action and its known results."""
        if self._head is None:
            return cycle
        calls = {call.id: call for call in reversed(self._calls)}  # of two calls with one id the first one counts
        known = [
            replace(result, call=calls[id])
            for id, result in self._ended.items()
            if id in calls and (result.status not in _NOT_FINAL or result.reason in _PUT_OFF)
        ]
        settled = {result.call.id for result in known} | {
            id for id, result in self._ended.items() if result.status in _NOT_FINAL
        }
        cut = {id: attempt for id, (attempt, effect) in self._started.items() if effect == "once"}
        if self._effect == "once":  # the actor does not record its calls: any of them may have run
            cut = dict.fromkeys(calls, 1)
        known += [_in_doubt(calls[id], attempt) for id, attempt in cut.items() if id in calls and id not in settled]
        action = replace(self._head, calls=tuple(self._calls), perceptions=cycle.perceptions)
        return replace(cycle, action=action, known=tuple(known))


def _in_doubt(call: Call, attempt: int) -> CallResult:
    message = f"tool {call.tool!r} was on its way when the process ended and may have had its effect: find out"
    fault = Fault("in_doubt", message, call.tool, "act", retryable=False)
    return CallResult(call, "in_doubt", fault=fault, attempts=attempt)


def _call(wire: Mapping[str, Any]) -> Call:
    try:
        return Call.from_wire(wire)
    except ValueError:  # the plan's entry was no valid call; it fails again when the cycle continues
        id = wire.get("_id")
        return Call(str(wire.get("_tool") or "?"), {}, id=id) if isinstance(id, str) else Call("?")


def _result(call: str, fact: dict[str, Any]) -> CallResult:
    """Return the result in a fact of kind `ended`; of its call only the id is right."""
    is_message = fact.pop("is_message", False)
    result = read({**fact, "call": {"tool": "?", "id": call}}, CallResult)
    return replace(result, output=read(result.output, Message)) if is_message else result


def _read(
    connection: Connection, missed: list[str], table: str, kind: type[T], where: str, *bindings: Any
) -> Iterator[T]:
    """Return the values of the rows that can be read. A damaged row is described in `missed`."""
    for id, body in statements.rows(connection, f"SELECT id, body FROM {table} WHERE {where}", *bindings):
        try:
            yield decode(str(body), kind)
        except ValueError as error:
            missed.append(f"{table} {str(id)[:100]!r}: {error}")
