"""Row 6: by how much the journal holds up the event loop while a hundred agents cycle.

What is measured is how late the loop comes round to a beat of the kernel's, a thousand times a second; beside it
the same agents without a journal, because a loop that turns cycles is held up by these as well. At a pace, so that the
loop has time for others; and flat out, where a turn of the loop is a cycle of each agent and everybody waits for that.
In brackets what is left without the wait of the loop's thread for a processor, which is what the goals bound. The
limit is a loop that has nothing to do.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.beat import Beat, beating
from benchmarks.counted import Counted, counted
from benchmarks.harness import Effort, as_served, frozen
from benchmarks.journalled import journalled
from benchmarks.table import Line, amount, number

AGENTS = 100
PACE = 0.05  # seconds between the cycles of an agent: two thousand cycles a second together
ENDLESS = 1 << 40
EVENTS = 8  # that are told of each cycle


#: Seconds late, and the same without the wait for a processor.
Pair = tuple[float, float]


@dataclass(frozen=True)
class Late:
    """Seconds by which the loop came late but for one beat in a hundred, and at most; and the same by its own fault."""

    p99: float
    own_p99: float
    longest: float
    own_longest: float

    @property
    def p99s(self) -> Pair:
        return self.p99, self.own_p99

    @property
    def maxima(self) -> Pair:
        return self.longest, self.own_longest

    @classmethod
    def of(cls, beats: Sequence[Beat]) -> Late:
        late, own = sorted(beat.late for beat in beats), sorted(beat.own for beat in beats)
        place = len(beats) * 99 // 100
        return cls(late[place], own[place], late[-1], own[-1])


async def measure(effort: Effort) -> list[Line]:
    with as_served():
        return await _measured(effort)


async def _measured(effort: Effort) -> list[Line]:
    lines: list[Line] = []
    idle = await idle_lateness(effort)
    for pace, title in ((PACE, f"{AGENTS / PACE:,.0f} cycles a second"), (0.0, "flat out")):
        without, with_journal, cycles = await lateness(effort, pace)
        name = f"event loop late, {AGENTS} agents, {title}"
        p99_goals, longest_goals = ((1, 0.5), (10, 5)) if pace else ((None, None), (None, None))
        p99, longest = f"{name}: p99", f"{name}: max"
        for beside, late, is_limit in (("the same without a journal", without, False), ("an idle loop", idle, True)):
            lines += [
                line(p99, with_journal.p99s, beside, late.p99s, p99_goals, is_limit=is_limit),
                line(longest, with_journal.maxima, beside, late.maxima, longest_goals, is_limit=is_limit),
            ]
        lines.append(amount(6, f"{name}: journalled cycles", cycles, "a second"))
    return lines


def line(
    title: str, own: Pair, against: str, other: Pair, goals: tuple[float | None, float | None], *, is_limit: bool
) -> Line:
    """Return a line of seconds late, in brackets without the wait for a processor; the goals are milliseconds."""
    texts = [f"{number(late * 1e3)} ({number(part * 1e3)}) ms" for late, part in (own, other)]
    owed, moonshot = goals if is_limit else (None, None)
    late, without_wait = own[0] * 1e3, own[1] * 1e3
    return Line(
        6, title, texts[0], against, texts[1], late, "ms", "", without_wait, owed, moonshot, "", is_limit, "cpu"
    )


async def idle_lateness(effort: Effort) -> Late:
    """Return how late a loop is that has nothing else to do."""
    rounds = []
    for _ in range(2):
        with beating() as late:
            await asyncio.sleep(0.5 if effort.is_quick else 3.0)
        rounds.append(Late.of(late))
    return together(rounds)


async def lateness(effort: Effort, pace: float) -> tuple[Late, Late, float]:
    """Without and with a journal, in turns; and how many cycles a second were journalled.

    The percentiles are medians over the rounds; the longest is that of all of them.
    """
    rounds, seconds = (2, 0.5) if effort.is_quick else (6, 3.0)
    plain, journalled_beats = list[Late](), list[Late]()
    async with (
        counted(AGENTS, listeners=True, loop_interval=pace) as bare,
        journalled(AGENTS, durability="process", loop_interval=pace) as journal,
    ):
        await warm([*bare, *journal.agents])
        rate = 0.0
        with frozen():
            for _ in range(rounds):
                late, _ = await beats(bare, seconds)
                plain.append(late)
                late, rate = await beats(journal.agents, seconds)
                journalled_beats.append(late)
                await journal.written()
        for one in journal.agents:
            one.turned = one.heard // EVENTS
    return together(plain), together(journalled_beats), rate


async def warm(agents: list[Counted]) -> None:
    for one in agents:
        await one.batch(2)


async def beats(agents: list[Counted], seconds: float) -> tuple[Late, float]:
    """How late the loop is while these cycle, and how many cycles they turn a second; they begin one by one."""
    step = PACE / len(agents)
    for one in agents:
        await one.begin(ENDLESS)
        await asyncio.sleep(step)
    before = sum(one.heard for one in agents)
    with beating() as late:
        await asyncio.sleep(seconds)
    turned = (sum(one.heard for one in agents) - before) / EVENTS
    await asyncio.gather(*(one.agent.pause() for one in agents))
    return Late.of(late), turned / seconds


def together(rounds: list[Late]) -> Late:
    return Late(
        statistics.median(each.p99 for each in rounds),
        statistics.median(each.own_p99 for each in rounds),
        max(each.longest for each in rounds),
        max(each.own_longest for each in rounds),
    )
