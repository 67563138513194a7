"""The pictures of `spar top` on the page on operating; `make docs` draws them, a test compares what is written in them.

The application is the real one; only the service behind it is a table of answers, so that it looks the same each time.
"""

from __future__ import annotations

import asyncio
import html
import re
import sys
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from spar.cli.commands.status import read_status
from spar.client import AsyncClient
from spar.clock import SystemClock
from spar.top.app import Top

FOLDER = Path(__file__).parents[2] / "docs" / "how-to"
#: The picture of each page, with the key of its list.
PICTURES = {"loop.svg": "0", "top.svg": "2"}
#: Cells of the picture.
SIZE = (100, 29)
#: When it is drawn: a time of day that is the same in every zone, and that stands still.
NOW = datetime(2026, 11, 22, 14, 3, 20).astimezone()


def ago(seconds: float) -> str:
    return (NOW - timedelta(seconds=seconds)).isoformat()


def lane(session: str, phase: str | None, seconds: float, waiting: int = 0) -> dict[str, Any]:
    return {"session": session, "phase": phase, "phase_seconds": seconds, "waiting": waiting, "waits_for_model": False}


AGENT = {
    "name": "house", "state": "running", "open_runs": 3,
    "stats": {"total_cycles": 48_211, "error_rate": 0.0004, "cycle_mean_seconds": 0.0121, "cycle_p99_seconds": 0.74,
              "consecutive_failures": 0},
    "alerts": [{"kind": "disk", "severity": "warning", "message": "2.1 GiB left, 2.0 GiB are wanted", "session": ""}],
    "lanes": [lane("chat/anna", "plan", 4.2), lane("watch/web-3", "act", 12), lane("mail/ops", None, 0, 2),
              lane("main", None, 0)],
    "budgets": [
        {"budget": "day.money", "used": 1_830_000, "limit": 5_000_000, "ratio": 0.366},
        {"budget": "hour.tokens", "used": 164_000, "limit": 200_000, "ratio": 0.82},
        {"budget": "hour.calls", "used": 97, "limit": 600, "ratio": 0.162},
    ],
    "models": [{"model": "gpt-5-mini", "state": "closed", "reason": "", "wait": 0}],
    "modules": {"sense": {"sensors": {}}}, "warnings": [],
}  # fmt: skip
CALL = {"tool": "shell", "params": {"argv": ["systemctl", "restart", "nginx"]}}
ANSWERS: dict[str, Any] = {
    "/v1/status": {"started_at": ago(7500), "agent": AGENT},
    "/v1/runs": [
        {
            "run_id": id,
            "session": session,
            "status": status,
            "accepted_at": ago(seconds),
            "started_at": started,
            "ended_at": None,
        }
        for id, session, status, seconds, started in (
            ("18ea83237fff", "mail/ops", "queued", 3, None),
            ("18ea83225dc3", "chat/anna", "running", 9, ago(9)),
            ("18ea8322e17a", "watch/web-3", "running", 44, ago(44)),
        )
    ],
    "/v1/approvals": [{"id": "a1", "call": CALL, "asked_at": ago(31)}],
    "/v1/calls/in-doubt": [],
    "/v1/dead-letters": [],
    "/v1/next": [
        {"at": ago(-1_800), "kind": "approval", "of": "watch/web-3", "what": "shell expires, to a denial"},
        {"at": ago(-36_000), "kind": "schedule", "of": "tidy", "what": "it is time"},
    ],
    "/v1/cycles": [
        {
            "cycle_id": f"c{number}",
            "session": session,
            "started_at": ago(seconds),
            "duration": duration,
            "outcome": outcome,
            "about": about,
            "calls": calls,
        }
        for number, (session, seconds, duration, outcome, about, calls) in enumerate(
            (
                ("main", 1900, 0.021, "acted", "host: the load is 0.4 again", {"ok": 1}),
                ("watch/web-3", 2100, 31.2, "failed", "the model did not answer in 30 s", {}),
                ("main", 2400, 0.034, "acted", "inbox: invoice-77.pdf", {"ok": 2, "failed": 1}),
            )
        )
    ],
}


def event(kind: str, session: str, run_id: str = "", **data: Any) -> dict[str, Any]:
    return {"seq": 1, "type": kind, "at": ago(20), "session": session, "cycle_id": "c", "run_id": run_id, "data": data}


STORY = "The disk of web-3 is full because the access log grew by 40 GB since Monday; I would rotate it"


