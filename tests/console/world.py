"""A service with a scripted planner, for people who look at its console and for tests of it.

By itself, `python -m tests.console.world FOLDER` serves at a port, and says its address and a token.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.process.conftest import Spar

#: The planner does what a message says: "stream", "pay 5", "fan 30", "fail", "look", "say TEXT", "wait" (for a file).
PARTS = '''
import asyncio, pathlib
from spar import Action, Call, tool
from spar.events import AssistantDelta

@tool(effect="read")
async def look(at: str, seconds: float = 0.0) -> str:
    """Look at something."""
    await asyncio.sleep(seconds)
    return f"seen: {at}"

@tool(effect="once", approval="ask")
async def pay(to: str, amount: int, note: str = "") -> dict:
    """Pay somebody."""
    return {"paid": amount, "to": to}

@tool(effect="idempotent")
async def broken(at: str) -> str:
    """Fail always."""
    raise ValueError(f"the printer {at} does not answer")

STORY = ("The disk of the build machine ", "is 93 % full. ", "I looked at the largest folders, ", "and the caches ",
         "take most of it. ", "They can be deleted ", "without loss.")

class Player:
    def attach(self, host):
        self.events = host.events

    async def plan(self, perceptions, context):
        run = context.run
        if run is None:
            files = [item for item in perceptions if item.kind.startswith("file")]
            return files and Action(goal="look at new files", reason="a file is new", calls=tuple(
                Call("look", {"at": item.text[:200]}, reason="it is new") for item in files)) or None
        verb, _, rest = run.goal.partition(" ")
        if run.number == 1:
            if verb == "pay":
                call = Call("pay", {"to": "ada", "amount": int(rest.split()[0]), "note": rest}, reason="it was asked")
                return Action(goal=f"pay {rest}", reason="the message asks for a payment", calls=(call,))
            if verb == "fan":
                number = int(rest)
                first = Call("look", {"at": "root", "seconds": 0.02}, id="root")
                return Action(goal="look everywhere", reason="many places at once", calls=(first, *(
                    Call("look", {"at": f"place {i}", "seconds": 0.01 * (i % 7)}, id=f"c{i}",
                         after=("root",) if i % 3 else (f"c{i - 1}",) if i else ()) for i in range(number))))
            if verb == "fail":
                return Action(goal="print it", reason="the message asks for a print", calls=(
                    Call("broken", {"at": "LPT1"}), Call("look", {"at": "paper"})))
            if verb == "look":
                return Action(goal=run.goal, reason="somebody asks", calls=(Call("look", {"at": rest}),))
        if verb in ("stream", "wait"):
            for piece in STORY[:4]:
                self.events.publish(AssistantDelta(run_id=run.id, text=piece))
                await asyncio.sleep(0.02)
            while verb == "wait" and not pathlib.Path("go").exists():
                await asyncio.sleep(0.02)
            for piece in STORY[4:]:
                self.events.publish(AssistantDelta(run_id=run.id, text=piece))
            return Action(output="".join(STORY), reason="this is known")
        return Action(output=rest if verb == "say" else f"done: {run.goal}", reason="the work is done")
'''
CONFIG = """
[agent]
loop_interval = 0.2

[approval]
hold = 0.2
expires = "1h"

[[sensors]]
use = "messages"

[[sensors]]
use = "directory"
name = "inbox"
options = { path = "inbox" }

[plan]
use = "mine:Player"

[[tools]]
use = "mine:look"

[[tools]]
use = "mine:pay"

[[tools]]
use = "mine:broken"

[budgets]
hour = { calls = 5000 }
"""


def furnish(spar: Spar) -> None:
    """Write the configuration and the parts of the service."""
    (spar.folder / "mine.py").write_text(PARTS)
    spar.inbox.mkdir(exist_ok=True)
    spar.write(CONFIG)


def main(folder: str) -> None:
    """Serve until it is stopped."""
    from tests.process.conftest import Service

    spar: Any = Spar(Path(folder))
    furnish(spar)
    service = Service(spar)
    service.ready()
    answer = service.api("/v1/tokens", "POST", json={"name": "console", "scopes": ["admin"]})
    print(service.address, answer.json().get("token", answer.text), flush=True)  # noqa: T201
    service.process.wait()


if __name__ == "__main__":
    import sys

    main(sys.argv[1])
