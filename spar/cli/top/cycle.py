"""Screen of one past cycle, as `spar cycles show` shows it."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Footer

from spar.cli.blocks import plain
from spar.cli.cycles import cycle_blocks
from spar.cli.top.facts import CycleFacts
from spar.cli.top.rows import Page
from spar.cli.top.words import harmless, harmless_lines
from spar.client.async_client import AsyncClient
from spar.client.client import ServiceError
from spar.errors import TransientError
from spar.operations.history import CycleId, show_cycle


class CycleScreen(ModalScreen[None]):
    """Screen of one cycle: what was noticed, decided, done and learnt."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "dismiss", "Back")]

    def __init__(self, client: AsyncClient, cycle: CycleFacts) -> None:
        super().__init__()
        self._client, self._cycle = client, cycle

    def compose(self) -> ComposeResult:
        with Vertical(id="record"):
            yield Page(id="text")
        yield Footer(show_command_palette=False)

    async def on_mount(self) -> None:
        self.query_one("#record").border_title = Content(f"Cycle {harmless(self._cycle.id, 40)}")
        page = self.query_one(Page)
        page.focus()
        try:
            cycle = await self._client.call(show_cycle, CycleId(self._cycle.id))
        except (ServiceError, TransientError) as error:
            page.write(harmless(str(error), 1000))
        else:
            page.write("\n".join(harmless_lines("\n".join(map(plain, cycle_blocks(None, cycle))))))
