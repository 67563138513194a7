"""The agent under simulation, process after process on one folder, and what is asked of it.

Real are the agent, its sense, executor, desk and reflector, and a memory on a file; the planner, sensors, tools, hooks
and handlers are `world`'s. A process may be stopped, or killed at any turn of its loop; the next one goes on with the
folder as it was then. `heal` is the second verdict on a simulation, after TigerBeetle's: with all faults off and people
who answer what they are asked, everything comes to its end within `WITHIN` virtual seconds, the agent works, and at its
stop nothing is left over.
"""

from __future__ import annotations

import asyncio
import random
import re
import shutil
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from acting import Executor
from memory import Memory
from perception.sense import Sense
from planning.llm.planner import ModelPlanner
from spar import Agent
from spar.errors import SparError, TransientError
from spar.protocols import Home, Record, SensorSpec
from spar.records.approvals import DecidedError, Decision
from spar.records.runs import Receipt
from spar.testing import VirtualClock
from spar.testing.clock import START
from spar.types import QUEUE_MODES, CycleRecord, Experience, Phase, QueueMode
from tests.simulation.invariants import Trace, Watch
from tests.simulation.loop import SeededLoop, SteadyWriter
from tests.simulation.world import FaultyModel, FaultyPlanner, FaultySensor, World, beset

#: Virtual seconds that anything that was asked of an agent may take.
WITHIN = 200.0
SESSIONS = ("main", "ann", "bob")
SETTINGS: dict[str, Any] = {
    "agent": {
        "loop_interval": 1.0,
        "phases": {"sense": {"timeout": 5}, "plan": {"timeout": 5}, "act": {"timeout": 20}, "reflect": {"timeout": 5}},
    },
    "health": {"failing_after": 3, "within": 30, "max_restarts": 3},
}
#: Identifiers that are made by chance: those of rows and of runs.
CHANCE = re.compile("[a-z]?[0-9a-f]{12,}")
APPROVAL = {"hold": 2.0, "expires": 30.0, "untrusted": "auto"}


class FaultyMemory(Memory):
    """A memory that cannot be relied on, on its way to the file; what it has accepted is kept all the same."""

    def __init__(self, world: World, folder: Path) -> None:
        super().__init__(f"sqlite:///{folder}/memory.db", durability="off")
        self._world = world

    def _judge(self, method: str) -> None:
        if self._world.dice.fails(f"memory.{method}", 0.05):
            raise TransientError(f"the memory cannot {method} now")

    async def store(self, experience: Experience) -> None:
        self._judge("store")
        await super().store(experience)

    async def record(self, cycle: CycleRecord) -> None:
        self._judge("record")
        await super().record(cycle)

    async def keep(self, kind: str, id: str, value: Any, *, expect: int | None = None) -> int:
        self._judge("keep")
        return await super().keep(kind, id, value, expect=expect)

    async def load(self, key: str) -> Any:
        self._judge("load")
        return await super().load(key)

    async def records(self, kind: str) -> list[Record]:
        # In the order of what they say, for their ids are made by chance.
        rows = await super().records(kind)
        return sorted(
            rows, key=lambda row: (row.value.get("asked_at") or row.value.get("at"), CHANCE.sub("", str(row)))
        )


