"""Submission of work to an agent: messages and perceptions, from any thread; and the abort of runs. What only messages
need: an agent that gets none makes none of it."""

from __future__ import annotations

from asyncio import CancelledError
from collections import Counter
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any

from spar import facts
from spar.agent.lifecycle import Lifecycle
from spar.attaching import Attachments
from spar.checks import shorten
from spar.data.reply import End
from spar.decisions.place import RoomRules, place, run_before
from spar.errors import InboxFullError, NoRoomError
from spar.facts import COMMAND
from spar.hooks import HookContext
from spar.ids import new_id
from spar.loop.cycle import STANDING
from spar.observe.logs import get_logger
from spar.records.journal import Item
from spar.records.run_options import NO_OPTIONS, RunOptions
from spar.records.runs import Receipt
from spar.records.session import Origin, SessionRecord, SessionUse
from spar.runs.outbox import RunMessages
from spar.runs.runs import OUTPUT, PURSUED, Run
from spar.runs.transcripts import SessionTranscripts
from spar.session.parts import Conversing
from spar.session.resets import Resets, RunStops
from spar.session.session_hooks import SessionHooks
from spar.session.session_records import SessionRecords, check_message, fitting
from spar.threads import OTHERS_TURN
from spar.types import QUEUE_MODES, Perception, QueueMode, replace

log = get_logger("spar.submission")

#: How many looks at an ended run a message is worth, where others have their turn after some of these.
_WEIGHT = 8
#: The most waiting perceptions of a session; more are refused with an error.
INBOX_LIMIT = 1000
#: The most waiting perceptions that one sensor (a webhook, for example) has accepted. A flood from one takes no room
#: from another, nor from messages of people.
SOURCE_LIMIT = 500
#: The most characters of a session's name and of an idempotency key.
LONGEST_NAME = 256
#: The most levels of the JSON schema of an answer.
DEEPEST_SCHEMA = 64
#: The origin of a session if the caller names none: the program itself.
_UNKNOWN = Origin("python")
#: The most sessions with work; a message for a further session is refused.
SESSIONS_LIMIT = 10_000


def check_name(what: str, name: str) -> None:
    """Check the length of a name, since it is stored with each object that it names. Raises: ValueError."""
    if len(name) > LONGEST_NAME:
        raise ValueError(f"{what} has at most {LONGEST_NAME} characters, found {len(name)}")


def check_depth(schema: Mapping[str, Any]) -> None:
    """Check the depth of an answer's schema. Raises: ValueError beyond `DEEPEST_SCHEMA` levels."""
    level: list[Any] = [schema]
    for _ in range(DEEPEST_SCHEMA):
        level = [item for value in level if isinstance(value, (Mapping, list, tuple))
                 for item in (value.values() if isinstance(value, Mapping) else value)]  # fmt: skip
        if not level:
            return
    raise ValueError(f"output is nested too deeply: a schema has at most {DEEPEST_SCHEMA} levels")


