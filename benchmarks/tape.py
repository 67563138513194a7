"""A month of recorded cycles, made in virtual time, backtested with one changed rule: `make tape`.

Each kind of disagreement is explained as `spar why` does, by the first condition that failed in its first example.

    python -m benchmarks.tape [CYCLES]
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final

from memory import Memory
from planning import RulesPlanner
from spar.config.lines import Sources
from spar.config.load import from_mapping
from spar.config.tables.settings import Loaded
from spar.replay.again import AnswersOfRecord
from spar.replay.backtest import Backtest
from spar.replay.deciding import Decider
from spar.replay.reasons import rule_reasons
from spar.replay.tally import Tally
from spar.replay.tape import Inputs, Tape
from spar.types import ActionResult, CallResult, CycleRecord, Perception

CYCLES: Final = 100_000
BEGAN: Final = datetime(2026, 1, 1, tzinfo=UTC)
MONTH: Final = timedelta(days=30)
#: Seconds that a backtest of `CYCLES` may take.
MOST_SECONDS: Final = 60.0


def rules(load: float) -> list[dict[str, Any]]:
    """Return the rules of a watch. Args: load: the load from which on one of them acts."""
    note = {"tool": "note", "params": {"text": "{text}"}}
    return [
        {"name": "load", "when": {"kind": "host.load", "attributes": {"load": {"above": load}}}, "cooldown": 300,
         "calls": [note, {"tool": "notify", "params": {"title": "load", "text": "{text}"}}]},
        {"name": "file", "when": {"kind": "file.added"}, "calls": [note]},
        {"name": "restart", "when": {"kind": "service.down"}, "cooldown": 60, "calls": [
            {"tool": "shell", "params": {"argv": ["systemctl", "restart", "{subject}"]}}, note]},
        {"name": "greet", "when": {"kind": "message", "pattern": "(?i)^hello"}, "answer": "hello"},
        {"name": "keep", "when": {"kind": "*"}, "calls": [note]},
    ]  # fmt: skip


def configured(load: float) -> Loaded:
    tools = [{"use": "note"}, {"use": "notify"}, {"use": "shell"}]
    return Loaded(from_mapping({"rules": rules(load), "tools": tools}), Sources())


def perceptions(number: int) -> Iterator[tuple[datetime, Perception]]:
    """Yield what is noticed in a month, with its time."""
    random = Random(7)
    for index in range(number):
        at = BEGAN + MONTH * (index / number)
        kind = random.choices(("host.load", "file.added", "service.down", "message"), (6, 2, 1, 1))[0]
        load = round(random.random(), 3)
        text = {"host.load": f"load is {load}", "message": random.choice(("hello", "note this"))}.get(kind, kind)
        yield at, Perception(text, source="watch", kind=kind, at=at, subject=f"unit{index % 7}", trust="trusted",
                             attributes={"load": load} if kind == "host.load" else {})  # fmt: skip


async def record(folder: str, loaded: Loaded, number: int) -> str:
    """Write the cycles in which a configuration decided; return the address of the store."""
    url = f"sqlite:///{folder}/memory.db"
    async with Memory(url, durability="off") as memory, Decider(loaded, None, "main") as decider:
        for index, (at, perception) in enumerate(perceptions(number)):
            cycle = CycleRecord(f"{index:026x}", "main", "main", at, 0.01, "acted", (perception,),
                                phases={"sense": 0.001, "plan": 0.001})  # fmt: skip
            action = (await decider.decide(Inputs(cycle, cycle.perceptions))).action
            if action is None:
                continue  # an idle cycle leaves no record
            results = [CallResult(call, "ok", output={"ok": True}, attempts=1) for call in action.calls]
            await memory.record(CycleRecord(
                cycle.cycle_id, "main", "main", at, 0.01, "acted", (perception,), action,
                ActionResult(action, results=results), phases=cycle.phases,
            ))  # fmt: skip
        await memory.flush()
    return url


async def measure(number: int) -> bool:
    """Print the figures of a backtest; return whether it was fast enough and every disagreement is explained."""
    with TemporaryDirectory(prefix="spar-tape-") as folder:
        began = time.monotonic()
        before, after = configured(0.7), configured(0.9)
        url = await record(folder, before, number)
        print(f"recorded in {time.monotonic() - began:.1f} s: {number} perceptions of 30 days")
        async with Memory(url, read_only=True) as memory:
            tape, answers, tally = Tape(memory, "main"), AnswersOfRecord(), Tally()
            limits = before.settings.budgets.limits, after.settings.budgets.limits
            began, used = time.monotonic(), time.process_time()
            async with Decider(after, memory, "main", answer_to=answers) as decider:
                recorded = Decider(before, memory, "main")
                await Backtest(decider, answers, recorded, limits, tally).run(tape, None, lambda tally: True)
            seconds, used = time.monotonic() - began, time.process_time() - used
            print(f"backtested {tally.cycles} cycles in {seconds:.1f} s ({used:.1f} s of a processor): "
                  f"{tally.same} the same, {tally.differs} differ, {sum(tally.unknown.values())} unknown; calls: "
                  f"{tally.calls.saved} saved, {tally.calls.added} added, {tally.calls.changed} changed")  # fmt: skip
            planner, is_explained = RulesPlanner(rules(0.9)), True
            for one in tally.by_frequency:
                cycle = await tape.cycle(one.first.cycle_id)
                reasons = rule_reasons(cycle, planner.explain(cycle.perceptions))
                name = one.rule or "load"
                why = [line.text for reason in reasons for line in reason.because if line.text[2:].startswith(name)]
                is_explained = is_explained and bool(why)
                print(f"{one.count:>7} × {one.what}: {'; '.join(why) or 'not explained'}")
    is_fast = used <= MOST_SECONDS * number / CYCLES  # other work on the machine does not count
    print(f"owed: {MOST_SECONDS:.0f} s of a processor for {CYCLES} cycles: {'kept' if is_fast else 'MISSED'}")
    return is_fast and is_explained


if __name__ == "__main__":
    sys.exit(not asyncio.run(measure(int(sys.argv[1]) if sys.argv[1:] else CYCLES)))
