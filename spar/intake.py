"""What an agent is given to do: messages and perceptions, from any thread, and runs that are called off again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from spar import defaults
from spar.errors import InboxFullError, NoRoomError
from spar.hooks import HookContext
from spar.inbox import MODES, USUAL_CAP, Mode
from spar.journal import Item
from spar.optional_ports import Hears, offers
from spar.run import OUTPUT, End, Receipt, Run
from spar.runs import PURSUED
from spar.types import Perception, replace

if TYPE_CHECKING:
    from spar.agent import Agent
    from spar.lane import Lane

#: Perceptions that wait for a lane's cycle; more are refused with a clear error.
INBOX_LIMIT = 1000
#: Characters of a session's name and of an idempotency key.
LONGEST_NAME = 256
#: Levels of the JSON schema of an answer.
DEEPEST_SCHEMA = 64
#: Sessions that may have something to do; a message for one more is refused.
SESSIONS_LIMIT = 10_000


def check_name(what: str, name: str) -> None:
    """Raises: ValueError for a name that is longer than anybody needs; it is kept as long as what it names."""
    if len(name) > LONGEST_NAME:
        raise ValueError(f"{what} has at most {LONGEST_NAME} characters, found {len(name)}")


def check_depth(schema: Mapping[str, Any]) -> None:
    """Raises: ValueError for a schema of an answer that is nested more deeply than `DEEPEST_SCHEMA`."""
    level: list[Any] = [schema]
    for _ in range(DEEPEST_SCHEMA):
        level = [item for value in level if isinstance(value, (Mapping, list, tuple))
                 for item in (value.values() if isinstance(value, Mapping) else value)]  # fmt: skip
        if not level:
            return
    raise ValueError(f"output is nested too deeply: a schema has at most {DEEPEST_SCHEMA} levels")


class Intake:
    """Puts what comes into the lane of its session. `refused` counts the perceptions there was no room for."""

    __slots__ = ("_agent", "refused")

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.refused = 0

    async def submit(self, message: str | Perception, session: str, mode: str | None, key: str | None,
                     output: Mapping[str, Any] | None = None) -> Receipt:  # fmt: skip
        agent = self._agent
        text = message.text if isinstance(message, Perception) else message
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"a message must be text that is not empty, found {text!r}")
        if not isinstance(session, str) or not session.strip():
            raise ValueError(f"a session's key must be text that is not empty, found {session!r}")
        check_name("a session's name", session)
        check_name("an idempotency key", key or "")
        mode = agent.settings.runs.queue_mode if mode is None else mode
        if mode not in MODES:
            raise ValueError(f"mode {mode!r:.100} is not known; known: {', '.join(MODES)}")
        if output is not None and not isinstance(output, Mapping):
            raise TypeError(f"output is the JSON schema of the answer, found {type(output).__name__}")
        if output is not None:
            check_depth(output)
        agent.lifecycle.demand("submit")
        agent.recovery.demand_ready("submit")
        if (receipt := agent.runs.known(key)) is not None:
            return receipt
        if isinstance(message, Perception):
            perception = message if message.session == session else replace(message, session=session)
        else:
            sense = agent.modules["sense"].part
            perception = sense.hear(text, session) if offers(sense, Hears) else defaults.hear(text, session)
        if output is not None:
            perception = replace(perception, attributes={**perception.attributes, OUTPUT: dict(output)})
        perception = await self._received(perception)
        agent.lifecycle.demand("submit")  # time has passed if hooks were asked
        agent.recovery.demand_ready("submit")
        if (receipt := agent.runs.known(key)) is not None:
            return receipt
        self._demand_room(perception.session)
        run = agent.runs.made(perception, key)
        if agent.recovery.work.journal is not None:
            item = Item(run.id, perception, "run", perception.session, key, run.accepted_at)
            kept, is_new = await agent.recovery.accept(item)
            if not is_new:
                return Receipt(kept.id, kept.at)
        agent.runs.accept(run, key)
        if agent.state in ("stopping", "stopped"):  # served at the next start; no end is kept any more of what is ended
            agent.sessions.lane(run.session).queue(run)
        else:
            self._place(run, mode)
        return Receipt(run.id, run.accepted_at)

    def _place(self, run: Run, mode: Mode) -> None:
        """Have the message wait in its session's lane, in the place of others if too many wait, and tell its sender."""
        agent, settings = self._agent, self._agent.settings.runs
        lane = agent.sessions.lane(run.session)
        cap = USUAL_CAP[mode] if settings.cap == "auto" else settings.cap
        if lane.inbox.messages >= cap:
            if settings.drop == "new":
                self._drop(run, cap, "it was not taken")
                return
            is_summed_up = settings.drop == "summarize"
            for gone in lane.inbox.make_room(cap, is_summed_up=is_summed_up):
                self._drop(gone, cap, "what it said is summed up for the next run" if is_summed_up else "it went")
            if not lane.is_busy:
                lane.rehouse()
        if mode == "interrupt" and (superseded := lane.inbox.take_superseded()) is not None:
            agent.runs.end(superseded, End("error", "superseded"))
        before, is_busy = lane.run or lane.interrupted.first_run(), lane.is_busy
        if lane.queue(run, mode) == "front" and before is not None:
            agent.runs.say(run, "interrupting")
            agent.requests.in_background(self._call_off(before, "interrupted by a newer message"), "ending of a run")
        elif is_busy:
            agent.runs.say(run, "queued")
        agent.sessions.spawn(lane)

    def _drop(self, run: Run, cap: int, what: str) -> None:
        agent = self._agent
        agent.runs.say(run, "dropped")
        agent.runs.end(run, End("error", f"dropped: {cap} messages of its session waited (runs.cap), {what}"))

    async def accept(self, perception: Perception) -> bool:
        """Take a perception in so that it is not lost any more; False for one that was taken in before."""
        agent = self._agent
        if not isinstance(perception, Perception):
            raise TypeError(f"accept takes a Perception, found {perception!r:.100}")
        check_name("a session's name", perception.session)
        agent.lifecycle.demand("submit", "accept")
        agent.recovery.demand_ready("accept")
        try:
            self._demand_room(perception.session)
        except InboxFullError:
            self.refused += 1
            raise
        if agent.recovery.work.journal is None:
            return self.push(perception)
        at = agent.clock.now()
        _, is_new = await agent.recovery.accept(Item(perception.id, perception, session=perception.session, at=at))
        if is_new:
            self._hand_over(perception)
        return is_new

    async def _received(self, perception: Perception) -> Perception:
        """The message as the hooks leave it. Raises: PermissionError when one refuses it."""
        agent = self._agent
        if not agent.hooks.at("message_received"):
            return perception
        outcome = await agent.reports.asked(HookContext("message_received", agent.name, perception, perception.session))
        if outcome.denied:
            raise PermissionError(f"the message was refused: {outcome.reason or 'by a hook'}")
        value = outcome.value
        received: Perception = replace(perception, content=value) if isinstance(value, str) else value
        return received

    def push(self, perception: Perception) -> bool:
        if not isinstance(perception, Perception):
            raise TypeError(f"push takes a Perception, found {perception!r}")
        agent = self._agent
        is_kept = agent.recovery.work.journal is not None or not agent.keeping.has_journal
        if not is_kept or self._refusal() or self._full(perception.session) is not None:
            self.refused += 1
            return False
        if agent.requests.is_foreign_thread:
            return agent.requests.in_loop(lambda: self.push(perception))
        if agent.recovery.work.journal is not None:
            item = Item(perception.id, perception, session=perception.session, at=agent.clock.now())
            if not agent.recovery.take_in(item):
                return True
        self._hand_over(perception)
        return True

    def _hand_over(self, perception: Perception) -> None:
        lane = self._agent.sessions.lane(perception.session)
        lane.push(perception)
        self._agent.sessions.spawn(lane)

    def _demand_room(self, session: str) -> None:
        """Raises: NoRoomError when it could not be kept, InboxFullError when too much waits."""
        if refusal := self._refusal():
            raise NoRoomError(refusal)
        if (full := self._full(session)) is not None:
            raise InboxFullError(f"{full}; try again later")

    def _refusal(self) -> str:
        """Why nothing more can be kept now; empty when it can. From any thread."""
        return self._agent.health.pressure.refusal() or self._agent.recovery.refusal

    def _full(self, session: str) -> str | None:
        """Why nothing more can wait for this session; None if there is room. From any thread."""
        lanes = self._agent.lanes
        lane = lanes.get(session)
        if lane is not None and lane.waiting >= INBOX_LIMIT:
            return f"session {session!r} already has {lane.waiting} messages waiting"
        if lane is None and len(lanes) >= SESSIONS_LIMIT:
            return f"{SESSIONS_LIMIT} sessions already wait for their turn"
        return None

    async def abort(self, run_id: str) -> None:
        run = self._agent.runs.get(run_id)
        if run.status is None:
            self._agent.recovery.demand_ready("abort a run")
            lane = self._agent.sessions.lane(run.session)
            await self._call_off(run, "aborted")
            if run.status is None and not self._agent.requests.is_inside:
                self._agent.recovery.demand_ready("abort a run")  # a stop came first
            await lane.turns.abandon(run_id)

    async def pursue(self, perception: Perception) -> str:
        """Make a run of what was noticed, once; its id. Raises: as `submit`.

        Who was noticed does not say which form the answer has.
        """
        parts = sorted(each.id for each in perception.evidence or (perception,))
        key = f"{PURSUED}{blake2b(' '.join(parts).encode('utf-8', 'replace'), digest_size=16).hexdigest()}"
        if OUTPUT in perception.attributes:
            said = {name: value for name, value in perception.attributes.items() if name != OUTPUT}
            perception = replace(perception, attributes=said)
        return (await self.submit(perception, perception.session, "followup", key)).run_id

    def late(self, run: Run, why: str) -> None:
        """A run has taken as long as it may; one that does not go on now is judged after its next cycle."""
        agent = self._agent
        if agent.state in ("running", "pausing"):
            agent.requests.in_background(self._call_off(run, why), "ending of a run")

    async def _call_off(self, run: Run, reason: str) -> None:
        """End a run with this error, wherever it is: in the queue, in a phase, between two cycles."""
        agent = self._agent
        lane, end = agent.sessions.lane(run.session), End("error", reason)
        if lane.is_answering(run):  # it is over, and its answer stands
            if not agent.requests.is_inside:
                await agent.runs.wait(run.id, None)
            return
        is_waiting = lane.inbox.drop(run)
        if is_waiting and lane.is_asking:  # a hook is asked about the cycle that was to begin it
            lane.cut(reason)
        if not is_waiting and lane.cycle is not None and lane.is_pursuing(run):
            if lane.stop_reason:
                lane.stop_reason = reason  # cut already, for another reason
            else:
                lane.cut(reason)
            grace = agent.steps[lane.cycle.phase].grace
            if (await agent.runs.wait(run.id, grace)).status == "timeout":
                lane.strand.abandon()
                await agent.runs.wait(run.id, grace)
            if run.status is None and not agent.recovery.is_ready:
                return  # a stop came first, and its end could not be kept: it goes on at the next start
        if run.into is not None:  # it has become a part of another one, which goes on
            run.into.absorbed = tuple(other for other in run.into.absorbed if other is not run)
        lane.leave(run)
        ending = self._end(run, end, lane)
        if run.status is not None or agent.recovery.work.journal is None:  # then there is nothing to wait for
            await ending
        else:  # no lane ends it any more: it ends here, also when whoever called it off does not wait for that
            await asyncio.shield(agent.requests.in_background(ending, "ending of a run"))

    async def _end(self, run: Run, end: End, lane: Lane) -> None:
        """End a run that its session's lane has left; people are told once it is on disk."""
        agent = self._agent
        await agent.recovery.ends.keep(run, end)
        agent.runs.end(run, end)
        agent.sessions.left(lane)
