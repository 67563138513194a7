"""Results that calls had before their batch was cut off: those calls end so again, and do not run again.

Where the messages of the cut batch are known, its values stand on the board: each call takes its result over as it
arrives. Where only results are known, as from a journal, all calls arrive first and then end in the order of these
results; what they wrote is written again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct, field

from acting.calls import Scope
from acting.graph.graph import Graph
from acting.run.authorize import judge_trust
from acting.run.call.call_state import Step
from acting.run.results import ResultCollector
from acting.run.shared.runtime import Runtime
from spar.types import ActionResult, CallResult, replace


class Replay(Struct, eq=False):
    """The results, by id, of calls that are not to run again; `messages` are what the cut batch has said already."""

    results: dict[str, CallResult]
    messages: Sequence[dict[str, Any]] = ()
    is_on_board: bool = False  # whether the values of these calls stand on the board
    _steps: dict[str, Step] = field(default_factory=dict)  # those of the calls that have arrived, by id

    @classmethod
    def of(cls, cut: ActionResult) -> Replay | None:
        """Return the results of a batch that was cut and the messages that hold its values; None if there are none."""
        results = _by_id(filter(_is_final, cut.results))
        if not cut.messages:
            return cls(results) if results else None
        messages = [each for each in cut.messages if each.get("kind") != "error"]
        return cls(results, messages, is_on_board=True)

    @classmethod
    def known(cls, results: Iterable[CallResult]) -> Replay:
        """Return the results that a journal knows of."""
        return cls(_by_id(results))

    def note(self, step: Step) -> None:
        """Take note of a call that has arrived and may be one of these."""
        if step.id in self.results:
            self._steps[step.id] = step

    def take_over(self, step: Step, runtime: Runtime, graph: Graph, scope: Scope) -> bool:
        """Give a call that arrives the result it had, if its value is on the board; return whether it has one now."""
        ended = self.results.get(step.id) if self.is_on_board else None
        if ended is None:
            return False
        graph.refuse(step, step.target, step.call.instance)
        judge_trust(runtime, step, scope.trust, scope)
        step.result = replace(ended, call=step.call)
        graph.end(step, ended.status == "ok")
        return True

    def endings(self, runtime: Runtime, collector: ResultCollector, scope: Scope) -> Iterator[tuple[Step, CallResult]]:
        """Yield the calls that are to end again, each with its result, in the order of the results."""
        for id, result in self.results.items():
            if (step := self._steps.get(id)) is not None and step.result is None:
                collector.moment += 1
                step.began = collector.moment
                judge_trust(runtime, step, scope.trust, scope)
                yield step, replace(result, call=step.call)


def _by_id(results: Iterable[CallResult]) -> dict[str, CallResult]:
    return {each.call.id: each for each in results}


def _is_final(result: CallResult) -> bool:
    """Return whether a call of a batch that was cut is not to be done again: it ended, or may have had its effect."""
    return result.status not in ("cancelled", "skipped")
