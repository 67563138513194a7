"""Backtest: the recorded cycles of a time decided again, and what would have been decided otherwise, in numbers.

The tally is plain: it can be written into a file and continued from there. Cooldowns hold from cycle to cycle as in a
service. Whether people would have been asked, and which budgets would have been met, follows from the policy, the
budgets and the terms of the tools: both for the recorded calls and for the new ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from spar.ports.budgets import Limits
from spar.replay.again import Again, AnswersOfRecord, judged, prepare
from spar.replay.deciding import Decider
from spar.replay.difference import Change, rule_of
from spar.replay.tally import CallNumbers, CycleNumbers, Disagreement, First, Tally
from spar.replay.tape import History, Inputs, Tape
from spar.types import Action, Call, CycleRecord

#: Kinds of disagreements, reasons and sessions that are counted by themselves; all others are one.
MOST: Final = 1_000
OTHERS: Final = "others"
#: Characters of a time in UTC that name each window.
_LENGTHS: Final = {"hour": 13, "day": 10, "month": 7}


class JudgedCycle(NamedTuple):
    """Recorded cycle that was decided again: its inputs, how it differs, and the new plan."""

    inputs: Inputs
    again: Again
    action: Action | None


class Backtest:
    """Backtest of a configuration.

    Args:
        decider: decides by the configuration; answers: those that it was made with.
        recorded: says what the policy of the service says of a recorded call; limits: the budgets, of the service and
            of the configuration.
        rule: the name of the only rule that is looked at; "" for all that is decided.
    """

    def __init__(self, decider: Decider, answers: AnswersOfRecord, recorded: Decider, limits: tuple[Limits, Limits],
                 tally: Tally, rule: str = "") -> None:  # fmt: skip
        self._decider, self._answers, self._recorded = decider, answers, recorded
        self.tally, self._rule = tally, rule
        self._budgets = tuple(_Budgets(of, used) for of, used in zip(limits, tally.used, strict=True))

    async def run(self, tape: Tape, since: datetime | None, progress: Callable[[Tally], bool]) -> bool:
        """Decide the cycles since a time again, or those after the last one of the tally.

        Args: progress: is called after each page; returns whether to go on.
        Returns: whether all cycles were decided.
        """
        until, is_continued = await tape.newest(), bool(self.tally.last)
        if until is None:
            return True
        is_prepared = False
        async for page in tape.pages(since, self.tally.last, until):
            if page and not is_prepared:
                await prepare(tape, self._decider, self._answers, page[0], is_continued=is_continued)
                is_prepared = True
            for record in page:
                self.count(await self.judge(tape.history, record))
            if not progress(self.tally):
                return False
        return True

    async def judge(self, history: History, record: CycleRecord) -> JudgedCycle:
        """Decide a cycle again, and add it to the history."""
        inputs = history.inputs(record)
        self._answers.take(record)
        again, action = await judged(self._decider, inputs, self._answers)
        history.add(record)
        return JudgedCycle(inputs, again, action)

    def count(self, one: JudgedCycle) -> None:
        """Add a cycle to the tally."""
        tally, again = self.tally, one.again
        changes, verdict = [change for change in again.changes if self._concerns(change)], again.verdict
        if self._rule and verdict == "differs" and not changes:
            verdict = "same"
        tally.cycles += 1
        tally.last = again.cycle_id
        day = tally.days.setdefault(again.at.date().isoformat(), [0, 0, 0])
        day[("same", "differs", "unknown").index(verdict)] += 1
        if verdict == "unknown":
            reason = _key(tally.unknown, again.why)
            tally.unknown[reason] = tally.unknown.get(reason, 0) + 1
            return
        session = tally.sessions.setdefault(_key(tally.sessions, again.session), CycleNumbers())
        session.cycles += 1
        if verdict == "same":
            tally.same += 1
        else:
            tally.differs += 1
            session.differ += 1
        for change in changes:
            self._disagree(change, again)
        recorded, now = self._calls(one.inputs.decided), self._calls(one.action)
        tally.calls.same += len(now) - sum(change.part == "calls" and change.now is not None for change in changes)
        self._judge_calls(one, recorded, now)

    def _calls(self, action: Action | None) -> Sequence[Call]:
        calls = () if action is None else action.calls
        return [call for call in calls if rule_of(call) == self._rule] if self._rule else calls

    def _concerns(self, change: Change) -> bool:
        """Return whether a change is counted: the outcome follows from the others."""
        return change.part != "outcome" and (not self._rule or change.rule == self._rule)

    def _disagree(self, change: Change, again: Again) -> None:
        tally = self.tally
        key = _key(tally.disagreements, change.kind)
        if (one := tally.disagreements.get(key)) is None:
            first = First(again.cycle_id, again.at, again.session, change.recorded, change.now)
            one = tally.disagreements[key] = Disagreement(change.part, key, first, rule=change.rule, tool=change.tool)
        one.count += 1
        if change.part != "calls":
            return
        name = "added" if change.recorded is None else "saved" if change.now is None else "changed"
        for calls in (tally.calls, *(of.setdefault(_key(of, label), CallNumbers()) for of, label in
                                     ((tally.rules, change.rule), (tally.tools, change.tool)) if label)):  # fmt: skip
            setattr(calls, name, getattr(calls, name) + 1)

    def _judge_calls(self, one: JudgedCycle, recorded: Sequence[Call], now: Sequence[Call]) -> None:
        """Count the questions, denials and refusals for the recorded calls and the new ones."""
        inputs = one.inputs
        sides = (("recorded", recorded, inputs.decided, self._recorded, self._budgets[0]),
                 ("now", now, one.action, self._decider, self._budgets[1]))  # fmt: skip
        for side, calls, plan, decider, budgets in sides:
            for call in calls:
                decision, _ = decider.ruling(call, plan or Action(), inputs.cycle.session)
                for of, verdict in ((self.tally.asked, "ask"), (self.tally.denied, "deny")):
                    if decision == verdict:
                        setattr(of, side, getattr(of, side) + 1)
                if decision != "deny" and budgets.are_met(inputs, is_effect=decider.effect_of(call) != "read"):
                    setattr(self.tally.refused, side, getattr(self.tally.refused, side) + 1)


class _Budgets:
    """Budgets of calls, counted by the recorded time, which only goes forward.

    Args: used: by window and quantity, the name of the present window and the number; it is changed.
    """

    def __init__(self, limits: Limits, used: dict[str, tuple[str, int]]) -> None:
        self._limits = [(f"{window} {quantity}", window, quantity == "effects", limit)
                        for (window, quantity), limit in limits.items()
                        if quantity in ("calls", "effects")]  # fmt: skip
        self._used = used

    def are_met(self, inputs: Inputs, *, is_effect: bool) -> bool:
        """Count a call, or return that a budget has no room for it."""
        counts, at = {}, inputs.at.astimezone(UTC).isoformat()
        for name, window, is_of_effects, limit in self._limits:
            if is_of_effects and not is_effect:
                continue
            place = inputs.cycle.cycle_id if window == "cycle" else at[: _LENGTHS[window]]
            known, used = self._used.get(name, (place, 0))
            used = used if known == place else 0
            if used >= limit:
                return True
            counts[name] = (place, used + 1)
        self._used |= counts
        return False


def _key(counts: dict[str, Any], key: str) -> str:
    """Return the key under which something is counted: its own, or that of all others once there are too many."""
    return key if key in counts or len(counts) < MOST else OTHERS
