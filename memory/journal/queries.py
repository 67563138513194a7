"""Queries of the journal, and the readers that compute their values from its rows. They write nothing.

An open cycle is put together from its facts: its action, the results of the calls that ended, and the calls that had
started and may have had an effect that must not be repeated.
"""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from memory import counts, events, own_rows
from memory.codec import decode, moment, read, safe, seconds
from memory.engine.session import SessionQueries
from memory.engine.transactions import Question
from memory.inserts import where
from memory.journal import statements
from spar.decoding import convert
from spar.records.journal import DeadLetter, Doubt, Item, Spend, Unfinished
from spar.types import Action, ActionResult, Call, CallResult, Message, replace

if TYPE_CHECKING:
    from memory.engine.connection import Connection
    from spar.facts import Fact
    from spar.records.runs import RunRow

T = TypeVar("T")


def open_ids(connection: Connection) -> dict[str, str]:
    """Return the cycles that have begun and not ended, with the names of their agents."""
    return {str(id): str(agent) for id, agent in connection.execute("SELECT id, agent FROM open_cycle")}


def interrupted(connection: Connection, work: str) -> ActionResult | None:
    """Return the known results of an action that ran without a cycle; None if the action is unknown."""
    history = with_calls(connection, Unfinished(work, "main"))
    return None if history.action is None else ActionResult(history.action, "interrupted", history.known)


def items(connection: Connection, agent: str, missed: list[str], ids: Collection[str]) -> list[Item]:
    """Return the items that wait, the oldest first. Descriptions of rows that cannot be read are added to `missed`.

    Args: ids: only these items; none: all.
    """
    chosen = f" AND id IN ({', '.join('?' * len(ids))})" if ids else ""
    waiting = f"agent = ? AND state = 'waiting'{chosen} ORDER BY at, id"
    return list(_read(connection, missed, "item", Item, waiting, safe(agent), *map(safe, ids)))


def about_item(row: tuple[Any, ...]) -> Question:
    """Return the question whether an item is known: has its id, or is this agent's with its key. Args: row: of it."""
    query = "SELECT id, session, kind, at, state, body FROM item WHERE id = ? OR (agent = ? AND key = ?)"
    id, agent, _, _, key, *_ = row
    return Question((id,) if key is None else (id, (agent, key)), (query, (id, agent, key)))


def known_item(connection: Connection, question: Question, key: str | None) -> Item | None:
    """Return the item that a question is about, whatever happened to it.

    Of an item that does not wait any more, only the id, kind, session, time and key are returned.
    """
    row = connection.execute(*question.statement).fetchone()
    if row is None:
        return None
    known_id, session, kind, accepted, state, body = row
    if state == "waiting":
        return decode(str(body), Item)
    at = moment(accepted)
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
        return None, decode(body, DeadLetter).answer
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
    condition, bindings = where((
        ("agent = ?", safe(agent)), ("kind = ?", "run"),
        ("(at, id) < (SELECT at, id FROM item WHERE id = ?)", before and safe(before)),
        ("at >= ?", since and seconds(since)), ("state = ?", "waiting" if is_open else None),
    ))  # fmt: skip
    sql = f"SELECT id, session, at, state, body FROM item WHERE {condition} ORDER BY at DESC, id DESC LIMIT ?"
    rows, begun = [], _run_ids(connection, agent)
    for id, session, at, state, body in statements.rows(connection, sql, *bindings, limit):
        try:
            known = _run_row(str(id), str(state), str(body), begun)
            rows.append(convert({"run_id": id, "session": session, "accepted_at": moment(at), **known}, RunRow))
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            missed.append(f"item {str(id)[:100]!r}: {error}")
    return rows


def _run_row(id: str, state: str, body: str, begun: set[str]) -> dict[str, Any]:
    """Return the state, the times and the message of a run, from its row."""
    from spar.records.runs import beginning

    if state == "waiting":
        item = decode(body, Item)
        return {"status": "running" if id in begun or item.past else "queued", **beginning(item.perception)}
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
    from spar.decisions.resume import doubted

    return [
        doubted(cycle.cycle_id, cycle.session, cycle.run_id, cycle.action, result, cycle.opened_at).doubt
        for cycle in unfinished(connection, agent, missed) if not cycle.effect
        for result in cycle.known if result.is_in_doubt
    ]  # fmt: skip


def call(connection: Connection, doubt: Doubt) -> Call:
    """Return a call in doubt with the parameter values that it was started with.

    If no fact has these values any more, the call is returned as it was planned.
    """
    rows = events.of_work(connection, safe(doubt.cycle_id))
    for fact in facts_of(doubt.cycle_id, (row for row in rows if row[:2] == (doubt.call.id, "started"))):
        if (values := getattr(fact, "values", None)) is not None:
            return replace(doubt.call, params=dict(values), after=())
    return replace(doubt.call, after=())


def unfinished(connection: Connection, agent: str, missed: list[str]) -> list[Unfinished]:
    """Return the open cycles and detached calls, in the order of their ids, with the known results of their calls.

    One that cannot be read is returned with what can be, and with its damage.
    """
    cycles = []
    for id, body, attempts in statements.rows(
        connection, "SELECT id, body, attempts FROM open_cycle WHERE agent IN (?, '') ORDER BY id", safe(agent)
    ):
        try:
            cycle = decode(str(body), Unfinished)
            cycles.append(replace(with_calls(connection, cycle), attempts=int(attempts)))
        except (ValueError, TypeError, KeyError) as error:
            missed.append(f"open_cycle {str(id)[:100]!r}: {error!r}")
            cycles.append(_damaged(connection, str(id), str(body), repr(error)))
    return cycles


