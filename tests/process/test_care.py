"""Copying, putting back, checking and examining what is kept, from the shell, while the service runs and while not."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.process


def found(spar: Any, name: str) -> dict[str, Any]:
    return next(line for line in spar("doctor", "--json").json if line["name"] == name)


def test_a_copy_is_made_while_the_service_runs_and_put_back_when_it_does_not(spar: Any, service: Any) -> None:

    assert spar("send", "hello").code in (0, 1)
    made = spar("memory", "backup", "copy.db", "--json")
    assert made.code == 0, made
    assert made.json["bytes"] == (spar.folder / "copy.db").stat().st_size
    refused = spar("memory", "restore", "copy.db")
    assert refused.code == 69, refused
    assert "is in use by process" in refused.err
    assert found(spar, "service")["found"] == "runs"

    service.stop()
    before = spar("memory", "verify", "--json").json
    restored = spar("memory", "restore", "copy.db", "--json")

    assert restored.code == 0, restored
    assert Path(restored.json["set_aside"]).exists()
    entry = spar("audit", "list", "--json").json[0]
    assert (entry["action"], entry["origin"], entry["actor"]) == ("memory.restore", "shell", getpass.getuser())
    assert entry["detail"]["set_aside"] == restored.json["set_aside"]
    assert spar("memory", "verify").code == 0
    assert before["is_whole"]


def test_the_doctor_is_content_before_the_first_start_and_says_what_is_wrong_with_a_configuration(spar: Any) -> None:
    first = spar("doctor")
    assert first.code == 0, first
    assert "there is none at" in first.out
    assert "BAD" not in first.out

    spar.write("[agent]\nnonsense = 1\n")
    second = spar("doctor", "--json")

    assert second.code == 1, second
    assert [line["state"] for line in second.json] == ["bad"]
    assert "nonsense" in second.json[0]["found"]


def test_a_loss_is_bad_until_somebody_acknowledges_it(spar: Any, service: Any) -> None:
    from memory.care import losses

    service.stop()
    [file] = spar.state.glob("*.db")
    losses.note(str(file), ["what came after noon is missing"])

    asked = spar("doctor")
    assert asked.code == 1
    assert "what came after noon is missing" in asked.out
    assert "spar doctor --acknowledge" in asked.out
    acknowledged = spar("doctor", "--acknowledge")
    assert "1 losses" in acknowledged.out
    assert [each["action"] for each in spar("audit", "list", "--json").json][:1] == ["memory.acknowledge"]
    assert spar("audit", "verify").code == 0
    assert found(spar, "service")
    assert "what came after noon" not in spar("doctor").out
