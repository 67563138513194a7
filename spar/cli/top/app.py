"""The application: its first screen, its keys, and the times of its requests to the service."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Grid, Vertical
from textual.content import Content
from textual.widgets import Footer, Static

from spar.cli.top.facts import RUNS, WANTED, Picture
from spar.cli.top.keys import KeysScreen
from spar.cli.top.link import AwayError, DeclinedError, EventListener, ServiceLink
from spar.cli.top.panels import BudgetsPanel, HealthPanel, LogPanel, Panel, RunsPanel, SessionsPanel, WaitingPanel
from spar.cli.top.record import RecordScreen
from spar.cli.top.rows import RowList
from spar.cli.top.run import RunScreen
from spar.cli.top.words import harmless, lasted, number
from spar.clock import Clock, SystemClock

#: Seconds between two updates of the screen, two statuses, two statuses with all sessions, and two lists of waiting
#: records; least seconds between two requests of the same kind.
EVERY, STATUS_EVERY, WHOLE_EVERY, RECORDS_EVERY, LEAST = 0.2, 3.0, 30.0, 15.0, 0.4
#: Events that one update takes at most, so that a flood of events does not delay the keys.
AT_ONCE = 2_000
#: Width and height below which only one list is shown at a time.
NARROW, LOW = 60, 16


class Top(App[None]):
    """Application of `spar top`. Args: link: the service; is_read_only: answers are off; clock: the source of times."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (NARROW, "-wide")]  # noqa: RUF012 - as Textual declares it

    TITLE = "spar top"
    ENABLE_COMMAND_PALETTE = False
    CSS_PATH = "top.tcss"
    PANELS: ClassVar[tuple[type[Panel], ...]] = (
        SessionsPanel, RunsPanel, WaitingPanel, BudgetsPanel, HealthPanel, LogPanel
    )  # fmt: skip
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(place), f"go({place})", show=False) for place in range(1, 7)),
        Binding("z", "alone", "Alone"),
        Binding("space", "hold", "Hold"),
        Binding("r", "again", "Refresh", show=False),
        Binding("question_mark", "keys", "Keys", key_display="?"),
        Binding("q", "quit", "Quit"),
    ]

    def __init__(self, link: ServiceLink, *, is_read_only: bool = False, clock: Clock | None = None) -> None:
        super().__init__()
        clock = clock or SystemClock()
        self.now = clock.monotonic
        self._link, self._is_read_only = link, is_read_only
        self.picture = Picture(self.now, clock.now)
        self.events: EventListener | None = None
        self._turns = 0
        self._requested_at: dict[str, float] = {}
        self._running_requests: set[str] = set()
        self._drawn = (-1, 0.0)
        self._is_held = self._is_alone = False
        self._trouble = ""

    def compose(self) -> ComposeResult:
        yield Static(id="head")
        with Grid(id="lists"):
            with Vertical(id="left"):
                yield SessionsPanel(id="sessions")
                yield RunsPanel(id="runs")
            with Vertical(id="right"):
                yield WaitingPanel(id="waiting")
                yield BudgetsPanel(id="budgets")
                yield HealthPanel(id="health")
            yield LogPanel(id="log")
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self.events = self._link.listen("/v1/events", type=",".join(WANTED))
        self.query_one(RunsPanel).focus()
        self.set_interval(EVERY, self.look)
        self.look()

    def on_unmount(self) -> None:
        if self.events is not None:
            self.events.close()

    def on_resize(self, event: events.Resize) -> None:
        self._fit(event.size.width, event.size.height)

    def on_descendant_focus(self) -> None:
        self._fit(self.size.width, self.size.height)

    def _fit(self, width: int, height: int, chosen: Panel | None = None) -> None:
        """Show all lists, or only the chosen one if there is no room for all."""
        is_alone = self._is_alone or width < NARROW or height < LOW
        screen = self.screen_stack[0]
        screen.set_class(is_alone, "-alone")
        screen.set_class(height >= 32, "-high")
        chosen = chosen or next((panel for panel in self.panels if panel.has_focus), None)
        for panel in self.panels if chosen is not None else ():
            panel.set_class(panel is chosen, "-chosen")
        if chosen is not None:
            self.query_one("#left").display = not is_alone or chosen.parent is self.query_one("#left")
            self.query_one("#right").display = not is_alone or chosen.parent is self.query_one("#right")

    @property
    def panels(self) -> list[Panel]:
        """Return the lists of the first screen."""
        return list(self.screen_stack[0].query(Panel))

    # -- events and requests

    def look(self) -> None:
        """Apply the new events, request what has changed, and draw."""
        if (stream := self.events) is None:
            return
        now = self.now()
        if stream.turns != self._turns:
            self._turns = stream.turns
            self.picture.mark_all_stale()
            self._requested_at.clear()
        if not self._is_held:
            for event in stream.take(AT_ONCE):
                self.picture.apply(event)
        if stream.is_live or stream.is_refused:
            self._request_changes(now)
        version, drawn_at = self._drawn
        if not self._is_held and (version != self.picture.version or now - drawn_at >= 1.0):
            self._drawn = (self.picture.version, now)
            for panel in self.panels:
                panel.take(self.picture, now)
        for head in self.screen_stack[0].query("#head").results(Static):  # empty while the application closes
            head.update(self._head())

    def _request_changes(self, now: float) -> None:
        """Start the requests that events or their intervals make due."""
        picture = self.picture
        if picture.is_whole_stale or self._is_due("whole", now, WHOLE_EVERY):
            if self._begins("whole", now):
                picture.is_whole_stale = picture.is_stale = False
                self.run_worker(self._take_whole())
        elif (picture.is_stale or self._is_due("status", now, STATUS_EVERY)) and self._begins("status", now):
            picture.is_stale = False
            self.run_worker(self._take_status())
        if (picture.are_records_stale or self._is_due("records", now, RECORDS_EVERY)) and self._begins("records", now):
            picture.are_records_stale = False
            self.run_worker(self._take_records())

    def _is_due(self, request: str, now: float, every: float) -> bool:
        return now - self._requested_at.get(request, -1e9) >= every

    def _begins(self, request: str, now: float) -> bool:
        """Return whether a request may start now, and note its start. Another one must neither run nor be recent."""
        if request in self._running_requests or not self._is_due(request, now, LEAST):
            return False
        self._requested_at[request] = now
        self._running_requests.add(request)
        return True

    async def _take_whole(self) -> None:
        requested_at = self.now()
        try:
            self.picture.take_status(await self._link.get("/v1/status"), requested_at, has_sessions=True)
            ended = await self._link.get("/v1/runs", limit=50)
            is_open = await self._link.get("/v1/runs", open=1, limit=RUNS - 50)
            self.picture.take_runs([*is_open, *ended], requested_at)
            self._requested_at["status"] = self.now()
            self._trouble = ""
        except AwayError as error:
            self._trouble, self.picture.is_whole_stale = str(error), True
        except (DeclinedError, LookupError, TypeError, ValueError) as error:  # the same question gets the same answer
            self._trouble = str(error)
        finally:
            self._running_requests.discard("whole")

    async def _take_status(self) -> None:
        requested_at = self.now()
        try:
            self.picture.take_status(await self._link.get("/v1/status", lanes=0), requested_at, has_sessions=False)
            self._trouble = ""
        except AwayError as error:
            self._trouble, self.picture.is_stale = str(error), True
        except (DeclinedError, LookupError, TypeError, ValueError) as error:
            self._trouble = str(error)
        finally:
            self._running_requests.discard("status")

    async def _take_records(self) -> None:
        rows: dict[str, list[dict[str, Any]]] = {}
        try:
            for kind, path in (("approval", "/v1/approvals"), ("doubt", "/v1/calls/in-doubt"),
                               ("letter", "/v1/dead-letters")):  # fmt: skip
                try:
                    rows[kind] = await self._link.get(path)
                except DeclinedError:  # the agent's memory does not support this kind
                    rows[kind] = []
            self.picture.take_records(rows)
        except AwayError as error:
            self._trouble, self.picture.are_records_stale = str(error), True
        except (LookupError, TypeError, ValueError) as error:
            self._trouble = str(error)
        finally:
            self._running_requests.discard("records")

    # -- the first line

    def _head(self) -> Content:
        """Return the first line of the screen."""
        picture, status = self.picture, self.picture.status
        parts: list[tuple[str, str]] = [(" spar ", "bold $text on $primary"), ("  ", "")]
        if self.events is None or not (self.events.is_live or self.events.is_refused):
            why = harmless(self.events.why if self.events else "", 80)
            sentence = f"service away: {why}; trying again" if why or self._turns else "connecting …"
            return Content.assemble(*parts, (sentence, "bold $warning"))
        if not status:
            return Content.assemble(*parts, (harmless(self._trouble, 100) or "connected", "$text-muted"))
        state = str(status.get("state", "?"))
        tone = {"running": "$success", "failed": "$error"}.get(state, "$warning")
        stats, alerts = status.get("stats") or {}, len(status.get("alerts", ()))
        at = picture.service.get("started_at")
        age = f"for {lasted(picture.age_of(datetime.fromisoformat(at)))}" if at else ""
        parts += [(harmless(status.get("name"), 20), "bold"), (" ", ""), (state, f"bold {tone}"), (f" {age}", "")]
        if self.events.is_refused:
            parts.append(("  no live events", "bold $warning"))
        if self._is_held:
            parts.append(("  HELD", "bold $warning"))
        well = (f"▲ {alerts} alert{'s' * (alerts > 1)}", "bold $error") if alerts else ("● well", "$success")
        parts += [("  ", ""), well]
        if picture.waiting:
            parts.append(
                (f"  ? {len(picture.waiting)} wait{'s' * (len(picture.waiting) == 1)} for you", "bold $warning")
            )
        if self.size.width >= 70:
            failed = f"{float(stats.get('error_rate') or 0.0):.1%} failed"
            cycles = number(stats.get("total_cycles") or 0)
            parts.append((f"  {cycles} cycles, {failed}, {status.get('open_runs', 0)} runs open", "$text-muted"))
        if self._is_read_only:
            parts.append(("  read-only", "$text-muted"))
        return Content.assemble(*parts)

    # -- keys

    def action_go(self, place: int) -> None:
        """Move the focus to a list."""
        panel = self.screen_stack[0].query_one(self.PANELS[place - 1])
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
        self._requested_at.clear()

    def action_keys(self) -> None:
        """Show the keys."""
        self.push_screen(KeysScreen())

    def on_row_list_chosen(self, message: RowList.Chosen) -> None:
        """Open a run, or a record that waits for a person."""
        if isinstance(message.rows, RunsPanel):
            self.push_screen(RunScreen(self._link, message.row))
        elif isinstance(message.rows, WaitingPanel):
            screen = RecordScreen(self._link, message.row, is_read_only=self._is_read_only)
            self.push_screen(screen, self._answered)

    def _answered(self, sentence: str | None) -> None:
        """Request the waiting records again, and show the sentence about an answer."""
        self.picture.are_records_stale = True
        if sentence:
            self.notify(sentence, markup=False, timeout=4)
