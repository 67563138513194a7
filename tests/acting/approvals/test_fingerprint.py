"""What binds a call stays what it was: grants that people gave under an earlier release go on."""

from __future__ import annotations

from typing import Any

from acting.approvals.decisions import Fingerprinter
from acting.mcp.tools import RemoteTool, ToolPolicy
from acting.tooling.bound_tool import BoundTool
from acting.tooling.registry import Catalog
from spar.testing import VirtualClock
from spar.types import Call

DEFINITION = {"name": "pay", "inputSchema": {"type": "object", "properties": {"to": {"type": "string"}}}}
#: As the first build computed it.
DIGEST = "2dc3fa87d0eb50b3030f2ef5aa8b225457a17cce4cf03de256f19da463bb13d2"


async def _send(*_: Any) -> None: ...


async def test_a_grant_for_a_tool_of_a_server_outlives_the_move_of_its_code(clock: VirtualClock) -> None:
    catalog = Catalog([RemoteTool("pay", DEFINITION, ToolPolicy(), _send)])

    def check(call: Call) -> tuple[Call, BoundTool]:
        return call, catalog[call.tool]

    fingerprinter = Fingerprinter(check, "r1", clock)
    bound = fingerprinter.checked(Call("pay", {"to": "baker"}), "main")

    assert (await fingerprinter.fingerprint(bound))[0] == DIGEST