def _damaged(connection: Connection, id: str, body: str, damage: str) -> Unfinished:
    """Return an open cycle of which not all can be read. Without its body, its session is that of its items."""
    with suppress(ValueError):
        return replace(decode(body, Unfinished), damage=damage)
    items: tuple[str, ...] = ()
    for _, kind, opened, _ in events.of_work(connection, id):
        if kind == "opened":
            with suppress(ValueError, KeyError, TypeError):
                items = tuple(map(str, decode(opened, dict[str, Any])["items"]))
    sessions = [
        str(session) for item in items
        for (session,) in connection.execute("SELECT session FROM item WHERE id = ?", (item,))
    ]  # fmt: skip
    return Unfinished(id, sessions[0] if sessions else "", items=items, damage=damage)


def with_calls(connection: Connection, cycle: Unfinished) -> Unfinished:
    """Return a cycle with its action and the known results of its calls, read from its facts."""
    from spar.decisions.resume import completed  # only a start needs them
    from spar.state.apply import SessionState, fold
    from spar.state.work import CycleState

    facts = facts_of(cycle.cycle_id, events.of_work(connection, safe(cycle.cycle_id)))
    state = CycleState(cycle.cycle_id)
    fold("", facts, SessionState("", cycle=state))
    return completed(cycle, state)


def facts_of(work: str, rows: Iterable[tuple[str, str, str, float]]) -> Iterator[Fact]:
    """Return the facts of calls among the rows of a cycle: call, kind, body, time. Raises: ValueError for a row that
    cannot be read."""
    from spar.facts import AttemptStarted, CallEnded, CallsPlanned, Planned  # which a look at the file does not need

    for call, kind, body, _ in rows:
        match kind:
            case "acting":
                acting = decode(body, dict[str, Any])
                action, effect = read(acting["action"], Action), str(acting.get("effect", ""))
                yield Planned(session="", cycle=work, action=action, effect=effect)
            case "planned":
                yield CallsPlanned(session="", cycle=work, calls=tuple(map(_call, decode(body, list[dict[str, Any]]))))
            case "started":
                start = decode(body, dict[str, Any])
                yield AttemptStarted(session="", cycle=work, call=call, attempt=int(start["attempt"]),
                                     effect=str(start["effect"]), values=start.get("values"))  # fmt: skip
            case "ended":
                yield CallEnded(session="", cycle=work, result=_result(call, decode(body, dict[str, Any])))


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


class JournalQueries(SessionQueries):
    """Queries of the journal. Each first hands the gathered rows to the writer, so that it reads the latest state."""

    async def items(self, agent: str, ids: Collection[str] = ()) -> list[Item]:
        """Return the items that wait, the oldest first. Args: ids: only these items; none: all."""
        return await self._rows(partial(items, agent=agent, ids=ids))

    async def unfinished(self, agent: str) -> list[Unfinished]:
        """Return the open cycles and the detached calls that have not ended, in the order of their ids."""
        return await self._rows(partial(unfinished, agent=agent))

    async def interrupted(self, action_id: str) -> ActionResult | None:
        """Return the known results of an action that ran without a cycle; None if the action is unknown.

        A program without an agent passes them to `Executor.run(resume=…)`, which continues the action.
        """
        return await self._read(partial(interrupted, work=action_id))

    async def doubts(self, agent: str, *, is_open: bool = True) -> list[Doubt]:
        """Return the calls in doubt, the oldest first. With `is_open=False` the answered ones are among them."""
        return await self._rows(partial(doubts, agent=agent, is_open=is_open))

    async def dead_letters(self, agent: str) -> list[DeadLetter]:
        """Return the dead letters that nobody has dealt with, the oldest first."""
        return await self._rows(partial(dead_letters, agent=agent))

    def run(self, agent: str, run_id: str) -> Coroutine[Any, Any, tuple[Item | None, dict[str, Any] | None]]:
        """Return a pair: the run's item while it waits, or its answer once it has ended. The other value is None.

        Both are None for an unknown run.
        """
        return self._read(partial(run, agent=agent, run_id=run_id))

    async def recent_ids(self, agent: str, number: int) -> list[str]:
        """Return the ids of the items accepted last, whatever happened to them; the newest first."""
        return await self._read(partial(recent_ids, agent=agent, number=number))

    async def call(self, doubt: Doubt) -> Call:
        """Return a call in doubt with the parameter values that it was started with."""
        return await self._read(partial(call, doubt=doubt))

    async def rows(self, owner: str) -> dict[str, Any]:
        """Return the small rows of an owner, by key."""
        return await self._rows(partial(own_rows.all_of, owner=owner))

    async def counts(self, agent: str) -> dict[str, Any]:
        """Return the counts of an agent, summed over all its cycles."""
        return await self._rows(partial(counts.of, agent=agent))

    async def spent(self) -> list[Spend]:
        """Return the used amounts of budgets, by window and quantity."""
        return await self._read(statements.spent)
