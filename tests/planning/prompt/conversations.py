"""Five conversations, as their transcripts have them, and the next message of a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from planning.ports import Request, Turn
from planning.prompt.history import conversation
from planning.prompt.observations import MEMORY, NOTICED, UNASKED
from planning.prompt.request import compose
from spar.records.transcript import Entry

Wire = dict[str, Any]

#: The tools that are offered in all of them.
TOOLS: Final[Sequence[Wire]] = (
    {
        "description": "Look at a printer.",
        "properties": {"_tool": {"const": "look"}, "floor": {"type": "integer", "description": "Its floor."}},
        "required": ["floor"],
    },
    {
        "description": "Order something for a printer.",
        "properties": {"_tool": {"const": "order"}, "what": {"type": "string", "description": "What to order."}},
        "required": ["what"],
    },
)


class Script:
    """Writer of a transcript: what people say, what the model calls and answers."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._heard: list[Wire] = []
        self._run = 1

    def _add(self, kind: Any, body: Wire) -> None:
        self.entries.append(Entry(kind, body, f"r{self._run}", len(self.entries) + 1))

    def say(self, text: str) -> Script:
        """Add words of a person."""
        self._add("user", {"text": text, "id": f"m{len(self.entries)}", "trust": "trusted"})
        self._heard.append({"messages": [f"m{len(self.entries) - 1}"]})
        return self

    def tell(self, *blocks: str, trust: str = "trusted") -> Script:
        """Add context."""
        self._heard.append({"blocks": list(blocks), "trust": trust})
        return self

    def call(self, *records: Wire, said: str = "") -> Script:
        """Add calls with their results."""
        self._add("turn", {"calls": list(records), "said": said, "additions": self._heard})
        self._heard = []
        return self

    def answer(self, text: str) -> Script:
        """Add the answer of a run, and begin another."""
        self._add("turn", {"calls": [], "output": text, "additions": self._heard})
        self._add("end", {"status": "ok", "error": "", "reply": text})
        self._heard, self._run = [], self._run + 1
        return self


def made(name: str, output: Any = None, *, id: str, status: str = "ok", reason: str = "", error: str = "",
         **params: Any) -> Wire:  # fmt: skip
    """The record of a call."""
    wire = {"_tool": name, **params, "_id": id, "_toolCallId": f"call_{id}"}
    return {"call": wire, "status": status, "reason": reason, "output": output, "error": error or None}


def conversations() -> Mapping[str, Script]:
    return {
        "A question, and a call": Script()
        .say("How is the printer on floor 3?")
        .call(made("look", {"paper": "none", "ink": 0.8}, id="a", floor=3))
        .answer("It has no paper.")
        .say("And on floor 4?"),
        "Calls of one step, one with the result of another": Script()
        .say("Order what the printer on floor 3 needs.")
        .call(
            made("look", {"needs": "paper A4"}, id="a", floor=3, _outputPath="†state.printer"),
            made("order", "ordered: paper A4", id="b", what="†state.printer.needs"),
            said="I look, and order what it says.",
        )
        .answer("Paper A4 is ordered.")
        .say("Thank you."),
        "A failed call, and a person who says something meanwhile": Script()
        .say("Look at all printers.")
        .call(made("look", id="a", status="failed", error="no printer on floor 9", floor=9))
        .say("Only floors 1 and 2, please.")
        .call(made("look", "all is well", id="b", floor=1), made("look", "all is well", id="c", floor=2))
        .answer("Both are well.")
        .say("Good."),
        "An alert, and what memory knows": Script()
        .tell(
            f'{UNASKED}\n{NOTICED}\n- 2026-03-01T08:00:00+00:00 webhook alert (untrusted): "printer 3: no paper"',
            f"{MEMORY}\n- 2026-02-11, printer 3: no paper; did order; it worked; learnt: it needs A4",
            trust="untrusted",
        )
        .call(made("order", "ordered: paper A4", id="a", what="paper A4"))
        .answer("NO_REPLY")
        .say("What happened this morning?"),
        "A call that waits for approval": Script()
        .say("Order a new printer.")
        .call(made("order", id="a", status="skipped", reason="parked", what="a printer"))
        .call(made("order", "ordered: a printer", id="a", what="a printer"))
        .answer("It is ordered.")
        .tell("Tools that mostly fail at this kind of task:\n- look: works in about 2 of 10 cases")
        .say("How is it?"),
    }


def requests() -> Mapping[str, Request]:
    """Return the next request of each conversation."""
    return {name: _request(script) for name, script in conversations().items()}


def _request(script: Script) -> Request:
    *past, last = script.entries
    turns = conversation(past).turns
    told = [item for item in script._heard if "blocks" in item]
    new = [Turn("user", last.body["text"]), *(Turn("context", "\n\n".join(item["blocks"])) for item in told)]
    return compose([], tools=TOOLS, activities=["look", "order"], turns=[*turns, *new], own=len(new), session="a/b")
