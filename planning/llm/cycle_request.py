"""Request of one cycle of a planner by a model: the conversation of its session and what is new, made to fit the model.

The conversation is the transcript as turns (`planning.prompt.history`). What is new are the messages of people, and one
context: what was noticed, what is remembered, and what else holds for the moment and has changed since it was last told
(`planning.prompt.observations`). A long conversation is summarized first; then parts are shortened or left out until
the request has no more tokens than the model reads (`planning.prompt.token_budget`). Where the model still refuses it
as too long, a smaller one is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal

from planning.bootstrap.before_request import Shaped, apply_hooks, messages_of
from planning.bootstrap.outline import outline_of
from planning.bootstrap.sections import Prompt, with_instructions
from planning.llm.record import digest
from planning.llm.state import PlannerState
from planning.ports import Request
from planning.prompt.advisors import CONSULT
from planning.prompt.call_results import Live, call_shown, is_about_no_call
from planning.prompt.history import Additions, Conversation, conversation, heading_of, text_of
from planning.prompt.observations import (
    Observation,
    ability_text,
    correction_text,
    done_of,
    memory_text,
    nonexistent,
    noticed_text,
    observe,
    query_of,
)
from planning.prompt.plans.kept import planned
from planning.prompt.plans.versions import is_meta, meta_of
from planning.prompt.render import render_texts
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
    """Maker of the request of one cycle: `request` makes the first one, `smaller` another one if it was too long."""

    def __init__(self, planner: PlannerState, perceptions: Sequence[Perception], context: Context) -> None:
        self._planner, self._host, self._perceptions, self._context = planner, planner.host, perceptions, context
        self._run = run = context.run
        #: Results of the run's earlier cycles that made calls.
        self._steps: Sequence[ActionResult] = (
            [result for result in run.results if result.results] if run is not None else ()
        )
        self._results: list[CallResult] = [result for step in self._steps for result in step.results]
        self._run_id = run.id if run is not None else None
        self._faults = planner.faults_of(self._run_id)
        self._additions = Additions()  # what the run's requests have told and the transcript does not say
        self._earlier: list[dict[str, Any]] = []  # those of them since its last entry, before this request
        self._cycles = 0  # entries of the run's cycles in the transcript
        self._tools: Mapping[str, Any] = self._host.tools() if self._host is not None else {}
        self._output = (run.output if run is not None else None) or planner.output
        self._entries: Sequence[Entry] = ()
        self._experiences: Sequence[Experience] = ()  # recalled in this cycle, the best first
        self._recalled_ids: list[str] = []  # of experiences that the run's requests have shown
        self._new: list[dict[str, Any]] = []  # what this request tells besides the turns before
        self._unshown: Sequence[Experience] = ()  # recorded but not shown, where learning is only observed
        self._prompt = Prompt()
        self._shaped = Shaped(RequestDraft())
        self._hidden: frozenset[str] = frozenset()  # tools that hooks left out
        self._trust: Trust = "trusted"
        self._task = ""
        self._options = run.options if run is not None else NO_OPTIONS
        self._models: tuple[str, ...] = ()
        self._in_turn, self._room = "", planner.models.room
        self._attempt = 0
        self._too_long: Exception | None = None  # the model's refusal of the last request

    async def request(self) -> Request:
        """Return the request that is sent first. A conversation that takes too much of it is summarized before."""
        planner = self._planner
        await self._gather()
        request = self._composed()
        room = self._room
        if room is None:
            return request
        if planner.record.estimator.of(request) <= min(planner.threshold, 1.0) * room:
            return request
        earlier = request.turns[: len(request.turns) - request.own]
        conversation_tokens = sum(planner.record.estimator.tokens(text_of(turn)) for turn in earlier)
        if conversation_tokens > _WORTH * room and await self._compacted("threshold", room):
            request = self._composed()
        return fit(request, room, planner.record.estimator)

    async def preview(self, *, with_text: bool = False) -> dict[str, Any]:
        """Return the parts of the request, each with its size and origin; nothing is sent, summarized or stored."""
        planner = self._planner
        await self._gather("preview")
        request = fit(self._composed(), self._room, planner.record.estimator)
        outline = outline_of(request, self._prompt, self._shaped, self._offered(), planner.record.estimator,
                           self._context.session, with_text=with_text)  # fmt: skip
        return {**outline, "model": self._in_turn}

    async def _gather(self, reason: str = "") -> None:
        """Read the transcript, the memory and the prompts, once in a cycle, and let hooks change them.

        Args: reason: why the hooks are asked although no request is sent ("" where one is); nothing is stored then.
        """
        host = self._host
        if host is not None and host.transcripts is not None and self._run is not None:
            self._entries = await host.transcripts.read(self._context.session)
        try:
            self._additions = await self._planner.additions_of(self._context.session, self._run)
        except Exception as error:
            self._report(error, "memory")
        await self._recall(keep=not reason)
        prompt = await self._planner.prompts.of(self._context, keep=not reason)
        self._prompt = with_instructions(prompt, self._options.instructions)
        await self._shape(reason)

    async def _shape(self, reason: str) -> None:
        """Let the hooks at `before_request` change instructions, tools, messages and the model of the request."""
        planner = self._planner
        planner.models.order(self._options.model)  # raises for a model that may not be chosen, before hooks run
        draft = RequestDraft(self._prompt.instructions, tools=tuple(self._offered()), trust=self._prompt.trust,
                             model=self._options.model or "", models=planner.models.allowed)  # fmt: skip
        self._shaped = await apply_hooks(self._host, self._context, draft, reason=reason)
        self._models = planner.models.order(self._shaped.draft.model or None)
        self._take_room(planner.models.in_turn(self._models))
        self._hidden = frozenset(draft.tools) - {*self._shaped.draft.tools}
        if not reason:
            planner.record.keep(self._context.cycle_id, "hooks", list(self._shaped.changes))

    async def smaller(self, request: Request) -> Request | None:
        """Return a smaller request where the last was too long; None where it was not.

        Raises: PermanentError when nothing more can be left out, or after `MOST_OVERFLOWS` attempts.
        """
        planner, failure = self._planner, self._too_long
        if failure is None:
            return None
        planner.record.counts["overflows"] += 1
        if self._attempt <= MOST_OVERFLOWS:
            if (name := getattr(failure, "model", "")) in self._models:
                self._take_room(name)
            size, room = planner.record.estimator.of(request), self._room
            if room is None or size <= room:  # the known limit is wrong
                room = int(_SHRUNK * min(size, room or size))
            if not await self._compacted("overflow", room):
                self._room = room
            smaller_request = fit(self._composed(), self._room, planner.record.estimator)
            if digest(smaller_request) != digest(request):
                return smaller_request
        raise PermanentError(
            f"the request is too long however much is left out of it: {Fault.of(failure).message}; take a model that "
            "reads more, say less in the instructions, or go on in another session"
        ) from failure

    def _take_room(self, name: str) -> None:
        """Make the next request for this model: its size has to fit the tokens that this model reads."""
        self._in_turn, self._room = name, self._planner.models.room_of(name, self._options.thinking)

    async def _compacted(self, reason: Literal["overflow", "threshold"], room: int) -> bool:
        """Summarize the conversation by a request of at most `room` tokens; return whether it became shorter."""
        host, planner = self._host, self._planner
        if host is None or host.transcripts is None or self._run is None:
            return False
        is_done = await planner.compaction.run(
            host, self._context, self._entries, reason, estimator=planner.record.estimator, room=room
        )
        if is_done:
            self._entries = await host.transcripts.read(self._context.session)
        return is_done

    async def _recall(self, *, keep: bool) -> None:
        """Read what was learnt earlier, in the first request of a run and when there is something else to search for.

        Args: keep: whether the run's next requests know that it was read.
        """
        context, faults = self._context, self._faults
        query = query_of(self._perceptions, context)
        if context.learning == "observe":
            self._unshown = await self._recalled(query)
        if context.learning != "on" or query == faults.query:
            return
        self._experiences = await self._recalled(query)
        if keep:
            faults.query = query

    async def _recalled(self, query: str) -> Sequence[Experience]:
        """Return the experiences from before this run that match a query.

        Retired ones, which did more harm than good, are left out. If the memory fails, that is reported, and the
        request is made without experiences.
        """
        recall, most, run = getattr(self._context.memory, "recall", None), self._planner.recall, self._run
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

    def _composed(self) -> Request:
        """Return the request composed of all that `_gather` read; it may be too large for the model."""
        planner = self._planner
        notices = [*self._missing_tools(), *([self._faults.notice] if self._faults.notice else [])]
        observed = observe(self._perceptions, self._context, notices=notices)
        self._task = observed.task
        standing, hooked = self._standing(), messages_of(self._shaped.draft)
        messages = self._versioned([*standing, *observed.messages, *hooked])
        talk = self._conversation(observed)
        self._new = self._news(talk, observed, self._versioned([*standing, *self._of_run(), *hooked]))
        for addition in self._new:
            _tell(talk, addition, observed.asked)
        self._recalled_ids = talk.recalled
        brought = (self._shaped.draft.trust, observed.trust, talk.trust)
        self._trust = "untrusted" if "untrusted" in brought or self._is_misled() else "trusted"
        make = partial(
            planner.composer.compose,
            messages,
            activities=planner.activities,
            output=self._output,
            references=planner.references,
            turns=talk.turns,
            own=talk.own,
            instructions=self._shaped.draft.instructions,
            preface=self._prompt.preface,
            max_tokens=planner.max_tokens,
            purpose="plan",
            session=f"{self._context.agent}/{self._context.session}",
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

    def _conversation(self, observed: Observation) -> Conversation:
        """Return the turns so far, with those of the run's requests whose cycles have no entry in the transcript."""
        planner, run = self._planner, self._run
        texts = {message.id: message.text for message in observed.asked}
        live = None if run is None else Live(run.results, texts)
        talk = conversation(self._entries, run_id=self._run_id, live=live, additions=planner.additions,
                            past=planner.past_of(self._context.session))  # fmt: skip
        self._cycles = talk.cycles
        self._earlier = self._additions.after(self._cycles, talk.unsaid) if self._additions.items else []
        for addition in self._earlier:
            _tell(talk, addition, observed.asked)
        return talk

    def _news(
        self, talk: Conversation, observed: Observation, messages: Sequence[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """Return what this request tells besides the turns before, as `Action.additions` has it.

        These are the new messages of people, then one context with all else that is new or has changed.
        Args: messages: those that hold for the moment.
        """
        new: list[dict[str, Any]] = [
            {"messages": [message.id]} for message in observed.asked if message.id not in talk.heard
        ]
        most, learning = self._planner.recall, self._context.learning
        noticed = [perception for perception in observed.noticed if perception.id not in talk.heard]
        best = [experience for experience in self._experiences if experience.run_id not in talk.runs][:most]
        unknown = [experience for experience in best if experience.id not in talk.experiences]
        query = query_of(self._perceptions, self._context) if unknown else ""
        memory, shown = memory_text(unknown, query)
        abilities = self._context.abilities if learning == "on" else {}
        moment = [
            ability_text(self._tools, self._task, abilities),
            correction_text(self._run.messages if self._run is not None else ()),
            *render_texts(messages),
            *self._missing_tools(),
        ]
        changed = [text for text in moment if text and talk.blocks.get(heading_of(text)) != text]
        notice = self._faults.notice
        if notice and not (talk.turns and talk.turns[-1].text.endswith(notice)):  # it is not told twice
            changed.append(notice)
        noticed_block = noticed_text(noticed, is_asked=bool(observed.asked)) if noticed else ""
        trusts = [perception.trust for perception in noticed] + [experience.trust for experience in shown]
        context: dict[str, Any] = {
            "messages": [perception.id for perception in noticed],
            "blocks": [text for text in (noticed_block, memory, *changed) if text],
            "trust": "untrusted" if "untrusted" in (*trusts, self._shaped.draft.trust) else "",
            "experiences": [experience.id for experience in shown],
            "recalled": [experience.id for experience in best if experience in shown or experience not in unknown],
        }
        context = {key: value for key, value in context.items() if value}
        return [*new, context] if context else new

    def _of_run(self) -> list[dict[str, Any]]:
        """Return the messages of the run that its calls do not show, and the calls before an interruption."""
        messages = self._run.messages if self._run is not None else ()
        return [*filter(is_about_no_call, messages), *done_of(self._context)]

    def _standing(self) -> list[dict[str, Any]]:
        """Return the messages that each request of a run has: the advisors, the `meta`, the plan so far."""
        planner, messages = self._planner, [dict(advisor) for advisor in self._planner.advisors]
        if planner.meta is not None:
            messages.append(message_of("meta", dict(planner.meta)))
        if not planner.plan_mode or self._run is None:
            return messages
        messages.append({"type": "plan", "mode": planner.plan_mode, "plan": {"calls": []}})
        if not self._steps:
            return messages
        results = self._steps[-1].results
        return planned(messages, [call_shown(result.call.to_wire()) for result in results], results)

    def _versioned(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the messages with the newest `meta` message: the last answer may have made a new version."""
        meta = self._faults.meta
        if meta is None or meta_of(messages) is None:
            return messages
        return [*(message for message in messages if not is_meta(message)), dict(meta)]

    def _offered(self) -> dict[str, Any]:
        """Return the tools of the request, by name, without those that hooks took out."""
        return {name: tool for name, tool in self._tools.items() if name != CONSULT and name not in self._hidden}

    def _left_out(self) -> bool:
        """Remove the tools whose schema cannot be used, and report each; return whether there are any."""
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

    def _missing_tools(self) -> list[str]:
        """Return a sentence for the model about each tool that it calls again and that does not exist."""
        return [
            f"There is no tool named {shorten(name)}, and there will be none: do without it."
            for name in nonexistent(self._results, self._tools)
        ]

    def _is_misled(self) -> bool:
        """Return whether untrusted text may influence this request: by an earlier plan or a call result of the run."""
        ticks = self._run.results if self._run is not None else ()
        return was_misled(ticks) or is_tainted((*self._results, *self._context.known), self._tools)

    def _report(self, error: Exception, part: str) -> None:
        """Publish an error in a part (the memory, a tool). The request is made without that part."""
        fault = Fault.of(error, part=part, phase="plan")
        self._publish(ErrorOccurred(cycle_id=self._context.cycle_id, phase="plan", error=fault, policy="continue"))

    def _publish(self, event: Any) -> None:
        if self._host is not None:
            self._host.events.publish(event)


def _tell(talk: Conversation, addition: Mapping[str, Any], asked: Sequence[Perception]) -> None:
    """Add what a request told to its turns. Args: asked: the messages of trusted people."""
    before, ids = len(talk.turns), addition.get("messages", ())
    for message in asked:
        if message.id in ids:
            talk.hear(message.text, message.id)
    talk.tell(addition)
    talk.own += len(talk.turns) - before
