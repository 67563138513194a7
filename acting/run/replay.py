"""Replay of an interrupted batch: calls that had a result get it again, and do not run again.

Where the messages of the interrupted batch are known, its values are on the board already: each call gets its result
when it arrives. Where only results are known, as from a journal, all calls arrive first; then they end in the order of
these results, and their values are written to the board again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from acting.graph.graph import Graph
from acting.run.call.call_state import Step
from acting.run.holds.rule import judge_trust
from acting.run.results import Writes
from acting.run.runtime import Runtime
from spar.types import ActionResult, CallResult, replace


class Replay(Struct, eq=False):
    """The results, by id, of calls that must not run again; `messages` are those of the interrupted batch."""

    results: dict[str, CallResult]
    messages: Sequence[dict[str, Any]] = ()
    is_on_board: bool = False  # whether the values of these calls are on the board

    @classmethod
    def of(cls, cut: ActionResult) -> Replay | None:
        """Return the replay of an interrupted batch by its result; None if no call of it has ended."""
        results = _by_id(filter(_is_final, cut.results))
        if not cut.messages:
            return cls(results) if results else None
        messages = [message for message in cut.messages if message.get("kind") != "error"]
        return cls(results, messages, is_on_board=True)

    @classmethod
    def known(cls, results: Iterable[CallResult]) -> Replay:
        """Return the replay of results from a journal."""
        return cls(_by_id(results))

    def take_over(self, step: Step, runtime: Runtime, graph: Graph) -> bool:
        """Give an arriving call its known result, if the values are on the board; return whether it has one now."""
        ended = self.results.get(step.id) if self.is_on_board else None
        if ended is None:
            return False
        graph.refuse(step, step.target, step.call.instance)  # adds the call as one that will not run
        judge_trust(runtime, step, step.scope.trust)  # records which paths it wrote, if it is untrusted
        step.result = replace(ended, call=step.call)
        graph.end(step, ended.status == "ok")
        return True

    def endings(self, runtime: Runtime, graph: Graph, writes: Writes) -> Iterator[tuple[Step, CallResult]]:
        """Yield the calls with known results, each with its result, in the order of the results.

        Each counts as begun now, so that its write is no conflict with the one before.
        """
        for id, result in self.results.items():
            step: Any = graph.known.get(id)
            if step is not None and step.result is None:
                step.moment = writes.count
                judge_trust(runtime, step, step.scope.trust)
                yield step, replace(result, call=step.call)


def _by_id(results: Iterable[CallResult]) -> dict[str, CallResult]:
    return {result.call.id: result for result in results}


def _is_final(result: CallResult) -> bool:
    """Return whether a call of an interrupted batch must not run again: it ended, or may have had its effect."""
    return result.status not in ("cancelled", "skipped")