def ended(number: int, session: str, seconds: float, duration: float, noticed: str, decided: str,
          *done: tuple[str, str], outcome: str = "acted", run_id: str = "") -> dict[str, Any]:  # fmt: skip
    data = {"record": "", "cycle": f"e{number}", "session": session, "started_at": ago(seconds), "duration": duration,
            "outcome": outcome, "noticed": noticed, "decided": decided, "fault": "",
            "done": [{"tool": tool, "status": status} for tool, status in done]}  # fmt: skip
    return {**event("CycleRecorded", session, run_id), "data": data}


EVENTS = [
    ended(1, "main", 960, 0.047, "inbox: report.txt", "rule 'file what was dropped' matched", ("note", "ok"),
          ("files", "ok")),
    ended(2, "mail/ops", 610, 4.1, "is the backup of last night whole?", "", ("shell", "ok"), ("shell", "failed")),
    ended(3, "mail/ops", 605, 2.2, "is the backup of last night whole?", "answer: Both backups are whole."),
    ended(4, "watch/web-3", 50, 0.6, "alertmanager: nginx on web-3 answers with 502; host: the load is 11",
          "rule 'restart what is down' matched", ("shell", "skipped")),
    event("PhaseStarted", "chat/anna", phase="plan", noticed="why is the disk of web-3 full?"),
    event("PhaseStarted", "watch/web-3", phase="act"),
    event("RunStarted", "chat/anna", "18ea83225dc3"),
    event("RunStarted", "watch/web-3", "18ea8322e17a"),
    event("RunAccepted", "mail/ops", "18ea83237fff"),
    event("CallStarted", "chat/anna", "18ea83225dc3", phase="start", call="1", tool="files", attempt=1),
    event("CallCompleted", "chat/anna", "", phase="result", call="1", tool="files", output="access.log 41 GB"),
    event("AssistantDelta", "chat/anna", "18ea83225dc3", text=STORY, reset=False),
    event("ApprovalRequested", "watch/web-3", "18ea8322e17a", phase="approval", call="2", tool="shell",
          state="requested"),
    event("RunEnded", "chat/ben", "18ea83229000", status="ok", reply="Both backups of last night are whole.", error=""),
]  # fmt: skip


class Told:
    """A stream of events that come once everything was requested."""

    is_live, is_refused, connections, why = True, False, 1, ""

    def __init__(self) -> None:
        self.begins = threading.Event()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self.begins.wait()
        return iter(EVENTS)

    def close(self) -> None:
        pass


class Table(AsyncClient):
    """A service that answers from a table."""

    def __init__(self) -> None:
        super().__init__(Path())
        self._told, self._awaited = Told(), set(ANSWERS)
        self.client.events = lambda *given: self._told  # type: ignore[method-assign, assignment, return-value]

    async def answer(self, operation: Any, given: Any = None) -> Any:
        found = ANSWERS[operation.path]
        self._awaited.discard(operation.path)
        if not self._awaited:
            asyncio.get_running_loop().call_later(0.1, self._told.begins.set)
        return msgspec.to_builtins(read_status(found)[0]) if operation.path == "/v1/status" else found


class StillClock(SystemClock):
    """A clock that always says the same."""

    def now(self) -> datetime:
        return NOW

    def monotonic(self) -> float:
        return 1e6


async def drawn(page: str) -> str:
    """Return the picture of a page as SVG. Args: page: the key of its list."""
    app = Top(Table(), clock=StillClock())
    async with app.run_test(size=SIZE) as pilot:
        for _ in range(500):
            await pilot.pause(0.02)
            assert app.reader is not None
            known = app.picture
            if (
                known.waiting
                and app.reader.is_over
                and known.sessions.keys() >= {"main"}
                and "c0" in known.cycles
                and known.planned
            ):
                break
        app.look()
        for panel in app.panels:
            panel.take()
        await pilot.press(page, "home")
        await pilot.pause(0.3)
        return app.export_screenshot(title="spar top")


def words(svg: str) -> list[str]:
    """Return what is written in a picture."""
    texts = [html.unescape(text) for text in re.findall(r"<text [^>]*>([^<]*)</text>", svg)]
    return [text.replace("\xa0", " ").strip() for text in texts]


def main() -> None:
    """Write the pictures."""
    for name, page in PICTURES.items():
        (FOLDER / name).write_text(asyncio.run(drawn(page)))


if __name__ == "__main__":
    main()
    sys.stdout.write(f"written: {', '.join(PICTURES)}\n")
