"""Preview of a session's next request to a model, made by the planner from the session's present state."""

from __future__ import annotations

from typing import Any

from spar.agent.parts import AgentParts
from spar.errors import ConflictError
from spar.ports.any_part import has
from spar.ports.planners import OptionalPlanner
from spar.protocols import Context, RunContext
from spar.records.abilities import AgedAbilities
from spar.records.run_options import NO_OPTIONS, RunOptions
from spar.types import Perception

#: The run id in a preview for a session without a current run.
_PREVIEW = "preview"


async def prompt_of(agent: AgentParts, session: str, message: str = "", *, with_text: bool = False) -> dict[str, Any]:
    """Return the parts of a session's next request to a model, with the size and origin of each.

    The request is that of the current run. Without one it is that of a new run about `message` with the session's
    options.

    Args: with_text: include the text of each part.
    Raises: ConflictError if the planner asks no model; and the errors of hooks that refuse the request.
    """
    planner: OptionalPlanner = agent.setup.modules["plan"].part
    if not has(planner, OptionalPlanner.prompt):
        raise ConflictError(f'{agent.setup.modules["plan"].name} asks no model: it has no prompt (plan.use = "llm")')
    known = agent.sessions.by_key.get(session)
    run = known.run if known is not None else None
    record = await agent.conversations.records.find(session)
    options = NO_OPTIONS if record is None else record.defaults
    first_message = Perception(message, source="messages", kind="message", session=session, trust="trusted")
    about = run.context() if run is not None else _run_about(first_message, options)
    abilities = AgedAbilities(agent.abilities, agent.core.clock)
    context = Context(agent.core.name, "", session, about, agent.memory, abilities, clock=agent.core.clock)
    return await planner.prompt([first_message] if message and run is None else [], context, with_text=with_text)


def _run_about(first_message: Perception, options: RunOptions) -> RunContext:
    """Return the context of a run that this message would begin; without text the run has no message."""
    text = first_message.text
    return RunContext(_PREVIEW, text, message=first_message if text else None, options=options)
