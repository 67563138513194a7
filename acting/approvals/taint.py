"""Taint tracking: finds the data of a run that came from outside, so that calls that read it are untrusted.

A call that is untrusted itself, or whose tool says that it `brings_untrusted`, taints what it writes; a call that reads
what is tainted is untrusted, and taints in turn. This holds for all cycles of a run, also of those that an earlier
process made (`recall`). It errs on the safe side: a path stays tainted whatever is written there later, in any
instance. Whatever stays outside of a run (a file, a row, a page) carries no mark: the tools that read it bring
untrusted text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from operator import or_
from typing import Final

from acting.approvals.policy import trust_in
from acting.calls import Scope
from acting.tooling.bound_tool import BoundTool
from spar.data.bounded import BoundedDict
from spar.data.paths import Path, PathIndex, parse_write, references
from spar.types import ActionResult, Call, Trust, trust_of

MOST: Final = 20_000  # runs, more than there can be at once; the least recently used one is dropped first
_RESULT: Final[Path] = ("result",)
#: Kinds of the messages about a call that repeat its text: the words of its error, the parameters that people changed.
_ABOUT: Final[tuple[Path, ...]] = (("correction",), ("error",))
_EVERYTHING: Final[Path] = ()  # the beginning of every path


class Taint:
    """The tainted paths of the `runs` of one executor; none while nothing has come from outside."""

    __slots__ = ("runs",)

    def __init__(self) -> None:
        self.runs: BoundedDict[str, PathIndex[bool]] = BoundedDict(MOST)

    def of_plan(self, stated: Trust | None, trust: Trust, run_id: str | None) -> Trust:
        """Return the trust in the plan of one cycle: as the planner states it, else that of its perceptions (`found`).

        A later cycle of a run has no perceptions of its own; those of the first cycle still count.
        """
        if stated is not None or run_id is None:
            return trust
        if trust == "untrusted":
            self._taint(run_id, [_EVERYTHING])
        tainted = self.runs.get(run_id)
        return "untrusted" if tainted is not None and tainted.at(_EVERYTHING) else trust

    def recall(self, run_id: str, earlier: Iterable[ActionResult], find: Callable[[str], BoundTool | None]) -> None:
        """Taint what the calls of a run's earlier batches tainted; everything, if a call cannot be read any more."""
        for batch in earlier:
            trust = trust_of(batch.action) if batch.action is not None else "untrusted"
            scope = Scope("", run_id=run_id)
            kinds: dict[str, list[str]] = {}
            for message in batch.messages:
                if message.get("type") == "data" and "_call" in message:
                    kinds.setdefault(str(message["_call"].get("_id")), []).append(str(message.get("kind")))
            for call in [result.call for result in batch.results if result.attempts]:
                try:
                    entry = find(call.tool)
                    self.judge(call, entry, "untrusted" if entry is None else trust_in(call, trust), scope)
                    self.wrote(call, entry, trust, scope, kinds.get(call.id, ()))
                except Exception:  # a call in the form of another version
                    self._taint(run_id, [_EVERYTHING])

    def judge(self, call: Call, entry: BoundTool | None, trust: Trust, scope: Scope) -> Trust:
        """Return the trust in a call by its own trust and the data that it reads; taint its output if untrusted."""
        if trust == "trusted" and self.runs and self.reads(call, scope):
            trust = "untrusted"
        if trust == "untrusted" or (entry is not None and entry.terms.brings_untrusted):
            self._taint(_key(scope), _written(call))
        return trust

    def wrote(self, call: Call, entry: BoundTool | None, trust: Trust, scope: Scope, kinds: Iterable[str]) -> None:
        """Taint the kinds of messages that an untrusted call, or one that brings such text, has written by itself."""
        if entry is None or entry.terms.brings_untrusted or trust_in(call, trust) == "untrusted":
            self._taint(_key(scope), [(kind,) for kind in kinds])

    def came_late(self, scope: Scope, kinds: Iterable[str]) -> None:
        """Taint the messages of detached calls: nobody knows any more what these calls had read."""
        if scope.run_id is not None:  # else no later cycle reads them
            self._taint(scope.run_id, [(kind,) for kind in kinds])

    def _taint(self, key: str, paths: Iterable[Path]) -> None:
        tainted = self.runs.get(key)
        if tainted is None:
            tainted = PathIndex(or_)
        self.runs[key] = tainted
        for path in paths:
            tainted.add(path, True)

    def reads(self, call: Call, scope: Scope) -> bool:
        """Return whether a call reads tainted data."""
        tainted = self.runs.get(_key(scope))
        if tainted is None:
            return False
        expressions = chain.from_iterable(references(call.params).values())
        read = [path for expression in expressions for path in expression.paths]
        scopes = call.meta.get("_scopes")
        read += [(kind,) for kind in scopes if isinstance(kind, str)] if isinstance(scopes, (list, tuple)) else []
        return any(tainted.over(path) for path in read)

    def close(self, scope: Scope) -> None:
        """Drop the taint of an ended batch that belongs to no run."""
        if scope.run_id is None:
            self.runs.pop(scope.key, None)


def _key(scope: Scope) -> str:
    return scope.run_id or scope.key


def _written(call: Call) -> list[Path]:
    if call.output_path is None:
        return [_RESULT, *_ABOUT]
    return [*_ABOUT, *parse_write(call.output_path).paths]
