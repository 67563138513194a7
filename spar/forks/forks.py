"""Forks of sessions: a copy of a conversation that goes on by itself, whose calls with effects ask people.

The copy has the entries of the transcript, in which the results of calls stand: nothing is called again. It has a key,
runs and counts of its own, so the original does not notice it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count, groupby
from operator import attrgetter
from typing import Any, Final

from spar.attaching import Attaching
from spar.errors import ConflictError
from spar.hooks import Decision, HookContext
from spar.journal.state.agent_state import AgentState
from spar.loop.core import Core
from spar.loop.setup import Setup
from spar.ports.any_part import has
from spar.ports.nodes import nodes_of
from spar.ports.phases import OptionalTool
from spar.ports.store import DurableStore, TranscriptStore
from spar.records.session import Origin, SessionRecord
from spar.records.transcript import Entry
from spar.session.parts import Conversing
from spar.types import Call, CycleRecord, replace

#: The way by which a forked session came into being, in its origin.
DOOR: Final = "fork"
#: The owner of the small rows with the keys of forked sessions.
_OWNER: Final = "forks"
#: Entries that are read at once, and cycles in a page.
_PAGE, _CYCLES = 10_000, 1_000


class Forks:
    """Forks of the sessions of one agent. Args: conversations: returns the parts of its messages."""

    __slots__ = ("_conversations", "_core", "_is_guarding", "_making", "_setup", "_state")

    def __init__(self, core: Core, setup: Setup, state: AgentState, conversations: Callable[[], Conversing]) -> None:
        self._core, self._setup, self._state, self._conversations = core, setup, state, conversations
        self._is_guarding = False
        self._making = set[str]()  # names of copies that are being made

    async def open(self) -> None:
        """Ask about the calls of forked sessions, if there are some of earlier processes or may be some of other
        nodes."""
        rows, sessions = self._state.rows_of(_OWNER), self._conversations().records.store
        if nodes_of(self._state.memory) is not None:
            self._guard()
        elif rows is not None and sessions is not None:
            for key in await rows.list():
                if await self._conversations().records.find(key) is not None:
                    self._guard()
                else:  # it was forgotten, or its copying was cut off
                    await sessions.forget(self._core.name, key)
                    rows.drop(key)

    async def fork(self, key: str, at: str = "", name: str = "", by: str = "") -> SessionRecord:
        """Copy a session under another key and return the copy.

        Args: at: a cycle's id or a unique beginning of it, up to whose end the conversation is copied; "": all of it;
            name: the key of the copy; "": one is made.
        Raises: LookupError for an unknown session or cycle, ConflictError for a cycle of another session, a name that
            is taken, or a memory that keeps no sessions; TransientError.
        """
        state = self._state
        records, store, rows = self._conversations().records, state.transcripts, state.rows_of(_OWNER)
        original, sessions = await records.get(key), records.store
        if store is None or sessions is None or rows is None:
            raise ConflictError("the memory keeps no sessions: none of them can be forked")
        entries = await self._entries(store, key)
        if at:
            entries = await self._until(await self._cycle(key, at), entries)
        begun = max((number for number, entry in enumerate(entries, 1) if entry.kind == "reset"), default=0)
        name = name or await self._free_name(key)
        if (owner := self._core.owner_of(name)) is not None:
            await owner.ask(name, "fork", key=key, at=at, by=by)
            return await records.get(name)
        taken = ConflictError(f"a session {name!r:.300} exists already: choose another name")
        if name in self._making:
            raise taken
        self._making.add(name)
        try:
            async with records.forgetting.refusing(name):
                is_begun = name in await rows.list()  # if it has no record, its copying was cut off
                if await records.find(name) is not None:
                    raise taken
                if is_begun:
                    await sessions.forget(self._core.name, name)
                elif await store.tail(self._core.name, name, 1):
                    raise taken
                rows.keep(name, {"of": key, "at": at, "by": by})
                self._guard()
                await self._write(store, name, entries[begun:])
                record = await records.change(name, title=original.title, defaults=original.defaults,
                                              origin=Origin(DOOR, key, by))  # fmt: skip
        finally:
            self._making.discard(name)
        self._core.log.info("session forked", agent=self._core.name, session=key, fork=name, by=by,
                                  entries=len(entries) - begun)  # fmt: skip
        return record

    async def _free_name(self, key: str) -> str:
        """Return a key that no session has."""
        for number in count(1):
            name = f"{key[:240]}-fork{number}"
            if name not in self._making and await self._conversations().records.find(name) is None:
                return name
        raise AssertionError  # there is always a next number

    # -- the conversation

    async def _entries(self, store: TranscriptStore, key: str) -> Sequence[Entry]:
        """Return all entries of a session, the oldest first."""
        agent, entries = self._core.name, list[Entry]()
        while page := await store.tail(agent, key, _PAGE, entries[0].seq if entries else None):
            entries = [*page, *entries]
        return entries

    async def _cycle(self, key: str, id: str) -> CycleRecord:
        """Return a recorded cycle of a session. Raises: LookupError, ConflictError."""
        memory: DurableStore = self._state.memory
        cycle = await memory.cycle(id) if has(memory, DurableStore.cycles, DurableStore.cycle) else None
        if cycle is None:
            raise LookupError(f"no cycle {id!r:.100} is recorded: there was none, or it is not kept any more; "
                              f"spar cycles list --session {key} shows those that are")  # fmt: skip
        if cycle.session != key:
            raise ConflictError(f"cycle {cycle.cycle_id} is of session {cycle.session!r:.300}, not of {key!r:.300}")
        return cycle

    async def _until(self, cycle: CycleRecord, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Return the entries up to the end of a cycle. Raises: ConflictError if its own are gone."""
        memory, later = self._state.memory, None
        page = await memory.cycles(_CYCLES, session=cycle.session, since=cycle.started_at)
        while page and page[-1]["cycle_id"] != cycle.cycle_id:
            later = page[-1]["started_at"]
            page = await memory.cycles(_CYCLES, before=page[-1]["cycle_id"], session=cycle.session,
                                       since=cycle.started_at)  # fmt: skip
        if len(page) > 1:
            later = page[-2]["started_at"]
        ends = [number for number, entry in enumerate(entries, 1)
                if entry.kind in ("turn", "end", "reset") and (later is None or entry.at < later)]  # fmt: skip
        until = entries[: ends[-1]] if ends else ()
        ids = {result.call.id for result in cycle.result.results} if cycle.result is not None else set()
        if ids and not any(ids.intersection(entry.call_ids) for entry in until):
            raise ConflictError(f"what was said in cycle {cycle.cycle_id} is not kept any more: fork at a later one")
        return until

    async def _write(self, store: TranscriptStore, name: str, entries: Sequence[Entry]) -> None:
        """Add entries to the transcript of a fork, each run under an id of its own."""
        core, ids = self._core, dict[str, str]()
        for run, of_run in groupby(_in_order(entries), attrgetter("run_id")):
            id = ids.setdefault(run, core.clock.new_id())
            copies = [replace(entry, run_id=id, seq=0) for entry in of_run]
            await store.append(core.name, name, id, copies)

    # -- the calls

    def _guard(self) -> None:
        """Ask about calls from now on; an agent without a fork does not pay for it."""
        if not self._is_guarding:
            self._is_guarding = True
            self._core.hooks.add("before_call", self.ask)

    async def ask(self, context: HookContext) -> Decision | None:
        """Require approval for a call with effects in a forked session; no grant from before the fork answers it."""
        if self._core.settings.fork.effects == "allow" or not isinstance(context.value, Call):
            return None
        record, call = await self._conversations().records.find(context.session), context.value
        if record is None or record.origin.door != DOOR:
            return None
        tool: Any = self._setup.tools().get(call.tool)
        if has(tool, OptionalTool.effect_of) and tool.effect_of(call.params) == "read":
            return None
        why = f"session {context.session!r:.100} is a fork of {record.origin.channel!r:.100}"
        why = f"{why}: its calls with effects are asked about (fork.effects)"
        return Decision.require_approval(why, record.created_at)


def _in_order(entries: Sequence[Entry]) -> list[Entry]:
    """Return entries with each summary before those that it kept: their numbers, by which it names them, change."""
    ordered = list[Entry]()
    for entry in entries:
        first = entry.body.get("first_kept") if entry.kind == "compaction" else None
        if isinstance(first, int):
            entry = replace(entry, body={key: value for key, value in entry.body.items() if key != "first_kept"})
            place = next((number for number, known in enumerate(ordered) if known.seq >= first), len(ordered))
            ordered.insert(place, entry)
        else:
            ordered.append(entry)
    return ordered


def attach(agent: Attaching) -> Forks:
    """Attach the forks of the agent's sessions, and return them."""
    services = agent.services
    forks = Forks(agent.core, services.setup, services.state, services.conversations)
    agent.load(forks.open)
    return forks
