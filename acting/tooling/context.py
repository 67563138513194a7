"""The context of one attempt at a call, for tools that ask for it, and of its batch; faults of calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Final

from msgspec import Struct, field

from spar.data.json_safe import plain, shortened
from spar.types import ActionResult, Call, Fault, Trust, replace

#: The header `traceparent` of the call that the current task carries out, for clients that send it on; "" for none.
TRACEPARENT: Final[ContextVar[str]] = ContextVar("traceparent", default="")


class ToolContext(Struct, frozen=True):
    """One attempt at one call; the parameter that takes it is not in the tool's schema.

    `tool` is the tool's schema and `context` the messages that the `_scopes` of the call select (none by default).
    `deadline` is in monotonic seconds (None: none), `attempt` counts from 1. `idempotency_key` is the same for all
    attempts at the same call. `fence` grows with every attempt, and over restarts where there is a journal or the wall
    clock is not set back: a receiver that remembers the highest fence can refuse a late request of an abandoned
    attempt. `progress(value)` publishes progress, from any thread. `binds` is the value of the tool's own `binds` when
    a person approved the call (None: no approval was needed): the tool must not run if that value is another one now.
    `run_id` is the run that the call belongs to, or None.
    """

    call: Call
    agent: str = ""
    deadline: float | None = None
    attempt: int = 1
    idempotency_key: str = ""
    progress: Callable[[Any], None] = lambda value: None
    tool: Mapping[str, Any] = field(default_factory=dict)
    context: tuple[dict[str, Any], ...] = ()
    fence: int = 0
    session: str = "main"
    binds: Mapping[str, Any] | None = None
    run_id: str | None = None
    _is_current: Callable[[], bool] = lambda: True

    @property
    def is_cancelled(self) -> bool:
        """Return whether nobody waits for this attempt any more: it is late, was cancelled, or has ended.

        A thread cannot be cancelled: a blocking tool reads this between two pieces of its work, and returns.
        """
        return not self._is_current()


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