class Submission:
    """Entrance for messages and perceptions into their sessions. `refused` counts perceptions that found no room."""

    __slots__ = ("_arriving", "_core", "_health", "_parts", "_records", "_recovery", "_reports", "_requests",
                 "_resets", "_runs", "_sessions", "_setup", "_stops", "refused")  # fmt: skip

    def __init__(self, parts: Lifecycle, stops: RunStops, records: SessionRecords, resets: Resets) -> None:
        self._core, self._setup, self._requests, self._runs = parts.core, parts.setup, parts.requests, parts.runs
        self._recovery, self._reports, self._health = parts.recovery, parts.reports, parts.health
        self._sessions, self._parts = parts.sessions, parts
        self._stops, self._records, self._resets = stops, records, resets
        self.refused = 0
        self._arriving = Counter[tuple[str, str]]()  # perceptions that are being journalled, by session and source

    async def submit(self, message: str | Perception, session: str | None, mode: str | None, key: str | None,
                     output: Mapping[str, Any] | None = None,
                     options: RunOptions | Mapping[str, Any] | None = None,
                     origin: Origin | None = None, on_run: Callable[[str], None] | None = None) -> Receipt:  # fmt: skip
        """Accept a message as a run; see `Agent.submit`.

        Args: on_run: called with the id of a new run just before it is written; rows that it writes are on disk first.
        """
        text = message.text if isinstance(message, Perception) else message
        if session is None:
            session = message.session if isinstance(message, Perception) else STANDING
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"a message must be text that is not empty, found {shorten(text)}")
        if not isinstance(session, str) or not session.strip():
            raise ValueError(f"a session's key must be text that is not empty, found {shorten(session)}")
        check_name("a session's name", session)
        key = key or None
        check_name("an idempotency key", key or "")
        mode = self._core.settings.runs.queue_mode if mode is None else mode
        if mode not in QUEUE_MODES:
            raise ValueError(f"mode {shorten(mode)} is not known; known: {', '.join(QUEUE_MODES)}")
        if output is not None and not isinstance(output, Mapping):
            raise TypeError(f"output is the JSON schema of the answer, found {type(output).__name__}")
        if output is not None:
            check_depth(output)
        options = NO_OPTIONS if options is None else RunOptions.read(options)
        if (receipt := self._accepted(key)) is not None:
            return receipt
        if isinstance(message, Perception):
            perception = message if message.session == session else replace(message, session=session)
        else:
            hear = self._setup.modules["sense"].hear
            perception = (
                hear(text, session) if hear is not None
                else Perception(text, source="message", kind="message", session=session, trust="trusted")
            )  # fmt: skip
        if output is not None:
            perception = replace(perception, attributes={**perception.attributes, OUTPUT: dict(output)})
        if "message_received" in self._core.hooks.used:
            perception = await self._received(perception)
            if (receipt := self._accepted(key)) is not None:  # accepted during the wait
                return receipt
        origin = origin or _UNKNOWN  # never from attributes, which any sender may set
        if COMMAND in perception.attributes:  # only the agent may set this mark
            unmarked = {name: value for name, value in perception.attributes.items() if name != COMMAND}
            perception = replace(perception, attributes=unmarked)
        if self._core.settings.sessions.commands and perception.trust == "trusted":
            perception = await self._parts.attached("commands").marked(perception, origin)
        if COMMAND in perception.attributes:
            return await self._take_command(perception, key, on_run)
        if options is not NO_OPTIONS:
            await check_message(self._setup, options, perception)
        self._demand_room(perception.session)
        return await self._take(perception, mode, key, options, origin, on_run)

    async def _take(self, perception: Perception, mode: QueueMode, key: str | None, options: RunOptions,
                    origin: Origin, on_run: Callable[[str], None] | None) -> Receipt:  # fmt: skip
        """Accept a checked message as a run, which is on disk on return."""
        session = perception.session
        shared = self._core.shared  # None if this process has all sessions
        is_elsewhere = shared is not None and not shared.owns(session)
        state = self._core.ledger.states.get(session)
        is_busy = is_elsewhere or (state is not None and state.is_busy)
        with self._records.forgetting.accepting(session):
            record, use = await self._records.use(session, origin, is_busy=is_busy)
            if use.reset is not None:
                await self._resets.void_calls(session)
            chosen = await self._fitting(options, record)
            if (receipt := self._accepted(key)) is not None:  # accepted during the wait
                return receipt
            item = Item(new_id(), perception, "run", session, key, self._core.clock.now(),
                        options=None if options is NO_OPTIONS else options,
                        defaults=None if chosen is NO_OPTIONS else chosen,
                        is_collected=mode == "collect")  # fmt: skip
            if on_run is not None:
                on_run(item.id)
            accepted, is_new = await self.keep(item, use)
            is_elsewhere = shared is not None and not shared.owns(session)
            if shared is not None and is_elsewhere and is_new:
                await shared.placed(session, item.id, mode)
            if is_elsewhere or not is_new:
                return Receipt(accepted.id, accepted.at)
            if use.reset is not None:
                self._parts.conversations.transcripts.keep(session, (use.reset.entry,))
            reset = self._records.used(session, record, use)
            run = self._runs.accept(item)
            if reset is not None:
                await self._resets.publish(reset)
            if self._core.state in ("stopping", "stopped"):
                # The next start processes it. It may not be dropped now: the end of a run cannot be stored any more.
                place_later = facts.MessagePlaced(session=session, run=run.id, place="queue")
                self._sessions.of(session)
                self._core.ledger.tell(place_later)
            else:
                self.place(run, mode)
            if not self._parts.agent_state.has_journal and self._runs.is_others_turn(_WEIGHT):  # no disk made it wait
                await OTHERS_TURN
        return Receipt(run.id, run.accepted_at)

    async def _take_command(self, message: Perception, key: str | None,
                            on_run: Callable[[str], None] | None) -> Receipt:  # fmt: skip
        """Accept a command: a run that is carried out at once, beside the work of its session."""
        self._demand_storage()
        if (receipt := self._accepted(key)) is not None:  # accepted during the wait
            return receipt
        item = Item(new_id(), message, "run", message.session, key, self._core.clock.now())
        if on_run is not None:
            on_run(item.id)
        accepted, is_new = await self.keep(item)
        if not (is_new and self._core.owns(message.session)):
            return Receipt(accepted.id, accepted.at)
        run = self._runs.accept(item)
        self._parts.attached("commands").carry_out(run)
        return Receipt(run.id, run.accepted_at)

    async def _fitting(self, options: RunOptions, record: SessionRecord | None) -> RunOptions:
        """Return the defaults of a session that hold for a message; log why others do not."""
        if record is None or record.defaults == NO_OPTIONS:
            return NO_OPTIONS
        defaults, why = await fitting(self._setup, options, record.defaults)
        if why:
            log.info("defaults of a session left out", agent=self._core.name, session=record.key, reason=why)
        return defaults

    def _accepted(self, key: str | None) -> Receipt | None:
        """Return the receipt that was given for this key before; None without one. Raises: LifecycleError,
        NotReadyError."""
        if self._core.state != "running" or not self._recovery.has_begun:
            self._parts.demand_open("submit")
        return self._runs.known(key) if key else None

    def place(self, run: Run, mode: QueueMode) -> None:
        """Queue a message in its session, drop others if too many wait, and publish its outcome."""
        settings, session = self._core.settings.runs, self._sessions.of(run.session)
        following = place(session.state, run.id, mode, RoomRules(settings.cap, settings.drop))
        self._core.ledger.tell(*following)
        for fact in following:
            if isinstance(fact, facts.RunFinished):
                self._runs.end(self._runs.get(fact.run), fact.end)
            elif isinstance(fact, facts.MessagePlaced) and fact.outcome == "interrupting":
                before = self._runs.get(run_before(session.state))
                self._stops.in_background(before, "interrupted by a newer message")
        self._sessions.spawn(session)

    async def accept(self, perception: Perception, *, key: str | None = None) -> bool:
        """Accept a perception durably; return False if it was accepted before. See `Agent.accept`.

        Args: key: another name of the same perception; one that was accepted under it is this one.
        """
        if not isinstance(perception, Perception):
            raise TypeError(f"accept takes a Perception, found {shorten(perception)}")
        check_name("a session's name", perception.session)
        self._parts.demand_open("accept")
        try:
            self._demand_room_for(perception)
        except InboxFullError:
            self.refused += 1
            raise
        at = self._core.clock.now()
        item = Item(perception.id, perception, session=perception.session, key=key or None, at=at)
        place = perception.session, perception.source
        self._arriving[place] += 1  # counted before the first wait, since others come meanwhile
        try:
            _, is_new = await self.keep(item)
        finally:
            self._arriving[place] -= 1
            if not self._arriving[place]:
                del self._arriving[place]
        if is_new and self._core.owns(perception.session):
            self._hand_over(item, accepted_for=perception.source)
        return is_new

    async def keep(self, item: Item, use: SessionUse | None = None) -> tuple[Item, bool]:
        """Journal new work durably, with the use of its session. Return the item that counts (the first accepted one),
        and whether it is new; no state has it yet. What is on disk after all begins also if the caller was
        cancelled."""
        fact = facts.WorkAccepted(session=item.session, item=item, use=use)
        try:
            earlier = await self._core.ledger.journal.commit(fact, self._core.name)
        except CancelledError:
            self._requests.in_background(self._recovery.restart.reconcile([item.id]), "cancelled submission to")
            raise
        if earlier is not None:
            self._recovery.repeated += 1
            return earlier, False
        return item, True

    async def _received(self, perception: Perception) -> Perception:
        """Return the message as the hooks leave it. Raises: PermissionError if one denies it."""
        outcome = await self._reports.run_hooks(
            HookContext("message_received", self._core.name, perception, perception.session)
        )
        if outcome.denied:
            raise PermissionError(f"the message was refused: {outcome.reason or 'by a hook'}")
        value = outcome.value
        received: Perception = replace(perception, content=value) if isinstance(value, str) else value
        return received

    def push(self, perception: Perception) -> bool:
        """Queue a perception without waiting for the disk; return False if it is refused. May be called from any
        thread."""
        if not isinstance(perception, Perception):
            raise TypeError(f"push takes a Perception, found {shorten(perception)}")
        if not self._recovery.can_keep or self._refusal() or self._full(perception.session) is not None:
            self.refused += 1
            return False
        if self._requests.is_foreign_thread:
            return self._requests.in_loop(lambda: self.push(perception))
        item = Item(perception.id, perception, session=perception.session, at=self._core.clock.now())
        if not self._core.owns(perception.session):
            self._requests.in_background(self.keep(item), "perception for another process of")
        elif self._recovery.take_in(item):
            self._hand_over(item)
        return True

    def _hand_over(self, item: Item, accepted_for: str = "") -> None:
        """Give a perception that the journal has to its session. Args: accepted_for: the sensor that it was accepted
        for."""
        self._recovery.took(item)
        session = self._sessions.of(item.session)
        session.push(item.perception, accepted_for)
        self._sessions.spawn(session)

    def _demand_room_for(self, perception: Perception) -> None:
        """Check that a sensor's perception can be accepted. Raises: NoRoomError if memory, disk or journal refuse it,
        InboxFullError if too many of its source wait."""
        self._demand_storage()
        session = self._sessions.by_key.get(perception.session)
        waiting = self._arriving[perception.session, perception.source]
        if session is None:
            self._demand_room(perception.session)
        elif self._parts.agent_state.has_journal:
            waiting += session.accepted.get(perception.source, 0)
        elif (full := self._full(perception.session)) is not None:  # in memory all have the same room
            raise InboxFullError(f"{full}; try again later")
        if waiting >= SOURCE_LIMIT:
            raise InboxFullError(f"{waiting} perceptions of {perception.source!r:.100} already wait; try again later")

    def _demand_room(self, session: str) -> None:
        """Check that a message can be accepted. Raises: NoRoomError if memory, disk or journal refuse it,
        InboxFullError if too many wait."""
        self._demand_storage()
        known = self._sessions.by_key.get(session)
        from_sensors = sum(known.accepted.values()) if known is not None else 0
        if known is not None and from_sensors and known.waiting - from_sensors < INBOX_LIMIT:
            return  # perceptions of sensors take no room from messages
        if (full := self._full(session)) is not None:
            raise InboxFullError(f"{full}; try again later")

    def _demand_storage(self) -> None:
        """Check that memory, disk and journal take something now. Raises: NoRoomError."""
        if refusal := self._refusal():
            raise NoRoomError(refusal)

    def _refusal(self) -> str:
        """Return why nothing can be stored now; "" if it can. May be called from any thread."""
        return self._health.pressure.refusal or self._core.ledger.journal.refusal

    def _full(self, key: str) -> str | None:
        """Return why no more work can wait for this session; None if there is room. May be called from any thread."""
        sessions = self._sessions.by_key
        session = sessions.get(key)
        if session is not None and session.waiting >= INBOX_LIMIT:
            return f"session {key!r} already has {session.waiting} messages waiting"
        if session is None and len(sessions) >= SESSIONS_LIMIT:
            return f"{SESSIONS_LIMIT} sessions already wait for their turn"
        return None

    async def abort(self, run_id: str) -> None:
        """Abort a run; see `Agent.abort`."""
        shared = self._core.shared
        if shared is None or self._runs.find(run_id) is not None:
            await self._stops.abort(self._runs.get(run_id))
        if shared is not None and self._runs.find(run_id) is None:  # another node has it, perhaps since just now
            await shared.abort(run_id)

    async def pursue(self, perception: Perception) -> str:
        """Begin a run about a perception, once; return its id. Raises: as `submit`.

        The perception's own output schema is dropped, since a sensor does not decide the form of the answer.
        """
        parts = sorted(part.id for part in perception.evidence or (perception,))
        key = f"{PURSUED}{blake2b(' '.join(parts).encode('utf-8', 'replace'), digest_size=16).hexdigest()}"
        if OUTPUT in perception.attributes:
            attributes = {name: value for name, value in perception.attributes.items() if name != OUTPUT}
            perception = replace(perception, attributes=attributes)
        origin = Origin("sensor", perception.source[:LONGEST_NAME])
        return (await self.submit(perception, perception.session, "followup", key, origin=origin)).run_id


