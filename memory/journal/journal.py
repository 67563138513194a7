"""Journal of a memory: each fact becomes rows, in order, in as few transactions as possible.

`append` adds the rows of a fact to the present batch. `commit` is a transaction after all earlier rows, in which it can
turn out that an earlier fact rules it out. The queries are in `memory.journal.queries`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from memory import audit, counts, cycle_log, events, own_rows, sessions, transcripts
from memory.codec import FactRows, encoded, exactly, safe, sealed, seconds
from memory.engine.own_keys import SAVE
from memory.engine.transactions import Asked
from memory.experiences import credit
from memory.experiences import rows as experiences
from memory.journal import queries, statements
from memory.journal.handover import NO_ORIGIN, Handover, Origin, Write, many
from memory.journal.in_flight import MOST_NOTED, InFlightFile
from memory.journal.queries import JournalQueries
from spar import facts
from spar.clock import Clock
from spar.errors import ConflictError, TooLargeError
from spar.facts import Fact
from spar.failpoints import armed, crashpoint
from spar.records.audit import CURRENT, claim
from spar.records.journal import Closing, DeadLetter, Item, RowChange, Unfinished
from spar.types import Action, Call, Credit, Fault, Feedback, Message, copy_with, replace, trait

if TYPE_CHECKING:
    from memory.engine.connection import Connection
    from memory.engine.session import DatabaseSession


#: Most bytes of an item; a larger one is refused.
MOST_ACCEPTED = 16 << 20
#: Assumed bytes of a row of the cycle log; the writer's thread encodes it later.
_ABOUT_A_CYCLE = 4_000
#: Fields of a call's result in its fact; the call itself is known from the plan.
_END = ("status", "reason", "output", "fault", "attempts", "started_at", "duration", "verified")

# One function for each statement, since a batch writes successive rows of one function together.
_save, _spend, _close = many(SAVE), many(statements.SPEND), many(statements.CLOSE)
_put_item, _end_item = many(statements.PUT_ITEM), many(statements.END_ITEM)
_amend, _doubt = many(statements.AMEND), many(statements.DOUBT)
_CHANGES = {sql: many(sql) for sql in (own_rows.KEEP, own_rows.DROP)}
_credit: Write = credit.count
_judge: Write = credit.take


class Journal(Handover):
    """Journal on an open database, which hands over the rows of each fact; it implements the protocols in
    `spar.ports.store`.

    Args: file: the open database, with its writer; hand: notes the names of the current work outside of the database;
        report: called for a row that cannot be read, a sensor's value that cannot be stored, and for rows that cannot
        be written while nobody waits for them.

    `live` are the names of the agents that have used the journal since it was opened; safe from any thread. `unsaved`
    are values of the small state that may not be written yet, by key: a failing disk delays the writing.
    """

    def __init__(
        self, file: DatabaseSession, clock: Clock, hand: InFlightFile, report: Callable[[Fault], None]
    ) -> None:
        super().__init__(file, clock, FactRows(clock, file.writer.report), report)
        self._file, self.hand = file, hand
        self._open_cycles: dict[str, str] = {}  # names of agents, by the id of a cycle or `cycle/call` if detached
        self.epoch, self._fence = file.epoch, file.fence
        self._claims: dict[str, object] = {}
        self.unsaved: dict[str, str] = {}
        self.live: frozenset[str] = frozenset()
        self._waiting: dict[str, list[own_rows.Statement]] = {}  # of small rows that wait for the end of an open cycle
        self.views = JournalQueries(file.read, self.hand_over, report)
        #: One function object for all entries, since a batch compares functions by identity.
        self._transcribe: Write = self._append_entries

    async def load(self) -> None:
        """Read which cycles an earlier process left open."""
        self._open_cycles.update(await self._file.read(queries.open_ids))

    def append(self, fact: Fact, agent: str = "") -> None:
        """Write a fact of an agent without waiting for the disk. A kind that no later process needs is not written."""
        if (write := _WRITERS.get(type(fact))) is not None:
            write(self, fact, agent)

    def commit(self, fact: Fact, agent: str) -> Coroutine[Any, Any, Item | None]:
        """Write a fact that an earlier one may rule out; durable when this returns, and so are all facts before it.

        Returns: the earlier item of work that was accepted before; None for a fact that is new.
        Raises: ConflictError when the letter or doubt has been dealt with; TooLargeError; NoRoomError on a full disk;
            SparError when the store is closed.
        """
        return _COMMITTERS[type(fact)](self, fact, agent)

    # -- agents

    def claim(self, agent: str, owner: object) -> Callable[[], None]:
        """Reserve an agent's name, and with it the work of that agent. The owner may claim it again.

        Returns: a function that ends the claim; nothing happens if another owner has the name by then.
        Raises: ConflictError while another owner has the name: two agents with one name would do each other's work.
        """
        if self._claims.setdefault(agent, owner) is not owner:
            raise ConflictError(f"an agent named {agent!r} works with this memory already; stop it, or name them apart")
        self.live |= {agent}
        return partial(self._release, agent, owner)

    def _release(self, agent: str, owner: object) -> None:
        if self._claims.get(agent) is owner:
            del self._claims[agent]

    # -- open cycles and fences

    def is_open(self, work: str) -> bool:
        """Return whether a cycle has begun and not ended, in this process or an earlier one."""
        return work in self._open_cycles

    @property
    def open_cycles(self) -> int:
        """Return how many cycles have begun and not ended."""
        return len(self._open_cycles)

    def next_fence(self, above: int = 0) -> int:
        """Return a new fence: a number above `above` and above all numbers returned before."""
        self._fence = max(self._fence, above) + 1
        return self._fence

    @property
    def refusal(self) -> str:
        """Return why nothing more can be accepted now; "" when it can."""
        return "" if self._writer.is_writable else f"it cannot be kept now: {self._writer.last_error}"

    # -- small state: it is written in the transaction of the current batch

    def _value_saved(self, fact: facts.ValueSaved, agent: str) -> None:
        self._save(fact.key, fact.value)

    def _save(self, key: str, value: Any) -> None:
        row = safe(key), sealed(exactly(value, f"state {key!r:.100}"))
        self.add(_save, row)
        self.unsaved[row[0]] = row[1]

    def _rows_changed(self, fact: facts.RowsChanged, agent: str) -> None:
        self._change(fact.changes, fact.cycle)

    def _change(self, changes: Iterable[RowChange], work: str = "") -> None:
        """Write changes of small rows, and the entry of the audit log about the request that made them. Rows of an
        open cycle wait for its decision or its end."""
        rows = own_rows.statements(changes)
        if work in self._open_cycles:
            self._waiting.setdefault(work, []).extend(rows)
            return
        self._write(rows)
        if CURRENT.get() is not None:
            for _, bindings in rows:
                self._audit(bindings[0].partition(":")[0])

    def _write(self, rows: Iterable[own_rows.Statement], origin: Origin = NO_ORIGIN) -> None:
        """Write changes of small rows that need not wait."""
        for sql, bindings in rows:
            self.add(_CHANGES[sql], bindings, len(bindings[-1]), origin)

    def _audit(self, kind: str) -> None:
        """Write the entry of the audit log about the current request, if its draft waits for a row of this kind."""
        if (draft := claim(kind)) is not None:
            self.add(audit.write_all, (draft, self._clock.now().timestamp()))

    def _take_up(self, cursors: Mapping[str, Any], changes: Iterable[RowChange]) -> None:
        """Write the cursors and small rows of sensors.

        If one cannot be stored, that is reported and its old value stays: after a restart the sensor then repeats
        perceptions instead of losing them.
        """
        for key, cursor in cursors.items():
            self._try(partial(self._save, key, cursor), key)
        for change in changes:
            self._try(partial(self._change, (change,)), change.owner)

    def _try(self, write: Callable[[], None], name: str) -> None:
        """Write a value of a sensor. A failure is reported and does not stop the writes after it."""
        try:
            write()
        except ValueError as error:
            self._report(replace(Fault.of(error, part=name, phase="sense"), retryable=False))

    def _totals_counted(self, fact: facts.TotalsCounted, agent: str) -> None:
        self.add(counts.put, (agent, dict(fact.total)))
        self.hand_over()  # only ends of cycles that are written after this are added to the totals

    def _budget_used(self, fact: facts.BudgetUsed, agent: str) -> None:
        for spend in fact.spends:
            self.add(_spend, (spend.window, spend.quantity, spend.amount))

    # -- accepted work: items, ends of runs, dead letters, calls in doubt

    async def _work_accepted(self, fact: facts.WorkAccepted, agent: str) -> Item | None:
        item, use = fact.item, fact.use
        if armed:
            crashpoint("sense.recv")
        event = self._rows.fact("", item.id, "accepted", {"kind": item.kind})
        body, was_cut = encoded(item, limit=MOST_ACCEPTED)
        if was_cut:
            most = f"at most {MOST_ACCEPTED >> 20} MiB"
            raise TooLargeError(f"{item.kind} {item.id!r} is too large to be accepted: {most}")
        row = self._rows.item(agent, item, sealed(body))
        question = queries.about_item(row)

        def write(connection: Connection) -> Item | None:
            if (known := queries.known_item(connection, question, item.key)) is None:
                events.append(connection, [event])
                connection.execute(statements.PUT_ITEM, row)
                if use is not None:
                    sessions.use(connection, agent, item.session, use)
            if armed:
                crashpoint("sense.before_commit")
            return known

        self._file.demand_room()
        known: Item | None = await self._commit(Asked(write, (question,)), len(row[-1]))
        if armed:
            crashpoint("sense.committed_before_ack")
        return known

    def _work_changed(self, fact: facts.WorkChanged | facts.RetryPlanned, agent: str) -> None:
        self.add(_put_item, self._rows.item(agent, fact.item))

    def _run_answered(self, fact: facts.RunAnswered, agent: str) -> None:
        self.add_fact(self._rows.fact("", fact.run, "closed", {"outcome": "run ended"}))
        self.add(_end_item, ("done", self._rows.body({"answer": fact.answer}), safe(fact.run)))

    def _answer_changed(self, fact: facts.AnswerChanged, agent: str) -> None:
        self.add(_amend, (self._rows.body({"answer": fact.answer}), safe(fact.run)))

    def _put_aside(self, fact: facts.PutAside, agent: str) -> None:
        item = fact.item
        letter = DeadLetter(item.id, item, self._clock.now(), fact.reason)
        dead = {"reason": fact.reason, "attempts": item.attempts}
        self.add_fact(self._rows.fact("", item.id, "dead", dead))
        self.add(_put_item, self._rows.item(agent, item))
        self.add(_end_item, ("dead", self._rows.body(letter), safe(item.id)))

    async def _letter_answered(self, fact: facts.LetterAnswered, agent: str) -> None:
        letter, waits = fact.letter, fact.is_tried_again
        body = self._rows.body(letter.again if waits else {"answer": letter.answer})
        event = self._rows.fact("", letter.id, "resolved", {"waits": waits})

        def write(connection: Connection) -> None:
            connection.execute(statements.EXHUME, ("waiting" if waits else "done", body, safe(letter.id), safe(agent)))
            if not connection.changes():
                raise ConflictError(f"dead letter {letter.id!r} has been dealt with already")
            events.append(connection, [event])

        probe = "SELECT body FROM item WHERE id = ?", (safe(letter.id),)
        await self._commit(audit.audited(write, "dead_letter", self._clock, probe), len(body))

    def _call_doubted(self, fact: facts.CallDoubted, agent: str) -> None:
        doubt = fact.doubt
        self.add(_doubt, (safe(doubt.id), safe(agent), seconds(doubt.at), self._rows.body(doubt)))

    async def _doubt_answered(self, fact: facts.DoubtAnswered, agent: str) -> None:
        rows, doubt, again = self._rows, fact.doubt, fact.again
        body, answer = rows.body(doubt), {"answer": doubt.answer, "by": doubt.answered_by}
        following = [rows.fact(doubt.cycle_id, doubt.call.id, "resolved", answer)]
        open_cycle: tuple[Any, ...] | None = None
        if again is not None and again.action is not None:
            following += [
                rows.opened(again.cycle_id, again),
                *rows.planned(again.cycle_id, *_in_parts(again.action), ""),
            ]
            open_cycle = rows.open_cycle(again.cycle_id, agent, again)

        def write(connection: Connection) -> None:
            connection.execute(statements.ANSWER, (doubt.answer, body, safe(doubt.id)))
            if not connection.changes():
                raise ConflictError(f"call {doubt.id!r} is not in doubt any more: it has been answered")
            events.append(connection, following)
            if open_cycle is not None:
                connection.execute(statements.OPEN, open_cycle)

        probe = "SELECT body FROM doubt WHERE id = ?", (safe(doubt.id),)
        await self._commit(audit.audited(write, "doubt", self._clock, probe), len(body))
        if again is not None:
            self._open_cycles[again.cycle_id] = agent

    # -- cycles: their beginnings and ends, with all rows that become durable together with an end

    def _cycle_opened(self, fact: facts.CycleOpened, agent: str) -> None:
        cycle_id, items = fact.cycle, fact.items
        polled = () if fact.cursors is None else fact.perceptions[:MOST_NOTED]
        self.hand.take(cycle_id, [*items, *[trait(one) for one in polled if one.id not in items]])
        self.begin(cycle_id, agent, fact)
        self._open_cycles[cycle_id] = agent
        if agent not in self.live:
            self.live |= {agent}
        if fact.cursors or fact.changes:
            self._take_up(fact.cursors or {}, fact.changes)
        if armed:
            crashpoint("cycle.opened")

    def _cycle_written(self, fact: facts.CycleWritten, agent: str) -> None:
        # A cycle is alone if it began in the same batch and its end changes nothing but the cycle log and the counts.
        # Its row in the cycle log then also stands for its fact `closed`.
        cycle_id, closing = fact.cycle, fact.closing
        waiting = self._waiting
        if cycle_id in self.begun and not _leaves_a_trace(closing) and cycle_id not in waiting:
            self._end(cycle_id)  # the cycle began and ended in one batch and has no consequences: nothing is written
            return
        record, is_alone = closing.record, cycle_id in self.begun and _is_alone(closing)
        session = closing.session or ("" if record is None else record.session)
        origin, learnt = Origin(session, cycle_id), Origin(session, cycle_id, "reflect")
        # What may be refused is encoded first: nothing is added if it is.
        experience_rows = list(map(experiences.row, closing.experiences))
        credits, feedback = closing.credits, closing.feedback
        judgements = credits and credit.checked(credits), feedback and credit.checked(feedback)
        entries = transcripts.rows(agent, session, closing.run_id or "", closing.entries) if closing.entries else ()
        changes = own_rows.statements(closing.changes) if closing.changes else ()
        answer = self._rows.body({"answer": closing.answer}) if closing.run_id in closing.done else ""
        ends = [("done", answer if item == closing.run_id else "{}", safe(item)) for item in closing.done]
        row: Any = None
        if record is not None:
            row = cycle_log.prepared(record, is_end=is_alone, besides=closing.besides if is_alone else None)
        if not (is_alone and type(row) is cycle_log.CycleRow):  # else its row in the cycle log contains the end
            end: dict[str, Any] = {"outcome": closing.outcome, "done": closing.done}
            if record is not None:
                end |= {"agent": agent, "took": {"cycle": record.duration, **record.phases}}
            if closing.besides is not None:
                end["besides"] = closing.besides
            self.add_fact(self._rows.fact(cycle_id, closing.run_id or "", "closed", end))
        if record is not None:
            self.add(cycle_log.write, row, _ABOUT_A_CYCLE, origin)
        for experience in experience_rows:
            self.add(experiences.insert, experience, experience.bytes, learnt)
        if credits or feedback:
            self._judge(*judgements, learnt)
        for entry in entries:
            self.add(self._transcribe, entry, entry.bytes, origin)
        for item in ends:
            self.add(_end_item, item, 0, origin)
        held = waiting.pop(cycle_id, ())
        self._write(held if closing.again is None else (), origin)
        self._write(changes, learnt)
        if closing.again is None:
            self._end(cycle_id)
        else:
            self.begin(cycle_id, agent, closing.again)
        if armed:
            crashpoint("cycle.closed")

    def _end(self, work: str) -> None:
        """Write that a cycle or a detached call is not open any more."""
        self._open_cycles.pop(work, None)
        self.hand.drop(work)
        if self.begun.pop(work, None) is None:
            self.add(_close, (safe(work),))

    def _judged(self, fact: facts.Judged, agent: str) -> None:
        self._judge(credit.checked(fact.credits), credit.checked(fact.feedback), NO_ORIGIN)

    def _judge(self, credits: Iterable[Credit], feedback: Iterable[Feedback], origin: Origin) -> None:
        for help_or_harm in credits:
            self.add(_credit, help_or_harm, 0, origin)
        for judgement in feedback:
            self.add(_judge, judgement, 0, origin)

    def _conversation_reset(self, fact: facts.ConversationReset, agent: str) -> None:
        reset, cut = fact.reset, fact.cut
        if cut is not None and cut.cycle_id in self.begun:
            self.begin(cut.cycle_id, agent, cut)
        elif cut is not None:
            self.open(cut.cycle_id, agent, cut)
        for entry in transcripts.rows(agent, reset.session, reset.run_id, fact.entries):
            self.add(self._transcribe, entry, entry.bytes)
        self.add(sessions.reset, sessions.reset_row(agent, reset))
        self._audit("session.reset")

    def _append_entries(self, connection: Connection, entries: list[Any]) -> None:
        for refusal in transcripts.append(connection, entries):
            self._writer.report(Fault("superseded", str(refusal), "memory", retryable=False))

    # -- calls: planned, started, ended, and continued without their cycle

    def _planned(self, fact: facts.Planned, agent: str) -> None:
        for row in self._rows.planned(fact.cycle, *_in_parts(fact.action), fact.effect):
            self.add_fact(row)
        if fact.cycle in self._waiting:
            self._write(self._waiting.pop(fact.cycle))
        if armed:
            crashpoint("plan.committed")

    def _calls_planned(self, fact: facts.CallsPlanned, agent: str) -> None:
        for row in self._rows.calls(fact.cycle, list(map(Call.to_wire, fact.calls))):
            self.add_fact(row)

    def _attempt_started(self, fact: facts.AttemptStarted, agent: str) -> None:
        start: dict[str, Any] = {"attempt": fact.attempt, "effect": fact.effect, "allowed": fact.allowed}
        if fact.values is not None:
            start["values"] = fact.values
        self.add_fact(self._rows.fact(fact.cycle, fact.call, "started", start))

    def _call_ended(self, fact: facts.CallEnded, agent: str) -> None:
        if armed:
            crashpoint("act.result_received")
        result = fact.result
        end = {name: getattr(result, name) for name in _END}
        if type(result.output) is Message:
            end["is_message"] = True
        self.add_fact(self._rows.ended(fact.cycle, result.call.id, result.output, end))

    def _call_detached(self, fact: facts.CallDetached, agent: str) -> None:
        name = f"{fact.cycle}/{fact.action.calls[0].id}"
        unfinished = Unfinished(name, fact.session, action=fact.action, effect=fact.effect)
        self.begin(name, self._open_cycles.get(fact.cycle, ""), unfinished)

    def _call_attached(self, fact: facts.CallAttached, agent: str) -> None:
        self._end(f"{fact.cycle}/{fact.call}")


def _in_parts(action: Action) -> tuple[Action, list[dict[str, Any]]]:
    """Return an action without its calls, and these as JSON objects."""
    return copy_with(action, calls=(), perceptions=()), list(map(Call.to_wire, action.calls))


def _is_alone(closing: Closing) -> bool:
    """Return whether a cycle has no consequence but its record and its counts, now or later."""
    return closing.record is not None and not (
        closing.run_id or closing.done or closing.entries or closing.experiences or closing.again
        or closing.is_stepped or closing.credits or closing.feedback
    )  # fmt: skip


def _leaves_a_trace(closing: Closing) -> bool:
    """Return whether a cycle has any consequence that must be stored."""
    return bool(
        closing.record or closing.done or closing.again or closing.entries or closing.credits or closing.feedback
        or closing.experiences or closing.changes
    )  # fmt: skip


#: The method that writes each kind of fact with the batch.
_WRITERS: Final[Mapping[type[Fact], Callable[[Journal, Any, str], None]]] = {
    facts.ValueSaved: Journal._value_saved,
    facts.RowsChanged: Journal._rows_changed,
    facts.TotalsCounted: Journal._totals_counted,
    facts.BudgetUsed: Journal._budget_used,
    facts.WorkChanged: Journal._work_changed,
    facts.RetryPlanned: Journal._work_changed,
    facts.RunAnswered: Journal._run_answered,
    facts.AnswerChanged: Journal._answer_changed,
    facts.PutAside: Journal._put_aside,
    facts.CallDoubted: Journal._call_doubted,
    facts.CycleOpened: Journal._cycle_opened,
    facts.CycleReopened: Journal._cycle_opened,
    facts.CycleWritten: Journal._cycle_written,
    facts.ConversationReset: Journal._conversation_reset,
    facts.Judged: Journal._judged,
    facts.Planned: Journal._planned,
    facts.CallsPlanned: Journal._calls_planned,
    facts.AttemptStarted: Journal._attempt_started,
    facts.CallEnded: Journal._call_ended,
    facts.CallDetached: Journal._call_detached,
    facts.CallAttached: Journal._call_attached,
}
#: The method that writes each kind of fact that an earlier one may rule out.
_COMMITTERS: Final[Mapping[type[Fact], Callable[[Journal, Any, str], Coroutine[Any, Any, Item | None]]]] = {
    facts.WorkAccepted: Journal._work_accepted,
    facts.LetterAnswered: Journal._letter_answered,
    facts.DoubtAnswered: Journal._doubt_answered,
}
