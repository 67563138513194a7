"""Request of one cycle of a planner by a model: composed anew, and made to fit.

It is composed of what is known (`planning.prompt.observations`) and what was said (`planning.prompt.history`) by
`planning.prompt.request`, made to fit by `planning.prompt.token_budget`; one that was too long all the same is made
smaller and sent again. What takes too much of a conversation is summed up before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal

from planning.bootstrap.before_request import Shaped, messages_of, shaped
from planning.bootstrap.outline import outline_of
from planning.bootstrap.sections import Prompt, instructed
from planning.llm.record import digest
from planning.llm.state import PlannerState
from planning.ports import Request
from planning.prompt.advisors import CONSULT
from planning.prompt.call_results import call_shown
from planning.prompt.history import conversation
from planning.prompt.observations import nonexistent, observe, query_of
from planning.prompt.plans.kept import planned
from planning.prompt.plans.versions import is_meta, meta_of
from planning.prompt.schema import compose_schema
from planning.prompt.token_budget import fit
from spar.checks import shorten
from spar.data.blackboard import message_of
from spar.errors import PermanentError
from spar.events import ErrorOccurred
from spar.ports.trust import is_tainted, was_misled
from spar.protocols import Context
from spar.records.prompt import RequestDraft
from spar.records.run_options import NO_OPTIONS
from spar.records.transcript import Entry
from spar.types import ActionResult, CallResult, Experience, Fault, Perception, Trust

#: Requests of one cycle that are made again because they were too long.
MOST_OVERFLOWS: Final = 3
#: Of a request that was too long, the share that is tried next where nobody says how much can be read.
_SHRUNK: Final = 0.7
#: Of what can be read, the share that a conversation must take to be worth summing up before it has to be.
_WORTH: Final = 0.2


class CycleRequest:
    """The request of one cycle: `request` is sent first, and `smaller` ones if it was too long (`_too_long`)."""

    def __init__(self, planner: PlannerState, perceptions: Sequence[Perception], context: Context) -> None:
        self._planner, self._host, self._perceptions, self._context = planner, planner.host, perceptions, context
        self._run = run = context.run
        #: What came of the run's cycles in which anything was called.
        self._steps: Sequence[ActionResult] = [each for each in run.results if each.results] if run is not None else ()
        self._results: list[CallResult] = [each for one in self._steps for each in one.results]
        self._run_id = run.id if run is not None else None
        self._faults = planner.faults_of(self._run_id)
        self._tools: Mapping[str, Any] = self._host.tools() if self._host is not None else {}
        self._output = (run.output if run is not None else None) or planner.output
        self._entries: Sequence[Entry] = ()
        self._experiences: Sequence[Experience] = ()
        self._unshown: Sequence[Experience] = ()  # where it is only observed what memory would say
        self._prompt = Prompt()
        self._shaped = Shaped(RequestDraft())
        self._hidden: frozenset[str] = frozenset()  # tools that hooks left out
        self._trust: Trust = "trusted"
        self._task = ""
        self._options = run.options if run is not None else NO_OPTIONS
        self._models: tuple[str, ...] = ()
        self._in_turn, self._room = "", planner.models.room
        self._attempt = 0
        self._too_long: Exception | None = None  # why the last request has to be a smaller one

    async def request(self) -> Request:
        """Return the request as it is first sent; before that the conversation is summed up, if it takes too much."""
        planner = self._planner
        await self._gather()
        request = self._composed()
        room = self._room
        if room is None:
            return request
        if planner.record.estimator.of(request) > planner.threshold * room:
            spoken = sum(planner.record.estimator.tokens(turn.text) for turn in request.turns)
            if spoken > _WORTH * room and await self._compacted("threshold", room):
                request = self._composed()
        return fit(request, room, planner.record.estimator, self._steps)

    async def preview(self, *, with_text: bool = False) -> dict[str, Any]:
        """Return what would stand in the request, by part; nothing is sent, summed up or kept."""
        planner = self._planner
        await self._gather("preview")
        request = fit(self._composed(), self._room, planner.record.estimator, self._steps)
        found = outline_of(request, self._prompt, self._shaped, self._offered(), planner.record.estimator,
                           self._context.session, with_text=with_text)  # fmt: skip
        return {**found, "model": self._in_turn}

    async def _gather(self, reason: str = "") -> None:
        """Read all that the request is composed of, once in a cycle, and let hooks change it."""
        host = self._host
        if host is not None and host.transcripts is not None and self._run is not None:
            self._entries = await host.transcripts.read(self._context.session)
        found = await self._recalled()
        self._experiences, self._unshown = (found, ()) if self._context.learning == "on" else ((), found)
        prompt = await self._planner.prompts.of(self._context, keep=not reason)
        self._prompt = instructed(prompt, self._options.instructions)
        await self._shape(reason)

    async def _shape(self, reason: str) -> None:
        """Let the hooks at `before_request` change what the request is composed of."""
        planner = self._planner
        planner.models.order(self._options.model)  # what is not allowed any more ends the run before a hook is asked
        draft = RequestDraft(self._prompt.instructions, tools=tuple(self._offered()), trust=self._prompt.trust,
                             model=self._options.model or "", models=planner.models.allowed)  # fmt: skip
        self._shaped = await shaped(self._host, self._context, draft, reason=reason)
        self._models = planner.models.order(self._shaped.draft.model or None)
        self._take_room(planner.models.in_turn(self._models))
        self._hidden = frozenset(draft.tools) - {*self._shaped.draft.tools}
        if not reason:
            planner.record.keep(self._context.cycle_id, "hooks", list(self._shaped.did))

    async def smaller(self, request: Request) -> Request | None:
        """Return another request in the place of the last, if that was too long.

        Raises: PermanentError when nothing can be left out any more, or that was tried often enough.
        """
        planner, failure = self._planner, self._too_long
        if failure is None:
            return None
        planner.record.counts["overflows"] += 1
        if self._attempt <= MOST_OVERFLOWS:
            if (name := getattr(failure, "model", "")) in self._models:
                self._take_room(name)
            size, room = planner.record.estimator.of(request), self._room
            if room is None or size <= room:  # it reads less than was known of it
                room = int(_SHRUNK * min(size, room or size))
            if not await self._compacted("overflow", room):
                self._room = room
            made = fit(self._composed(), self._room, planner.record.estimator, self._steps)
            if digest(made) != digest(request):
                return made
        raise PermanentError(
            f"the request is too long however much is left out of it: {Fault.of(failure).message}; take a model that "
            "reads more, say less in the instructions, or go on in another session"
        ) from failure

    def _take_room(self, name: str) -> None:
        """Size the request for the number of tokens that this model reads."""
        self._in_turn, self._room = name, self._planner.models.room_of(name, self._options.thinking)

    async def _compacted(self, reason: Literal["overflow", "threshold"], room: int) -> bool:
        """Have the conversation summed up, by a request of at most `room` tokens; whether there is less of it now."""
        host, planner = self._host, self._planner
        if host is None or host.transcripts is None or self._run is None:
            return False
        is_done = await planner.compaction.run(
            host, self._context, self._entries, reason, estimator=planner.record.estimator, room=room
        )
        if is_done:
            self._entries = await host.transcripts.read(self._context.session)
        return is_done

    async def _recalled(self) -> Sequence[Experience]:
        """Return the matching experiences from before this run, the same for each of its requests; none by which
        decisions have gone badly too often.

        A memory that fails is no reason not to plan.
        """
        recall, most = getattr(self._context.memory, "recall", None), self._planner.recall
        run, query = self._run, query_of(self._perceptions, self._context)
        if recall is None or not most or not query.strip() or self._context.learning == "off":
            return ()
        try:
            found = await recall(query, most + (run.number if run is not None else 0))
            if run is not None and run.message is not None:
                began = run.message.at
                found = [each for each in found if (each.first_at or each.at) < began]
            return tuple([each for each in found if not each.is_retired][:most])
        except Exception as error:
            self._planner.record.counts["unrecalled"] += 1
            self._report(error, "memory")
            return ()

    def _composed(self) -> Request:
        planner, run = self._planner, self._run
        heard = [each.id for each in (run.message, *run.said) if each is not None] if run is not None else []
        talk = conversation(
            self._entries, run_id=self._run_id, heard=heard, past=planner.past_of(self._context.session)
        )
        told = observe(self._perceptions, self._context, tools=self._tools, experiences=self._experiences,
                     notices=self._notices())  # fmt: skip
        self._task = told.task
        brought = (self._shaped.draft.trust, told.trust, talk.trust)
        self._trust = "untrusted" if "untrusted" in brought or self._is_misled() else "trusted"
        messages = self._versioned([*self._standing(), *told.messages, *messages_of(self._shaped.draft)])
        make = partial(
            planner.composer.compose,
            messages,
            activities=planner.activities,
            output=self._output,
            turns=talk.turns,
            instructions=self._shaped.draft.instructions,
            preface=self._prompt.preface,
            results=run.results[-1].results if run is not None and run.results else (),
            steps=self._steps,
            max_tokens=planner.max_tokens,
            purpose="plan",
            cycle_id=self._context.cycle_id,
            run_id=self._run_id,
            models=self._models,
            thinking=self._options.thinking,
            room=self._room,
        )
        try:
            return make(tools=self._offered())
        except (TypeError, ValueError):
            if not self._left_out():
                raise
            return make(tools=self._offered())

    def _standing(self) -> list[dict[str, Any]]:
        """Return the messages that stand in each request of a run: advisors, the plan so far, the meta."""
        planner, messages = self._planner, [dict(each) for each in self._planner.advisors]
        if planner.meta is not None:
            messages.append(message_of("meta", dict(planner.meta)))
        if not planner.plan_mode or self._run is None:
            return messages
        messages.append({"type": "plan", "mode": planner.plan_mode, "plan": {"calls": []}})
        if not self._steps:
            return messages
        results = self._steps[-1].results
        return planned(messages, [call_shown(each.call.to_wire()) for each in results], results)

    def _versioned(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The messages with the meta that the last answer made, in the place of the one it was made from."""
        found = self._faults.meta
        if found is None or meta_of(messages) is None:
            return messages
        return [*(each for each in messages if not is_meta(each)), dict(found)]

    def _offered(self) -> dict[str, Any]:
        return {name: tool for name, tool in self._tools.items() if name != CONSULT and name not in self._hidden}

    def _left_out(self) -> bool:
        """Leave out tools that no schema can be made of, for the sake of the others; return whether there are any."""
        known = len(self._tools)
        usable: dict[str, Any] = {}
        for name, tool in self._tools.items():
            try:
                compose_schema({name: tool})
            except (TypeError, ValueError) as error:
                self._report(error, name)
            else:
                usable[name] = tool
        self._tools = usable
        return len(usable) < known

    def _notices(self) -> list[str]:
        """Return the agent's own notices: names of tools that do not exist, faults of the last answer."""
        names = nonexistent(self._results, self._tools)
        told = [f"There is no tool named {shorten(name)}, and there will be none: do without it." for name in names]
        return [*told, self._faults.notice] if self._faults.notice else told

    def _is_misled(self) -> bool:
        """Return whether this run was planned from text from outside so far, or has brought any."""
        ticks = self._run.results if self._run is not None else ()
        return was_misled(ticks) or is_tainted((*self._results, *self._context.known), self._tools)

    def _report(self, error: Exception, part: str) -> None:
        """Report the parts that this cycle's request does without."""
        fault = Fault.of(error, part=part, phase="plan")
        self._publish(ErrorOccurred(cycle_id=self._context.cycle_id, phase="plan", error=fault, policy="continue"))

    def _publish(self, event: Any) -> None:
        if self._host is not None:
            self._host.events.publish(event)
