"""The whole agent under a virtual clock, a seeded scheduler and seeded faults: `python -m tests.simulation.simulate`.

One seed is one simulation: some hundred things happen to the agent at random, while its parts fail at random and its
process is stopped and killed; all the while nothing may be breached (`invariants`), and in the end, with all faults
off, it must be well again (`Service.heal`). The same seed gives the same trace: its digest says so.

What is not determined: real time (the memory's upkeep, which tells nobody anything) and what identifiers look like.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time

from msgspec import Struct

from spar.types import QUEUE_MODES
from tests.simulation.loop import Killed, SeededLoop, running
from tests.simulation.service import SESSIONS, Service, folder

STEPS = 150
#: What may happen, and how often beside the rest.
ODDS = {
    "tick": 30, "submit": 14, "again": 4, "push": 6, "answer": 8, "abort": 3, "pause": 3, "resume": 5, "stop": 2,
    "start": 3, "step": 4, "wake": 2, "expire": 1, "exchange": 2, "interval": 1, "wall": 1, "hold_disk": 3,
    "restart": 1, "kill": 1,
}  # fmt: skip


class Report(Struct, frozen=True):
    """What a simulation came to: `trouble` is empty when all went well; `trace` is its tail, or all of it."""

    seed: int | str
    trouble: str
    digest: str
    trace: tuple[str, ...]
    processes: int
    kills: int
    cycles: int
    faults: int
    virtual_seconds: float
    real_seconds: float

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.trouble or 'fine'} · digest {self.digest} · {self.cycles} cycles · "
            f"{self.processes} processes ({self.kills} killed) · {self.faults} faults · "
            f"{self.virtual_seconds:.0f} s in {self.real_seconds:.2f} s"
        )


def simulate(seed: int | str, steps: int = STEPS, *, keeps_all: bool = False) -> Report:
    """Simulate one seed."""
    began, trouble = time.monotonic(), ""
    with folder() as root:
        service = Service(seed, root)
        if keeps_all:
            service.trace.all = []
        drive = _Drive(service, steps)
        try:
            while not drive.process():
                pass
        except Exception as error:  # whatever it is, it is to be told with its seed
            trouble = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
    trace = service.trace
    return Report(seed, trouble, trace.digest, tuple(trace.tail if trace.all is None else trace.all), service.processes,
                  service.kills, service.watch.counts["LoopCompleted"], sum(service.world.dice.made.values()),
                  service.passed, time.monotonic() - began)  # fmt: skip


class _Drive:
    """Makes things happen to a service."""

    def __init__(self, service: Service, steps: int) -> None:
        self._service, self._left = service, steps

    def process(self) -> bool:
        """The life of one process; whether it was the last. Raises: AssertionError."""
        service = self._service
        loop = service.loop_of_next()
        is_over = False
        with running(loop):
            try:
                is_over = loop.run_until_complete(self._live(loop))
            except Killed:
                service.killed()
            except BaseException:
                service.drop()
                raise
            finally:
                service.gone()
        service.demand_no_threads()
        return is_over

    async def _live(self, loop: SeededLoop) -> bool:
        service = self._service
        service.boot(loop)
        service.ask("start", service.agent.start())
        while self._left > 0:
            self._left -= 1
            if await self._step():
                await service.end()
                return False
            service.check()
        await service.heal()
        await service.end()
        return True

    async def _step(self) -> bool:
        """One thing that happens; True when the process is to end."""
        service, agent, dice = self._service, self._service.agent, self._service.world.dice
        name = dice.choices(list(ODDS), list(ODDS.values()))[0]
        if agent.state in ("stopped", "failed") and dice.uniform(0, 1) < 0.3:
            name = "start"
        service.trace(f"step {name} ({agent.state})")
        match name:
            case "tick":
                await asyncio.sleep(dice.expovariate(1 / 3.0))
            case "submit":
                key = service.world.token("key") if dice.uniform(0, 1) < 0.4 else None
                await service.submit(dice.choice(SESSIONS), key, dice.choice([None, None, *QUEUE_MODES]))
            case "again":
                if keys := [key for _, key in service.receipts[-20:] if key]:
                    await service.submit(dice.choice(SESSIONS), dice.choice(keys))
            case "push":
                agent.push(service.world.perception("push", dice.choice(SESSIONS)))
            case "answer":
                service.ask(name, service.answer(lambda: dice.choice(["approve", "approve", "deny", None])))
            case "abort":
                if service.receipts:
                    service.ask(name, agent.abort(dice.choice(service.receipts[-10:])[0]))
            case "pause" | "resume" | "start":
                service.ask(name, getattr(agent, name)())
            case "stop" | "restart":
                service.ask(name, agent.stop(dice.choice([None, 0.0, 0.5, 3.0])))
                if name == "restart":
                    return True
            case "step" | "exchange":
                service.ask(name, getattr(service, name)())
            case "expire":
                await asyncio.sleep(40.0)
            case "wake":
                agent.wake()
            case "interval":
                agent.loop_interval = dice.choice([0.2, 1.0, 3.0, "adaptive", "off"])
            case "wall":
                service.clock.jump_wall(dice.choice([-3600.0, -5.0, 5.0, 3600.0]))
            case "hold_disk":
                if agent.state == "running" and not service.asked:  # a read waits really for a writer
                    service.writer.hold()
                    service.clock.call_at(service.clock.monotonic() + dice.expovariate(1.0), service.writer.go_on)
            case "kill":
                service.loop.killed_at = service.loop.turns + dice.randrange(1, 150)
                await asyncio.sleep(dice.uniform(0, 2))
        await asyncio.sleep(0 if dice.uniform(0, 1) < 0.3 else dice.uniform(0.0, 0.5))
        return False


def main(arguments: list[str] | None = None) -> int:
    """The command; 1 when a seed had trouble."""
    parser = argparse.ArgumentParser(prog="simulate", description="Simulate the agent with seeded faults.")
    parser.add_argument("seed", nargs="?", default="1", help="a number, or a range: 1-100")
    parser.add_argument("steps", nargs="?", type=int, default=STEPS, help="how many things happen to it")
    parser.add_argument("--trace", action="store_true", help="write the whole trace")
    given = parser.parse_args(arguments)
    import loguru

    loguru.logger.remove()
    first, _, last = given.seed.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    bad, say = [], sys.stdout.write
    for seed in seeds:
        report = simulate(seed, given.steps, keeps_all=given.trace)
        if report.trouble:
            bad.append(seed)
        if report.trouble or len(seeds) == 1:
            say("".join(f"  {line}\n" for line in report.trace))
        say(f"{report}\n")
        sys.stdout.flush()
    say(f"{len(seeds) - len(bad)} of {len(seeds)} seeds fine{'; not: ' + ', '.join(map(str, bad)) if bad else ''}\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
