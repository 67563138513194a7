"""A plan can have people asked about a call, and can never have them not asked."""

from __future__ import annotations

from acting import Executor
from spar.protocols.tools import tool
from spar.types import ASKED, Call, Verdict


async def outcome(meta: dict[str, str], approval: str = "auto") -> tuple[str, list[str]]:
    """Return the status of the call, and what was asked about."""
    asked: list[str] = []

    @tool(approval=approval)  # type: ignore[arg-type]
    def wipe() -> str:
        """Wipe it."""
        return "wiped"

    async def confirm(call: Call) -> Verdict:
        asked.append(call.tool)
        return Verdict.deny("no")

    result = await Executor([wipe]).run([Call("wipe", meta=dict(meta))], confirm=confirm)
    return result.results[0].status, asked


async def test_a_call_that_the_plan_wants_a_word_on_is_asked_about() -> None:
    assert await outcome({ASKED: "it failed twice"}) == ("denied", ["wipe"])
    assert await outcome({}) == ("ok", [])


async def test_no_word_of_the_plan_lets_a_call_pass_that_has_to_be_asked_about() -> None:
    assert await outcome({ASKED: ""}, "ask") == ("denied", ["wipe"])
    assert await outcome({ASKED: "no"}, "deny") == ("denied", [])
