"""Progress of the requests of a run; pure.

A step that makes the calls of an earlier one again, and comes by the same, was in vain; so was one that neither calls
nor answers. Two such steps in a row, and the run is going round in circles. An actor's own guard is another one: it
judges single calls of an agent's run and warns the planner first; here whole steps of a program's request are judged,
which have no run and may call nothing.
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
    """Remembers what the steps of one run did, by a digest each."""

    __slots__ = ("_idle", "_seen")

    def __init__(self) -> None:
        self._seen: set[bytes] = set()
        self._idle = 0

    def is_stuck(self, results: Iterable[CallResult] = (), planned: Iterable[Any] = ()) -> bool:
        """Take in a step: what became of its calls, or what it only planned. Whether it is one too many in vain."""
        did: list[Any] = [[_said(each.call.to_wire()), each.status, each.output, _fault(each)] for each in results]
        did += [_said(call) for call in planned]
        digest = blake2b("\n".join(sorted(map(to_json, plain(did)))).encode(), digest_size=16).digest() if did else b""
        self._idle = self._idle + 1 if not did or digest in self._seen else 0
        self._seen.add(digest)
        return self._idle >= MOST_IDLE


def _said(call: Any) -> Any:
    return {key: value for key, value in call.items() if key not in _VARYING} if isinstance(call, dict) else call


def _fault(result: CallResult) -> Any:
    return None if result.fault is None else [result.fault.kind, result.fault.message]
