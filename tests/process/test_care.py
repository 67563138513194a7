"""Taking out, bringing in, copying and examining what is kept, from the shell, with the service and without."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Any

import pytest

from memory.care import losses

pytestmark = pytest.mark.process


def found(spar: Any, name: str) -> dict[str, Any]:
    return next(line for line in spar("doctor", "--json").json if line["name"] == name)


def test_what_is_kept_is_taken_out_brought_in_copied_put_back_and_what_is_lost_acknowledged(
    spar: Any, service: Any
) -> None:
    assert spar("send", "note: the colour of the cellar door is green").code == 0
    exported = spar.folder / "all.jsonl"
    assert spar("memory", "export", str(exported)).code == 0
    number = len(exported.read_text().splitlines())
    assert spar("memory", "import", str(exported)).out == (
        f"0 new experiences, untrusted; {number} of {number} were here already, and stay as they are\n"
    )

    refused = spar("memory", "import", str(spar.config))
    assert refused.code == 65
    assert "line 2: no JSON" in refused.err
    assert "expected a JSON object a line, as spar memory export writes them" in refused.err
    assert "must be a time (2026-01-31" in spar("memory", "search", "--since", "yesterday").err
    assert "must be a time (2026-01-31" in spar("audit", "list", "--since", "yesterday").err
    assert "spar memory search lists those that are" in spar("memory", "forget", "nope").err
    said = spar("memory", "transcripts", "cellar").out
    assert "the colour of the cellar door is green" in said
    assert "{" not in said

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

    file = spar.state / "memory.db"
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
