"""Planner that asks a model: one request a cycle. Each call is yielded as soon as it is complete in the answer.

A run makes one request in each of its cycles until there is an output. The planner asks the agent to start a run for
perceptions that belong to none (`host.pursue`), so that it can work on them over several cycles. `planning.llm.cycle`
plans one cycle; `planning.llm.state` has all that outlasts it. The `model` may stand for several models, one of which
answers (`planning.resilience.failover`); it then waits, takes another model after an error, and counts money. The agent
ends a run that exceeds its limits.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from planning.llm.cycle.request import CycleRequest
from planning.llm.cycle.turn import PlanningTurn
from planning.llm.delegates import CONSULTATION
from planning.llm.state import PlannerState
from planning.ports import Request
from planning.prompt.observations import bundled, parted
from spar.protocols import Context, Lent
from spar.types import Action, Call, Perception


class ModelPlanner(PlannerState):
    """PLAN by a model.

    Args:
        model: answers requests (`planning.ports.Model`); closed with the planner, if it has an `aclose`.
        instructions: a text that the model reads first, behind spar's own instructions (`planning.prompt.prompts`); or
            `SessionPrompts`, which add files and skills.
        output: the schema of answers, for runs that have none of their own; None: any text or value.
        context_tokens: tokens that the model reads; None: not known, then only a refusal shows that it was too much.
        max_tokens: tokens that one answer may have.
        recall: experiences that a request is given at most; 0: none.
        pursue: whether perceptions of no run become a run; else they get one request of their own.
        compaction_model: summarizes long conversations; None: the model itself does.
        compaction: the way in which conversations are summarized.
        threshold: the share of the tokens that the model reads; a longer conversation is summarized before the request.
        definitions: saved requests that calls may be delegated to: `{"context": […], "schema": …}` by path, or a
            function of the path.
        plan_mode: keeps a run's calls as a plan from request to request: "eager" carries them out as they come, "lazy"
            once the plan is complete and goes round in no circle; "": no plan is kept.
        advisors: advisors for each request of a run, as messages of a context (`id role schema on`).
        references: whether calls may refer to one another; if not, tools have no fields for that.
        meta: name and version of the work (`domain path version …`); each answer of a run makes the next version.

    Some calls ask the model again: delegated calls, questions to advisors, and calls whose result the model writes once
    their parameters are known. In an agent the actor gets the functions for them by `lends`; an executor by itself
    takes `Executor(tools, activities=planner.activities)`. The requests of such calls are given no tools.
    """

    async def plan(
        self, perceptions: Sequence[Perception], context: Context | None = None
    ) -> AsyncGenerator[Call | Action]:
        """Yield an action that says whether the calls are trusted, the calls as they come, then the complete action.

        Yields nothing when there is nothing to do, and only the complete action when there are no calls.
        Raises: what the model raises; PermanentError when no request is small enough for the model, or when too many
        answers in a row could not be used.
        """
        context = context or Context(agent="", cycle_id="")
        host = self.host
        if self.pursue and host is not None and host.pursue is not None:
            perceptions, of_no_run = parted(perceptions, context)
            if of_no_run:
                await host.pursue(bundled(of_no_run, context.session))
        if context.run is None and not perceptions:
            return
        turn = PlanningTurn(self, perceptions, context)
        if (action := turn.settled()) is not None:
            yield action
            return
        request: Request | None = await turn.cycle.request()
        while request is not None:
            async with aclosing(turn.answer(request)) as items:
                async for item in items:
                    yield item
            request = await turn.cycle.smaller(request)

    async def prompt(
        self, perceptions: Sequence[Perception], context: Context, *, with_text: bool = False
    ) -> dict[str, Any]:
        """Return the parts of the next request, each with its size and origin; nothing is sent or stored.

        Raises: PermanentError when a hook refuses it.
        """
        parts = await CycleRequest(self, perceptions, context).preview(with_text=with_text)
        return {**parts, "problems": self.prompts.warnings()}

    def lends(self) -> Lent:
        """Return the tools and functions that the actor needs for calls that ask the model, and the function `answer`,
        by which parts of the agent without a model (the reflector) ask this one."""
        is_consulted = any(advisor.get("on") is None for advisor in self.advisors)
        return Lent(((CONSULTATION,) if is_consulted else ()) + self.prompts.tools(), self.activities, self.answer)
