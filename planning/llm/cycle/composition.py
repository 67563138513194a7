"""Composition of the request of one cycle from values: what was gathered for the cycle, and the planner's settings.

The conversation is the transcript as turns (`planning.prompt.history`). What is new are the messages of people, and one
context: what was noticed, what is remembered, and what else holds for the moment and has changed since it was last told
(`planning.prompt.observations`). Nothing is read, sent or published here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from planning.bootstrap.before_request import Shaped, messages_of
from planning.bootstrap.sections import Prompt
from planning.llm.response import AnswerFaults
from planning.llm.state import PlannerState
from planning.ports import Request
from planning.prompt.advisors import CONSULT
from planning.prompt.call_results import Live, call_shown, is_about_no_call
from planning.prompt.history import Additions, Conversation, conversation, heading_of
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
from planning.prompt.render import blocks
from spar.checks import shorten
from spar.data.blackboard import message_of
from spar.hooks import RequestDraft
from spar.ports.phases import is_tainted
from spar.protocols import Context, RunContext
from spar.records.run_options import NO_OPTIONS, RunOptions
from spar.records.transcript import Entry
from spar.types import ActionResult, CallResult, Experience, Perception, Trust, was_misled

Wire = dict[str, Any]


class Gathered(Struct, kw_only=True):
    """All that the requests of one cycle are composed of, besides the planner's settings.

    `tools` are those of the agent, `hidden` the names of those that hooks left out; `output` is the schema of answers.
    `entries` is the transcript, `additions` what the run's requests have told and the transcript does not say.
    `experiences` are those recalled in this cycle, the best first; `unshown` were recorded but are not shown, where
    learning is only observed. `prompt` and `shaped` are the standing prompts, and what the hooks made of them; `models`
    are asked in this order; `faults` are those of the run's last answers. `steps` are the results of the run's earlier
    cycles that made calls, `results` those of all their calls; they follow from the context, as do `run` and the rest.
    """

    context: Context
    perceptions: Sequence[Perception]
    faults: AnswerFaults
    tools: Mapping[str, Any]
    output: Mapping[str, Any] | None
    hidden: frozenset[str] = frozenset()
    entries: Sequence[Entry] = ()
    additions: Additions = field(default_factory=Additions)
    experiences: Sequence[Experience] = ()
    unshown: Sequence[Experience] = ()
    prompt: Prompt = field(default_factory=Prompt)
    shaped: Shaped = field(default_factory=lambda: Shaped(RequestDraft()))
    models: tuple[str, ...] = ()

    run: RunContext | None = None
    run_id: str | None = None
    options: RunOptions = NO_OPTIONS
    steps: Sequence[ActionResult] = ()
    results: Sequence[CallResult] = ()

    def __post_init__(self) -> None:
        if (run := self.context.run) is not None:
            self.run, self.run_id, self.options = run, run.id, run.options
            self.steps = [result for result in run.results if result.results]
            self.results = [result for step in self.steps for result in step.results]

    @property
    def messages(self) -> Sequence[Wire]:
        """Return the messages of the run, which its calls can refer to."""
        return () if self.run is None else self.run.messages

    @property
    def offered(self) -> dict[str, Any]:
        """Return the tools of the request, by name, without those that hooks took out."""
        return {name: tool for name, tool in self.tools.items() if name != CONSULT and name not in self.hidden}

    @property
    def is_misled(self) -> bool:
        """Return whether untrusted text may influence this request: by an earlier plan or a call result of the run."""
        results = () if self.run is None else self.run.results
        return was_misled(results) or is_tainted((*self.results, *self.context.known), self.tools)


class Composed(Struct, frozen=True):
    """A request, and what it tells besides the turns before (`new`; `earlier`: what the requests since the last entry
    of the run have told). `cycles` counts the run's entries in the transcript; `recalled` are the ids of experiences
    that the run's requests have shown; `task` is the kind of work, `trust` that in what the model reads."""

    request: Request
    new: Sequence[Wire] = ()
    earlier: Sequence[Wire] = ()
    cycles: int = 0
    recalled: Sequence[str] = ()
    task: str = ""
    trust: Trust = "trusted"


def composed(planner: PlannerState, gathered: Gathered, room: int | None) -> Composed:
    """Return the request of a cycle; it may have more tokens than `room`, for which it is then made to fit.

    Raises: TypeError, ValueError for a tool whose schema cannot be used.
    """
    context, shaped = gathered.context, gathered.shaped
    missing = _missing_tools(gathered)
    notices = [*missing, *([gathered.faults.notice] if gathered.faults.notice else [])]
    observed = observe(gathered.perceptions, context, notices=notices)
    standing, hooked = _standing(planner, gathered), messages_of(shaped.draft)
    messages = _versioned(gathered, [*standing, *observed.messages, *hooked])
    talk, earlier = _conversation(planner, gathered, observed)
    of_run = [*filter(is_about_no_call, gathered.messages), *done_of(context)]
    moment = [
        ability_text(gathered.tools, observed.task, context.abilities if context.learning == "on" else {}),
        correction_text(gathered.messages),
        *[block.text for block in blocks(_versioned(gathered, [*standing, *of_run, *hooked]))],
        *missing,
    ]
    new = _news(planner, gathered, talk, observed, moment)
    for addition in new:
        _tell(talk, addition, observed.asked)
    is_untrusted = "untrusted" in (shaped.draft.trust, observed.trust, talk.trust) or gathered.is_misled
    request = planner.composer.compose(
        messages,
        tools=gathered.offered,
        activities=planner.activities,
        output=gathered.output,
        references=planner.references,
        turns=talk.turns,
        own=talk.own,
        instructions=shaped.draft.instructions,
        preface=gathered.prompt.preface,
        max_tokens=planner.max_tokens,
        purpose="plan",
        session=f"{context.agent}/{context.session}",
        cycle_id=context.cycle_id,
        run_id=gathered.run_id,
        models=gathered.models,
        thinking=gathered.options.thinking,
        room=room,
    )
    trust: Trust = "untrusted" if is_untrusted else "trusted"
    return Composed(request, new, earlier, talk.cycles, talk.recalled, observed.task, trust)


