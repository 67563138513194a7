"""Holds by order, budgets and the disk. Calls that share a resource, or that must run one after another, start in plan
order; a call takes its part of the agent's budgets; its start is written down, so that the next process can go on.

There is a *line* for each name of a resource or a sequence. A call enters the lines of its names when it arrives, and
is held until it is the first in all of them; it holds no permit meanwhile. It leaves the line of a resource when it
starts: the resource's slot keeps the next call from overlapping with it. It leaves the line of a sequence (a name that
begins with `_SEQUENCE`) when it has ended. A call whose names depend on values that are not there yet is *nameless*:
all later calls with names wait behind it, since it may share one of them, and stand in the line of the nameless calls.
Only the order is kept: a call that was skipped, failed or parked holds up no other call. Each line is a heap by
arrival; a call that has left is dropped when it comes to the top.

A call with an effect starts only when the fact about its start is on disk; all calls that are ready at a time share one
flush. The fact about its end is written at once, and nothing waits for the disk: if it is lost in a crash, the call is
in doubt or is made again, as its effect allows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine
from heapq import heappop, heappush
from typing import Any, Final

from msgspec import Struct, field

from acting.graph.deadlock import reaches
from acting.run.call_state import Step
from acting.tooling.context import Scope, fault
from acting.tooling.limits import Go, Hold
from spar.errors import SparError
from spar.facts import AttemptStarted, CallAttached, CallDetached, CallEnded, Planned
from spar.failpoints import armed, crashpoint
from spar.ports.budgets import BudgetRefusal, CallBudgets
from spar.protocols import CallJournal
from spar.types import Action, CallResult, copy_with

_SEQUENCE: Final = "\0"  # a sign that no name of a resource contains
_NAMELESS: Final = "\0\0"  # the line of the nameless calls, and of the calls that wait for these


class Order(Struct, Hold, eq=False):
    """The lines of one batch: a hold. `waiting` are the held calls; `due` those of them that may have become the first.

    A call leaves its lines by `begin` and `end`, whether it has come to its turn or not.

    Args: is_sequential: whether all calls with an effect run one after another.
    """

    _is_sequential: bool
    waiting: dict[Step, Go] = field(default_factory=dict)
    due: list[Step] = field(default_factory=list)
    _lines: dict[str, list[tuple[int, Step]]] = field(default_factory=dict)
    _next: list[tuple[int, Step]] = field(default_factory=list)  # a heap of the waiting calls

    def enter(self, step: Step) -> None:
        """Put an arrived call into its lines."""
        self._line_up(step, self._names(step, step.references))

    def take(self, step: Step, go: Go, /) -> bool:
        if step.lines == (_NAMELESS,):
            self._line_up(step, self._names(step, ()) or ())
        if self._is_first(step):
            return True
        self.waiting[step] = go
        heappush(self._next, (step.at, step))
        return False

    def begin(self, step: Step) -> None:
        """Remove a call that starts from the lines of its resources."""
        self._stand(step, [name for name in step.lines if name[0] == _SEQUENCE])

    def end(self, step: Step) -> None:
        """Remove a call that has ended, or that will not start, from all lines."""
        self.waiting.pop(step, None)
        self._stand(step, ())

    def call_due(self) -> None:
        """Let those of the due calls go on that are the first in all their lines."""
        due, self.due = self.due, []
        for step in dict.fromkeys(due):
            if step in self.waiting and self._is_first(step):
                self.waiting.pop(step)(step)

    def let_pass(self, *, is_complete: bool) -> bool:
        """Let the next waiting call start before its turn if the calls before it wait for it; return whether it may.

        Without this, a batch would never end if the order of its plan contradicts its references.
        `is_complete` says that no more calls arrive and none runs: then the calls before it can wait for nothing else.
        """
        while (step := self._next[0][1]) not in self.waiting:
            heappop(self._next)
        ahead = [first for name in step.lines if (first := self._first(name)) is not None and first is not step]
        if not is_complete and not all(reaches(other, [step]) for other in ahead):
            return False
        self._stand(step, ())
        self.due.append(step)
        return True

    # -- inside

    def _names(self, step: Step, unresolved: Collection[str]) -> tuple[str, ...] | None:
        """Return the names of the lines of a call; None if they depend on the values of parameters in `unresolved`."""
        entry = step.entry
        resources = entry.resources_before(step.params, unresolved, step.scope.session)
        if resources is None:
            return None
        names = (_SEQUENCE + entry.name,) if entry.terms.order == "plan" else ()
        may_change = self._is_sequential and entry.terms.effect != "read"
        if may_change and entry.effect_before(step.params, unresolved) != "read":
            names = (*names, _SEQUENCE)
        return tuple(dict.fromkeys((*names, *resources)))

    def _line_up(self, step: Step, names: tuple[str, ...] | None) -> None:
        """Put a call into the lines of its names; in that of the nameless calls while one is before it, or it is one
        (None)."""
        nameless = self._first(_NAMELESS)
        if names is None or (names and nameless is not None and nameless.at < step.at):
            names = (_NAMELESS, *(names or ()))
        self._stand(step, names)

    def _stand(self, step: Step, names: Collection[str]) -> None:
        """Let a call stand in the lines of these names only; make those due that may be the first instead of it."""
        was, step.lines = dict.fromkeys(step.lines), tuple(names)
        for name in names:
            if name not in was:
                heappush(self._lines.setdefault(name, []), (step.at, step))
        for name in was.keys() - names:
            while (first := self._first(name)) is not None:
                if first in self.waiting:
                    self.due.append(first)
                if name != _NAMELESS or first.lines == (_NAMELESS,):
                    break
                first.lines = tuple([other for other in first.lines if other != name])  # none before it is nameless
            else:
                del self._lines[name]

    def _first(self, name: str) -> Step | None:
        line = self._lines.get(name, ())
        while line and name not in line[0][1].lines:
            heappop(line)
        return line[0][1] if line else None

    def _is_first(self, step: Step) -> bool:
        """Return whether nothing is before a call in its lines."""
        return all(self._first(name) is step for name in step.lines)


class Spending(Struct, Hold, eq=False):
    """The budgets of one agent, as the hold that uses the part of a call; it holds nothing.

    A budget limits how many calls, or calls with an effect, may start in a cycle or in a time; the *part* of a call is
    one of these. A call reserves its part when nothing else prevents it from running; the part is used with its start,
    and released if the call never starts. Each further attempt takes another part. When nothing is left, a call may run
    if people approve it: that raises no limit, and the call counts like any other. A grant is not such an approval: a
    budget has to limit granted calls too.

    What was used is on disk before the call can have an effect, since it stands before the start there.
    """

    budgets: CallBudgets[Any]

    def reserve(self, step: Step) -> str:
        """Reserve the part of a ready call.

        If not enough is left, publish that, and return the sentence about it; else "".
        """
        if step.reservation is None:
            is_effect, what = self._is_effect(step), step.entry.name
            answer = self.budgets.demand(step.scope.work, is_effect=is_effect, what=what)
            if isinstance(answer, BudgetRefusal):
                return answer.sentence
            step.reservation = answer
        return ""

    def take(self, step: Step, go: Go | None = None, /) -> bool:
        """Use the part that was reserved for a call, which starts now.

        A call that people approved or replaced takes its part even if nothing is left.
        """
        if not self.budgets.limits_calls:
            return True
        reservation = step.reservation
        if reservation is None or (step.call.meta and reservation.is_effect != self._is_effect(step)):
            self.release(step)
            reservation = self.budgets.insist(step.scope.work, is_effect=self._is_effect(step))
        step.reservation = None
        self.budgets.use(reservation)
        return True

    def again(self, step: Step) -> bool:
        """Use the part of a further attempt, which starts now; return False when not enough is left."""
        return not self.reserve(step) and self.take(step)

    def release(self, step: Step, /) -> None:
        """Release the reservation of a call that did not start."""
        reservation, step.reservation = step.reservation, None
        if reservation is not None:
            self.budgets.release(reservation)

    def _is_effect(self, step: Step) -> bool:
        return self.budgets.limits_effects and step.effect != "read"


#: Statuses and reasons of ends that are written for calls that had not started too: they must not happen twice.
_ALWAYS = ("denied", "in_doubt", "steered")


class CallJournalWriter(Struct, Hold, eq=False):
    """Writer of the facts of one batch: its action, and the starts and ends of its calls. The hold before a start.

    Args: spawn: runs a task of the batch.
    """

    _journal: CallJournal
    _scope: Scope
    _spawn: Callable[[Coroutine[Any, Any, None], str], object]
    _waiting: list[tuple[Step, Go]] = []  # calls that the next flush makes free
    is_streamed: bool = False  # whether calls arrive that the action did not contain when it began

    def begin(self, action: Action, *, is_streamed: bool) -> None:
        """Write the action; the calls of a stream are written when they arrive."""
        self.is_streamed = is_streamed
        if is_streamed or action.id != self._scope.key:
            action = copy_with(action, id=self._scope.key, calls=() if is_streamed else action.calls)
        self.tell(Planned, action=action)

    def take(self, step: Step, go: Go, /) -> bool:
        """Write that a call starts; one with an effect waits until that is on disk, together with others."""
        effect = step.entry.effect or step.effect
        values = step.params if step.references else None
        self.tell(AttemptStarted, call=step.call.id, attempt=1, effect=effect,
                   allowed=step.question.allowed or "auto", values=values)  # fmt: skip
        step.is_start_written = True
        if effect == "read":
            return True
        self._waiting.append((step, go))
        if len(self._waiting) == 1:
            self._spawn(self._flush(), "starts on disk")
        return False

    async def _flush(self) -> None:
        """Wait until the written starts are on disk, then let their calls go; end them if that cannot be."""
        (waiting, self._waiting), why = (self._waiting, []), ""
        if armed:
            crashpoint("act.intent_txn_open")
        try:
            await self._journal.safe()
        except SparError as error:
            why = f"it could not be written down that it starts: {error}"
        except BaseException:
            for step, _ in waiting:
                step.is_start_written = False  # nothing is known of the entry on disk
            raise
        if armed and not why:
            crashpoint("act.intent_committed")
        for step, go in waiting:
            go(step, step.failed(fault("io", why, step.call.tool)) if why else None)

    def detached(self, step: Step) -> None:
        """Write that a detached call runs on after its batch has ended."""
        work = Action((step.call,), id=self._scope.key, trust=self._scope.trust)
        self.tell(CallDetached, action=work, effect=step.effect)

    def ended(self, step: Step, result: CallResult) -> None:
        """Write how a call ended, before its value is used. Those of parked calls follow once these are stored."""
        if result.reason in ("detached", "parked"):
            return
        if step.is_start_written or result.status in _ALWAYS or result.reason in _ALWAYS:
            self.tell(CallEnded, result=result)

    def attached(self, result: CallResult) -> None:
        """Write that a detached call has ended."""
        self.tell(CallEnded, result=result)
        self.tell(CallAttached, call=result.call.id)

    def tell(self, kind: Any, **fields: Any) -> None:
        """Write a fact of the batch's cycle."""
        scope = self._scope
        self._journal.append(kind(session=scope.session, cycle=scope.cycle_id or scope.key, **fields))
