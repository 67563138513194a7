"""Reflector without a model: turns a result into outcome, causes, abilities, credit and experiences.

The context brings the abilities so far; the agent stores the new ones. The reflector stores the steps of runs and
episodes for later feedback (`reflection.credit`), in its own rows, which are written with the end of the cycle.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Annotated, Any

from annotated_types import Ge, Gt, Lt

from reflection.causes import explain, retry_after
from reflection.credit import CreditBook, Judged, Step, cases_of, credits_of, sequence_of, word_of_calls, words_in
from reflection.lessons import MOST_CALLS, OPEN, Outcome, experience_of, judge, texts_of, trials_of
from spar.clock import Clock, SystemClock
from spar.data.learning.abilities import DAY, ChangedAbilities, Fading, ToolTrial, known_of, tools_at
from spar.data.learning.situations import names_of, whoever
from spar.events import ErrorOccurred
from spar.protocols import Context, Host, ModuleRows
from spar.types import (
    Ability,
    Action,
    ActionResult,
    CallFailure,
    CallResult,
    Experience,
    Feedback,
    Reflection,
    replace,
)

#: Calls that are looked at before other tasks have their turn.
_AT_ONCE = 50


class Reflect:
    """The standard reflector.

    Args: task_prior: the chance of success that is assumed of a tool before its first trial at a kind of task;
    discount: the share of the earlier evidence that remains after a trial; half_life: days after which half of the
    evidence remains; look_again: seconds after which to look again when something failed that may pass, where the
    other side named no time.
    """

    def __init__(
        self,
        *,
        task_prior: Annotated[float, Gt(0), Lt(1)] = 0.5,
        discount: Annotated[float, Ge(0.5), Lt(1)] = 0.975,
        half_life: Annotated[float, Gt(0)] = 30.0,
        look_again: Annotated[float, Gt(0), Lt(3600)] = 5.0,
    ) -> None:
        self.look_again = look_again
        self.fading = Fading(task_prior, discount, half_life * DAY)
        self._clock: Clock = SystemClock()
        self._book = CreditBook()
        self._rows: ModuleRows | None = None
        self._unread: list[ModuleRows | None] = []  # rows of earlier processes that are to be read once
        self._publish: Callable[[Any], None] = _drop_event

    def attach(self, host: Host) -> None:
        """Store steps in the agent's memory; call it before the first result."""
        self._clock, self._rows, self._publish = host.clock, host.rows("credit"), host.events.publish
        self._unread = [self._rows]

    async def reflect(self, result: ActionResult, context: Context | None = None) -> Reflection:
        """Reflect on a result. Never raises for any `ActionResult`, however little of an action it holds."""
        context = context or Context(agent="", cycle_id="")
        at = (context.clock or self._clock).now()
        outcome = judge(result)
        failures: tuple[CallFailure, ...] = ()
        if len(outcome.worked) < len(result.results):
            failures = await self._failures(result, outcome.tasks, context)
        texts = await texts_of(result.action)
        remembered = partial(experience_of, result, outcome, failures, texts, session=context.session,
                             cycle_id=context.cycle_id, at=at)  # fmt: skip
        judged = Judged()
        if context.learning == "off":
            experiences: Iterable[Experience | None] = (remembered(),)
        else:
            await self._load(context.cycle_id)
            experiences = self._credit(result, context, outcome, remembered, judged, at)
            self._book.write(self._rows, context.cycle_id)
        return Reflection(
            result=result,
            score=outcome.score,
            successes=tuple([item.call for item in outcome.worked]),
            failures=failures,
            next_look=self._next_look(result, outcome.failed),
            abilities=await self._learn(judged.trials, context, at) if judged.trials else (),
            experiences=tuple(filter(None, experiences)),
            credits=tuple(judged.credits),
            feedback=tuple(judged.feedback),
        )

    async def hear_feedback(self, words: Sequence[Feedback], context: Context) -> Reflection:
        """Apply later feedback on runs and cycles, for instance of people; nothing is learnt where learning is off."""
        judged = Judged()
        if context.learning != "off":
            await self._load(context.cycle_id)
            for word in words:
                self._book.judge(word, judged)
            self._book.write(self._rows, context.cycle_id)
        return Reflection(
            abilities=await self._learn(judged.trials, context, (context.clock or self._clock).now()),
            credits=tuple(judged.credits),
            feedback=tuple(judged.feedback),
        )

    async def forget_session(self, session: str) -> None:
        """Drop the steps of a session, which later feedback could be about."""
        await self._load("")
        self._book.forget(session)
        self._book.write(self._rows, "")

    # -- credit

    def _credit(self, result: ActionResult, context: Context, outcome: Outcome,
                remembered: Callable[..., Experience | None], judged: Judged,
                at: datetime) -> list[Experience | None]:  # fmt: skip
        """Return the experiences of this cycle, and of a run or an episode that is over with it.

        Args: remembered: returns the experience of the cycle.
        """
        book, action = self._book, result.action
        perceptions = action.perceptions if action is not None else ()
        has_words = any(item.attributes or item.evidence for item in perceptions)
        words = list(words_in(perceptions, context.session)) if has_words else []
        for word in words:
            book.begin(word, judged)
            book.hear(word, judged)
        for feedback in action.feedback if action is not None else ():
            book.judge(feedback, judged)
        episode = next((word for word in words if not word.is_done), None)
        unsure = _unsure(result, is_in_episode=episode is not None)
        is_answered = action is not None and action.output is not None and not action.deferred
        is_over = is_answered and all(item.reason not in OPEN for item in result.results)
        judged.trials += trials_of(result, outcome.tasks, unsure)
        cases = cases_of(result) if action is not None and action.learnt else []
        if cases:
            judged.credits += credits_of(result, cases, unsure)
        run_id = (context.run.id if context.run is not None else None) or (action.run_id if action else None) or ""
        thread_id = run_id or context.cycle_id
        experience = remembered(run_id=run_id or (episode.episode if episode else ""), unsure=unsure)
        if experience is not None and result.results and (thread_id or episode is not None):
            step = Step(context.cycle_id, experience.key, experience.situation, context.session, experience.trust,
                        list(experience.calls), list(outcome.tasks[:MOST_CALLS]), run_id, experience.task,
                        list(dict(cases)), is_open=bool(unsure))  # fmt: skip
            book.add(thread_id, episode, step, judged)
            if episode is not None and (word_of_tools := word_of_calls(result, episode)) is not None:
                book.hear(word_of_tools, judged, is_of_call=True)
            if unsure and step.said is not None:  # the experience is not stored yet: it is changed here
                judged.feedback = [word for word in judged.feedback if word.about != context.cycle_id]
                experience = replace(experience, success=step.said and not outcome.failed, calls=tuple(step.calls))
                experience = replace(experience, score=float(step.said and outcome.score))
        if run_id and is_over:
            book.end_run(run_id, outcome.success, judged)
        experiences = [experience]
        for thread, success in judged.sequences:
            experiences.append(sequence_of(thread, success, at))
        return experiences

    # -- abilities

    async def _learn(self, trials: Iterable[ToolTrial], context: Context, at: datetime) -> tuple[Ability, ...]:
        learning = ChangedAbilities(context.abilities, fading=self.fading, now=at.timestamp())
        for number, trial in enumerate(trials, 1):
            learning.add(trial)
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
        return learning.abilities

    async def _failures(self, result: ActionResult, tasks: Sequence[str], context: Context) -> tuple[CallFailure, ...]:
        not_ok = [(item, task) for item, task in zip(result.results, tasks, strict=True) if item.status != "ok"]
        if not not_ok:
            return ()
        incident = incident_of(result.action)
        abilities = {} if context.learning == "off" else context.abilities
        best: dict[str, Sequence[str]] = {}  # the two best tools at each task: one of them is not the tool that failed

        def better(tool: str, task: str) -> str:
            if task not in best:
                best[task] = best_at(task, abilities)
            return next((name for name in best[task] if name != tool), "")

        failures = []
        for number, (item, task) in enumerate(not_ok, 1):
            another = partial(better, item.call.tool, task)
            failures.append(explain(item, soon=self.look_again, incident=incident, better=another))
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
        return tuple(failure for failure in failures if failure is not None)

    # -- rows

    async def _load(self, cycle_id: str) -> None:
        """Load the steps of earlier processes, once; late feedback on them needs them."""
        if (stored := await self._read_once(self._rows, cycle_id)) is not None:
            self._book = CreditBook()
            self._book.restore(stored)

    async def _read_once(self, rows: ModuleRows | None, cycle_id: str) -> Mapping[str, Any] | None:
        """Return what earlier processes have stored; None if it was read before, or cannot be read now."""
        stored: Mapping[str, Any] | None = None
        if rows is not None and rows in self._unread:
            try:
                stored = await rows.list()
            except Exception as error:  # the next result reads them again
                self._publish(ErrorOccurred.of(error, "reflect", "reflect", "continue", cycle_id))
        if stored is None or rows not in self._unread:  # another cycle has read them meanwhile
            return None
        self._unread.remove(rows)
        return stored

    def _next_look(self, result: ActionResult, failed: tuple[CallResult, ...]) -> float | None:
        """Return the soonest time, in seconds from now, at which something that failed may work; None when nothing
        may."""
        if not failed and result.fault is None:
            return None
        looks = [retry_after(item.fault, item.status, self.look_again) for item in failed]
        looks.append(retry_after(result.fault, result.status, self.look_again))
        return min((look for look in looks if look is not None), default=None)


