"""A model makes the plan: one request a cycle, and each call is handed on the moment it is complete in the answer.

A run goes on, a request for each of its cycles, until there is an output. What belongs to no run is made one
(`host.pursue`), so that whatever is noticed can be pursued over several cycles. One cycle is `planning.llm.turn`'s
matter; what outlasts it is kept in `planning.llm.state`. Who answers, falls back, waits or is paid is the model's
affair (`planning.resilience.failover`), whether a run has taken too much its session's.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from planning.llm.delegates import CONSULTATION
from planning.llm.state import PlannerState
from planning.llm.turn import PlanningTurn
from planning.ports import Request
from planning.prompt.observations import bundled, parted
from spar.protocols import Context, Lent
from spar.types import Action, Call, Perception


class ModelPlanner(PlannerState):
    """PLAN by a model.

    Args:
        model: answers requests (`planning.ports.Model`); closed with the planner, if it has an `aclose`.
        instructions: what the model reads first, after what spar itself says (`planning.prompt.prompts`): a text, or
            with files and skills the prompts of sessions.
        output: the schema of answers, for runs that have none of their own; None: any text or value.
        context_tokens: how much the model reads; None: not known, then only its refusals tell.
        max_tokens: how much one answer may have.
        recall: how many experiences a request is given; 0: none.
        pursue: whether what was noticed becomes a run; else it gets one request of its own.
        compaction_model: sums up long conversations; None: the model itself does.
        compaction: how that is done.
        threshold: the share of what it can read from which on that is done before a request is sent.
        definitions: what calls may be delegated to: `{"context": […], "schema": …}` by path, or a function of the path.
        plan_mode: keeps a run's calls as a plan from request to request: "eager" carries them out as they come, "lazy"
            once the plan is complete and goes round in no circle; "": no plan is kept.
        advisors: who has a say in each request of a run, as the advisor messages of a context (`id role schema on`).
        meta: what the work is and which version of it (`domain path version …`); the answers of a run make the next.

    In an agent the actor has delegated calls, consultations, and thoughts whose matter came later carried out here
    (`lends`); an executor by itself takes `Executor(tools, activities=planner.activities)`. Such requests think; they
    are given no tools.
    """

    async def plan(
        self, perceptions: Sequence[Perception], context: Context | None = None
    ) -> AsyncGenerator[Call | Action]:
        """Yield the calls as they come, then an action with the rest; nothing at all when there is nothing to do.

        Raises: what the model raises; PermanentError when no request is small enough, or no answer fits.
        """
        context = context or Context(agent="", cycle_id="")
        host = self.host
        if self.pursue and host is not None and host.pursue is not None:
            perceptions, strange = parted(perceptions, context)
            if strange:
                await host.pursue(bundled(strange, context.session))
        if context.run is None and not perceptions:
            return
        turn = PlanningTurn(self, perceptions, context)
        if (action := turn.settled()) is not None:
            yield action
            return
        request: Request | None = await turn.request()
        while request is not None:
            async with aclosing(turn.answer(request)) as items:
                async for item in items:
                    yield item
            request = await turn.smaller(request)

    async def prompt(
        self, perceptions: Sequence[Perception], context: Context, *, with_text: bool = False
    ) -> dict[str, Any]:
        """Return what would stand in the next request, by part, size and origin; nothing is sent or kept.

        Raises: PermanentError when a hook is against it.
        """
        found = await PlanningTurn(self, perceptions, context).preview(with_text=with_text)
        return {**found, "problems": self.prompts.warnings()}

    def lends(self) -> Lent:
        """Return what the actor needs to have calls carried out here, and by which others ask the model."""
        is_consulted = any(each.get("on") is None for each in self.advisors)
        return Lent(((CONSULTATION,) if is_consulted else ()) + self.prompts.tools(), self.activities, self.answer)
