"""Request of one cycle of a planner by a model: what it is made of is gathered, and what is composed made to fit.

Gathered are the transcript, the memory and the prompts; hooks may change them. `composition` composes a request of
these values. A long conversation is summarized first; then parts are shortened or left out until the request has no
more tokens than the model reads (`planning.prompt.token_budget`). Where the model still refuses it as too long, a
smaller one is made. The outline of a request lists its parts with size and origin.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, Literal

import msgspec

from planning.bootstrap.before_request import Shaped, apply_hooks, publish_fault
from planning.bootstrap.sections import Prompt, PromptPart, with_instructions
from planning.llm.cycle.composition import Composed, Gathered, composed
from planning.llm.record import digest
from planning.llm.state import PlannerState
from planning.ports import Request
from planning.prompt.history import heading_of, text_of
from planning.prompt.observations import FAILING, MEMORY, NOTICED, UNASKED, query_of
from planning.prompt.schema import compose_schema
from planning.prompt.token_budget import TokenEstimator, fit
from spar.errors import PermanentError
from spar.hooks import RequestDraft
from spar.protocols import Context
from spar.types import Experience, Fault, Perception

#: Most requests that one cycle makes after one that was too long, each smaller than the one before.
MOST_OVERFLOWS: Final = 3
#: Factor by which the next request is smaller than one that was too long, where the limit of the model is not known or
#: is evidently wrong.
_SHRUNK: Final = 0.7
#: Factor by which more experiences are recalled than are told, because some stand in the conversation.
_LOOKED_AT: Final = 3
#: Share of the tokens that a model reads. A conversation with less is summarized only after a request was too long.
_WORTH: Final = 0.2


class CycleRequest:
    """Maker of the requests of one cycle: `request` makes the first one, `smaller` another one if it was too long.

    `gathered` are the values that they are composed of, `composed` is the last of them with what it tells.
    """

    def __init__(self, planner: PlannerState, perceptions: Sequence[Perception], context: Context) -> None:
        self._planner, self._host, run = planner, planner.host, context.run
        self.gathered = Gathered(
            context=context,
            perceptions=perceptions,
            faults=planner.faults_of(run.id if run is not None else None),
            tools=self._host.tools() if self._host is not None else {},
            output=(run.output if run is not None else None) or planner.output,
        )
        self.composed = Composed(Request())
        self.room = planner.models.room  # of the model in turn
        self.model = ""  # the model in turn
        self.attempt = 0
        self.too_long: Exception | None = None  # the model's refusal of the last request

    async def request(self) -> Request:
        """Return the request that is sent first. A conversation that takes too much of it is summarized before."""
        planner = self._planner
        await self._gather()
        request = self._compose()
        room = self.room
        if room is None:
            return request
        if planner.record.estimator.of(request) <= min(planner.threshold, 1.0) * room:
            return request
        earlier = request.turns[: len(request.turns) - request.own]
        conversation_tokens = sum(planner.record.estimator.tokens(text_of(turn)) for turn in earlier)
        if conversation_tokens > _WORTH * room and await self._compacted("threshold", room):
            request = self._compose()
        return fit(request, room, planner.record.estimator)

    async def preview(self, *, with_text: bool = False) -> dict[str, Any]:
        """Return the parts of the request, each with its size and origin; nothing is sent, summarized or stored."""
        planner = self._planner
        await self._gather("preview")
        request = fit(self._compose(), self.room, planner.record.estimator)
        gathered = self.gathered
        outline = outline_of(request, gathered.prompt, gathered.shaped, gathered.offered, planner.record.estimator,
                           gathered.context.session, with_text=with_text)  # fmt: skip
        return {**outline, "model": self.model}

    async def _gather(self, reason: str = "") -> None:
        """Read the transcript, the memory and the prompts, once in a cycle, and let hooks change them.

        Args: reason: why the hooks are asked although no request is sent ("" where one is); nothing is stored then.
        """
        host, gathered, context = self._host, self.gathered, self.gathered.context
        if host is not None and host.transcripts is not None and gathered.run is not None:
            gathered.entries = await host.transcripts.read(context.session)
        try:
            gathered.additions = await self._planner.additions_of(context.session, gathered.run)
        except Exception as error:
            self._report(error, "memory")
        await self._recall(keep=not reason)
        prompt = await self._planner.prompts.of(context, keep=not reason)
        gathered.prompt = with_instructions(prompt, gathered.options.instructions)
        await self._shape(reason)

    async def _shape(self, reason: str) -> None:
        """Let the hooks at `before_request` change instructions, tools, messages and the model of the request."""
        planner, gathered = self._planner, self.gathered
        prompt, model = gathered.prompt, gathered.options.model
        planner.models.order(model)  # raises for a model that may not be chosen, before hooks run
        draft = RequestDraft(prompt.instructions, tools=tuple(gathered.offered), trust=prompt.trust,
                             model=model or "", models=planner.models.allowed)  # fmt: skip
        gathered.shaped = shaped = await apply_hooks(self._host, gathered.context, draft, reason=reason)
        gathered.models = planner.models.order(shaped.draft.model or None)
        self._take_room(planner.models.in_turn(gathered.models))
        gathered.hidden = frozenset(draft.tools) - {*shaped.draft.tools}
        if not reason:
            planner.record.keep(gathered.context.cycle_id, "hooks", list(shaped.changes))

    async def smaller(self, request: Request) -> Request | None:
        """Return a smaller request where the last was too long; None where it was not.

        Raises: PermanentError when nothing more can be left out, or after `MOST_OVERFLOWS` attempts.
        """
        planner, failure = self._planner, self.too_long
        if failure is None:
            return None
        planner.record.counts["overflows"] += 1
        if self.attempt <= MOST_OVERFLOWS:
            if (name := getattr(failure, "model", "")) in self.gathered.models:
                self._take_room(name)
            size, room = planner.record.estimator.of(request), self.room
            if room is None or size <= room:  # the known limit is wrong
                room = int(_SHRUNK * min(size, room or size))
            if not await self._compacted("overflow", room):
                self.room = room
            smaller_request = fit(self._compose(), self.room, planner.record.estimator)
            if digest(smaller_request) != digest(request):
                return smaller_request
        raise PermanentError(
            f"the request is too long however much is left out of it: {Fault.of(failure).message}; take a model that "
            "reads more, say less in the instructions, or go on in another session"
        ) from failure

    def _take_room(self, name: str) -> None:
        """Make the next request for this model: its size has to fit the tokens that this model reads."""
        self.model, self.room = name, self._planner.models.room_of(name, self.gathered.options.thinking)

    async def _compacted(self, reason: Literal["overflow", "threshold"], room: int) -> bool:
        """Summarize the conversation by a request of at most `room` tokens; return whether it became shorter."""
        host, planner, gathered = self._host, self._planner, self.gathered
        if host is None or host.transcripts is None or gathered.run is None:
            return False
        is_done = await planner.compaction.run(
            host, gathered.context, gathered.entries, reason, estimator=planner.record.estimator, room=room
        )
        if is_done:
            gathered.entries = await host.transcripts.read(gathered.context.session)
        return is_done

    async def _recall(self, *, keep: bool) -> None:
        """Read what was learnt earlier, in the first request of a run and when there is something else to search for.

        Args: keep: whether the run's next requests know that it was read.
        """
        context, faults = self.gathered.context, self.gathered.faults
        query = query_of(self.gathered.perceptions, context)
        if context.learning == "observe":
            self.gathered.unshown = await self._recalled(query)
        if context.learning != "on" or query == faults.query:
            return
        self.gathered.experiences = await self._recalled(query)
        if keep:
            faults.query = query

    async def _recalled(self, query: str) -> Sequence[Experience]:
        """Return the experiences from before this run that match a query.

        Retired ones, which did more harm than good, are left out. If the memory fails, that is reported, and the
        request is made without experiences.
        """
        recall, most = getattr(self.gathered.context.memory, "recall", None), self._planner.recall
        run = self.gathered.run
        if recall is None or not most or not query.strip():
            return ()
        try:
            experiences = await recall(query, _LOOKED_AT * most + (run.number if run is not None else 0))
            if run is not None and run.message is not None:
                began = run.message.at
                experiences = [
                    experience for experience in experiences if (experience.first_at or experience.at) < began
                ]
            return tuple([experience for experience in experiences if not experience.is_retired])
        except Exception as error:
            self._planner.record.counts["unrecalled"] += 1
            self._report(error, "memory")
            return ()

    def _compose(self) -> Request:
        """Compose the request of all that was gathered; it may be too large for the model.

        Tools whose schema cannot be used are left out, and reported.
        """
        gathered = self.gathered
        try:
            self.composed = composed(self._planner, gathered, self.room)
        except (TypeError, ValueError):
            usable = {name: tool for name, tool in gathered.tools.items() if self._is_usable(name, tool)}
            if len(usable) == len(gathered.tools):
                raise
            gathered.tools = usable
            self.composed = composed(self._planner, gathered, self.room)
        return self.composed.request

    def _is_usable(self, name: str, tool: Any) -> bool:
        try:
            compose_schema({name: tool})
        except (TypeError, ValueError) as error:
            self._report(error, name)
            return False
        return True

    def _report(self, error: Exception, part: str) -> None:
        publish_fault(self._host, self.gathered.context, Fault.of(error, part=part, phase="plan"))

    def publish(self, event: Any) -> None:
        if self._host is not None:
            self._host.events.publish(event)


#: The origin of data by its kind. Data of every other kind comes from the run.
_ORIGINS: Final = {
    "ability": "reflection",
    "context": "hooks at before_request",
    "experience": "memory",
    "noticed": "sensors",
}
_PARTS: Final = {"user": "message", "assistant": "answer"}
#: The kind of a text about the moment that is no data, by its first line.
_KINDS: Final = {MEMORY: "experience", FAILING: "ability", NOTICED: "noticed", UNASKED: "noticed"}
_DATA: Final = re.compile(r"## Data: ¶(\w+)")


def outline_of(
    request: Request, prompt: Prompt, shaped: Shaped, tools: Collection[str], estimator: TokenEstimator,
    session: str, *, with_text: bool = False
) -> dict[str, Any]:  # fmt: skip
    """Return the parts of a request in their order, with the size of each part and of the whole.

    Args: tools: the names of the offered tools; with_text: whether each part has its text too.
    """
    parts = list(_parts(request, prompt, shaped, tools, session))
    rows = [
        {
            "part": part.part,
            "origin": part.origin,
            "chars": len(part.text),
            "tokens": estimator.tokens(part.text),
            "note": part.note,
            **({"text": part.text} if with_text else {}),
        }
        for part in parts
    ]
    return {
        "session": session,
        "parts": rows,
        "chars": sum(len(part.text) for part in parts),
        "tokens": estimator.of(request),
        "trust": shaped.draft.trust,
        "hooks": list(shaped.changes),
    }


def _parts(
    request: Request, prompt: Prompt, shaped: Shaped, tools: Collection[str], session: str
) -> Iterator[PromptPart]:
    material = set(prompt.preface)
    instructions = shaped.draft.instructions
    left = instructions
    for part in prompt.parts:
        if part.text not in material and part.text in left:
            left = left.replace(part.text, "", 1)
            yield part
    if left.strip():
        hooks = ", ".join(str(entry["hook"]) for entry in shaped.changes if "instructions" in entry)
        yield PromptPart("instructions", f"hooks at before_request: {hooks}", left.strip())
    if request.schema:
        names = ", ".join(tools) or "none"
        yield PromptPart("tools", f"{len(tools)}: {names}", msgspec.json.encode(request.schema).decode())
    if request.answer is not None:
        yield PromptPart("answer", "output", msgspec.json.encode(request.answer).decode())
    yield from (part for part in prompt.parts if part.text in material)
    border = len(request.turns) - request.own
    if earlier := request.turns[:border]:
        history = "\n\n".join(map(text_of, earlier))
        yield PromptPart("history", f"transcript of {session}", history, f"{len(earlier)} turns")
    for turn in request.turns[border:]:
        if turn.role == "context":
            yield from map(_context_part, turn.text.split("\n\n"))
        else:
            yield PromptPart(_PARTS[turn.role], "run", text_of(turn) if turn.calls else turn.text)


def _context_part(block: str) -> PromptPart:
    """Return a text about the moment as a part, by its first line."""
    kind = match[1] if (match := _DATA.match(block)) else _KINDS.get(heading_of(block), "context")
    return PromptPart(kind, _ORIGINS.get(kind, "run"), block)
