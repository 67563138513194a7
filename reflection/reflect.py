"""Turns a result into what was learnt, without a model: outcome, causes, abilities, one experience.

It keeps nothing between two results but the names of tools: the abilities so far come with the context, storing is the
agent's work.
"""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge, Gt, Lt

from reflection.ability import learn, trial_of
from reflection.causes import explain, retry_after
from reflection.lessons import answer_of, experience_of, said_in, task_of, without_secrets
from reflection.outcome import judge
from spar.clock import Clock, SystemClock
from spar.protocols import Context
from spar.types import ActionResult, CallResult, Reflection


class Reflect:
    """The standard reflector.

    Args: task_prior: the chance of success that is assumed of a tool before its first trial at a kind of task;
    discount: what each trial leaves of the weight of those before it; look_again: after how many seconds to look again
    when something failed that may pass, where the other side asked for nothing else.
    """

    def __init__(
        self,
        *,
        task_prior: Annotated[float, Gt(0), Lt(1)] = 0.5,
        discount: Annotated[float, Ge(0.5), Lt(1)] = 0.99,
        look_again: Annotated[float, Gt(0), Lt(3600)] = 5.0,
    ) -> None:
        self.task_prior, self.discount, self.look_again = task_prior, discount, look_again
        self._clock: Clock = SystemClock()
        self._tools: set[str] | None = None  # of which something may be known

    async def reflect(self, result: ActionResult, context: Context | None = None) -> Reflection:
        """Reflect on a result. Never raises for any `ActionResult`, however little of an action it holds."""
        context = context or Context(agent="", cycle_id="")
        outcome = judge(result)
        failures = tuple(failure for item in result.results if (failure := explain(item)) is not None)
        trials = [trial_of(item, task_of(item.call, result.action)) for item in result.results]
        if self._tools is None:
            self._tools = {known.tool for known in context.abilities.values()}
        self._tools |= {trial.tool for trial in trials if trial is not None}
        experience = experience_of(
            result,
            outcome,
            failures,
            session=context.session,
            cycle_id=context.cycle_id,
            at=(context.clock or self._clock).now(),
            said=await without_secrets(said_in(result.action)),
            answer=await without_secrets(answer_of(result.action)),
        )
        return Reflection(
            result=result,
            score=outcome.score,
            successes=tuple(item.call for item in outcome.worked),
            failures=failures,
            abilities=learn(
                (trial for trial in trials if trial is not None),
                context.abilities,
                prior=self.task_prior,
                discount=self.discount,
                tools=self._tools,
            ),
            experiences=(experience,) if experience is not None else (),
            next_look=self._next_look(result, outcome.failed),
        )

    def _next_look(self, result: ActionResult, failed: tuple[CallResult, ...]) -> float | None:
        """Return the soonest moment (seconds from now) at which something that failed may work."""
        looks = [retry_after(item.fault, item.status, self.look_again) for item in failed]
        looks.append(retry_after(result.fault, result.status, self.look_again))
        return min((look for look in looks if look is not None), default=None)