def _conversation(
    planner: PlannerState, gathered: Gathered, observed: Observation
) -> tuple[Conversation, Sequence[Wire]]:
    """Return the turns so far, with those of the run's requests whose cycles have no entry in the transcript, and what
    these told."""
    run, additions = gathered.run, gathered.additions
    texts = {message.id: message.text for message in observed.asked}
    live = None if run is None else Live(run.results, texts)
    talk = conversation(gathered.entries, run_id=gathered.run_id, live=live, additions=planner.additions,
                        past=planner.past_of(gathered.context.session))  # fmt: skip
    earlier = additions.after(talk.cycles, talk.unsaid) if additions.items else []
    for addition in earlier:
        _tell(talk, addition, observed.asked)
    return talk, earlier


def _news(
    planner: PlannerState, gathered: Gathered, talk: Conversation, observed: Observation, moment: Sequence[str]
) -> list[Wire]:
    """Return what a request tells besides the turns before, as `Action.additions` has it.

    These are the new messages of people, then one context with all else that is new or has changed.
    Args: moment: the texts that hold for the moment.
    """
    new: list[Wire] = [{"messages": [message.id]} for message in observed.asked if message.id not in talk.heard]
    noticed = [perception for perception in observed.noticed if perception.id not in talk.heard]
    best = [experience for experience in gathered.experiences if experience.run_id not in talk.runs][: planner.recall]
    unknown = [experience for experience in best if experience.id not in talk.experiences]
    query = query_of(gathered.perceptions, gathered.context) if unknown else ""
    memory, shown = memory_text(unknown, query)
    changed = [text for text in moment if text and talk.blocks.get(heading_of(text)) != text]
    notice = gathered.faults.notice
    if notice and not (talk.turns and talk.turns[-1].text.endswith(notice)):  # it is not told twice
        changed.append(notice)
    noticed_block = noticed_text(noticed, is_asked=bool(observed.asked)) if noticed else ""
    trusts = [perception.trust for perception in noticed] + [experience.trust for experience in shown]
    context: Wire = {
        "messages": [perception.id for perception in noticed],
        "blocks": [text for text in (noticed_block, memory, *changed) if text],
        "trust": "untrusted" if "untrusted" in (*trusts, gathered.shaped.draft.trust) else "",
        "experiences": [experience.id for experience in shown],
        "recalled": [experience.id for experience in best if experience in shown or experience not in unknown],
    }
    context = {key: value for key, value in context.items() if value}
    return [*new, context] if context else new


def _standing(planner: PlannerState, gathered: Gathered) -> list[Wire]:
    """Return the messages that each request of a run has: the advisors, the `meta`, the plan so far."""
    messages = [dict(advisor) for advisor in planner.advisors]
    if planner.meta is not None:
        messages.append(message_of("meta", dict(planner.meta)))
    if not planner.plan_mode or gathered.run is None:
        return messages
    messages.append({"type": "plan", "mode": planner.plan_mode, "plan": {"calls": []}})
    if not gathered.steps:
        return messages
    results = gathered.steps[-1].results
    return planned(messages, [call_shown(result.call.to_wire()) for result in results], results)


def _versioned(gathered: Gathered, messages: list[Wire]) -> list[Wire]:
    """Return the messages with the newest `meta` message: the last answer may have made a new version."""
    meta = gathered.faults.meta
    if meta is None or meta_of(messages) is None:
        return messages
    return [*(message for message in messages if not is_meta(message)), dict(meta)]


def _missing_tools(gathered: Gathered) -> list[str]:
    """Return a sentence for the model about each tool that it calls again and that does not exist."""
    return [
        f"There is no tool named {shorten(name)}, and there will be none: do without it."
        for name in nonexistent(gathered.results, gathered.tools)
    ]


def _tell(talk: Conversation, addition: Mapping[str, Any], asked: Sequence[Perception]) -> None:
    """Add what a request told to its turns. Args: asked: the messages of trusted people."""
    before, ids = len(talk.turns), addition.get("messages", ())
    for message in asked:
        if message.id in ids:
            talk.hear(message.text, message.id)
    talk.tell(addition)
    talk.own += len(talk.turns) - before
