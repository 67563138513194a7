"""What a real service has cost, told by it, by the memory of a killed one, and by `spar top`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.process.conftest import PATIENCE, Service, Spar, until
from tests.process.conversation import Novelist, configured
from tests.servers.llm import served
from tests.servers.llm_replies import Reply, says

pytestmark = pytest.mark.process
pytest.importorskip("pydantic_ai", reason="the library of models (spar-agent[llm]) is not installed")

RULE = """
[[rules]]
name = "look first"
when = { kind = "message", pattern = "^look at" }
calls = [{ tool = "measure", params = { what = "water" } }]
"""


def cost(spar: Spar, *arguments: str) -> Any:
    return spar("cost", *arguments, "--json").json


def test_what_it_cost_is_known_by_model_session_rule_and_day(spar: Spar, start: Callable[..., Service]) -> None:
    def answer(text: str) -> Reply:
        return says("fine", usage=(1_000, 400, 10))

    with served(Novelist({"hi": answer, "look": answer})) as server:
        configured(spar, server.url, more=RULE)
        spar.edit("recall = 0\n", 'recall = 0\nrules_are = "first"\n')
        service = start().ready()
        (earlier,) = cost(spar)["unknown"]
        assert re.match(r"what was asked before 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d \(UTC\) is not known", earlier)
        assert spar("cost").out.startswith("no model was asked\n\nwhat was asked before")
        for session, text in (("alice", "[hi] you"), ("alice", "[hi] again"), ("bob", "look at it [look]")):
            assert spar("send", "--session", session, text).code == 0
        known = until(lambda: (answer := cost(spar))["total"]["requests"] == 3 and answer, "three requests", PATIENCE)
        assert known["rows"] == [{
            "what": "scripted", "requests": 3, "input_tokens": 3_000, "cached_tokens": 1_200, "output_tokens": 30,
            "cached": 0.4, "money": 3_060, "unpriced": 0, "unmeasured": 0,
        }]  # fmt: skip
        by_session = {row["what"]: row["requests"] for row in cost(spar, "--by", "session")["rows"]}
        assert by_session == {"alice": 2, "bob": 1}
        by_rule = {row["what"]: row["requests"] for row in cost(spar, "--by", "rule")["rows"]}
        assert by_rule == {"": 2, "look first": 1}
        assert [row["what"] for row in cost(spar, "--by", "session", "--limit", "1")["rows"]] == ["alice"]
        told = service.api("/v1/costs?by=model").json()
        service.kill()
        assert cost(spar) == known == told
        text = spar("cost", "--since", "30d").out
        assert "40%" in text
        assert "0.0031" in text
        assert "is not known: costs are recorded since then" in text
