"""Screen of an answer of the service, as its command shows it: one past cycle, costs, changes, rules."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from msgspec import Struct

from spar.budgets.costs import SUMS
from spar.cli.blocks import plain
from spar.cli.cycles import cycle_blocks
from spar.cli.nouns import blocks_of
from spar.cli.top.facts import CycleFacts
from spar.cli.top.rows import TextScreen
from spar.cli.top.words import harmless, harmless_lines
from spar.client.async_client import AsyncClient
from spar.client.client import ServiceError
from spar.errors import TransientError
from spar.operations import history, runs
from spar.operations.knowledge.rules import RulesChoice, list_rules
from spar.operations.operation import Operation

#: What is asked for by each key, with the title: the operations and their inputs.
FIGURES: Final[dict[str, tuple[str, str, tuple[tuple[Operation[Any, Any], Struct], ...]]]] = {
    "cost": ("c", "Cost of seven days", tuple((runs.cost, runs.CostChoice(by=by)) for by in SUMS)),
    "changes": ("d", "Changes of a day", ((history.changes, history.ChangesChoice()),)),
    "rules": ("u", "Rules, those that fire most first", ((list_rules, RulesChoice(sort="fired")),)),
}


class AnswerScreen(TextScreen):
    """Screen of one answer. Args: ask: returns its text."""

    def __init__(self, title: str, ask: Callable[[], Awaitable[str]]) -> None:
        super().__init__(title)
        self._ask = ask

    async def on_mount(self) -> None:
        try:
            text = await self._ask()
        except (ServiceError, TransientError) as error:
            self.page.write(harmless(str(error), 1000))
        else:
            self.page.write("\n".join(harmless_lines(text)))


def cycle_screen(client: AsyncClient, cycle: CycleFacts) -> AnswerScreen:
    """Return the screen of one cycle: what was noticed, decided, done and learnt."""

    async def ask() -> str:
        record = await client.call(history.show_cycle, history.CycleId(cycle.id))
        return "\n".join(map(plain, cycle_blocks(None, record)))

    return AnswerScreen(f"Cycle {harmless(cycle.id, 40)}", ask)


def figures_screen(client: AsyncClient, name: str) -> AnswerScreen:
    """Return the screen of the answers to one of `FIGURES`."""
    _, title, questions = FIGURES[name]

    async def ask() -> str:
        texts = []
        for operation, given in questions:
            answer = await client.call(operation, given)
            form = next(iter(operation.commands.values()))
            texts.append("\n".join(map(plain, blocks_of(operation, form, given, answer))))
        return "\n\n".join(texts)

    return AnswerScreen(title, ask)