def _drop_event(event: Any) -> None:
    """Drop an event: this reflector has no agent."""


def _unsure(result: ActionResult, *, is_in_episode: bool) -> set[str]:
    """Return the ids of calls that ended well and whose effect is judged later, by an environment or a rule."""
    return {item.call.id for item in result.results
            if item.status == "ok" and (is_in_episode or item.call.meta.get("_verify") is True)}  # fmt: skip


def incident_of(action: Action | None) -> str:
    """Return the id of the open incident that an action is about; empty when there is none."""
    for perception in action.perceptions if action is not None else ():
        incident = perception.attributes.get("incident")
        if isinstance(incident, str) and incident and perception.kind != "incident.closed":
            return incident
    return ""


def best_at(task: str, abilities: Mapping[str, Ability]) -> Sequence[str]:
    """Return the two tools that do best in the situation of a task, whatever its things are; only tools that work in
    more than half of the cases."""
    names = {name for mine in (task, whoever(task)) for name in names_of(mine)[:2]}
    estimates = {
        tool: known.estimate
        for tool in sorted(tools_at(names, abilities))
        if (known := known_of(tool, task, abilities)) is not None and known.task in names and known.estimate > 0.5
    }
    return heapq.nlargest(2, estimates, key=estimates.__getitem__)
