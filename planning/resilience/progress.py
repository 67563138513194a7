"""Progress of the requests of a run. Pure.

A step makes no progress if it repeats the calls of an earlier step with the same results, or if it neither calls nor
answers. After two such steps in a row the run is stuck. The actor has a different guard against repetition: it judges
single calls of an agent's run and warns the planner first. This module judges whole steps of a program's request, which
has no run and may make no calls.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, Final

from planning.prompt.shorten import to_json
from spar.data.json_safe import plain
from spar.types import CallResult

MOST_IDLE: Final = 2
_VARYING = frozenset({"_id", "_reasoningForCall"})


class Progress:
    """Memory of the steps of one run: a digest for each step."""

    __slots__ = ("_idle", "_seen")

    def __init__(self) -> None:
        self._seen: set[bytes] = set()
        self._idle = 0

    def is_stuck(self, results: Iterable[CallResult] = (), planned: Iterable[Any] = ()) -> bool:
        """Add a step and return whether it is the second one in a row without progress.

        Args: results: the results of its calls; planned: calls that it only planned.
        """
        outcomes: list[Any] = [
            [_without_varying(result.call.to_wire()), result.status, result.output, _fault(result)]
            for result in results
        ]
        outcomes += [_without_varying(call) for call in planned]
        text = "\n".join(sorted(map(to_json, plain(outcomes))))
        digest = blake2b(text.encode(), digest_size=16).digest() if outcomes else b""
        self._idle = self._idle + 1 if not outcomes or digest in self._seen else 0
        self._seen.add(digest)
        return self._idle >= MOST_IDLE


def _without_varying(call: Any) -> Any:
    return {key: value for key, value in call.items() if key not in _VARYING} if isinstance(call, dict) else call


def _fault(result: CallResult) -> Any:
    return None if result.fault is None else [result.fault.kind, result.fault.message]
