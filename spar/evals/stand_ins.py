"""Stand-ins: tools that answer as a case says, and the planner that plays a past conversation again."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from spar.errors import PermanentError
from spar.evals.cases import AnsweringTool, EvalCase, PastCall, PastTurn, ToolAnswer
from spar.evals.conditions import fits
from spar.protocols import Context
from spar.types import Action, Call, Perception


class CallMade(Struct, frozen=True):
    """Call that the model made; `status` is "ok", "failed" or "denied"."""

    tool: str
    params: Mapping[str, Any]
    status: str


class StandIn:
    """Tool of a case, which answers and does nothing. Each call of it is added to `calls`."""

    def __init__(self, name: str, tool: AnsweringTool, calls: list[CallMade]) -> None:
        self.name, self._answers, self._calls = name, tool.answers, calls
        self._given: Counter[int] = Counter()
        self.effect, self.approval, self.timeout = tool.effect, tool.approval, 60.0
        self.brings_untrusted, self.safe_with_untrusted = tool.brings_untrusted, tool.safe_with_untrusted
        properties = {
            key: {"type": "string", "description": value} if isinstance(value, str) else value
            for key, value in tool.params.items()
        }
        self.schema = {
            "type": "object",
            "description": tool.description,
            "properties": {"_tool": {"const": name}, **properties},
            "required": ["_tool", *(key for key in properties if key not in tool.optional)],
        }

    async def __call__(self, **params: Any) -> Any:
        """Return the first answer that fits. Raises: PermanentError with the message of the case."""
        number, answer = next(
            ((number, answer) for number, answer in enumerate(self._answers) if self._fits(number, answer, params)),
            (-1, ToolAnswer(error=f"{self.name} knows nothing about these parameters")),
        )
        self._given[number] += 1
        self._calls.append(CallMade(self.name, params, "failed" if answer.error else "ok"))
        if answer.error:
            raise PermanentError(answer.error)
        return answer.result

    def _fits(self, number: int, answer: ToolAnswer, params: Mapping[str, Any]) -> bool:
        return (not answer.times or self._given[number] < answer.times) and fits(params, answer.when)


class PastTool:
    """Tool of a past conversation, which returns its results in their order."""

    effect, timeout, safe_with_untrusted = "read", 60.0, True

    def __init__(self, name: str) -> None:
        self.name = name
        self.schema: dict[str, Any] = {"type": "object", "properties": {"_tool": {"const": name}}}
        self.results: deque[tuple[Any, str]] = deque()

    def add(self, call: PastCall) -> None:
        """Add a call, whose parameters become known."""
        self.schema["properties"] |= {key: {} for key in call.params}
        self.results.append((call.result, call.error))

    async def __call__(self, **params: Any) -> Any:
        """Return the next result. Raises: PermanentError if its call failed."""
        result, error = self.results.popleft()
        if error:
            raise PermanentError(error)
        return result


class PastPlanner:
    """Planner that makes the calls and gives the answers of a past conversation, a turn for each run."""

    def __init__(self, *, turns: Sequence[dict[str, Any]] = ()) -> None:
        self._turns = deque(turns)
        self._run_id = ""

    async def plan(self, perceptions: Sequence[Perception], context: Context) -> Action:
        """Return the calls of the run's turn, then its answer."""
        run_id = context.run.id if context.run else ""
        turn = self._turns[0]
        calls: Sequence[PastCall] = turn["calls"]
        if calls and run_id != self._run_id:
            self._run_id = run_id
            return Action(calls=[Call(call.tool, call.params) for call in calls])
        return Action(output=self._turns.popleft()["agent"])


def past_of(case: EvalCase) -> tuple[list[PastTurn], list[PastTool]]:
    """Return the turns of the past conversation, those that are repeated one by one, and their tools."""
    tools: dict[str, PastTool] = {}
    turns: list[PastTurn] = []
    for turn in case.history:
        for number in range(1, turn.repeat + 1):
            user, agent = (text.replace("{n}", str(number)) for text in (turn.user, turn.agent))
            turns.append(PastTurn(user=user, agent=agent, calls=turn.calls))
            for call in turn.calls:
                tools.setdefault(call.tool, PastTool(call.tool)).add(call)
    return turns, list(tools.values())
