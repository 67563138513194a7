"""The agent as a state machine that hypothesis plays: any order of requests, faults, time and deaths.

The simulations draw what happens from a seed; here hypothesis chooses it, looks for what breaks, and makes the shortest
story of it. What must hold is the same (`invariants`), and in the end all must be well again (`Service.heal`). The gate
plays a few short stories; `SPAR_STORIES=500` plays that many long ones.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from contextlib import ExitStack
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from spar.records.approvals import Decision
from tests.simulation.loop import Killed, running
from tests.simulation.service import SESSIONS, Service, folder

STORIES = int(os.environ.get("SPAR_STORIES", "0"))
#: What may be made to fail, by the places where `World.trouble` asks and the ways in which it lets them fail.
PLACES = ("planner", "stream", "tool.read", "tool.put", "tool.send", "tool.pay", "tool.send.after", "eye.poll",
          "ear.open", "eye.close", "hook.before_cycle", "hook.before_call", "handler.async")  # fmt: skip
WAYS = (
    "slow",
    "raises",
    "transient",
    "permanent",
    "group",
    "cancels_itself",
    "hangs",
    "ignores_cancellation",
    "garbage",
)
sessions = st.sampled_from(SESSIONS)


class AgentMachine(RuleBasedStateMachine):
    """One agent with its executor, process after process."""

    @initialize(seed=st.integers(0, 2**16))
    def begin(self, seed: int) -> None:
        self._all = ExitStack()
        self._process = ExitStack()
        self.service = Service(seed, self._all.enter_context(folder()))
        self.service.world.dice.only = set()
        self._boot()

    def _boot(self) -> None:
        service = self.service
        self._loop = self._process.enter_context(running(service.loop_of_next()))
        self._play(self._booted())

    async def _booted(self) -> None:
        self.service.boot(self._loop)
        await self.service.ask("start", self.service.agent.start())

    def _play(self, work: Coroutine[Any, Any, Any]) -> bool:
        """Let something happen in the loop of this process; False when it died meanwhile and another one runs now."""
        try:
            self._loop.run_until_complete(work)
        except Killed:
            self.service.killed()
            self._over()
            self._boot()
            return False
        return True

    def _over(self) -> None:
        self.service.gone()
        self._process.close()
        self.service.demand_no_threads()

    # -- what may happen

    @rule(session=sessions)
    def emit(self, session: str) -> None:
        self._play(self._pushed(session))

    @rule(session=sessions, is_keyed=st.booleans())
    def submit(self, session: str, is_keyed: bool) -> None:
        self._play(self.service.submit(session, self.service.world.token("key") if is_keyed else None))

    @precondition(lambda self: any(key for _, key in self.service.receipts))
    @rule(session=sessions, data=st.data())
    def dup(self, session: str, data: st.DataObject) -> None:
        keys = [key for _, key in self.service.receipts if key]
        self._play(self.service.submit(session, data.draw(st.sampled_from(keys[-5:]))))

    @rule(decision=st.sampled_from(["approve", "deny"]))
    def answer(self, decision: Decision) -> None:
        self._play(self._asked("answer", self.service.answer(lambda: decision)))

    @precondition(lambda self: self.service.is_asking())
    @rule()
    def expire(self) -> None:
        self._play(asyncio.sleep(40.0))

    @rule(seconds=st.sampled_from([0.0, 0.001, 0.5, 1.0, 3.0, 7.0]))
    def tick(self, seconds: float) -> None:
        self._play(asyncio.sleep(seconds))

    @precondition(lambda self: self.service.receipts)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        run_id, _ = data.draw(st.sampled_from(self.service.receipts[-5:]))
        self._play(self._begun("abort", self.service.agent.abort(run_id)))

    @rule(name=st.sampled_from(["pause", "resume", "start"]), is_awaited=st.booleans())
    def control(self, name: str, is_awaited: bool) -> None:
        self._play((self._asked if is_awaited else self._begun)(name, getattr(self.service.agent, name)()))

    @rule(deadline=st.sampled_from([None, 0.0, 0.5, 3.0]), is_awaited=st.booleans())
    def stop(self, deadline: float | None, is_awaited: bool) -> None:
        self._play((self._asked if is_awaited else self._begun)("stop", self.service.agent.stop(deadline)))

    @rule(name=st.sampled_from(["step", "exchange"]))
    def step_or_reload(self, name: str) -> None:
        self._play(self._begun(name, getattr(self.service, name)()))

    @rule(seconds=st.sampled_from([-3600.0, 5.0, 3600.0]))
    def set_clock(self, seconds: float) -> None:
        self.service.clock.jump_wall(seconds)

    @rule(place=st.sampled_from(PLACES), way=st.sampled_from(WAYS))
    def fault_on(self, place: str, way: str) -> None:
        assert self.service.world.dice.only is not None
        self.service.world.dice.only.add(f"{place}.{way}")

    @precondition(lambda self: self.service.world.dice.only)
    @rule()
    def faults_off(self) -> None:
        self._play(self._calmed())

    @rule()
    def restart(self) -> None:
        if self._play(self.service.end()):
            self._over()
            self._boot()

    @rule(turns=st.integers(0, 200))
    def kill(self, turns: int) -> None:
        self.service.loop.killed_at = self.service.loop.turns + turns
        self._play(asyncio.sleep(2.0))

    async def _asked(self, name: str, work: Coroutine[Any, Any, Any]) -> None:
        await self.service.ask(name, work)

    async def _calmed(self) -> None:
        self.service.world.dice.only = set()
        self.service.world.release()

    async def _pushed(self, session: str) -> None:
        self.service.agent.push(self.service.world.perception("push", session))

    async def _begun(self, name: str, work: Coroutine[Any, Any, Any]) -> None:
        self.service.ask(name, work)

    # -- what must hold

    @invariant()
    def nothing_is_breached(self) -> None:
        if hasattr(self, "service"):
            self.service.check()

    def teardown(self) -> None:
        if not hasattr(self, "service"):
            return
        try:
            if not self._loop.is_closed():
                self.service.world.dice.only = set()
                self._loop.killed_at = None
                self._play(self._healed())
                self._over()
        finally:
            self.service.drop()
            self._process.close()
            self._all.close()

    async def _healed(self) -> None:
        await self.service.heal()
        await self.service.end()


TestAgentMachine = AgentMachine.TestCase
TestAgentMachine.settings = settings(
    max_examples=STORIES or 5,
    stateful_step_count=50 if STORIES else 20,
    deadline=None,
    derandomize=not STORIES,
    phases=[Phase.generate, *([Phase.shrink] if STORIES else [])],  # a shorter story takes longer than the gate has
    database=None,
    suppress_health_check=list(HealthCheck),
)