class Conversations(Conversing):
    """Parts of one agent for its messages: their submission, commands, answers and transcripts, and its sessions as
    people see them."""

    __slots__ = ("parts", "resets", "stops", "submission")

    def __init__(self, parts: Lifecycle, attachments: Attachments) -> None:
        core, state, runs = parts.core, parts.agent_state, parts.runs
        self.parts = parts
        self.transcripts = SessionTranscripts(
            core.name, core.clock, parts.requests, lambda: state.transcripts, parts.setup
        )
        self.outbox = RunMessages(core, parts.requests, parts.reports, runs, attachments.by_name, parts.installed,
                                  attachments.has_growing)  # fmt: skip
        runs.run_ended = self.run_ended
        self.hooks = SessionHooks(core, parts.requests, parts.reports, self.transcripts, parts.sessions.has_work_of)
        self.stops = RunStops(parts, parts.sessions)
        self.records = SessionRecords(core, parts.setup, state, self.transcripts)
        self.resets = Resets(parts, parts.sessions, self.records, self.stops, attachments.forget)
        self.submission = Submission(parts, self.stops, self.records, self.resets)

    def run_ended(self, run: Run, end: End) -> None:
        """Send, store and record the end of a run, as far as that was not done."""
        if not run.is_told:
            self.outbox.ended(run, end)
        self.outbox.forget(run)
        if not run.is_transcribed:
            self.transcripts.run_ended(run, end)
        if run.is_changed:
            changed = facts.AnswerChanged(session=run.session, run=run.id, answer=run.ended)
            self.parts.core.ledger.tell(changed)
        if not run.state.into and COMMAND not in run.state.message.attributes:
            if end.status == "ok":
                self.parts.health.run_went_well()
            elif run.has_failed(end):
                self.parts.health.judge.run_failed(end.error)
