"""What an agent is given to do: messages and perceptions, from any thread, and runs that are called off again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spar import defaults
from spar.errors import InboxFullError, NoRoomError
from spar.hooks import HookContext
from spar.journal import Item
from spar.runs import End, Receipt, Run, too_long
from spar.types import Perception, replace

if TYPE_CHECKING:
    from spar.agent import Agent

#: Perceptions that wait for a lane's cycle; more are refused with a clear error.
INBOX_LIMIT = 1000
#: Sessions that may have something to do; a message for one more is refused.
SESSIONS_LIMIT = 10_000


class Intake:
    """Puts what comes into the lane of its session. `refused` counts the perceptions there was no room for."""

    __slots__ = ("_agent", "refused")

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.refused = 0

    async def submit(self, message: str | Perception, session: str, mode: str | None, key: str | None) -> Receipt:
        agent = self._agent
        text = message.text if isinstance(message, Perception) else message
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"a message must be text that is not empty, found {text!r}")
        if not isinstance(session, str) or not session.strip():
            raise ValueError(f"a session's key must be text that is not empty, found {session!r}")
        if mode not in (None, "followup"):
            raise ValueError(f"mode {mode!r} is not known to this version; known: followup")
        agent.lifecycle.demand("submit")
        if (receipt := agent.runs.known(key)) is not None:
            return receipt
        if isinstance(message, Perception):
            perception = message if message.session == session else replace(message, session=session)
        else:
            hear = getattr(agent.modules["sense"].part, "hear", None) or defaults.hear
            perception = hear(text, session)
        perception = await self._received(perception)
        agent.lifecycle.demand("submit")  # time has passed if hooks were asked
        if (receipt := agent.runs.known(key)) is not None:
            return receipt
        self._demand_room(perception.session)
        run = agent.runs.made(perception)
        if agent.recovery.journal is not None:
            item = Item(run.id, perception, "run", perception.session, key, run.accepted_at)
            kept, is_new = await agent.recovery.accept(item)
            if not is_new:
                return Receipt(kept.id, kept.at)
        # Stopped meanwhile, it is served at the next start.
        agent.runs.accept(run, key)
        lane = agent.sessions.lane(perception.session)
        lane.queue(run)
        agent.sessions.spawn(lane)
        return Receipt(run.id, run.accepted_at)

    async def accept(self, perception: Perception) -> bool:
        """Take a perception in so that it is not lost any more; False for one that was taken in before."""
        agent = self._agent
        if not isinstance(perception, Perception):
            raise TypeError(f"accept takes a Perception, found {perception!r:.100}")
        agent.lifecycle.demand("submit", "accept")
        try:
            self._demand_room(perception.session)
        except InboxFullError:
            self.refused += 1
            raise
        if agent.recovery.journal is None:
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
        if self._refusal() or self._full(perception.session) is not None:
            self.refused += 1
            return False
        agent = self._agent
        if agent.requests.is_foreign_thread:
            return agent.requests.in_loop(lambda: self.push(perception))
        if agent.recovery.journal is not None:
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
            lane = self._agent.sessions.lane(run.session)
            await self._call_off(run, "aborted")
            await lane.turns.abandon(run_id)

    def late(self, run: Run) -> None:
        """A run has taken as long as it may; one that does not go on now is judged after its next cycle."""
        agent = self._agent
        if agent.state in ("running", "pausing"):
            agent.requests.in_background(self._call_off(run, too_long(agent.runs.timeout)), "ending of a run")

    async def _call_off(self, run: Run, reason: str) -> None:
        """End a run with this error, wherever it is: in the queue, in a phase, between two cycles."""
        agent = self._agent
        lane, end = agent.sessions.lane(run.session), End("error", reason)
        if not lane.drop(run) and lane.run is run and lane.cycle is not None:
            if lane.stop_reason:
                lane.stop_reason = reason  # cut already, for another reason
            else:
                lane.cut(reason)
            grace = agent.steps[lane.cycle.phase].grace
            if (await agent.runs.wait(run.id, grace)).status == "timeout":
                lane.strand.abandon()
                await agent.runs.wait(run.id, grace)
        if lane.run is run:
            lane.run = None
        agent.runs.end(run, end)
        agent.sessions.retire(lane)
