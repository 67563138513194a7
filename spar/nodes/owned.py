"""Sessions that this process owns, when several processes (nodes) run one agent on one store.

The store says which sessions are this node's. Unfinished work of those that it gains goes on here, as after a start;
those that it loses end here, and nothing more of them is stored; those that it hands over end between two cycles. What
comes to this node for another one is in the store when it is accepted; its owner alone decides about it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from spar.attaching import Attaching
from spar.errors import SparError, TransientError
from spar.events import StateChanged
from spar.loop.cycle import STANDING
from spar.ports.nodes import NodeRequest, Nodes
from spar.records.runs import RunStatus
from spar.types import QueueMode

if TYPE_CHECKING:
    from spar.bus.run_log import RunEvent
    from spar.loop.core import PartOfOneNode
    from spar.nodes.parts import NodeParts
    from spar.nodes.requests import Doer
    from spar.session.sessions import Session

#: Kinds of requests to the owner of a session.
_ABORT: Final = "abort"
_PLACE: Final = "place"
_ANSWERED: Final = "answered"
#: Seconds until the next look at a run that this node takes over.
_FIRST_LOOK = 0.05
#: Seconds between two looks at answers to approvals.
_ANSWERS_EVERY = 2.0
#: Seconds between two looks at whether the agent is paused.
_PAUSE_EVERY = 2.0
#: Seconds after which work that failed to be taken over is looked for again.
_AGAIN_AFTER = 1.0
#: Seconds for which a node waits for the end of a run of another one, and between two questions for more events.
_WAITED_FOR, _FOLLOW_EVERY = 20.0, 0.2
#: More than all owners that a session can have, as the upper bits of a number that JSON readers know exactly.
_MOST_OWNERS = (1 << 21) - 1
#: Seconds until the next look at cycles that are to end.
_SOON = 0.05


class OwnedSessions:
    """Sessions that this node owns.

    `gained`, `lost`, `leaving` and `arrived` only note what happened, by name in `_due`: one task deals with it, in
    order.
    """

    def __init__(self, agent: Attaching) -> None:
        self._agent, self._core, self._services = agent, agent.core, agent.services
        self._nodes: Nodes | None = None
        self._news = asyncio.Event()
        self._due = set[str]()
        self._owned_sensors = False
        self._has_read: Callable[[str], bool]  # of a session: what others have left of it
        self._parts: NodeParts
        self._doers: dict[str, Doer] = {}
        self._requests: list[NodeRequest] = []
        self._ignore: Callable[[], None] | None = None

    # -- life

    async def load(self) -> None:
        """Begin to work on the sessions of this node alone, before unfinished work is read. Raises: ConfigError."""
        nodes = cast("Nodes", self._services.memory.nodes)
        await nodes.work_for(self._core.name)  # another agent would wait for ever for the sessions that are this node's
        from spar.nodes.parts import NodeParts

        self._nodes, self._parts, self._has_read = nodes, NodeParts(), nodes.since_now(self._core.name)
        self._news = asyncio.Event()
        self._core.shared = self._core.events.others = self
        self._services.conversations().records.is_shared = True
        self._owned_sensors = self.owns(STANDING)
        self._ignore = nodes.listen(self)

    def close(self) -> None:
        """Forget the nodes, because the store is closed next."""
        if self._ignore is not None:
            self._ignore()
        self._nodes = None

    async def serve(self) -> None:
        """Deal with what the store says, until the agent stops."""
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                await self._deal()
            except Exception as error:
                self._news.set()  # it is dealt with again
                if not isinstance(error, SparError):  # the store can be read
                    raise
                if self._works:
                    self._core.log.warning("sessions not taken over yet", agent=self._core.name, reason=str(error))
                await asyncio.sleep(_AGAIN_AFTER)

    async def _deal(self) -> None:
        while "lost" in self._due:
            await self._deal_with("lost", self._let_go)
        await self._deal_with("leaving", self._leave)
        if not self._works:  # it starts just now, or stops: its journal is not open, or is left to other nodes
            if "gained" in self._due or self._requests:
                self._deal_soon()
            return
        await self._deal_with("gained", self._take_over)
        requests, self._requests = self._requests, []
        if requests:
            try:
                await self._carry_out(requests)
            except BaseException:
                self._requests = [*requests, *self._requests]
                raise

    async def _deal_with(self, news: str, deal: Callable[[], Awaitable[None]]) -> None:
        """Deal with news of this name, if there are any; they stay if that fails."""
        if news in self._due:
            self._due.discard(news)
            try:
                await deal()
            except BaseException:
                self._due.add(news)
                raise

    @property
    def _works(self) -> bool:
        return self._core.state in ("running", "pausing", "paused")

    def _deal_soon(self) -> None:
        self._core.clock.call_at(self._core.clock.monotonic() + _SOON, self._news.set)

    @property
    def _known(self) -> Nodes:
        assert self._nodes is not None
        return self._nodes

    @property
    def _sessions(self) -> Any:
        return self._services.sessions

    @property
    def _recovery(self) -> Any:
        return self._services.conversations().parts.recovery

    def resumed(self, event: StateChanged) -> None:
        """Note that the agent goes on after a pause, in which work for its sessions may have come."""
        if event.new == "running" and event.old in ("pausing", "paused"):
            self.gained()

    # -- what the store says

    def gained(self) -> None:
        """Note that this node owns more sessions."""
        self._due.add("gained")
        self._news.set()

    def lost(self) -> None:
        """Note that sessions belong to another node already."""
        self._due.add("lost")
        for session in self._foreign(self._known.owns):  # at once: no further step of theirs may be done here
            session.cancel_phase("stop")
        self._parts.lose(self.has)
        self._news.set()

    def leaving(self) -> None:
        """Note that sessions are to be handed over."""
        self._due.add("leaving")
        self._news.set()

    def arrived(self, requests: Sequence[NodeRequest]) -> None:
        """Note requests of other nodes."""
        self._requests += [request for request in requests if request.agent == self._core.name]
        self._news.set()

    # -- sessions that come and go

    def _foreign(self, has: Callable[[str, str], bool]) -> list[Session]:
        """Return the sessions here that are not this node's. Args: has: says which are."""
        return [session for session in self._sessions.by_key.values() if not has(self._core.name, session.key)]

    async def _let_go(self) -> None:
        """Drop the sessions that this node has lost, once their cancelled cycles have ended."""
        owns = self._known.owns
        while any(session.runner.task is not None for session in self._foreign(owns)):
            await self._services.conversations().parts.requests.change(_SOON)
        self._drop(self._foreign(owns), owns)
        await self._parts.follow(self.owns)
        if "lost" in self._due:  # more of them by now, whose cycles have perhaps not ended
            return
        self._known.settled()
        await self._follow_sensors()

    async def _leave(self) -> None:
        """Hand over the sessions that are to leave and have no cycle; the others follow."""
        may_begin = self._known.may_begin
        leaving = self._foreign(may_begin)
        tasks = self._services.conversations().parts.requests
        busy = {session.key for session in leaving if session.runner.task is not None}
        busy |= self._parts.leave(self.has, self.owns, tasks.in_background)
        for session in leaving:
            session.wake.set()
        self._drop([session for session in leaving if session.key not in busy], may_begin, busy)
        await self._follow_sensors()
        await self._core.ledger.journal.safe()
        if "leaving" in self._due:  # more of them by now, which may have cycles
            return
        self._known.hand_over(self._core.name, busy)
        if busy:
            self._due.add("leaving")
            self._deal_soon()

    def _drop(self, sessions: list[Session], has: Callable[[str, str], bool], but: Collection[str] = ()) -> None:
        for session in sessions:
            self._sessions.drop(session)
        for key in [key for key in self._core.ledger.states if key not in but and not has(self._core.name, key)]:
            self._core.ledger.drop(key)
        self._services.runs.let_go(lambda key: key not in but and not has(self._core.name, key))

    async def _take_over(self) -> None:
        """Go on with the unfinished work of the sessions that this node owns."""
        journal, has_read = self._core.ledger.journal, self.since_now()
        await journal.load()
        self._services.conversations().records.begin()
        await self._services.control.take_over()
        await self._follow_sensors()
        await self._recovery.restart.recall(self.owns)
        await self._reconcile()
        self._has_read = has_read
        if self._core.state == "running":
            self._sessions.spawn_all()
        await self._parts.follow(self.owns)

    async def _reconcile(self, items: Collection[str] = ()) -> None:
        """Give the work of its sessions to them. Args: items: ids of accepted items; none: all work.

        Raises: TransientError if the journal could not be read now.
        """
        if not await self._recovery.restart.reconcile(items):
            raise TransientError("their work could not be read")

    async def _follow_sensors(self) -> None:
        """Have the sensors begin where their last owner ended, or close them."""
        if self._owned_sensors != (is_owned := self.owns(STANDING)):
            self._owned_sensors = is_owned
            await self._services.control.restart_module("sense", is_anew=True)

    # -- requests between nodes

    async def _carry_out(self, requests: list[NodeRequest]) -> None:
        bodies = [msgspec.json.decode(request.body) for request in requests]
        pairs = list(zip(requests, bodies, strict=True))
        # A run to abort or to place is an item, too. Without one a person has decided, which may concern any work.
        items = [body.get("run") or body.get("item") for request, body in pairs
                 if "run" in body or "session" not in body]  # fmt: skip
        if items:
            await self._reconcile(items if all(items) else ())
            if "gained" in self._due:  # these may be among what is to be taken over, and are dealt with after that
                self._requests = [*requests, *self._requests]
                return
        for request, body in pairs:
            if request.is_asked:
                tasks = self._services.conversations().parts.requests
                tasks.in_background(self._answer(request, body), f"{request.kind} for another node of")
            elif request.kind == _PLACE:
                run = self._services.runs.open_run(body["run"])
                if run is not None and run.state.place is not None:
                    self._services.conversations().submission.place(run, body["mode"])
        if any(request.kind == _ANSWERED for request in requests):
            await self._services.control.take_over()
        self._known.done([request for request in requests if not request.is_asked])

    async def _answer(self, request: NodeRequest, body: dict[str, Any]) -> None:
        """Do what another node asks for, and answer. If the session goes to another node meanwhile, that one does it
        again."""
        core, session, nodes = self._core, body["session"], self._nodes
        if nodes is None or not self.owns(session):
            if nodes is not None and nodes.owns(core.name, session):  # it leaves, or stays after all
                core.clock.call_at(core.clock.monotonic() + _AGAIN_AFTER, partial(self.arrived, [request]))
            return
        from spar.nodes.requests import answer

        async def safe() -> None:
            if self._nodes is nodes:  # else the memory is closed
                await self._core.ledger.journal.safe()

        text = await answer(self._doers.get(request.kind), request.kind, body, self._services.conversations(), safe)
        if self._nodes is nodes and nodes.owns(core.name, session) and self._works:
            nodes.answer(request, text)

    async def placed(self, session: str, run_id: str, mode: QueueMode) -> None:
        """Have the owner of a session place a message that was accepted here."""
        if mode not in ("followup", "collect"):  # these are the places of work that the owner reads
            await self._post(session, _PLACE, {"run": run_id, "mode": mode})

    async def abort(self, run_id: str) -> None:
        """Have the owner of a run abort it. Raises: LookupError."""
        item, answer = await self._core.ledger.journal.views.run(self._core.name, run_id)
        if item is not None:
            await self.ask(item.session, _ABORT, run=run_id)
        elif answer is None:
            raise LookupError(f"no run {run_id!r}; runs are known by the run_id of their receipt")

    async def session_of(self, id: str) -> str | None:
        """Return the session of a run or of a recorded cycle; None for another id."""
        return await self._known.session_of(self._core.name, id)

    async def ask(self, session: str, kind: str, **given: Any) -> Any:
        """Have the owner of a session do something, and return its result. Raises: as if it was done here."""
        from spar.nodes.requests import result_of

        body = msgspec.json.encode({"session": session, **given}).decode()
        return result_of(await self._known.ask(self._core.name, session, kind, body))

    async def answered(self, session: str) -> None:
        """Have the owner of a session read the answer to an approval."""
        with suppress(SparError):  # it looks by itself every other second
            await self._post(session, _ANSWERED, {"session": session})

    async def _post(self, session: str, kind: str, body: dict[str, Any]) -> None:
        await self._known.post(self._core.name, session, kind, msgspec.json.encode(body).decode())

    async def every(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        """Do some work again and again, also after the store could not be read."""
        while True:
            await self._core.clock.sleep(seconds)
            with suppress(SparError, TimeoutError):
                await work()

    async def read_answers(self) -> None:
        """Have the actor read what people have answered on other nodes."""
        if self._core.state == "running":
            await self._services.control.take_over()

    # -- events of runs

    def number_of(self, session: str) -> int:
        """Return the upper bits of the numbers of events of runs; "": those of the end of any run."""
        return _MOST_OWNERS if self._nodes is None or not session else self._nodes.epoch_of(self._core.name, session)

    async def follow(self, run_id: str, after: int) -> list[RunEvent] | None:
        """Return the next events of a run of another node, none if there are none for some seconds; None for a run of
        this node, and for an unknown one."""
        session = None if self._nodes is None else await self.session_of(run_id)
        if session is None:
            return None
        clock, runs = self._core.clock, self._services.runs
        if self.owns(session):
            if runs.find(run_id) is None and (await self._recovery.status_of(run_id)).status == "timeout":
                await clock.sleep(_FIRST_LOOK)  # it is being taken over
                return []
            return None
        try:
            from spar.nodes.requests import events_of

            events = events_of(await self.ask(session, "events", run=run_id, after=after))
        except TransientError:
            await clock.sleep(_AGAIN_AFTER)
            return []
        if events and not events[-1].is_terminal:
            await clock.sleep(_FOLLOW_EVERY)  # more come at once
        return events

    # -- what the agent asks

    async def hold(self, session: str, part: PartOfOneNode) -> None:
        """Have a part run where a session is, now if that is here. Raises: as `PartOfOneNode.begin`."""
        await self._parts.hold(session, part, self.owns)

    def on_request(self, kind: str, do: Doer) -> None:
        """Have a function called with what other nodes ask the owner of a session for, under this kind."""
        self._doers[kind] = do

    def owns(self, session: str) -> bool:
        """Return whether this node may begin a cycle of a session."""
        return self._nodes is None or self._nodes.may_begin(self._core.name, session)

    def has(self, session: str) -> bool:
        """Return whether this node has a session, also one that it is to hand over."""
        return self._nodes is None or self._nodes.owns(self._core.name, session)

    def has_read(self, session: str) -> bool:
        """Return whether this node has read what others have left of a session, which goes first."""
        return self._nodes is None or self._has_read(session)

    def since_now(self) -> Callable[[str], bool]:
        """Return a function that returns whether this node has had a session without a break since this call."""
        return self._known.since_now(self._core.name)

    def is_suspect(self, session: str) -> bool:
        """Return whether work of a session may have ended several nodes."""
        return self._nodes is not None and self._nodes.is_suspect(self._core.name, session)

    async def _session_of(self, run_id: str) -> str:
        with suppress(TransientError):
            return await self.session_of(run_id) or ""
        return ""

    async def _until_ended(self, session: str, run_id: str, seconds: float) -> None:
        """Wait at most so many seconds for the end of a run of another node."""
        try:
            async with asyncio.timeout(seconds):
                await self.ask(session, "wait", run=run_id, seconds=seconds)
        except TransientError:
            await self._core.clock.sleep(min(seconds, _AGAIN_AFTER))
        except TimeoutError:
            pass

    async def wait(self, run_id: str, timeout: float | None) -> RunStatus:
        """Return the status of a run of another node once it has ended, or after `timeout` seconds.

        Raises: LookupError for an unknown run.
        """
        clock = self._core.clock
        end = float("inf") if timeout is None else clock.monotonic() + timeout
        while True:
            left = end - clock.monotonic()
            try:
                status: RunStatus = await self._recovery.status_of(run_id)
            except TransientError:  # the store cannot be read now
                if left <= 0:
                    raise
                await clock.sleep(min(left, _AGAIN_AFTER))
                continue
            if status.status != "timeout" or left <= 0:
                return status
            session = await self._session_of(run_id)
            if self.owns(session):  # it is being taken over
                await clock.sleep(min(left, _FIRST_LOOK))
            else:
                await self._until_ended(session, run_id, min(left, _WAITED_FOR))
            if (run := self._services.runs.find(run_id)) is not None:  # this node has taken it over
                return cast(
                    RunStatus, await self._services.runs.wait(run.id, None if timeout is None else max(0.0, left))
                )


def attach(agent: Attaching) -> OwnedSessions:
    """Attach the sessions that this node owns, and return them."""
    owned = OwnedSessions(agent)
    agent.load(owned.load)
    agent.on(StateChanged, owned.resumed)
    agent.task("nodes", owned.serve)
    control = agent.services.control
    agent.task("answers", partial(owned.every, _ANSWERS_EVERY, owned.read_answers))
    agent.task("pause", partial(owned.every, _PAUSE_EVERY, control.follow_pause))
    agent.close(owned.close)
    return owned
