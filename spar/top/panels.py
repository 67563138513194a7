"""The lists of the two pages, as a table: which rows of the picture each has, and how one is drawn."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, NamedTuple

from spar.cli.blocks import money, style_of, took
from spar.cli.commands.status import HEALTH, unsaid_line
from spar.cli.printer import TONES, clock, harmless, lasted, number
from spar.operations.agent import AgentStatus, BudgetRow
from spar.top.facts import KINDS, CycleFacts, Picture, RunFacts, SessionFacts
from spar.top.rows import Pieces, RowList, cell_len, columns, cut
from spar.types import PHASES

#: The sign of each outcome of a cycle, each status of a call, and each state of a run, with its tone.
OUTCOMES: Final = {"acted": "✓", "failed": "✗", "degraded": "▲", "interrupted": "–"}
CALLS: Final = {"ok": ("✓", "good"), "skipped": ("–", "quiet"), "in_doubt": ("?", "warn")}
RUNS: Final = {"running": ("▶", "busy"), "queued": ("◌", "quiet"), "ok": ("✓", "good"), "ended": ("–", "quiet")}
#: The frames of a sign that moves.
MOVES: Final = "◐◓◑◒"
#: Seconds after which a phase is drawn as one that takes too long.
SLOW: Final = 60.0


def _age(facts: SessionFacts, now: float) -> tuple[str, int, str]:
    """Return the cell with the age of what a session does."""
    age = now - facts.since
    slow = "bad" if age >= SLOW else "busy"
    return lasted(age), -6, "warn" if facts.stands else slow if facts.phase else "quiet"


def _now(row: SessionFacts | tuple[datetime, str, str], width: int, picture: Picture) -> Pieces:
    """Return a cycle in hand, whose phase moves, with what it is about; or a thing that comes next."""
    if isinstance(row, tuple):
        day = row[0].astimezone().strftime("%d %b %H:%M:%S")
        return columns([(row[1], 14, "name"), (f"◌ {day}", 17, "quiet"), (row[2], 0, "quiet")])
    age, now = _age(row, picture.now), PHASES.index(row.phase) if row.phase in PHASES else 0
    moves = MOVES[int(picture.now * 5) % len(MOVES)]
    phases = [(f"{'✓' if at < now else moves if at == now else ' '} {phase}", 9,
               "good" if at < now else age[2] if at == now else "quiet")
              for at, phase in enumerate(PHASES) if width >= 80 or at == now]  # fmt: skip
    about = f"stands {row.stands}" if row.stands else "waits for its model" if row.waits_for_model else row.noticed
    return columns([(harmless(row.key, 40), 14, "name"), *phases, age, (about, 0, "plain")])


def _cycle(row: CycleFacts, width: int, picture: Picture) -> Pieces:
    """Return a cycle that left a trace: noticed → decided → done."""
    is_bad = row.outcome == "failed" or any(status not in ("ok", "skipped") for _, status in row.done)
    sign = ("✗", 1, "bad") if is_bad else (OUTCOMES.get(row.outcome, "·"), 1, TONES.get(row.outcome, "quiet"))
    session = [(row.session, 12, "name")] if width >= 70 else []
    cells = columns([(clock(row.at), 8, "quiet"), *session, sign, (took(row.seconds), -8, "quiet")])
    done: Pieces = []
    for tool, status in row.done:
        mark, tone = CALLS.get(status, ("✗", "bad"))
        done += [("  " if done else " → ", "quiet"), (f"{tool} {mark}", tone)]
    rest = width - sum(cell_len(text) for text, _ in [*cells, *done]) - (3 if row.decided else 0)
    noticed = cut(row.noticed, max(rest - cell_len(row.decided), rest // 2, 8))
    decided = cut(row.decided, max(rest - cell_len(noticed), 8))
    story = [(noticed, "plain"), *([(" → ", "quiet"), (decided, sign[2] if row.outcome == "failed" else "name")]
                                   if decided else [])]  # fmt: skip
    return [*cells, *story, *done]


def _session(row: SessionFacts, width: int, picture: Picture) -> Pieces:
    age = _age(row, picture.now)
    doing = "waits for model" if row.waits_for_model else row.phase or ("waits" if row.waiting else "rests")
    name = (harmless(row.key, 80), max(width - 36, 8), "name" if row.phase else "quiet")
    return columns([name, ("●" if row.phase else "·", 1, age[2]), (doing, 8, age[2]), age,
                    (f"+{row.waiting}" if row.waiting else "", 4, "warn"), (row.last, 0, "quiet")])  # fmt: skip


def _sessions_title(picture: Picture, rows: list[SessionFacts]) -> str:
    more = f", {number(picture.forgotten)} forgotten" if picture.forgotten else ""
    return f"{sum(1 for row in rows if row.phase)}/{number(len(rows))}{more}"


def _run(row: RunFacts, width: int, picture: Picture) -> Pieces:
    """Return a run: its age, what began it, and the end of its text, where new text appears."""
    sign, tone = RUNS.get(row.state, ("✗", "bad"))
    session = 4 if width < 26 else 8 if width < 50 else 14
    room = max(width - session - 11, 3)
    cells = [(sign, 1, tone), (harmless(row.session, 40), session, "name"),
             (lasted(picture.now - row.since), -6, "quiet")]  # fmt: skip
    if row.began_by and room >= 30:
        cells.append((row.began_by, room // 3, "quiet"))
        room -= room // 3 + 1
    text = harmless(row.text[-2 * room :], 2 * room) or ("" if len(cells) > 3 else row.began_by)
    if row.state == "running" and len(text) > room - 1:
        text = f"…{text[-(room - 2) :]}"
    style = "plain" if not row.doing else "warn" if row.doing.startswith("?") else "quiet"
    return columns([*cells, (row.doing or text, 0, style)])


def _waiting(row: tuple[str, dict[str, Any]], width: int, picture: Picture) -> Pieces:
    kind = KINDS[row[0]]
    age = lasted(picture.age_of(at)) if (at := kind.asked_at(row[1])) else ""
    return columns([(kind.sign, 1, kind.tone), (age, -6, kind.tone), (kind.text(row[1]), 0, "plain")])


def _budget(row: BudgetRow, width: int, picture: Picture) -> Pieces:
    tone = "good" if row.ratio < 0.7 else "warn" if row.ratio < 0.95 else "bad"
    amount = money if row.budget.endswith("money") else number
    cells = [(harmless(row.budget, 40), 14, "plain"), (f"{row.ratio:.0%}", -4, tone),
             (f"{amount(row.used)}/{amount(row.limit)}", -10, "quiet")]  # fmt: skip
    room = max(width - 32, 3)
    full = min(max(round(row.ratio * room), int(row.ratio > 0)), room)
    return [*columns(cells), ("█" * full, tone), ("░" * (room - full), "quiet")]


def _health(row: tuple[str, str, str], width: int, picture: Picture) -> Pieces:
    sign, text, tone = row
    return columns([(sign, 1, tone), (text, 0, "plain" if tone == "good" else tone)])


def _log(row: tuple[datetime | None, str, str, str], width: int, picture: Picture) -> Pieces:
    at, session, text, tone = row
    of_session = [(session, 12, "name")] if width >= 50 else []
    return columns([(clock(at), 8, "quiet"), *of_session, (text, 0, tone)])


def health_of(status: AgentStatus) -> list[tuple[str, str, str]]:
    """Return the lines about the health of an agent: sign, text and tone of each, the worst first."""
    rows = [(f"{label} {harmless(text)}", style_of(text)) for part in HEALTH for label, text in part(status)]
    rows += [] if status.alerts else [("no alerts", "good")]
    worst = sorted(rows, key=lambda row: ("bad", "warn", "good", "").index(row[1]))
    return [({"good": "●", "": "·"}.get(tone, "▲"), text, tone or "quiet") for text, tone in worst]


def health_rows(picture: Picture) -> list[tuple[str, str, str]]:
    """Return the lines about health: of the agent, of a shadow, and of a service of another version."""
    if (service := picture.service) is None:
        return []
    rows = health_of(service.agent)
    if (shadow := service.shadow) is not None:
        rows.append(("≈", harmless(f"shadow {shadow.line}"), "warn" if shadow.trouble else "good"))
    if picture.unsaid:
        rows.append(("!", harmless(unsaid_line(picture.unsaid, service.version), 1000), "warn"))
    return rows


class ListRow(NamedTuple):
    """List of a page: its title and the text of an empty one, its rows, the pieces and the key of one, the numbers in
    its title; whether rows can be opened, and where the cursor stays."""

    title: str
    empty: str
    rows: Callable[[Picture], list[Any]]
    pieces: Callable[[Any, int, Picture], Pieces]
    key: Callable[[Any], Any]
    numbers: Callable[[Picture, list[Any]], str] = lambda picture, rows: ""
    opens: bool = False
    stays: str = ""


#: The lists by their names, in the order of their keys, after that of the cycles in hand.
LISTS: Final = {
    "now": ListRow("Now", "it rests, and waits for what it notices",
                   lambda picture: [*(facts for facts in picture.by_activity() if facts.phase), *picture.planned], _now,
                   lambda row: row[:2] if isinstance(row, tuple) else row.key),
    "cycles": ListRow("0 Cycles: noticed → decided → done", "no cycle has noticed anything yet",
                      lambda picture: list(reversed(picture.cycles.values())), _cycle, lambda row: row.id,
                      opens=True, stays="first"),
    "sessions": ListRow("1 Sessions", "no session has anything to do", Picture.by_activity, _session,
                        lambda row: row.key, _sessions_title),
    "runs": ListRow("2 Runs", "no runs; begin one with: spar send …", Picture.by_run, _run, lambda row: row.id,
                    lambda picture, rows: f"{sum(1 for row in rows if row.state in ('running', 'queued'))}/{len(rows)}",
                    opens=True),
    "waiting": ListRow("3 Waits for you", "nothing waits for you", lambda picture: picture.waiting, _waiting,
                       lambda row: (row[0], row[1]["id"]), lambda picture, rows: str(len(rows)), opens=True),
    "budgets": ListRow("4 Budgets", "no budgets are set",
                       lambda picture: sorted(picture.service.agent.budgets if picture.service else (),
                                              key=lambda row: -row.ratio), _budget, lambda row: row.budget),
    "health": ListRow("5 Health", "", health_rows, _health, lambda row: row),
    "log": ListRow("6 Log", "nothing has happened since", lambda picture: list(picture.log), _log, id, stays="last"),
}  # fmt: skip


class Panel(RowList):
    """List of `LISTS` on the screen, with rows from the picture."""

    def __init__(self, name: str, picture: Picture) -> None:
        super().__init__(id=name)
        self._row, self._picture = LISTS[name], picture
        self.empty, self.opens = self._row.empty, self._row.opens
        self.follows, self.newest_first = self._row.stays == "last", self._row.stays == "first"
        self._title = self.border_title = self._row.title

    def take(self) -> None:
        """Show the rows of the picture."""
        rows = self._row.rows(self._picture)
        self.show(rows)
        numbers = self._row.numbers(self._picture, rows) if rows else ""
        if (title := f"{self._row.title} {numbers}".rstrip()) != self._title:  # Textual draws all of a list with it
            self._title = self.border_title = title
        self.set_class(self.id == "waiting" and bool(rows), "-waits")

    def key_of(self, row: Any) -> Any:
        return self._row.key(row)

    def pieces(self, row: Any, width: int) -> Pieces:
        return self._row.pieces(row, width, self._picture)
