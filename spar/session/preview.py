"""Preview of a session's next request to a model: asked of the planner, with what the session has now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from spar.errors import ConflictError
from spar.loop.core import Core
from spar.loop.setup import Setup
from spar.ports.optional import ShowsPrompt, offers
from spar.protocols import Context, RunContext
from spar.records.abilities import AgedAbilities
from spar.records.run_options import NO_OPTIONS, RunOptions
from spar.session.control.session_records import SessionRecords
from spar.session.sessions import Sessions
from spar.types import Ability, Perception

#: The id of the run that a preview is made for where none goes on.
_PREVIEW = "preview"


class Previewed(Protocol):
    """An agent as far as a request of it is previewed."""

    @property
    def core(self) -> Core: ...
    @property
    def setup(self) -> Setup: ...
    @property
    def sessions(self) -> Sessions: ...
    @property
    def session_records(self) -> SessionRecords: ...
    @property
    def memory(self) -> Any: ...
    @property
    def abilities(self) -> Mapping[str, Ability]: ...


async def prompt_of(agent: Previewed, session: str, message: str = "", *, with_text: bool = False) -> dict[str, Any]:
    """Return what stands in a session's next request, by part, size and origin.

    It is that of the run that goes on there, else that of a run about `message` with the session's own options.

    Raises: ConflictError where the planner asks no model; what its hooks say against the request.
    """
    planner = agent.setup.modules["plan"].part
    if not offers(planner, ShowsPrompt):
        raise ConflictError(f'{agent.setup.modules["plan"].name} asks no model: it has no prompt (plan.use = "llm")')
    known = agent.sessions.by_key.get(session)
    run = known.run if known is not None else None
    record = await agent.session_records.find(session)
    options = NO_OPTIONS if record is None else record.defaults
    asked = Perception(message, source="messages", kind="message", session=session, trust="trusted")
    about = run.context() if run is not None else _run_about(asked, options)
    abilities = AgedAbilities(agent.abilities, agent.core.clock)
    context = Context(agent.core.name, "", session, about, agent.memory, abilities, clock=agent.core.clock)
    return await planner.prompt([asked] if message and run is None else [], context, with_text=with_text)


def _run_about(asked: Perception, options: RunOptions) -> RunContext:
    """Return a run that would begin with this message; without words it is about nothing yet."""
    text = asked.text
    return RunContext(_PREVIEW, text, message=asked if text else None, options=options)