class Service:
    """See the module. `watch` knows what was breached, `trace` what happened, `passed` the virtual seconds.

    `receipts` holds the runs that were accepted with their keys; `promised` those of them that a journal keeps.
    """

    agent: Agent
    clock: VirtualClock
    loop: SeededLoop
    writer: SteadyWriter

    def __init__(self, seed: int | str, root: Path) -> None:
        self.seed, self._root = seed, root
        self.trace = Trace()
        self.watch = Watch(self.trace)
        self.world = World(seed, self.trace)
        draw = random.Random(f"{seed}/settings").choice
        runs = {
            "timeout": 60, "limit": 4, "cap": draw([1, 2, 5, "auto"]), "drop": draw(["old", "new", "summarize"]),
            "queue_mode": draw(QUEUE_MODES), "quiet": draw([0.0, 0.5, 3.0]),
        }  # fmt: skip
        self.settings = {**SETTINGS, "runs": runs}
        self.followups: list[str] = []
        self.processes = self.kills = 0
        self.passed = 0.0
        self.receipts: list[tuple[str, str | None]] = []
        self.promised: set[str] = set()
        self._answered: set[str] = set()
        self._questions = -1  # how many had been asked when people last answered while all was well
        self.asked: set[asyncio.Task[Any]] = set()
        self._wall: datetime = START
        self._folder = root / "0"
        self._folder.mkdir()
        self._threads: set[threading.Thread] = set()

    # -- processes

    def loop_of_next(self) -> SeededLoop:
        """The event loop that the next process is to run in."""
        self.processes += 1
        self._threads = set(threading.enumerate())
        return SeededLoop(f"{self.seed}/{self.processes}")

    def boot(self, loop: SeededLoop) -> None:
        """A new process; called in its loop. The agent is made and not yet started."""
        world, passed = self.world, self.passed
        self.clock = clock = world.clock = VirtualClock(start=self._wall, patience=0.0)
        self.trace.now = lambda: passed + clock.elapsed
        self.trace(f"process {self.processes}")
        loop.set_exception_handler(lambda _, context: self.watch.breach(_said(context)))
        memory = FaultyMemory(world, self._folder)
        self.loop, self.writer = loop, SteadyWriter(memory)
        loop.writers = [self.writer]
        self.asked = set()
        self._exchanging, self._stepping = asyncio.Lock(), asyncio.Lock()
        sensors = [
            SensorSpec(
                name, FaultySensor(world, name, every), timeout=3.0, max_failures=3, within=30.0, probe_after=20.0
            )
            for name, every in (("eye", 0.0), ("ear", 5.0))
        ]
        folder = str(self._folder)
        self.agent = agent = Agent(
            sense=Sense(sensors), plan=self._planner(), act=self._executor(), memory=memory, settings=self.settings,
            clock=clock, home=Home(folder, folder, folder),
        )  # fmt: skip
        self.watch.is_journaled = hasattr(FaultyMemory, "journal") and hasattr(Agent, "recovery")
        self.watch.follow(agent)
        beset(world, agent)

    def _planner(self) -> Any:
        """A planner that may do anything, or one that asks a model that may."""
        world = self.world
        is_model = world.dice.uniform(0, 1) < 0.5
        return ModelPlanner(FaultyModel(world)) if is_model else FaultyPlanner(world)

    def _executor(self) -> Executor:
        return Executor(self.world.tools(), settings={"approval": APPROVAL, "drain": 3.0})

    def killed(self) -> None:
        """The process died where it stood: the next one finds the folder as it was then."""
        self.kills += 1
        self.trace("killed")
        new = self._root / str(self.processes)
        shutil.copytree(self._folder, new, ignore=shutil.ignore_patterns("*.lock"))
        self._folder = new
        self.drop()

    def drop(self) -> None:
        """Nothing more comes of this process."""
        self.watch.died(self.promised)
        self.agent.core.state = "stopped"  # its lanes are not begun anew as their tasks are dropped
        self.writer.drop()

    def gone(self) -> None:
        """The process is over, one way or the other."""
        self._wall = self.clock.now() + timedelta(seconds=self.world.dice.uniform(0.1, 10.0))
        self.passed += self.clock.elapsed
        self.trace.now = lambda: 0.0

    def demand_no_threads(self) -> None:
        """Raises: AssertionError when a thread of the process is left over."""
        left = [thread.name for thread in threading.enumerate() if thread not in self._threads and thread.is_alive()]
        assert not left, f"threads are left: {', '.join(left)}"

    # -- what is asked of the agent

    def ask(self, name: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[None]:
        """Ask something that may take its time, while other things happen."""
        if name not in ("answer", "abort"):
            self.writer.go_on()  # a read waits really for a writer that is held up
        task = asyncio.get_running_loop().create_task(self._done(name, work), name=f"driver {name}")
        self.asked.add(task)
        task.add_done_callback(self.asked.discard)
        return task

    async def _done(self, name: str, work: Coroutine[Any, Any, Any]) -> None:
        try:
            await asyncio.wait_for(work, WITHIN)
        except TimeoutError:
            self.watch.breach(f"{name} took more than {WITHIN:g} s")
        except (SparError, LookupError) as error:
            self.trace(f"{name} ended {type(error).__name__}")
        except Exception as error:
            if name == "exchange":  # what the opening of a part raised, into which a stop came
                self.trace(f"{name} ended {type(error).__name__}")
                return
            self.watch.breach(f"{name} raised {error!r}")

    async def submit(self, session: str, key: str | None, mode: QueueMode | None = None) -> Receipt | None:
        """Give the agent a message; the same key must give the same run."""
        agent = self.agent
        is_promised = agent.state in ("running", "pausing", "paused")  # else the memory is not open, or not any more
        try:
            receipt = await agent.submit(
                self.world.perception("message"), session=session, mode=mode, idempotency_key=key
            )
        except (SparError, PermissionError) as error:
            self.trace(f"refused {type(error).__name__}")
            return None
        known = [run_id for run_id, other in self.receipts if key and other == key]
        is_known = known and (known[-1] in agent.runs._runs or (is_promised and known[-1] in self.promised))
        if is_known and receipt.run_id not in known:
            self.watch.breach(f"key {key} was accepted twice")
        self.receipts.append((receipt.run_id, key))
        if (mode or self.settings["runs"]["queue_mode"]) == "followup" and receipt.run_id not in known:
            self.followups.append(receipt.run_id)
        if is_promised and self.watch.is_journaled and receipt.run_id not in known:
            self.promised.add(receipt.run_id)
        return receipt

    async def answer(self, choose: Callable[[], Decision | None]) -> None:
        """Answer what people are asked, the oldest question first; None leaves one open."""
        desk = self.agent.setup.modules["act"].part.approvals
        if self.agent.state not in ("running", "pausing", "paused"):
            return
        for row in reversed(await desk.list()):
            if decision := choose():
                with suppress(DecidedError, LookupError):
                    await desk.decide(row.id, row.digest, decision, by="ann")

    async def step(self) -> None:
        """A chain of steps, as far as it goes; two at once would do things twice, as they were asked."""
        if self._stepping.locked():
            return
        agent = self.agent
        async with self._stepping:
            for step in (agent.step_sense, agent.step_plan, agent.step_act, agent.step_reflect):
                if agent.state not in ("created", "paused", "stopped"):
                    return
                try:
                    await step()
                except (Exception, BaseExceptionGroup) as error:
                    self.trace(f"step ended {type(error).__name__}")
                    return

    async def exchange(self) -> None:
        """Put another planner or executor in the place of today's, as reloading the configuration does."""
        if self.agent.state not in ("running", "pausing", "paused"):
            return
        async with self._exchanging:
            is_plan = self.world.dice.uniform(0, 1) < 0.5
            parts: dict[Phase, Any] = {"plan": self._planner()} if is_plan else {"act": self._executor()}
            await self.agent.exchange(parts, self.agent.settings)

    def check(self) -> None:
        """What must hold at every moment. Raises: AssertionError."""
        self.watch.check(self.world.effects)

    # -- how it ends

    async def end(self) -> None:
        """Stop, and leave nothing behind. Raises: AssertionError."""
        agent = self.agent
        self.writer.go_on()
        await self.come(lambda: not self.asked, "what was asked of the agent ends")
        await asyncio.wait_for(agent.stop(), WITHIN)
        if agent.state not in ("created", "stopped"):
            self.watch.breach(f"the agent is {agent.state} after a stop")
        await self.come(self._is_alone, "all tasks end", self._others)
        if self.writer.memory._opened is not None:
            self.watch.breach("the memory is open after a stop")
        self.check()
        self.watch.died(self.promised)

    async def heal(self) -> None:
        """The second verdict; see the module. Raises: AssertionError."""
        agent, world = self.agent, self.world
        self.trace("calm")
        self.loop.killed_at = None
        self.writer.go_on()
        world.calm()
        agent.loop_interval = 1.0
        await self.come(lambda: not self.asked, "what was asked of the agent ends")
        for _ in range(10):
            if agent.state in ("pausing", "paused"):
                await asyncio.wait_for(agent.resume(), WITHIN)
            elif agent.state != "running":
                await asyncio.wait_for(agent.start(), WITHIN)
            await asyncio.sleep(1.0)
        await self.come(lambda: agent.state == "running", "the agent runs")
        for run_id in list(self.watch.accepted):  # its answer was kept, and the process died before it was told
            with suppress(LookupError):
                if (await agent.wait(run_id, 0.0)).status != "timeout":
                    self._answered.add(run_id)
        await self.come(self._have_all_ended, "every accepted run ends")
        await self._compare_ends()
        for session in SESSIONS:
            receipt = await self.submit(session, None)
            assert receipt is not None, f"a message of session {session} was refused"
            status = await agent.wait(receipt.run_id, WITHIN)
            assert status.status == "ok", f"a run of session {session} came to {status.status}: {status.error}"
        cycles = agent.stats.total_cycles
        await self.come(lambda: agent.stats.total_cycles > cycles + 3, "cycles complete")
        await self.come(lambda: set(agent.sessions.by_key) == {"main"}, "sessions without work are forgotten")
        await self.come(lambda: not agent.left_behind, "phases that were left behind end")
        acting = agent.setup.modules["act"].part.snapshot
        await self.come(lambda: not acting()["left_behind"] and not acting()["detached"], "tools end", acting)
        sensors = agent.setup.modules["sense"].part.snapshot
        await self.come(lambda: all(each["state"] == "ok" for each in sensors()["sensors"].values()), "sensors work")
        await self.come(lambda: not set(agent.health.alerts) - {"slow"}, "the agent is well")
        self.check()

    async def _compare_ends(self) -> None:
        """Compare what was told of runs with what can be asked and with the order in which messages came."""
        for run_id, event in list(self.watch.ends.items()):
            with suppress(LookupError):
                status = await self.agent.wait(run_id, 0.0)
                if (status.status, status.error, status.output) != (event.status, event.error, event.output):
                    self.watch.breach(f"wait says {status}, and was told {event}")
        for session, began in list(self.watch.began.items()):
            served = [run_id for run_id in began if run_id in self.followups]
            if served != [run_id for run_id in self.followups if run_id in served]:
                self.watch.breach(f"followups of session {session} were not served in the order in which they came")
        journal = self.agent.core.ledger.journal
        await journal.safe()
        left = {item.id for item in await journal.views.items(self.agent.name)} & self.watch.ends.keys()
        if left:
            self.watch.breach(f"the journal still has {len(left)} messages of runs that have ended")
        self.watch.demand()

    async def come(self, holds: Callable[[], bool], what: str, instead: Callable[[], Any] = lambda: "") -> None:
        """Wait until something holds. Raises: AssertionError after `WITHIN` seconds."""
        until = self.clock.monotonic() + WITHIN
        while not holds():
            self.watch.demand()
            if self.clock.monotonic() > until:
                raise AssertionError(f"within {WITHIN:g} s it does not come to pass that {what} {instead()}")
            await asyncio.sleep(0.5)

    def _have_all_ended(self) -> bool:
        """Whether no run is under way; people answer meanwhile, for each that waits keeps its session waiting."""
        if not self.asked and self._questions != (asked := self.watch.counts["ApprovalRequested"]):
            self._questions = asked
            self.ask("answer", self.answer(lambda: "approve"))
        return not self.watch.accepted.keys() - self._answered

    def _is_alone(self) -> bool:
        self.world.release()  # who hung may hang again
        return not self._others()

    @staticmethod
    def _others() -> list[str]:
        this = asyncio.current_task()
        return [f"{task.get_name()} {task.get_coro()!r:.60}" for task in asyncio.all_tasks() if task is not this]


@contextmanager
def folder() -> Iterator[Path]:
    """A folder that is gone afterwards; in memory where there is such a place, so that no disk is measured."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as path:
        yield Path(path)


def _said(context: dict[str, Any]) -> str:
    return f"{context.get('message')}: {context.get('exception')!r}"
