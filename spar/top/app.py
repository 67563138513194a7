"""The application: its two pages, its keys, and the times of its requests to the service."""

from __future__ import annotations

import asyncio
import math
from functools import partial
from typing import Any, ClassVar

from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Grid, Vertical
from textual.content import Content
from textual.widgets import Footer, Static

from spar.cli.printer import harmless, lasted, number
from spar.client.async_client import AsyncClient, Paced
from spar.client.client import EventReader, MisfitError, RefusedError, ServiceError
from spar.clock import Clock, SystemClock
from spar.errors import TransientError
from spar.operations import agent
from spar.top.facts import REQUESTS, WANTED, Picture
from spar.top.panels import LISTS, Panel
from spar.top.rows import RowList
from spar.top.screens import ANSWERS, FIGURES, RecordScreen, RunScreen, TextScreen, cycle_screen, figures_screen

#: Seconds between two drawings of what arrives, and for which events are gathered that come together; between drawings
#: of the time that passes, and between rounds of requests.
EVERY, TOGETHER, PASSING, LEAST = 0.2, 0.03, 1.0, 0.5
#: Seconds for an answer.
ANSWER_WITHIN = 10.0
#: Events that one update takes at most, so that a flood of events does not delay the keys.
AT_ONCE = 2_000
#: Width and height below which only one list is shown at a time.
NARROW, LOW = 60, 16
#: The groups of lists, by their places on the pages.
PLACES = {"loop": ("now", "cycles"), "left": ("sessions", "runs"), "right": ("waiting", "budgets", "health")}
#: The tone of a state of the agent; any other is a warning.
STATES = {"running": "$success", "failed": "$error"}


