"""What a message costs when much was learnt, kept or met before, over its cost when there was an eighth of it.

Each kind of thing grows while a second kind stands beside it: what is in proportion to one of them alone may be in
proportion to their product. A unit is a message with one call, on a journal, reflected on as usual; it goes to one of
the sessions that are known, in turn; where senders are known it comes by a channel. Where sessions or senders grow,
recall has its most candidates from the beginning, because each session adds experiences of its own. Processor time of
a whole batch, in turns with the smaller agent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

from msgspec.structs import asdict

from benchmarks.harness import Batch, Effort, compare
from benchmarks.journalled import folder
from benchmarks.table import Line, compared
from memory import Memory
from perception.sense import Sense
from spar import Action, Agent, Call, Experience, Perception, tool
from spar.channels.conversations import ChannelAttachment
from spar.data.learning.abilities import KnownAbilities, ToolTrial, ability_key, learn
from spar.events import RunEnded
from spar.ports.channel import ChannelLimits, ChannelSpec
from spar.records.journal import RowChange
from spar.testing import MemoryChannel

#: How much dearer a message may become when eight times as much is known.
GROWTH, TIMES = 1.3, 8


@dataclass(frozen=True)
class Known:
    """Numbers of what an agent knows when it begins: tools that were tried at the same kind of task, other situations
    of its tool, sessions with a message, senders on a channel (0: no channel), open incidents, of which each message
    reports a new state of one (0: messages report nothing), experiences in those sessions."""

    tools: int = 1
    situations: int = 0
    sessions: int = 1
    senders: int = 0
    incidents: int = 0
    experiences: int = 0


CASES: tuple[tuple[str, str, str, Known], ...] = (
    ("tools", "tools", "100 sessions", Known(tools=25, sessions=100)),
    ("situations", "situations", "50 tools", Known(situations=500, tools=50)),
    ("sessions", "sessions", "50 tools", Known(sessions=50, tools=50, experiences=500)),
    ("senders", "senders", "50 tools", Known(senders=50, tools=50, experiences=500)),
    ("incidents", "incidents", "100 sessions", Known(incidents=100, sessions=100, experiences=500)),
    ("experiences", "experiences", "100 sessions", Known(experiences=250, sessions=100)),
)


async def measure(effort: Effort) -> list[Line]:
    lines: list[Line] = []
    for title, field, beside, known in CASES:
        few = getattr(known, field) // (4 if effort.is_quick else 1)
        small, large = (replace(known, **{field: few * times}) for times in (1, TIMES))
        async with AsyncExitStack() as stack:
            less, more = [await stack.enter_async_context(knowing(each)) for each in (small, large)]
            measured, limit = await compare({"more": more}, less, effort.at_most(5))
        name = f"message, {few * TIMES:,} {title} and {beside}"
        lines.append(compared(None, name, measured["more"], f"{few:,} {title}", limit, is_limit=True, owed=GROWTH))
    return lines


@tool(effect="read")
async def look() -> int:
    return 1


@asynccontextmanager
async def knowing(known: Known) -> AsyncIterator[Batch]:
    """Messages to an agent that knows so much; a unit is a message."""

    async def plan(perceptions: list[Perception]) -> Action:
        await memory.recall(perceptions[0].text)
        return Action(calls=[Call("look")], output="done")

    with folder() as place:
        memory = Memory.open(f"sqlite:///{place}/memory.db", durability="process", keep_cycles=None)
        async with memory:
            await _learnt(memory, known)
        channel = MemoryChannel(ChannelLimits())
        names = [f"chat:p{number}" for number in range(known.senders)]
        allowed = {"senders": {"allow": [{"senders": names}] if names else []}}
        sense = Sense() if known.incidents else None
        attach = ["senders", ChannelAttachment([ChannelSpec("chat", channel)] if known.senders else [])]
        agent = Agent(
            sense=sense, plan=plan, tools=[look], memory=memory, loop_interval="off", settings=allowed, attach=attach
        )
        ended = asyncio.Queue[str]()
        agent.events.subscribe(RunEnded, lambda event: ended.put_nowait(event.run_id))
        async with agent:
            number = 0

            async def batch(messages: int) -> None:
                nonlocal number
                for _ in range(messages):
                    number += 1
                    session, text = f"s{number % known.sessions}", f"hello {number % 7}"
                    if known.senders:
                        channel.say(text, f"p{number % known.senders}")
                    elif known.incidents:
                        place = number % known.incidents  # an incident is of one session
                        await agent.submit(_state(place, number), session=f"s{place % known.sessions}")
                    else:
                        await agent.submit(Perception(text, kind="message", trust="trusted"), session=session)
                    await asyncio.wait_for(ended.get(), 60)

            await batch(max(known.sessions, known.senders, known.incidents))
            yield batch


def _state(place: int, number: int) -> Perception:
    """Return a new state of the incident at a place."""
    return Perception({"state": "firing", "load": number}, kind="alert", subject=f"disk {place}", trust="trusted")


async def _learnt(memory: Memory, known: Known) -> None:
    """Write what earlier processes have learnt."""
    trials = [ToolTrial(f"tool {number}" if number else "look", "message", True) for number in range(known.tools)]
    trials += [ToolTrial("look", f"alert[host{number}]", True) for number in range(known.situations)]
    abilities = KnownAbilities(learn(trials, {}))
    await memory.change(
        [
            RowChange("ability:main", ability_key(each.tool, each.task), {**asdict(each), "tried_at": 1.0 + number})
            for number, each in enumerate(abilities.stored.values())
        ]
    )
    for number in range(known.experiences):
        await memory.store(
            Experience(
                f"message: hello {number}",
                action="look()",
                success=True,
                task="message",
                key="message",
                session=f"s{number % known.sessions}",
                trust="trusted",
            )
        )
        if number % 100 == 99:
            await asyncio.sleep(0)
