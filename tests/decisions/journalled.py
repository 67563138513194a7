"""Drawn histories told through the journal of a store: what its views say then, and to the next process."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from memory import Memory
from spar.facts import Fact
from spar.types import replace
from tests.decisions.history import START, History

AGENT = "main"
_STEPS = 40


def drawn(seed: int) -> list[list[Fact]]:
    """Return the facts of a drawn history of two sessions, those together that are told together."""
    draw, groups = random.Random(seed), list[list[Fact]]()
    histories = [Grouped(draw, session, groups) for session in ("main", "other")]
    for _ in range(_STEPS):
        draw.choice(histories).step()
    for history in histories:
        history.end()
    return groups


class Grouped(History):
    """History whose facts are added to `groups`, those together that are told together."""

    def __init__(self, draw: random.Random, session: str, groups: list[list[Fact]]) -> None:
        super().__init__(draw, session)
        self._groups, self._ended = groups, 0

    def end(self) -> None:
        if group := self.told[self._ended :]:
            self._groups.append(group)
            self._ended = len(self.told)


async def tell(make: Callable[[], Memory], groups: list[list[Fact]], epochs: int = 3) -> list[dict[str, Any]]:
    """Tell facts to a store that is closed and opened again so often meanwhile. Return what its views say at each end,
    and to the next process."""
    seen = []
    for number in range(epochs):
        async with make() as memory:
            if number:
                seen.append(await views(memory))
            share = -(-len(groups) // epochs)
            for group in groups[number * share : (number + 1) * share]:
                for fact in group:
                    memory.journal.append(fact, AGENT)
                await memory.journal.safe()
            seen.append(await views(memory))
    async with make() as memory:
        seen.append(await views(memory))
    return seen


async def views(memory: Memory) -> dict[str, Any]:
    """Return what all views of a journal say, without the times at which a store wrote."""
    journal = memory.journal.views
    items = await journal.items(AGENT)
    runs = {item.id: await journal.run(AGENT, item.id) for item in items}
    return {
        "items": items, "runs": runs, "recent": await journal.recent_ids(AGENT, 1_000),
        "dead": [letter.id for letter in await journal.dead_letters(AGENT)],
        "unfinished": [replace(cycle, opened_at=START) for cycle in await journal.unfinished(AGENT)],
        "doubts": await journal.doubts(AGENT, is_open=False),
        "calls": [await journal.call(doubt) for doubt in await journal.doubts(AGENT)],
        "counts": await journal.counts(AGENT), "spent": await journal.spent(),
    }  # fmt: skip
