"""Pictures of the console in docs/pictures, taken in a browser from a service that works.

`python -m tests.docs.console_pictures` takes them anew.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from tests.console.conftest import CHROMIUM, OPTIONS, Watched, said, token_of
from tests.console.world import furnish
from tests.process.conftest import Service, Spar, until

FOLDER = Path(__file__).parents[2] / "docs/pictures"
#: Name of a picture, the view, how the browser stands, and what has to be on the page before it is taken.
PICTURES: tuple[tuple[str, str, dict[str, Any], str], ...] = (
    ("now", "/now", {}, "and the caches"),
    ("cycle", "/cycle/{cycle}", {"viewport": {"width": 1280, "height": 1000}}, "look everywhere"),
    ("approvals", "/approvals", {"color_scheme": "dark"}, "pay"),
    ("chat", "/chat/office", {"viewport": {"width": 360, "height": 740}}, "without loss"),
    ("debug", "/debug", {}, "before the call of look"),
)


def work(service: Service) -> str:
    """Let a service do what the pictures show; return the id of a cycle with many calls."""
    said(service, "look at the sky", "stream", "fail", "say The backup of last night is whole.", session="office")
    said(service, "look at the roses", session="garden")
    said(service, "fan 16")
    cycles = service.api("/v1/cycles?limit=5").json()
    for amount in (5, 12, 80):
        service.api("/v1/runs", "POST", json={"message": f"pay {amount} for the rent", "session": f"bills {amount}"})
    until(lambda: len(service.api("/v1/approvals").json()) == 3, "three approvals")
    service.api("/v1/breakpoints", "POST", json={"point": "call", "session": "garden"})
    service.api("/v1/runs", "POST", json={"message": "look at the gate", "session": "garden"})
    until(lambda: service.api("/v1/stops").json(), "a stop")
    rows = cycles["cycles"] if isinstance(cycles, dict) else cycles
    return str(next(row["cycle_id"] for row in rows if "everywhere" in str(row)))


def main() -> None:
    """Take all pictures."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        spar: Any = Spar(Path(folder))
        furnish(spar)
        service = Service(spar).ready()
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        try:
            cycle = work(service)
            for name, view, given, text in PICTURES:
                watched = Watched(browser, service.address, **given).sign_in(token_of(service, "admin"))
                page = watched.go(view.format(cycle=cycle))
                if name == "now":  # what a run writes is seen by who looks on
                    service.api("/v1/runs", "POST", json={"message": "wait", "session": "ops"})
                page.get_by_text(text).first.wait_for()
                page.screenshot(path=FOLDER / f"console-{name}.png")
                sys.stdout.write(f"docs/pictures/console-{name}.png\n")
        finally:
            browser.close()
            service.kill()


if __name__ == "__main__":
    main()