class Top(App[None]):
    """Application of `spar top`. Args: is_read_only: answers are off; clock: the source of times."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (NARROW, "-wide")]  # noqa: RUF012 - as Textual declares it

    TITLE = "spar top"
    ENABLE_COMMAND_PALETTE = False
    CSS_PATH = "top.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(key), f"go('{name}')", show=False) for key, name in enumerate([*LISTS][1:])),
        Binding("z", "alone", "Alone", tooltip="show this list alone, and all again"),
        Binding("space", "hold", "Hold", tooltip="hold the picture still, and go on"),
        Binding("r", "again", "Refresh", show=False, tooltip="ask for everything again"),
        *(
            Binding(key, f"figures('{name}')", show=False, tooltip=title[:1].lower() + title[1:])
            for name, (key, title, _) in FIGURES.items()
        ),
        Binding("question_mark", "keys", "Keys", key_display="?", tooltip="these keys"),
        Binding("q", "quit", "Quit", tooltip="end it"),
    ]

    def __init__(self, client: AsyncClient, *, is_read_only: bool = False, clock: Clock | None = None) -> None:
        super().__init__()
        clock = clock or SystemClock()
        self.now = clock.monotonic
        self._client, self._is_read_only = client, is_read_only
        self.picture = Picture(self.now, clock.now)
        self.reader: EventReader | None = None
        self._connections = 0
        self._requested_at: dict[str, float] = {}
        self._drawn = (-1, 0.0)
        self._is_held = self._is_alone = False
        self._trouble = ""
        self._shown_head = Content()

    def compose(self) -> ComposeResult:
        def lists(place: str) -> Vertical:
            return Vertical(*(Panel(name, self.picture) for name in PLACES[place]), id=place)

        yield Static(id="head")
        yield lists("loop")
        yield Grid(lists("left"), lists("right"), Panel("log", self.picture), id="lists")
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        choice = agent.EventsChoice(type=[",".join(kind.__name__ for kind in WANTED)])
        self._arrivals = Paced(partial(self.call_later, self.look), EVERY, TOGETHER)
        self.reader = EventReader(self._client.client.events(agent.events, choice, math.inf), self._arrivals.ask)
        self.query_one("#cycles").focus()
        self.set_interval(PASSING, self.look)
        self.run_worker(self._keep_current())
        self.look()

    def on_unmount(self) -> None:
        if self.reader is not None:
            self.reader.close()

    def on_resize(self, event: events.Resize) -> None:
        if self.screen_stack:  # else it closes
            self._fit(event.size.width, event.size.height)

    def on_descendant_focus(self) -> None:
        self._fit(self.size.width, self.size.height)

    def _fit(self, width: int, height: int, chosen: Panel | None = None) -> None:
        """Show the page of the chosen list: all lists of it, or only that one if there is no room for all."""
        is_alone = self._is_alone or width < NARROW or height < LOW
        screen = self.screen_stack[0]
        screen.set_class(is_alone, "-alone")
        screen.set_class(height >= 32, "-high")
        if (chosen := chosen or next((panel for panel in self.panels if panel.has_focus), None)) is None:
            return
        for panel in self.panels:
            panel.set_class(panel is chosen, "-chosen")
        is_first = chosen.id in PLACES["loop"]
        for place, is_shown in (
            ("loop", is_first),
            ("lists", not is_first),
            *((place, not is_alone or chosen.id in PLACES[place]) for place in ("left", "right")),
        ):
            screen.query_one(f"#{place}").display = is_shown  # fmt: skip

    @property
    def panels(self) -> list[Panel]:
        """Return the lists of the first screen."""
        return list(self.screen_stack[0].query(Panel))

    # -- events and requests

    def look(self) -> None:
        """Apply the new events, request what has changed, and draw."""
        if (reader := self.reader) is None or not self.is_running:  # it begins or closes: parts are missing
            return
        now, stream = self.now(), reader.stream
        if stream.connections != self._connections:
            self._connections = stream.connections
            self.picture.mark_all_stale()
        if not self._is_held:
            for event in (batch := reader.take(AT_ONCE)):
                self.picture.apply(event)
            if len(batch) == AT_ONCE:
                self._arrivals.ask()
            version, drawn_at = self._drawn
            if version != self.picture.version or now - drawn_at >= PASSING / 2:
                self._drawn = (self.picture.version, now)
                for panel in self.panels:
                    if panel.is_on_screen:
                        panel.take()
        head = self._head()
        if head != self._shown_head:
            self._shown_head = head
            self.screen_stack[0].query_one("#head", Static).update(head, layout=False)

    async def _keep_current(self) -> None:
        """Request what has changed or is old, again and again, as long as there is a connection."""
        while True:
            for name, request in REQUESTS.items():
                is_due = self.now() - self._requested_at.get(name, -math.inf) >= request.every
                if self._is_connected and (name in self.picture.stale or is_due):
                    await self._renew(name)
            await asyncio.sleep(LEAST)

    @property
    def _is_connected(self) -> bool:
        return self.reader is not None and (self.reader.stream.is_live or self.reader.stream.is_refused)

    async def _renew(self, name: str) -> None:
        """Take the answers of a request into the picture; if the service is away, it is to be renewed again."""
        self._requested_at[name] = now = self.now()
        self.picture.stale.discard(name)
        answers: list[Any] = []
        try:
            for operation, given in REQUESTS[name].questions:
                try:
                    answers.append(await self._client.answer(operation, given))
                except RefusedError:  # a list that the agent's memory does not support, or that a service of before has
                    if operation is agent.status:
                        raise
                    answers.append([])
            getattr(self.picture, f"take_{name}")(now, *answers)
            self._trouble = ""
        except (RefusedError, MisfitError, LookupError, TypeError, ValueError) as error:
            self._trouble = str(error)  # the same question gets the same answer
        except (ServiceError, TransientError) as error:
            self._trouble = str(error)
            self.picture.stale.add(name)
        if name == "whole":
            self._requested_at["status"] = self.now()
        self._arrivals.ask()

    # -- the first line

    def _head(self) -> Content:
        """Return the first line of the screen."""
        picture, service = self.picture, self.picture.service
        parts: list[tuple[str, str]] = [(" spar ", "bold $text on $primary"), ("  ", "")]
        stream = self.reader.stream if self.reader is not None else None
        if stream is None or not self._is_connected:
            why = harmless(stream.why if stream is not None else "", 80)
            sentence = f"service away: {why}; trying again" if why or self._connections else "connecting …"
            return Content.assemble(*parts, (sentence, "bold $warning"))
        if service is None:
            return Content.assemble(*parts, (harmless(self._trouble, 100) or "connected", "$text-muted"))
        status = service.agent
        state, alerts, waiting = status.state or "unknown", len(status.alerts), len(picture.waiting)
        parts += [
            (harmless(status.name, 20), "bold"), (f" {state}", f"bold {STATES.get(state, '$warning')}"),
            (f" for {lasted(picture.age_of(service.started_at))}" if service.started_at else "", ""),
            ("  no live events" if stream.is_refused else "", "bold $warning"),
            ("  HELD" if self._is_held else "", "bold $warning"),
            (f"  ▲ {alerts} alert{'s' * (alerts > 1)}" if alerts else "", "bold $error"),
            ("" if alerts else "  ● well", "$success"),
            (f"  ? {waiting} wait{'s' * (waiting == 1)} for you" if waiting else "", "bold $warning"),
        ]  # fmt: skip
        if self.size.width >= 70:
            stats, open_runs = status.stats, status.open_runs
            figures = f"{number(stats.total_cycles)} cycles, {stats.error_rate:.1%} failed, {open_runs} runs open"
            parts.append((f"  {figures}", "$text-muted"))
        return Content.assemble(*parts, ("  read-only" if self._is_read_only else "", "$text-muted"))

    # -- keys

    def action_go(self, name: str) -> None:
        """Move the focus to a list."""
        panel = self.screen_stack[0].query_one(f"#{name}", Panel)
        self._fit(self.size.width, self.size.height, panel)  # a list that is not displayed cannot get the focus
        panel.focus()

    def action_alone(self) -> None:
        """Show only the focused list, or all again."""
        self._is_alone = not self._is_alone
        self._fit(self.size.width, self.size.height)

    def action_hold(self) -> None:
        """Stop the updates of the screen, or continue them."""
        self._is_held = not self._is_held

    def action_again(self) -> None:
        """Request everything again."""
        self.picture.mark_all_stale()

    def action_figures(self, name: str) -> None:
        """Show costs, changes or rules."""
        self.push_screen(figures_screen(self._client, name))

    def action_keys(self) -> None:
        """Show the keys."""
        self.push_screen(TextScreen("Keys of spar top", keys_text))

    def on_row_list_chosen(self, message: RowList.Chosen) -> None:
        """Open a cycle, a run, or a record that waits for a person."""
        match message.rows.id:
            case "cycles":
                self.push_screen(cycle_screen(self._client, message.row))
            case "runs":
                self.push_screen(RunScreen(self._client.client, message.row))
            case _:
                screen = RecordScreen(self._client, *message.row, is_read_only=self._is_read_only)
                self.push_screen(screen, self._answered)

    def _answered(self, sentence: str | None) -> None:
        """Request the waiting records again, and show the sentence about an answer."""
        self.picture.stale.add("records")
        if sentence:
            self.notify(sentence, markup=False, timeout=4)


LEGEND = """
a phase is red after a minute; ● works, · rests; ▶ runs, ◌ waits, ✓ ended well, ✗ failed
? asks for approval, ‽ is in doubt, ✉ was put aside; ▲ is an alert

It shows what GET /v1/events tells, and answers as spar approvals does. It comes back by itself
when the service was away.
"""


async def keys_text() -> str:
    """Return the keys of the first screen, those of the answers, and the meaning of signs and colours."""
    rows = [("0", "the loop: the cycles as they come"), ("1 to 6, Tab", "go to another list"),
            ("↑ ↓ PgUp PgDn", "move in it (also j, k, g, G)"),
            ("Enter", "open a cycle, a run, or what waits for you")]  # fmt: skip
    rows += [(binding.key_display or binding.key, binding.tooltip)
             for binding in Top.BINDINGS if isinstance(binding, Binding) and binding.tooltip]  # fmt: skip
    rows += [("", ""), ("On what waits", "for you"), *((answer.key, answer.question) for answer in ANSWERS.values())]
    return "\n".join(f"{key:<16}{meaning}" for key, meaning in rows) + "\n" + LEGEND
