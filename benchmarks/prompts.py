"""What composing a request costs in a long conversation: 200 turns, five files, ten skills, ten tools.

All that a request needs is looked at anew each time: the files on the disk, the transcript, the tools; then it is made
to fit, given its digest and recorded. The limit is to ask the disk for the files and to join the texts that are sent.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.harness import Effort, compare
from benchmarks.table import Line, amount, compared
from planning.bootstrap.files import PromptFiles
from planning.bootstrap.session_prompts import SessionPrompts
from planning.bootstrap.skills import Skills
from planning.bootstrap.snapshots import Snapshots
from planning.llm.cycle.request import CycleRequest
from planning.llm.planner import ModelPlanner
from planning.ports import Request
from spar.clock import SystemClock
from spar.hooks import Hooks
from spar.protocols import Context, Home, Host, RunContext
from spar.records.transcript import Entry
from spar.types import Perception

OWED, MOONSHOT = 3.0, 1.0  # milliseconds of processor time
TURNS, FILES, SKILLS, TOOLS = 200, 5, 10, 10
_FILE: Final = "Some words of advice, as they stand in such a file.\n" * 200


class Offered:
    """A tool as a planner is shown it."""

    def __init__(self, name: str) -> None:
        self.name = name
        text = {"type": "string", "description": "what it is about"}
        self.schema = {"type": "object", "description": "Does something.", "required": ["text"],
                       "properties": {"_tool": {"const": name}, "text": text}}  # fmt: skip


class Said:
    """The transcript of one session."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries

    async def read(self, session: str) -> Sequence[Entry]:
        return self._entries

    async def compact(self, session: str, run_id: str, entry: Entry) -> None:
        raise AssertionError("nothing is summed up here")


class Quiet:
    """Whatever is told, nobody listens."""

    def publish(self, event: Any) -> None:
        """Tell nobody."""


async def measure(effort: Effort) -> list[Line]:
    with tempfile.TemporaryDirectory() as folder:
        planner, context = planner_of(Path(folder))

        async def spar(count: int) -> None:
            for _ in range(count):
                await composed(planner, context)

        request = await composed(planner, context)
        read = [request.instructions, *request.preface, *(turn.text for turn in request.turns)]
        paths = [str(Path(folder, f"F{number}.md")) for number in range(FILES)]

        async def joined(count: int) -> None:
            for _ in range(count):
                for path in paths:
                    os.stat(path)  # noqa: PTH116
                "\n\n".join(read).encode()

        assert (len(request.turns) - request.own, planner.record.requests[-1]) == (TURNS, request)
        measured, limit = await compare({"spar": spar}, joined, effort)
    title = "request of a long conversation"
    return [
        compared(None, title, measured["spar"], "the files looked at, the texts joined", limit, is_limit=True),
        amount(None, title, measured["spar"].cpu * 1e3, "ms", owed=OWED, moonshot=MOONSHOT, by="cpu"),
    ]


def planner_of(folder: Path) -> tuple[ModelPlanner, Context]:
    """Return a planner with files and skills, and a run in a session in which much was said."""
    home = Home(str(folder), str(folder / "workspace"), str(folder / "state"))
    for number in range(FILES):
        (folder / f"F{number}.md").write_text(_FILE)
    for number in range(SKILLS):
        own = folder / "skills" / f"skill-{number}"
        own.mkdir(parents=True)
        (own / "SKILL.md").write_text(f"---\nname: skill-{number}\ndescription: Does it well.\n---\nDo it.\n")
    entries: list[Entry] = []
    for number in range(TURNS // 2):
        run, text = f"r{number}", f"question {number} about a matter of some interest; " * 3
        entries.append(Entry("user", {"text": text, "id": run, "trust": "trusted"}, run, 2 * number + 1))
        end = {"status": "ok", "error": "", "reply": f"answer {number}, with a few words more; " * 5, "silent": False}
        entries.append(Entry("end", end, run, 2 * number + 2))
    tools: Mapping[str, Any] = {f"tool_{number}": Offered(f"tool_{number}") for number in range(TOOLS)}
    files = PromptFiles([f"F{number}.md" for number in range(FILES)], home)
    prompts = SessionPrompts("Be kind.", files, Snapshots(Skills("skills", home)))
    planner = ModelPlanner(unasked, instructions=prompts, context_tokens=200_000)
    clock = SystemClock()
    planner.attach(Host("a", clock, Quiet(), Hooks(), lambda: None, tools=lambda: tools, transcripts=Said(entries)))
    asked = Perception("and now?", source="messages", kind="message", trust="trusted")
    return planner, Context("a", "c1", run=RunContext("r", "and now?", message=asked), clock=clock)


async def composed(planner: ModelPlanner, context: Context) -> Request:
    """Return the next request, recorded as one that is sent."""
    request = await CycleRequest(planner, [], context).request()
    planner.record.begin(request)
    return request


async def unasked(request: Request) -> Any:
    """Stand for a model. Raises: AssertionError."""
    raise AssertionError("no model is asked here")
