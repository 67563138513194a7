"""Watch a folder: each file that is dropped into it is noticed once, and a tool is called for it."""

import asyncio
import tempfile
from pathlib import Path

from perception import Sense
from perception.sensors.directory import DirectorySensor
from planning import RulesPlanner
from spar import Agent, tool
from spar.events import CallCompleted
from spar.protocols import Home, SensorSpec


@tool(effect="read")
async def count_words(text: str) -> int:
    "Count the words of a text."
    return len(text.split())


RULES = [
    {
        "name": "count the words of what is dropped",
        "when": {"kind": "file.added"},
        "calls": [{"tool": "count_words", "params": {"text": "{content}"}}],
    }
]


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        inbox = Path(folder, "inbox")
        home = Home(config=folder, workspace=folder, state=folder)
        sensor = SensorSpec("inbox", DirectorySensor(str(inbox), home=home, settle=0.1))
        agent = Agent(sense=Sense([sensor]), plan=RulesPlanner(RULES), tools=[count_words], loop_interval=0.1)
        counted = agent.events.stream(CallCompleted)
        async with agent:
            (inbox / "hello.txt").write_text("three short words")
            async for event in counted:
                if isinstance(event, CallCompleted):  # a `Gap` would say that this program was too slow
                    print(event.call.params["text"], "->", event.result.output)
                    break


asyncio.run(main())
