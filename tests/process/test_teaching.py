"""An owner teaches a running service which intent a text has, kills it, and takes the lesson back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.process.conftest import Service, Spar

CONFIG = """
[agent]
loop_interval = "off"

[perception.intents.restart_service]
examples = ["restart {service}", "please restart {service} now", "bounce {service}", "start {service} again"]

[perception.intents.show_bill]
file = "bills.txt"

[perception.learning]
files = ["more.jsonl"]

[[rules]]
name = "restart"
when = { intent = "restart_service" }
answer = "restarting {attributes.slots.service|it}"

[[rules]]
name = "bill"
when = { intent = "show_bill" }
answer = "your bill"

[[rules]]
name = "else"
when = { kind = "message" }
answer = "{intent}"

[log]
format = "json"
"""
BILLS = "show me the bill of May\nwhat do I owe\n\nthe invoice of last month please\nhow much is my bill\n"
MORE = '{"text": "how much money do I owe you", "intent": "show_bill"}\n'


@pytest.fixture
def taught(spar: Spar) -> Spar:
    (spar.folder / "bills.txt").write_text(BILLS)
    (spar.folder / "more.jsonl").write_text(MORE)
    spar.write(CONFIG)
    return spar


def said(spar: Spar, text: str) -> str:
    return spar("send", text).out.strip()


def test_what_it_is_taught_counts_at_once_survives_a_kill_and_can_be_forgotten(
    taught: Spar, start: Callable[..., Service]
) -> None:
    service = start().ready()
    assert said(taught, "please restart nginx") == "restarting nginx"
    assert said(taught, "show the bill of June") == "your bill"
    assert said(taught, "my frontdoor is grumpy") == "unknown"

    told = taught("examples", "teach", "my frontdoor is grumpy", "restart_service")

    assert told.code == 0
    assert "'my frontdoor is grumpy' has the intent restart_service" in told.out
    assert said(taught, "my frontdoor is  grumpy") == "restarting it"
    assert taught("pause").code == 0
    service.kill()  # with -9, right after the answer
    service = start(of_run=["--resume"]).ready()
    assert not any(line["msg"] == "still paused" for line in service.log)
    assert said(taught, "my frontdoor is grumpy") == "restarting it"
    listed: dict[str, Any] = taught("--json", "examples", "list").json
    assert [(row["label"], row["text"]) for row in listed["taught"]] == [("restart_service", "my frontdoor is grumpy")]
    assert {(row["label"], row["written"], row["taught"]) for row in listed["labels"]} == {
        ("restart_service", 4, 1),
        ("show_bill", 5, 0),
    }
    assert "restart_service (0.99)" in taught("examples", "try", "my frontdoor is grumpy").out

    assert taught("examples", "forget", listed["taught"][0]["id"]).code == 0

    assert said(taught, "my frontdoor is grumpy") == "unknown"
    assert "grumpy" not in taught("examples", "list").out
    assert service.stop() == 0
