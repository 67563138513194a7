"""The lists of the first screen and the drawing of their rows: sessions, runs, records, budgets, health, log."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar, Final

from textual.binding import Binding, BindingType

from spar.cli.blocks import style_of
from spar.cli.client import unsaid_line
from spar.cli.status import HEALTH
from spar.cli.tables import took
from spar.cli.top.facts import KINDS, CycleFacts, LogLine, Picture, PlannedFacts, RunFacts, SessionFacts, WaitingRow
from spar.cli.top.rows import Pieces, RowList, cell_len, columns, cut
from spar.cli.top.words import bar, harmless, lasted, money, number
from spar.operations.agent import AgentStatus, BudgetRow
from spar.types import PHASES


class Panel(RowList):
    """List of the first screen, with rows from the picture. `now` is the time of the last update, in seconds."""

    TITLE = ""
    now, shown_title = 0.0, ""

    def on_mount(self) -> None:
        self.border_title = self.TITLE

    def take(self, picture: Picture, now: float) -> None:
        """Show the rows of a picture."""
        self.now = now
        rows = self.rows_of(picture)
        self.show(rows)
        if (title := self.title_of(picture, rows)) != self.shown_title:  # Textual draws all of a list with a new title
            self.border_title = self.shown_title = title

    def rows_of(self, picture: Picture) -> list[Any]:
        """Return the rows."""
        return []

    def title_of(self, picture: Picture, rows: list[Any]) -> str:
        """Return the title."""
        return self.TITLE


#: The sign and the tone of each outcome of a cycle, and of each status of a call.
OUTCOMES: Final = {
    "acted": ("✓", "good"),
    "failed": ("✗", "bad"),
    "degraded": ("▲", "warn"),
    "interrupted": ("–", "warn"),
}
CALLS: Final = {"ok": ("✓", "good"), "skipped": ("–", "quiet"), "in_doubt": ("?", "warn")}
#: The frames of a sign that moves.
MOVES: Final = "◐◓◑◒"


class NowPanel(Panel):
    """List of the cycles in hand: the phase of each, which moves, and what it is about; then what comes next."""

    TITLE, EMPTY = "Now", "it rests, and waits for what it notices"

    def rows_of(self, picture: Picture) -> list[SessionFacts | PlannedFacts]:
        return [*(facts for facts in picture.by_activity() if facts.phase), *picture.planned]

    def key_of(self, row: SessionFacts | PlannedFacts) -> str:
        return row.of if isinstance(row, PlannedFacts) else row.key

    def pieces(self, row: SessionFacts | PlannedFacts, width: int) -> Pieces:
        if isinstance(row, PlannedFacts):
            day = row.at.astimezone().strftime("%d %b %H:%M:%S")
            return columns([(row.of, 14 if width >= 60 else 8, "name"), (f"◌ {day}", 17, "quiet"),
                            (row.what, max(width - 34, 1), "quiet")])  # fmt: skip
        age = self.now - row.since
        tone = "warn" if row.stands else "bad" if age >= 60 else "busy"
        moves = MOVES[int(self.now * 5) % len(MOVES)]
        cells = [(harmless(row.key, 40), 14 if width >= 60 else 8, "name")]
        at = PHASES.index(row.phase) if row.phase in PHASES else 0
        if width >= 80:
            cells += [(f"✓ {phase}", 9, "good") for phase in PHASES[:at]]
            cells += [(f"{moves} {row.phase}", 9, tone), *((f"  {phase}", 9, "quiet") for phase in PHASES[at + 1 :])]
        else:
            cells.append((f"{moves} {row.phase}", 9, tone))
        cells.append((lasted(age), -6, tone))
        about = "waits for its model" if row.waits_for_model else row.noticed
        about = f"stands {row.stands}" if row.stands else about
        return columns([*cells, (about, max(width - sum(abs(room) + 1 for _, room, _ in cells) - 1, 1), "plain")])


class CyclesPanel(Panel):
    """List of the cycles that left a trace, the newest first: noticed → decided → done."""

    TITLE, EMPTY, NEWEST_FIRST, OPENS = "0 Cycles", "no cycle has noticed anything yet", True, True
    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "choose", "Open cycle", show=True)]

    def rows_of(self, picture: Picture) -> list[CycleFacts]:
        return list(reversed(picture.cycles.values()))

    def title_of(self, picture: Picture, rows: list[Any]) -> str:
        return f"{self.TITLE}: noticed → decided → done"

    def key_of(self, row: CycleFacts) -> str:
        return row.id

    def pieces(self, row: CycleFacts, width: int) -> Pieces:
        sign, tone = ("✗", "bad") if row.is_bad else OUTCOMES.get(row.outcome, ("·", "quiet"))
        cells = [(clock(row.at), 8, "quiet"), (sign, 1, tone), (took(row.seconds), -8, "quiet")]
        if width >= 70:
            cells.insert(1, (row.session, 12, "name"))
        room = max(width - sum(abs(size) + 1 for _, size, _ in cells), 3)
        done: Pieces = []
        for at, (tool, status) in enumerate(row.done):
            mark, look = CALLS.get(status, ("✗", "bad"))
            done += [("  " if at else " → ", "quiet"), (f"{tool} {mark}", look)]
        rest = room - sum(cell_len(text) for text, _ in done) - (3 if row.decided else 0)
        noticed = cut(row.noticed, max(rest - cell_len(row.decided), room // 2))
        story: Pieces = [(noticed, "plain")]
        if row.decided:
            decided = cut(row.decided, max(rest - cell_len(noticed), room // 4))
            story += [(" → ", "quiet"), (decided, "bad" if row.outcome == "failed" else "name")]
        return [*columns(cells), *story, *done]


class SessionsPanel(Panel):
    """List of the sessions: the phase of each, and its duration."""

    TITLE, EMPTY = "1 Sessions", "no session has anything to do"

    def rows_of(self, picture: Picture) -> list[SessionFacts]:
        return picture.by_activity()

    def title_of(self, picture: Picture, rows: list[Any]) -> str:
        busy = sum(1 for row in rows if row.phase)
        more = f", {number(picture.forgotten)} forgotten" if picture.forgotten else ""
        return f"{self.TITLE} {busy}/{number(len(rows))}{more}" if rows else self.TITLE

    def key_of(self, row: SessionFacts) -> str:
        return row.key

    def pieces(self, row: SessionFacts, width: int) -> Pieces:
        age = self.now - row.since
        tone = ("bad" if age >= 60 else "busy") if row.phase else "quiet"
        doing = "waits for model" if row.waits_for_model else row.phase or ("waits" if row.waiting else "rests")
        cells = [(lasted(age), -6, tone), (harmless(row.key, 80), max(width - 36, 8), "name" if row.phase else "quiet"),
                 ("●" if row.phase else "·", 1, tone), (doing, 8, tone)]  # fmt: skip
        if width >= 40:
            cells += [(f"+{row.waiting}" if row.waiting else "", 4, "warn"), (row.last, 11, "quiet")]
        else:
            cells[1] = (cells[1][0], max(width - 19, 6), cells[1][2])
        return columns([*cells[1:4], cells[0], *cells[4:]])


class RunsPanel(Panel):
    """List of the runs: the duration of each, and the end of its text."""

    TITLE, EMPTY, OPENS = "2 Runs", "no runs; begin one with: spar send …", True
    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "choose", "Open run", show=True)]

    def rows_of(self, picture: Picture) -> list[RunFacts]:
        return picture.by_run()

    def title_of(self, picture: Picture, rows: list[Any]) -> str:
        going = sum(1 for row in rows if row.state in ("running", "queued"))
        return f"{self.TITLE} {going}/{len(rows)}" if rows else self.TITLE

    def key_of(self, row: RunFacts) -> str:
        return row.id

    def pieces(self, row: RunFacts, width: int) -> Pieces:
        sign, tone = {"running": ("▶", "busy"), "queued": ("◌", "quiet"), "ok": ("✓", "good"),
                      "ended": ("–", "quiet")}.get(row.state, ("✗", "bad"))  # fmt: skip
        session = 4 if width < 26 else 8 if width < 50 else 14
        room = max(width - session - 11, 3)
        cells = [(sign, 1, tone), (harmless(row.session, 40), session, "name"),
                 (lasted(self.now - row.since), -6, "quiet")]  # fmt: skip
        if row.began_by and room >= 30:
            cells.append((row.began_by, room // 3, "quiet"))
            room -= room // 3 + 1
        text = harmless(row.text[-2 * room :], 2 * room) or ("" if len(cells) > 3 else row.began_by)
        shown, style = (row.doing, "warn" if row.doing.startswith("?") else "quiet") if row.doing else (text, "plain")
        if shown is text and len(text) > room - 1 and row.state == "running":
            shown = "…" + text[-(room - 2) :]  # new text appears at its end
        return columns([*cells, (shown, room, style)])


class WaitingPanel(Panel):
    """List of the records that wait for a person: approvals, calls in doubt, dead letters."""

    TITLE, EMPTY, OPENS = "3 Waits for you", "nothing waits for you", True
    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "choose", "Look and answer", show=True)]

    def rows_of(self, picture: Picture) -> list[WaitingRow]:
        return picture.waiting

    def title_of(self, picture: Picture, rows: list[Any]) -> str:
        return f"{self.TITLE} {len(rows)}" if rows else self.TITLE

    def take(self, picture: Picture, now: float) -> None:
        self.age_of = picture.age_of
        super().take(picture, now)
        self.set_class(bool(picture.waiting), "-waits")

    def key_of(self, row: WaitingRow) -> tuple[str, str]:
        return row.kind, row.id

    def pieces(self, row: WaitingRow, width: int) -> Pieces:
        kind = KINDS[row.kind]
        sign, tone = kind.sign
        age = None if row.asked_at is None else self.age_of(row.asked_at)
        return columns(
            [(sign, 1, tone), (f"{kind.head}{row.text}", max(width - 10, 4), "plain"), (lasted(age), -6, tone)]
        )


class BudgetsPanel(Panel):
    """List of the budgets: the used share of each, as a bar."""

    TITLE, EMPTY = "4 Budgets", "no budgets are set"

    def rows_of(self, picture: Picture) -> list[BudgetRow]:
        return sorted(picture.status.budgets if picture.status else (), key=lambda row: -row.ratio)

    def key_of(self, row: BudgetRow) -> str:
        return row.budget

    def pieces(self, row: BudgetRow, width: int) -> Pieces:
        ratio = row.ratio
        tone = "good" if ratio < 0.7 else "warn" if ratio < 0.95 else "bad"
        amount = money if row.budget.endswith("money") else number
        cells = [(f"{ratio:.0%}", -4, tone)]
        if width >= 34:
            cells.append((f"{amount(row.used)}/{amount(row.limit)}", -11 if width >= 42 else -9, "quiet"))
        name = 15 if width >= 42 else 13
        full, empty = bar(ratio, max(width - name - 1 - sum(abs(size) + 1 for _, size, _ in cells) - 1, 3))
        name_cell = columns([(harmless(row.budget, 40), name, "plain")])
        return [*name_cell, (full, tone), (empty, "quiet"), (" ", "quiet"), *columns(cells)]


class HealthPanel(Panel):
    """List about health: alerts, models, failing sensors, warnings, figures."""

    TITLE = "5 Health"

    def rows_of(self, picture: Picture) -> list[tuple[str, str, str]]:
        rows = health_of(picture.status) if picture.status else []
        if picture.service and (shadow := picture.service.shadow) is not None:
            rows.append(("≈", harmless(f"shadow {shadow.line}"), "warn" if shadow.trouble else "good"))
        if picture.service and picture.unsaid:
            rows.append(("!", harmless(unsaid_line(picture.unsaid, picture.service.version), 1000), "warn"))
        return rows

    def pieces(self, row: tuple[str, str, str], width: int) -> Pieces:
        sign, text, tone = row
        return columns([(sign, 1, tone), (text, max(width - 3, 4), "plain" if tone == "good" else tone)])


class LogPanel(Panel):
    """Log of the events, the newest last."""

    TITLE, EMPTY, FOLLOWS = "6 Log", "nothing has happened since", True

    def rows_of(self, picture: Picture) -> list[LogLine]:
        return list(picture.log)

    def key_of(self, row: LogLine) -> int:
        return id(row)

    def pieces(self, row: LogLine, width: int) -> Pieces:
        session = 0 if width < 50 else 12
        cells = [(clock(row.at), 8, "quiet"), (row.session, session, "name"),
                 (row.text, max(width - session - 11, 4), row.tone)]  # fmt: skip
        return columns(cells if session else [cells[0], (row.text, max(width - 10, 4), row.tone)])


def health_of(status: AgentStatus) -> list[tuple[str, str, str]]:
    """Return the lines about the health of an agent: sign, text and tone of each, the worst first."""
    rows = [(f"{label} {harmless(text)}", style_of(text)) for part in HEALTH for label, text in part(status)]
    rows += [] if status.alerts else [("no alerts", "good")]
    worst = sorted(rows, key=lambda row: ("bad", "warn", "good", "").index(row[1]))
    return [({"good": "●", "": "·"}.get(tone, "▲"), text, tone or "quiet") for text, tone in worst]


def clock(at: datetime | None) -> str:
    """Return a time of the service as the local time of day; "" for None."""
    return "" if at is None else at.astimezone().strftime("%H:%M:%S")
