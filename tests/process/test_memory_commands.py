"""What is remembered, from the outside: taken out, brought in, and what is said of what is typed wrong."""

from __future__ import annotations

import pytest

from tests.process.conftest import Service, Spar

pytestmark = pytest.mark.process


def test_what_is_typed_wrong_is_told_with_what_to_type(spar: Spar, service: Service) -> None:
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
