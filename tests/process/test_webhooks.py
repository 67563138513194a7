"""What is posted to a running service, and what is left of it when that is killed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.process.conftest import PATIENCE

pytestmark = pytest.mark.process

TOKEN = "0123456789abcdef0123456789abcdef"
CONFIG = """
[[sensors]]
use = "webhook"
name = "alerts"
options = { format = "alertmanager", token = { file = "token" } }

[[tools]]
use = "note"

[[rules]]
name = "write down"
when = { kind = "alert.*" }

[[rules.calls]]
tool = "note"
params = { title = "{kind}", text = "{content} {attributes.status}", tags = ["hook"] }
"""


def notes(spar: Any) -> list[str]:
    """Return what was said of alerts in the notes that were taken."""
    lines = [line.strip() for each in sorted(spar.workspace.rglob("*.md")) for line in each.read_text().splitlines()]
    return [line for line in lines if not line.startswith("#") and (" fires" in line or " is resolved" in line)]


ALERT = {
    "alerts": [
        {"status": "firing", "labels": {"alertname": "Hot"}, "startsAt": "2026-01-01T00:00:00Z", "fingerprint": "f1"}
    ]
}
BEARER = {"authorization": f"Bearer {TOKEN}"}


def test_killed_before_its_answer_an_alert_is_handled_once_when_its_sender_tries_again(
    spar: Any, start: Callable[..., Any]
) -> None:
    def post(service: Any) -> httpx.Response:
        return httpx.post(f"{service.address}/hooks/alerts", json=ALERT, headers=BEARER, timeout=PATIENCE,
                          trust_env=False, verify=False)  # fmt: skip

    spar.write(CONFIG)
    (spar.folder / "token").write_text(TOKEN)
    first = start(environ={"SPAR_CRASH": "sense.committed_before_ack:1"}).ready()
    with pytest.raises(httpx.HTTPError):
        post(first)
    first.wait()

    second = start().ready()

    assert post(second).json() == {"accepted": 0, "known": 1}
    spar.until(lambda: notes(spar), "the note")
    assert post(second).status_code == 200
    spar.until(lambda: second.agent["recovery"]["in_hand"] == 0, "nothing in hand")
    assert notes(spar) == ["Hot fires firing"]
