"""Runs of one agent: accepted, started, ended exactly once, and looked up at any time.

A run is the pursuit of one goal over as many cycles as needed. Its facts add up to its state (`spar.state.work`); the
session decides when it has ended (`spar.decisions.finish`), or its timer does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from spar import facts
from spar.clock import Signal
from spar.data.reply import End, Reply, failure, fallback
from spar.decisions.finish import finish, judge
from spar.events import MessageOutcome, RunAccepted, RunEnded, RunStarted
from spar.loop.core import Core
from spar.loop.cycle import Cycle, closed
from spar.protocols import RunContext
from spar.records.journal import Item
from spar.records.run_options import NO_OPTIONS
from spar.records.runs import Receipt, RunStatus
from spar.runs.ends import CALLED_OFF, RunTimers, TimedRun
from spar.state.work import RunState
from spar.threads import OTHERS_TURN, SLICE
from spar.types import ActionResult, Perception, Reasoning, RunUsage, least_trust

if TYPE_CHECKING:
    from spar.bus.run_log import RunLog, RunLogs, RunStream

#: The message attribute with the schema of the expected answer.
OUTPUT: Final = "output_schema"
#: Shared by all runs, since each empty set is an object of its own.
NO_IDS: Final = frozenset[str]()


class Run(TimedRun):
    """One run, as this process works on it: its state, and what the process knows beside it.

    `is_to_tell` says whether people wait for its answer, so that they are told of its failure, `reasoning` where the
    thoughts of its models are shown. `ended` is its status once it has ended. `unwritten` are the messages that the
    transcript does not have yet, and `is_transcribed` says that it has its end. It was `queued_at` (monotonic seconds).
    `is_changed` says that a hook changed its answer after the journal had it, `is_told` that its end was sent to
    people; `sent` are the routes and texts (normalized) that it has sent. `log` is its event log while it is open,
    `has_ended` is set by the first caller that waits. `processed_ids` are the perceptions that its cycles in an earlier
    process have processed.
    """

    __slots__ = ("accepted_at", "ended", "errors", "failed_calls", "has_ended", "id", "is_changed", "is_to_tell",
                 "is_told", "is_transcribed", "log", "processed_ids", "queued_at", "reasoning", "reply", "results",
                 "sent", "session", "unwritten")  # fmt: skip

    def __init__(self, id: str, state: RunState, accepted_at: datetime, reasoning: Reasoning = "off",
                 queued_at: float = 0.0, *, is_to_tell: bool = False) -> None:  # fmt: skip
        self.state, self.timer = state, None
        self.started_mono = self.touched = self.waits_until = 0.0
        self.id, self.session, self.accepted_at = id, state.message.session, accepted_at
        self.is_to_tell = is_to_tell
        self.reasoning: Reasoning = reasoning
        self.started_at = None
        self.ended: RunStatus | None = None
        self.reply = Reply()
        self.errors: tuple[dict[str, Any], ...] = ()
        self.results: tuple[ActionResult, ...] = ()
        self.failed_calls: str | None = None
        self.unwritten: tuple[Perception, ...] = state.new
        self.queued_at = queued_at
        self.is_changed = self.is_transcribed = self.is_told = False
        self.sent: tuple[tuple[str, str], ...] = ()
        self.log: RunLog | None = None
        self.processed_ids = NO_IDS
        self.has_ended: Signal | None = None

    @property
    def message(self) -> Perception:
        """Return its first message; that of all collected ones once it has begun."""
        return self.state.message

    @property
    def messages(self) -> tuple[Perception, ...]:
        """Return its first message and those that joined it."""
        return (self.state.message, *self.state.later)

    def note(self, result: ActionResult | None) -> None:
        """Add the result of a cycle to its results; also of an interrupted cycle or an incomplete plan."""
        if result is None:
            return
        self.results = (*self.results, result)
        if result.results:  # an answer without calls keeps the errors, which it may be about
            self.errors = tuple([error for error in result.errors if error["error"]["kind"] != "steered"])
            self.failed_calls = fallback(result.results)

    def share_usage(self, part: Run) -> None:
        """Copy the usage and errors to a run that ends with it."""
        part.errors, part.started_at = self.errors, part.started_at or self.started_at
        part.state = replace(part.state, used=self.state.used, waited=self.state.waited)

    def status_at(self, end: End | None, now: datetime) -> RunStatus:
        """Return its status; with an `end`, the status that it has if it ends so now."""
        if self.ended is not None:
            return self.ended
        state = self.state
        reply = self.reply if end is None or self.is_changed else self.reply_to(end)
        output = state.output if end is None else end.output
        is_hidden = end is not None and isinstance(output, str) and reply.is_silent
        return RunStatus(self.id, "timeout" if end is None else end.status, state.outcome, self.started_at,
                         None if end is None else now, "" if end is None else end.error, None if is_hidden else output,
                         self.errors, reply.text, reply.is_silent, self.usage, state.chosen)  # fmt: skip

    def change_reply(self, reply: Reply) -> None:
        """Replace its reply, because a hook changed it."""
        self.reply, self.is_changed = reply, True
        self.ended = self.ended and replace(self.ended, reply=reply.text, silent=reply.is_silent)

    def reply_to(self, end: End) -> Reply:
        """Return the text for people at its end: its answer, or one sentence instead."""
        reply = end.reply
        if reply.text is not None or reply.is_silent:
            return reply
        if self.is_to_tell and self.has_failed(end):
            return Reply(failure(end.error))
        return Reply(self.failed_calls) if self.failed_calls else reply

    def has_failed(self, end: End) -> bool:
        """Return whether its end is a failure: not if people aborted or replaced it, or its message was dropped."""
        return end.status == "error" and end.error not in CALLED_OFF and self.state.outcome != "dropped"

    @property
    def usage(self) -> RunUsage:
        """Return its usage."""
        count = self.state.used.get
        return RunUsage(count("requests", 0), count("calls", 0), count("input_tokens", 0), count("output_tokens", 0),
                        count("cached_tokens", 0), count("money", 0), self.state.waited)  # fmt: skip

    def context(self) -> RunContext:
        """Return the values that modules are given about it."""
        state = self.state
        messages, own = tuple(message for result in self.results for message in result.messages), self.messages
        schema = state.message.attributes.get(OUTPUT)
        output = schema if isinstance(schema, dict) else None
        return RunContext(self.id, state.message.text, state.number, messages, self.results, state.message,
                          state.later, least_trust(own), output, state.chosen, self.reasoning)  # fmt: skip


#: The prefix of idempotency keys of runs that the agent itself began, for a perception.
PURSUED: Final = "pursue:"
#: The most ended runs in memory, and about how many bytes they take; the journal has all.
KEPT, KEPT_BYTES = 10_000, 64 << 20


class Runs:
    """Runs of one agent. Ended ones are dropped beyond `KEPT` runs or `KEPT_BYTES` bytes.

    Attributes: find: returns the run with an id, None for an unknown one; open_run: the same of those that have not
        ended; timers: the limits of runs, and the timers that end them; earlier: returns the status of a run of an
        earlier or another process, after at most so many seconds (None: no limit), or raises LookupError; write_end:
        journals the answer of a run; run_ended: sends, stores and records the end of a run; watch: called with each
        accepted run, also those of an earlier process; None while nothing is said of runs before their ends.

    Args: is_late: called with a run to end and the reason; say_early: has a `watch` set, if one can be.
    """

    earlier: Callable[[str, float | None], Awaitable[RunStatus]]
    write_end: Callable[[Run, RunStatus], None]
    run_ended: Callable[[Run, End], None]

    __slots__ = ("__dict__", "_clock", "_core", "_events", "_in_a_row", "_keys", "_ledger", "_open",
                 "_runs", "_say_early", "_size", "_sizes", "earlier", "run_ended", "timers", "watch",
                 "write_end")  # fmt: skip

    def __init__(self, core: Core, is_late: Callable[[Run, str], None], say_early: Callable[[], object]) -> None:
        self._core, self._events, self._clock, self._ledger = core, core.events, core.clock, core.ledger
        self._runs: dict[str, Run] = {}
        self._open: dict[str, Run] = {}
        self.find, self.open_run = self._runs.get, self._open.get
        self._sizes: dict[str, int] = {}  # about how many bytes each ended run takes, the oldest first
        self._size = self._in_a_row = 0
        self._keys: dict[str, str] = {}
        self.timers = RunTimers(core.events, core.clock, self._open, is_late)
        self._say_early = say_early
        self.watch: Callable[[Run], object] | None = None
        core.ledger.following |= {
            facts.RunBegan: self._began, facts.RunFinished: self._finished, facts.MessageDropped: self.tell_outcome,
            facts.MessageAbsorbed: self._absorbed, facts.MessagesJoined: self._joined,
        }  # fmt: skip

    @cached_property
    def logs(self) -> RunLogs:
        """Logs of the runs, which the first run or reader makes."""
        from spar.bus.run_log import RunLogs

        return RunLogs(self._events, self.wait)

    def follow(self, run_id: str, after: int = 0) -> RunStream:
        """Return the events of a run; see `RunLogs.follow`."""
        return self.logs.follow(run_id, after)

    def close(self) -> None:
        """End all reading of logs."""
        if "logs" in self.__dict__:
            self.logs.close()

    @property
    def open(self) -> int:
        """Return how many runs have not ended."""
        return len(self._open)

    def known(self, key: str | None) -> Receipt | None:
        """Return the receipt that was given for this idempotency key before; None without one."""
        run = self._runs.get(self._keys.get(key, "")) if key else None
        return Receipt(run.id, run.accepted_at) if run else None

    def restore(self, item: Item, results: Sequence[ActionResult], *, is_new: bool = False) -> Run:
        """Return a run that another process accepted, with the results of its cycles so far. Args: is_new: just now."""
        run = self._runs.get(item.id)
        if run is not None and run.ended is None:
            return run
        self._size -= self._sizes.pop(item.id, 0)
        run = self._admit(item, len(results), is_new=is_new)
        for result in results:
            run.note(result)
        return run

    def accept(self, item: Item) -> Run:
        """Add a new run to the open ones, publish that, and return it."""
        self.shed(KEPT - 1)
        run = self._admit(item)
        if self._events.wanted[RunAccepted]:
            self._events.publish(RunAccepted(run_id=run.id, session=run.session))
        return run

    def _admit(self, item: Item, results: int = 0, *, is_new: bool = True) -> Run:
        """Add a run to the open ones. Args: results: of its cycles in an earlier process."""
        settings, session = self._core.settings.runs, item.perception.session
        verifies = settings.verify_output and item.output is None
        self._ledger.add(facts.MessageAccepted(session=session, item=item, verifies=verifies, results=results))
        is_to_tell = settings.tell_errors and not (item.key or "").startswith(PURSUED)
        state = self._ledger.states[session].runs[item.id]
        run = Run(item.id, state, item.at, settings.reasoning, self._clock.monotonic(), is_to_tell=is_to_tell)
        if item.past:  # the transcript has its message, also if nobody reads the results of these cycles
            run.unwritten = ()
        self._runs[run.id] = self._open[run.id] = run
        if item.key:
            self._keys[item.key] = run.id
        run.log = self.logs.begin(run.id, run.session, is_new=is_new)
        if self.watch is None and state.chosen.verbose:
            self._say_early()
        if self.watch is not None:
            self.watch(run)
        return run

    @property
    def newest(self) -> Iterator[Run]:
        """Return the runs that are known here, the newest first."""
        return reversed(self._runs.values())

    def open_in(self, session: str) -> list[Run]:
        """Return the runs of a session that have not ended, absorbed ones included."""
        return [run for run in self._open.values() if run.session == session]

    def get(self, run_id: str) -> Run:
        """Return the run with this id. Raises: LookupError for an unknown run."""
        try:
            return self._runs[run_id]
        except KeyError:
            raise LookupError(f"no run {run_id!r}; runs are known by the run_id of their receipt") from None

    def _began(self, fact: facts.RunBegan) -> None:
        """Start the timer of a run, and publish that it began."""
        run = self._open[fact.run]
        now = run.started_at = self._clock.now()
        for other in run.state.absorbed:  # in an earlier process
            self._runs[other].started_at = now
        run.touched = self._clock.monotonic()
        run.started_mono = run.touched - run.state.waited  # its waits in an earlier process were before
        options = run.state.chosen
        chosen = {} if options is NO_OPTIONS or options.is_empty else {"options": options.given}
        self.timers.watch(run)
        self.tell_outcome(fact, now)
        if run.log is not None:
            run.log.add("lifecycle", now, {"phase": "start", "session": run.session, **chosen})
        if self._events.wanted[RunStarted]:
            self._events.publish(RunStarted(run_id=run.id, session=run.session, at=now))

    def tell_outcome(self, fact: facts.RunBegan | facts.MessagePlaced | facts.MessageDropped | facts.MessageAbsorbed,
                     at: datetime | None = None) -> None:  # fmt: skip
        """Publish what becomes of a message. Args: at: when that was decided; None: now."""
        run, at = self._open[fact.run], at or self._clock.now()
        if run.log is not None:
            run.log.add("lifecycle", at, {"phase": "outcome", "outcome": run.state.outcome})
        if self._events.wanted[MessageOutcome]:
            self._events.publish(MessageOutcome(run_id=run.id, outcome=run.state.outcome, at=at))

    def _absorbed(self, fact: facts.MessageAbsorbed) -> None:
        """Give a run the message of another one."""
        run, other = self._open[fact.into], self._open[fact.run]
        if fact.is_new:
            run.unwritten = (*run.unwritten, other.message)
        other.started_at = run.started_at
        if other.state.options.timeout is not None and run.started_at is not None:
            self.timers.watch(run)
        self.tell_outcome(fact)

    def _joined(self, fact: facts.MessagesJoined) -> None:
        """Have the transcript of a run begin with the message that all collected ones became."""
        self._open[fact.run].unwritten = (fact.message,)

    def judged(self, run: Run, cycle: Cycle, stop_reason: str, now: float) -> tuple[facts.CycleClosed, End | None]:
        """Return what a cycle brought to its run, and how the run ends with it; None while it continues.

        Args: stop_reason: as `closed` takes it; now: monotonic seconds.
        """
        run.touched = now
        run.note(cycle.result)
        fact = closed(cycle, run.id, stop_reason)
        elapsed = now - run.started_mono - run.state.waited - fact.waits
        return fact, judge(run.state, fact, elapsed, self.timers.limits)

    def used(self, run_id: str, usage: Mapping[str, int]) -> None:
        """Add to the usage of a run, by quantity; its status also counts what is told after its end."""
        if (run := self._runs.get(run_id)) is None:
            return
        state = self._ledger.states.get(run.session)
        if state is not None and run_id in state.runs:
            self._ledger.tell(facts.Spent(session=run.session, run=run_id, amounts=usage))
        else:  # its session has finished it
            used = {**run.state.used, **{name: run.state.used.get(name, 0) + more for name, more in usage.items()}}
            run.state = replace(run.state, used=used)
            run.ended = run.ended and replace(run.ended, usage=run.usage)
        run.touched = self._clock.monotonic()

    def finish(self, run: Run, end: End) -> None:
        """Finish a run, and those that it absorbed, in the state of its session. A second time changes nothing."""
        state = self._ledger.states.get(run.session)
        if state is not None and run.id in state.runs:
            self._ledger.tell(*finish(state, run.id, end))

    def _finished(self, fact: facts.RunFinished) -> None:
        """Journal the end of a run, if none of a cycle has it. One that ends with another has its usage."""
        run, state = self._runs[fact.run], self._ledger.states.get(fact.session)
        if (into := run.state.into) and (state is None or into not in state.runs):
            self._runs[into].share_usage(run)
        run.reply = run.reply_to(fact.end)
        if state is not None and run.id in state.items:
            self.write_end(run, run.status_at(fact.end, self._clock.now()))

    def end(self, run: Run, end: End) -> None:
        """End a run and those it absorbed, once. A second end changes nothing, nor one of another process's run."""
        shared = self._core.shared
        if self._open.get(run.id) is not run or not (shared is None or shared.has(run.session)):
            return
        from spar.data.json_safe import size_of  # which an agent without messages does not need

        self.finish(run, end)
        now = self._clock.now()
        ended = run.ended = run.status_at(end, now)
        run.reply = Reply(ended.reply, ended.silent)
        run.stop_timer()
        run.results = ()  # frees memory: ten thousand runs are kept
        self._open.pop(run.id, None)
        parts = run.state.message.content, ended.output, list(ended.errors)
        self._sizes[run.id] = size = 1_000 + len(ended.error) + sum(map(size_of, parts))
        self._size += size
        self.run_ended(run, end)
        ended = run.ended or ended  # a hook may have changed the reply
        run.sent = ()
        if run.log is not None:
            self.logs.end(ended, now)
            run.log = None
        if self._events.wanted[RunEnded]:
            self._events.publish(RunEnded(run_id=run.id, status=ended.status, error=ended.error, output=ended.output,
                                          reply=ended.reply, silent=ended.silent, usage=ended.usage))  # fmt: skip
        if run.has_ended is not None:
            run.has_ended.set()
        for other in [self._runs[part] for part in run.state.absorbed]:
            run.share_usage(other)
            if run.is_changed:
                other.change_reply(run.reply)
            self.end(other, end)
        self.shed(KEPT)

    async def wait(self, run_id: str, timeout: float | None) -> RunStatus:
        """Return the status of a run once it has ended, or after `timeout` seconds (None: no limit), which do not stop
        it. Raises: LookupError for an unknown run."""
        run = self._runs.get(run_id)
        if run is None:
            return await self.earlier(run_id, timeout)
        if run.ended is None and (timeout is None or timeout > 0):
            if run.has_ended is None:
                run.has_ended = Signal()
            self._in_a_row, began = 0, self._clock.monotonic()
            await run.has_ended.wait(self._clock, timeout)
            if run.ended is None and self._runs.get(run_id) is not run:  # another process goes on with it
                return await self.earlier(run_id, timeout and max(0.0, timeout - (self._clock.monotonic() - began)))
        elif timeout != 0 and self.is_others_turn(1):  # it has ended: nothing makes a caller wait who asks for many
            await OTHERS_TURN
        return run.status_at(None, self._clock.now())

    def is_others_turn(self, weight: int) -> bool:
        """Count work that made nobody wait; return whether other tasks are to have their turn now.

        Args: weight: how many looks at an ended run it is worth.
        """
        self._in_a_row += weight
        if self._in_a_row < SLICE:
            return False
        self._in_a_row = 0
        return True

    def forget(self, session: str) -> None:
        """Drop the ended runs of a session."""
        for run_id in [run.id for run in self._runs.values() if run.session == session and run.ended is not None]:
            self._size -= self._sizes.pop(run_id, 0)
            self._runs.pop(run_id)
            self.logs.forget(run_id)

    def let_go(self, is_others: Callable[[str], bool]) -> None:
        """Drop the runs of sessions that other processes go on with; who waits for them waits on. The end of one may
        not be on disk, and the other process has it go on.

        Args: is_others: returns whether a session is another process's.
        """
        for run in [run for run in self._runs.values() if is_others(run.session)]:
            del self._runs[run.id]
            self._size -= self._sizes.pop(run.id, 0)
            if self._open.pop(run.id, None) is None:
                continue
            run.stop_timer()
            self.logs.let_go(run.id)
            run.log = None
            if run.has_ended is not None:
                run.has_ended.set()

    def shed(self, most: int = KEPT // 10) -> int:
        """Drop the oldest ended runs beyond so many, to free memory; return how many."""
        before = len(self._runs)
        while len(self._sizes) > 1 and (
            len(self._runs) > most or self._size > KEPT_BYTES
        ):  # the newest ended run stays, since a caller may wait for it
            run_id = next(iter(self._sizes))
            self._size -= self._sizes.pop(run_id)
            self._runs.pop(run_id, None)
        while len(self._keys) > most:
            del self._keys[next(iter(self._keys))]
        return before - len(self._runs)
