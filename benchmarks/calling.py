"""spar's executor as a contender: the same graphs through its public face, with all that it does for a call.

Every call's parameters are validated and its result is kept, bounded and told as a message; these cannot be switched
off. What varies: whether a call has a parameter and writes its result to the state, how it names what it needs, whether
somebody receives the events of each call, and whether a journal is kept. Making the calls is on spar's bill, as it is
on that of each peer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from acting import Executor
from benchmarks.graphs import CarryOut, Dependencies, Work
from spar import Call, tool
from spar.bus.bus import Events
from spar.events import CallCompleted, CallProposed, CallStarted
from spar.protocols import Effect

PLENTY = 1_000_000  # calls at once: as many as the peers, which have no bound

Calls = Callable[[Dependencies], list[Call]]


def bare(graph: Dependencies) -> list[Call]:
    """No parameter, no write: the least that a call can ask for."""
    return [Call("nothing") for _ in graph]


def writing(graph: Dependencies) -> list[Call]:
    """A validated parameter and a write to the state; what a call needs it names in `after`."""
    calls: list[Call] = []
    for number, needed in enumerate(graph):
        after = tuple(calls[other].id for other in needed)
        calls.append(Call("work", {"number": number}, output_path=f"†state.v{number}", after=after))
    return calls


def following(graph: Dependencies) -> list[Call]:
    """As bare, in the order of `after`."""
    calls: list[Call] = []
    for needed in graph:
        calls.append(Call("nothing", after=tuple(calls[other].id for other in needed)))
    return calls


def reading(graph: Dependencies) -> list[Call]:
    """What a call needs it reads from where the other wrote, as one of its parameters."""
    return [
        Call("work", {"number": number, **reads(needed)}, output_path=f"†state.v{number}")
        for number, needed in enumerate(graph)
    ]


def reads(needed: tuple[int, ...]) -> dict[str, str]:
    return {f"needs_{place}": f"†state.v{other}" for place, other in enumerate(needed)}


def contender(calls_of: Calls, *, listeners: bool, journal: Any = None, effect: Effect = "once") -> CarryOut:
    """What carries out a graph; with `listeners` a plain function receives the three events of each call.

    With a `journal` a run ends when all of it is written. What a call's `effect` is decides whether it must be on disk
    that the call starts before it does.
    """
    events, heard = heard_events() if listeners else (Events("bench"), lambda: 0)
    made: dict[Work, Executor] = {}

    async def carry_out(graph: Dependencies, work: Work) -> None:
        executor = made.get(work)
        if executor is None:
            executor = made[work] = executor_of(work, events, journal, effect)
        before = heard()
        result = await executor.run(calls_of(graph))
        if journal is not None:
            await journal.safe()
        if result.status != "ok" or len(result.results) != len(graph):
            raise RuntimeError(
                f"{len(result.results)} of {len(graph)} calls came back {result.status}: {result.errors[:1]}"
            )
        if listeners and heard() - before != 3 * len(graph):
            raise RuntimeError(f"{heard() - before} events of {len(graph)} calls were heard")

    return carry_out


def heard_events() -> tuple[Events, Callable[[], int]]:
    """Events of which a plain function receives those of each call, and how many it has received."""
    events = Events("bench")
    count = 0

    def hear(event: object) -> None:
        nonlocal count
        count += 1

    for kind in (CallProposed, CallStarted, CallCompleted):
        events.subscribe(kind, hear)
    return events, lambda: count


def executor_of(function: Work, events: Events, journal: Any = None, effect: Effect = "once") -> Executor:
    async def nothing() -> None:
        return None

    @tool(effect=effect)
    async def work(
        number: int, needs_0: int | None = None, needs_1: int | None = None, needs_2: int | None = None
    ) -> int:
        return await function(number)

    return Executor([nothing, work], events=events, journal=journal, settings={"max_parallel": PLENTY})
