"""What an agent lends its planner, written down: for tests of planners without an agent around them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from planning.prompt.history import text_of
from spar.hooks import Hooks
from spar.protocols import Context, Host, RunContext
from spar.records.transcript import Entry
from spar.testing import RecordingEvents
from spar.testing.clock import VirtualClock
from spar.types import Action, Call, Perception

NOTE: dict[str, Any] = {
    "type": "object",
    "description": "Keep a note.",
    "properties": {"_tool": {"const": "note"}, "text": {"type": "string"}},
    "required": ["text"],
}


class Tool:
    """A tool as `host.tools()` gives it."""

    def __init__(self, name: str = "note", *, brings_untrusted: bool = False) -> None:
        self.name, self.brings_untrusted = name, brings_untrusted
        self.schema = {**NOTE, "properties": {**NOTE["properties"], "_tool": {"const": name}}}


class Kept:
    """Transcripts in memory."""

    def __init__(self, entries: Sequence[Entry] = ()) -> None:
        self.entries = list(entries)
        self.compacted: list[Entry] = []

    async def read(self, session: str) -> Sequence[Entry]:
        if not self.compacted:
            return list(self.entries)
        last = self.compacted[-1]
        return [last, *(each for each in self.entries if each.seq >= last.body["first_kept"])]

    async def compact(self, session: str, run_id: str, entry: Entry) -> None:
        self.compacted.append(entry)


class Desk:
    """A host, and what was asked of it."""

    def __init__(
        self,
        clock: VirtualClock,
        *,
        tools: Mapping[str, Any] | None = None,
        entries: Sequence[Entry] = (),
        rows: Callable[[str], Any] = lambda name: None,
    ) -> None:
        self.events, self.transcripts, self.hooks = RecordingEvents("a"), Kept(entries), Hooks()
        self.pursued: list[Perception] = []
        self.problems: list[tuple[str, str]] = []
        self.anew: list[str] = []
        self.notes: list[tuple[str, dict[str, Any]]] = []
        self.used: list[tuple[str, dict[str, int]]] = []
        self.tools = {"note": Tool()} if tools is None else tools
        self.host = Host(
            "a", clock, self.events, self.hooks, lambda: None, tools=lambda: self.tools, pursue=self._pursue,
            rows=rows,
            tell_problem=self._tell_problem,
            transcripts=self.transcripts, used=lambda run_id, usage: self.used.append((run_id, dict(usage))),
            note=lambda cycle_id, what: self.notes.append((cycle_id, what())),
        )  # fmt: skip

    def _tell_problem(self, about: str, why: str, is_note: bool = False) -> None:
        if about.startswith("the conversation of "):
            self.anew.append(why)
        else:
            self.problems.append((about, why))

    async def _pursue(self, perception: Perception) -> str:
        self.pursued.append(perception)
        return "pursued"


def message(text: str = "what is new?", trust: Any = "trusted", **more: Any) -> Perception:
    return Perception(text, source="messages", kind="message", trust=trust, **more)


def context(asked: Perception | None = None, *, number: int = 1, memory: Any = None, **run: Any) -> Context:
    """A cycle of run `r`; `asked` is what it is about."""
    asked = asked or message()
    trust = "untrusted" if "untrusted" in (asked.trust, *(each.trust for each in run.get("said", ()))) else "trusted"
    about = RunContext("r", asked.text, number, message=asked, **{"trust": trust, **run})
    return Context("a", f"c{number}", run=about, memory=memory)


async def planned(planner: Any, perceptions: Sequence[Perception] = (), given: Context | None = None) -> list[Any]:
    """All that a planner hands on, in order."""
    return [item async for item in planner.plan(perceptions, given)]


def calls_of(items: Sequence[Any]) -> list[Call]:
    return [each for each in items if isinstance(each, Call)]


def decided(items: Sequence[Any]) -> Action:
    assert isinstance(items[-1], Action)
    return items[-1]


def read_of(request: Any) -> str:
    """All that a model reads of a request apart from its schema and instructions."""
    return "\n".join([*map(text_of, request.turns), *request.texts])


def user(text: str, run: str, seq: int, trust: str = "trusted") -> Entry:
    return Entry("user", {"text": text, "id": f"m{seq}", "trust": trust}, run, seq)


def turn(run: str, seq: int, *calls: dict[str, Any], output: Any = None) -> Entry:
    return Entry("turn", {"calls": list(calls), "reason": "", "output": output}, run, seq)


def end(reply: str | None, run: str, seq: int, **more: Any) -> Entry:
    return Entry("end", {"status": "ok", "error": "", "reply": reply, "silent": False, **more}, run, seq)
