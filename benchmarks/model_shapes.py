"""Plans as a model writes them, in the shapes of LLMCompiler's own tasks, and the least time that they can take.

A plan is written at 50 tokens a second (four characters a token, a step of the server's for each), its tools take 50 to
300 ms, and in the end the model says what came of it. Each way of working on it asks for it in its own way:

    plan     all calls in one answer; what a call needs it refers to
    turns    a call an answer, the values that it needs written out
    layers   all calls of an answer that need nothing of one another
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.graphs import Dependencies
from tests.servers.llm_replies import Reply, Step, ToolCall, says, solves

RATE = 50.0  # tokens a second
SHORTEST, LONGEST = 0.05, 0.3  # seconds of a tool
ANSWER = "It is done, all is well there."
FOUND = "seen at noon"  # what each result of a tool begins with, and nothing else in a request does


@dataclass(frozen=True)
class Shape:
    """A plan: what each call needs, the seconds that it takes, and the tokens a second that it is written with.

    `thought` are the seconds of each answer until its first token.
    """

    needs: Dependencies
    seconds: tuple[float, ...]
    rate: float = RATE
    thought: float = 0.0

    @classmethod
    def of(cls, needs: Dependencies, *, faster: float = 1.0, thought: float = 0.0) -> Shape:
        """With `faster` everything takes so many times less."""
        pick = random.Random(len(needs))
        seconds = (pick.uniform(SHORTEST, LONGEST) / faster for _ in needs)
        return cls(needs, tuple(seconds), RATE * faster, thought / faster)

    def call(self, number: int, *, is_planned: bool) -> ToolCall:
        """The call as it is written in a plan, or by somebody who has seen what it needs."""
        arguments: dict[str, Any] = {"number": number}
        if needs := self.needs[number]:
            arguments["needs"] = [f"†state.v{each}" if is_planned else f"{FOUND} {each}" for each in needs]
        if is_planned and any(number in other for other in self.needs):
            arguments["_outputPath"] = f"†state.v{number}"
        return ToolCall("work", json.dumps(arguments, ensure_ascii=False), id=f"c{number}")

    @property
    def calls(self) -> range:
        return range(len(self.needs))

    @property
    def layers(self) -> list[list[int]]:
        """The calls by how long the longest way to them is."""
        depths: list[int] = []
        for needs in self.needs:
            depths.append(1 + max((depths[other] for other in needs), default=-1))
        return [[number for number in self.calls if depths[number] == depth] for depth in range(max(depths) + 1)]

    def plan(self) -> Reply:
        return self.written(*self.calls, is_planned=True)

    def written(self, *numbers: int, is_planned: bool = False) -> Reply:
        """An answer of these calls."""
        calls = (self.call(number, is_planned=is_planned) for number in numbers)
        return says("", *calls, rate=self.rate, before=(self.thought,))

    def answer(self) -> Reply:
        return says(ANSWER, rate=self.rate, before=(self.thought,))

    @property
    def least(self) -> float:
        """Seconds if every call began with the last byte of it and of what it needs, and nothing else took any time."""
        plan = self.plan()
        ends: list[float] = []
        for number in self.calls:
            written = (last_step(plan, number) + 1) / self.rate
            ends.append(self.seconds[number] + max([written, *(ends[other] for other in self.needs[number])]))
        return 2 * self.thought + max([*ends, events_of(plan) / self.rate]) + events_of(self.answer()) / self.rate


SHAPES: Mapping[str, Dependencies] = {
    "2 at once": ((), ()),
    "4 at once, then one": ((), (), (), (), (0, 1, 2, 3)),
    "8 at once": ((),) * 8,
    "a chain of 4": ((), (0,), (1,), (2,)),
    "a tree of 12": ((), (), (), (), (), (), (0, 1), (2, 3), (4, 5), (6,), (7, 8), (9, 10)),
}

#: Two calls, of which the second is long: the first could have begun while it was being written.
PAIR = (ToolCall("look", {"at": "the door"}), ToolCall("look", {"at": "the window, and all that can be seen from it"}))
FIRST: Mapping[str, Reply] = {
    "native": says("", *PAIR, rate=RATE),
    "structured": solves(*({"_tool": each.name, **json.loads(each.text)} for each in PAIR), rate=RATE),
}
SECOND: Mapping[str, Reply] = {"native": says("It was seen."), "structured": solves(output="It was seen.")}


def events_of(reply: Reply) -> int:
    return sum(isinstance(step, Mapping) for step in _steps(reply))


def last_step(reply: Reply, number: int) -> int:
    """The number of the step with which the arguments of a call are complete."""
    found, text = -1, ""
    for place, step in enumerate(_steps(reply)):
        delta = step.get("delta", {}) if isinstance(step, Mapping) else {}
        if any(part["index"] == number for part in delta.get("tool_calls", ())):
            found = place
        text += delta.get("content") or ""
        if found < 0 and text.count("}") > number:
            return place
    return found


def _steps(reply: Reply) -> list[Step]:
    return list(reply.steps)  # type: ignore[arg-type]
