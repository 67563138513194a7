"""Values about calls that approvals and batches share: the scope of a batch, the ends of a run's earlier calls, and
faults. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from spar.data.json_safe import plain, shortened
from spar.types import ActionResult, Fault, Trust, replace

MESSAGE_LIMIT = 4096  # characters of a fault's message; a planner reads it


class Scope(Struct, frozen=True):
    """The cycle, session and run that a batch of calls belongs to; `key` begins the idempotency keys of its calls.

    `trust` says whether text from outside may have led to the calls.
    """

    key: str
    cycle_id: str = ""
    session: str = "main"
    run_id: str | None = None
    trust: Trust = "trusted"

    @property
    def work(self) -> str:
        """Return the id under which facts and limits know the batch: that of its cycle, else its own."""
        return self.cycle_id or self.key


class Question(Struct, frozen=True):
    """Question to people about one call: the approval that it waits for or may use, and the one that let it run.

    `is_guest` says that another call asked for that approval. `binds` are the facts that the approval was bound to, for
    the tool to check (None without an approval). `is_unclear` says that the call depends on one whose approval was used
    before, so it may have run then.
    """

    approval_id: str = ""
    is_guest: bool = False
    allowed: str = ""
    binds: Mapping[str, Any] | None = None
    is_unclear: bool = False

    @property
    def own_id(self) -> str:
        """Return the approval that the call itself asked for; "" for none."""
        return "" if self.is_guest else self.approval_id


NO_QUESTION: Final = Question()


class EarlierCalls(Struct, eq=False):
    """The ends of the calls of a run's earlier batches, read from its messages and results at the first use."""

    messages: Iterable[Mapping[str, Any]]
    results: Sequence[ActionResult] = ()
    _ends: dict[str, bool] | None = None

    def __call__(self, id: str) -> bool | None:
        """Return whether the call with this id ended well; None if there was none, or it has not ended."""
        if self._ends is None:
            self._ends = dict(self._read_ends())
        return self._ends.get(id)

    def _read_ends(self) -> Iterator[tuple[str, bool]]:
        for message in self.messages:
            data = message.get("data")
            if message.get("kind") == "error" and isinstance(data, Mapping) and isinstance(data.get("call"), Mapping):
                yield str(data["call"].get("_id")), False
            elif isinstance(call := message.get("_call"), Mapping):
                yield str(call.get("_id")), True
        for batch in self.results:
            for result in batch.results:
                if result.reason not in ("parked", "detached"):
                    yield result.call.id, result.status == "ok"


def fault_of(error: BaseException, tool: str) -> Fault:
    """Return the fault of a tool's exception, with its message and detail shortened."""
    fault = Fault.of(error, part=tool, phase="act")
    detail, is_cut = shortened(fault.detail, 4 * MESSAGE_LIMIT)
    if is_cut:
        detail = {**(detail if isinstance(detail, dict) else {"detail": detail}), "truncated": True}
    return replace(fault, message=plain(fault.message, MESSAGE_LIMIT), detail=detail)


def fault(kind: str, message: str, tool: str = "") -> Fault:
    """Return a fault of the call itself: the same call would fail in the same way again."""
    return Fault(kind, plain(message, MESSAGE_LIMIT), tool, "act", retryable=False)
