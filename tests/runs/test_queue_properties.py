"""Whatever is said to an agent and whatever happens to it meanwhile: every message comes to exactly one end.

One seed is one life: messages of all modes to a few sessions, aborts, pauses, stops and starts on the same journal, and
a planner that answers, works, fails or waits for its provider, by chance and in virtual time. `Ledger` says what must
hold. By hand, for many seeds: `python -m tests.runs.test_queue_properties 1-500`.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from spar import Action, Agent, Call, Context, Perception, tool
from spar.errors import LifecycleError, NotReadyError, PermanentError, TransientError
from spar.events import Event, MessageOutcome, RunAccepted, RunEnded, RunStarted, StateChanged
from spar.testing import VirtualClock
from spar.types import QUEUE_MODES
from tests.simulation.service import folder

SESSIONS = ("main", "ann", "bob")
OUTCOMES = ("queued", "started", "steered", "collected", "interrupting", "dropped")
#: What may be told of a message after what, in one process.
AFTER = {
    "": ("queued", "interrupting", "started", "dropped"),
    "queued": ("started", "steered", "collected", "dropped"),
    "interrupting": ("started", "dropped"),
    "again": ("queued", "started", "steered", "collected", "dropped"),
}
#: Virtual seconds in which everything comes to its end once nothing fails any more.
WITHIN = 2_000.0
STEPS = 40
ODDS = {"submit": 12, "burst": 3, "tick": 10, "abort": 3, "pause": 2, "resume": 3, "stop": 2, "start": 2, "process": 2,
        "push": 1}  # fmt: skip


#: What a planner does, and how often beside the rest.
BEHAVIOURS = {"answer": 8, "calls": 8, "stream": 4, "transient": 2, "permanent": 1, "deferred": 1, "soon": 1}


class Ledger:
    """What was seen of all runs, over all processes; `breaches` says what should not have been."""

    def __init__(self, cap: int) -> None:
        self.breaches: list[str] = []
        self.accepted: dict[str, tuple[str, str]] = {}  # session and mode, in the order in which they were accepted
        self.ended: dict[str, RunEnded] = {}
        self.started: defaultdict[str, list[str]] = defaultdict(list)  # by session, over all processes
        self.told: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)  # by message: run and process
        self.texts: dict[str, str] = {}  # of messages, by run
        self.modes: dict[str, str] = {}
        self.lives = 0
        self.trace: list[str] = []
        self._cap = cap
        self._agent: Agent | None = None
        self._now: dict[str, str] = {}  # the run in hand, by session
        self._outcomes: dict[str, str] = {}

    def breach(self, sentence: str) -> None:
        self.breaches.append(sentence)

    def follow(self, agent: Agent) -> None:
        self._agent = agent
        for kind in (StateChanged, RunAccepted, RunStarted, MessageOutcome, RunEnded):
            agent.events.connect(kind, lambda event: self._seen(event), only_keeps=True)

    def _put_off(self) -> None:
        """What a stop put off begins again."""
        self.lives += 1
        self._now, self._outcomes = {}, dict.fromkeys(self.accepted, "again")

    def plan(self, perceptions: Sequence[Perception], run_id: str) -> None:
        """A plan was made for these."""
        for each in perceptions:
            for part in each.evidence or (each,):
                if part.kind == "message":
                    self.told[part.text].append((run_id, self.lives))

    def _seen(self, event: Event) -> None:
        self.trace.append(f"{type(event).__name__} {self.texts.get(getattr(event, 'run_id', ''))} {event}"[:200])
        match event:
            case StateChanged():
                if event.new == "stopped":
                    self._put_off()
            case RunAccepted():
                self.accepted[event.run_id] = (event.session, "")
            case RunStarted():
                before = self._now.get(event.session)
                if before not in (None, event.run_id) and before not in self.ended:
                    self.breach(f"{event.session} has two runs at once")
                self._now[event.session] = event.run_id
                if event.run_id not in self.started[event.session]:
                    self.started[event.session].append(event.run_id)
                if event.run_id in self.ended:
                    self.breach("a run started that had ended")
            case MessageOutcome():
                before = self._outcomes.get(event.run_id, "")
                if event.outcome not in AFTER.get(before, ()):
                    self.breach(f"{event.outcome} was told of a message after {before!r}")
                self._outcomes[event.run_id] = event.outcome
                if event.outcome == "dropped":
                    self._dropped(event.run_id)
            case RunEnded():
                if event.run_id in self.ended:
                    self.breach(f"a run ended twice: {self.ended[event.run_id]} {event}")
                if event.run_id not in self.accepted:
                    self.breach("a run ended that was not accepted")
                self.ended[event.run_id] = event

    def _dropped(self, run_id: str) -> None:
        assert self._agent is not None
        lane = self._agent.sessions.by_key[self.accepted[run_id][0]]
        waiting = len(lane.state.waiting) + len(lane.state.steers)
        if waiting < self._cap - 1:
            self.breach(f"a message was dropped though only {waiting} waited")

    async def close(self, agent: Agent) -> None:
        """What must hold in the end, when nothing is left to do."""
        for run_id in self.accepted.keys() - self.ended.keys():
            self.breach(f"a message of {self.accepted[run_id]} has no end: {self.texts.get(run_id)}")
        for run_id, event in self.ended.items():
            text = self.texts.get(run_id, "")
            status = await agent.wait(run_id, 0)
            if (status.status, status.error, status.output) != (event.status, event.error, event.output):
                self.breach(f"wait says {status}, and was told {event}")
            if status.outcome not in OUTCOMES:
                self.breach(f"outcome {status.outcome!r}")
            told = self.told[text]
            if len({run for run, _ in told}) > 1:
                self.breach(f"{text} ({self.modes.get(run_id)}) was told in {len({run for run, _ in told})} runs")
            if len(set(told)) < len(told):
                self.breach(f"{text} ({self.modes.get(run_id)}) was told {len(told)} times: {told}")
            if status.status == "ok" and not told:
                self.breach(f"{text} ({self.modes.get(run_id)}) was told to nobody and ended {status}")
            if status.outcome == "dropped" and told:
                self.breach(f"{text} was dropped and told")
        for session, started in self.started.items():
            order = [run_id for run_id in self.accepted if run_id in started and self.modes.get(run_id) == "followup"]
            served = [run_id for run_id in started if run_id in order]
            if served != order:
                names = [self.texts[each] for each in served]
                self.breach(f"the followups of {session} were served as {names}")
        if agent.runs.open:
            self.breach(f"{agent.runs.open} runs are open")
        if set(agent.sessions.by_key) != {"main"}:
            self.breach(f"lanes {set(agent.sessions.by_key)} are left")
        if (journal := agent.recovery.journal) is not None:
            await journal.safe()
            items = [each for each in await journal.views.items(agent.name) if each.due_at is None]
            if items:  # what was pushed and could not be planned for is tried again later
                self.breach(f"the journal still has {[(each.kind, each.perception.text) for each in items]}")
            if cycles := await journal.views.unfinished(agent.name):
                self.breach(f"the journal has {len(cycles)} open cycles")


class Life:
    """One seed."""

    def __init__(self, seed: int, clock: VirtualClock, path: Path) -> None:
        self.dice = dice = random.Random(seed)
        self.clock, self.path = clock, path
        self.is_calm = False
        self.is_kept = dice.random() < 0.7
        cap = dice.choice([1, 2, 3, 5, 20])
        self.settings: dict[str, Any] = {
            "runs": {
                "cap": cap, "drop": dice.choice(["old", "new", "summarize"]), "queue_mode": dice.choice(QUEUE_MODES),
                "quiet": dice.choice([0.0, 0.5, 3.0]), "limit": dice.choice([1, 2, 8]),
                "timeout": dice.choice([20.0, 600.0]), "inactivity": dice.choice([0, 15.0]),
            }
        }  # fmt: skip
        self.interval: Any = dice.choice([0.1, 1.0, "adaptive", "off"])
        self.ledger = Ledger(cap)
        self.count = 0
        self.asked: set[asyncio.Task[None]] = set()
        self.trace = self.ledger.trace
        self.agent = self._made()

    def _made(self) -> Agent:
        async def work(seconds: float) -> None:
            await asyncio.sleep(seconds)

        memory = Memory(f"sqlite:///{self.path}/memory.db", durability="off") if self.is_kept else None
        agent = Agent(plan=self.plan, tools=[tool(effect="read")(work)], memory=memory, clock=self.clock,
                      loop_interval=self.interval, settings=self.settings)  # fmt: skip
        self.ledger.follow(agent)
        return agent

    async def plan(self, perceptions: Sequence[Perception], context: Context) -> Any:
        dice, run = self.dice, context.run
        if not self.is_calm:
            await asyncio.sleep(dice.choice([0.0, 0.0, 0.3, 1.5]))
        what = dice.choices(list(BEHAVIOURS), list(BEHAVIOURS.values()))[0]
        if self.is_calm or (run is not None and run.number > 5):
            what = "answer"
        seconds = dice.choice([0.0, 0.2, 1.0, 4.0])
        self.trace.append(f"{self.clock.elapsed:.2f} plan {what} {[each.text for each in perceptions]}")
        if what == "transient":
            raise TransientError("not now")
        if what == "permanent":
            raise PermanentError("never")
        if run is not None and what in ("deferred", "soon"):
            return Action(
                deferred="the provider is down", next_look=0.0 if what == "soon" else dice.choice([1.0, 30.0])
            )
        self.ledger.plan(perceptions, run.id if run is not None else "")
        if run is None or what == "answer":
            return Action(output=f"answer {len(run.said)}") if run is not None else None
        calls = [Call("work", {"seconds": seconds}, id="a"), Call("work", {"seconds": 0.5}, id="b", after=("a",))]
        return self._streamed(calls) if what == "stream" else Action(tuple(calls))

    async def _streamed(self, calls: Sequence[Call]) -> AsyncIterator[Call]:
        for call in calls:
            yield call
            await asyncio.sleep(self.dice.choice([0.0, 0.5]))

    # -- what happens

    def ask(self, work: Coroutine[Any, Any, Any]) -> None:
        async def done() -> None:
            with suppress(LifecycleError, LookupError, NotReadyError):
                await work

        task = asyncio.get_running_loop().create_task(done())
        self.asked.add(task)

    async def asked_all(self) -> None:
        while waiting := [task for task in self.asked if not task.done()]:
            _, late = await asyncio.wait(waiting, timeout=WITHIN)
            assert not late, f"what was asked of the agent takes for ever: {late}"
        for task in self.asked:
            task.result()
        self.asked.clear()

    async def submit(self) -> None:
        self.count += 1
        text = f"message {self.count}"
        mode: Any = self.dice.choice([None, *QUEUE_MODES])
        session = self.dice.choice(SESSIONS)
        trust: Any = self.dice.choice(["trusted", "trusted", "untrusted"])
        said = Perception(text, kind="message", session=session, trust=trust)
        with suppress(LifecycleError):
            receipt = await self.agent.submit(said, session=session, mode=mode)
            self.ledger.texts[receipt.run_id] = text
            self.ledger.modes[receipt.run_id] = mode or self.settings["runs"]["queue_mode"]
            self.trace.append(f"{self.clock.elapsed:.2f} {session} {mode} {text} {receipt.run_id[-6:]}")

    async def step(self) -> None:
        dice, agent = self.dice, self.agent
        name = dice.choices(list(ODDS), list(ODDS.values()))[0]
        if agent.state in ("created", "stopped") and dice.random() < 0.4:
            name = "start"
        self.trace.append(f"{self.clock.elapsed:.2f} {name} ({agent.state})")
        match name:
            case "submit":
                await self.submit()
            case "burst":
                for _ in range(dice.randint(2, 6)):
                    await self.submit()
            case "tick":
                await self.clock.sleep(dice.expovariate(1 / 3.0))
            case "abort":
                if runs := list(self.ledger.accepted)[-8:]:
                    self.ask(agent.abort(dice.choice(runs)))
            case "pause" | "resume":
                self.ask(getattr(agent, name)())
            case "start":
                self.ask(agent.start())
            case "stop":
                self.ask(agent.stop(dice.choice([None, 0.0, 0.5])))
            case "process":
                await self.process()
            case "push":
                agent.push(Perception("noise", session=dice.choice(SESSIONS)))
        await self.clock.sleep(dice.choice([0.0, 0.0, 0.1, 0.4, 1.0]))

    async def process(self) -> None:
        """The process ends and, where there is a journal, another one goes on."""
        await self.asked_all()
        await self.agent.stop(self.dice.choice([None, 0.0, 0.5]))
        if self.is_kept:
            self.agent = self._made()
        await self.agent.start()

    async def live(self, steps: int = STEPS) -> list[str]:
        """Returns: what was breached."""
        await self.agent.start()
        try:
            for _ in range(steps):
                await self.step()
            self.is_calm = True
            await self.asked_all()
            if self.agent.state == "stopped":
                await self.agent.start()
            await self.agent.resume()
            for run_id in list(self.ledger.accepted):
                await self.agent.wait(run_id, WITHIN)
            await self.clock.sleep(30.0)
            await self.ledger.close(self.agent)
        finally:
            await self.agent.stop(0.0)
        return self.ledger.breaches


@pytest.mark.parametrize("seed", range(1, 13))
async def test_every_message_comes_to_exactly_one_end_whatever_happens(
    clock: VirtualClock, tmp_path: Path, seed: int
) -> None:
    assert await Life(seed, clock, tmp_path).live() == []


async def _by_hand(seed: int) -> tuple[list[str], list[str]]:
    with folder() as path:
        async with VirtualClock() as clock:
            life = Life(seed, clock, path)
            try:
                found = await life.live()
            except Exception as error:
                found = [*life.ledger.breaches, repr(error)]
            return found, [str(life.settings), f"interval {life.interval!r} kept {life.is_kept}", *life.trace]


def main(arguments: list[str]) -> int:
    import loguru

    loguru.logger.remove()
    first, _, last = arguments[0].partition("-")
    bad = 0
    for seed in range(int(first), int(last or first) + 1):
        found, trace = asyncio.run(_by_hand(seed))
        if found:
            bad += 1
            sys.stdout.write(f"seed {seed}: {'; '.join(found)}\n")
        if found and not last:
            sys.stdout.write("\n".join(trace) + "\n")
        sys.stdout.flush()
    sys.stdout.write(f"{bad} bad\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
