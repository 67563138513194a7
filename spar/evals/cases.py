"""Form of a case, as files and `spar eval` have it.

    - name: weather in one town
      messages: ["How is the weather in Graz?"]
      tools:
        weather:
          description: Return the present weather of a town.
          params: {town: The name of the town.}
          answers:
            - {when: {town: Graz}, result: 12 degrees and rain}
      expect:
        calls: [{tool: weather, params: {town: Graz}}]
        answer: {contains: ["12", rain]}
        steps: 2

A case is plain data, also in what went before it (`history`, `experiences`) and what its tools answered: whatever
happened in a run can be written down as one.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from annotated_types import Ge, Len
from msgspec import field

from spar.config.tables.section import Before, Name, Positive, Section, Text, Whole
from spar.evals.conditions import Params, TextRule, Texts
from spar.protocols import Effect
from spar.protocols.tools import Approval

Number: TypeAlias = Annotated[Whole, Ge(0)]


class ToolAnswer(Section, frozen=True, kw_only=True):
    """Answer of a tool to a call."""

    when: Params = field(default_factory=dict)
    """The parameters that the call must have, as in `expect.calls`; others may have any value."""
    result: Any = None
    """The result of the call."""
    error: str = ""
    """The message with which the call fails."""
    times: Number = 0
    """How often it is given, before the next answer that fits is; 0: always."""


class AnsweringTool(Section, frozen=True, kw_only=True):
    """Tool that does nothing and answers as it is written. The first answer that fits counts; without one a call
    fails."""

    description: Text
    """The description that the model reads."""
    params: Params = field(default_factory=dict)
    """Its parameters: for each the JSON schema of its value, or the description of a text."""
    optional: Texts = ()
    """The parameters that a call may leave out."""
    effect: Effect = "read"
    """The effect of a call: "read" changes nothing, "idempotent" may be repeated, "once" may not."""
    approval: Approval = "auto"
    """Whether a call needs approval: "auto", "ask" or "deny"."""
    decision: Literal["approve", "deny"] = "approve"
    """The decision of a person about each call that asks for approval."""
    reason: str = ""
    """The reason of the decision, which the model reads."""
    brings_untrusted: bool = False
    """Whether its results are text from outside."""
    safe_with_untrusted: bool = False
    """Whether text from outside may fill its parameters without approval."""
    answers: tuple[ToolAnswer, ...] = ()
    """Its answers."""


class PastCall(Section, frozen=True, kw_only=True):
    """Call of a past conversation."""

    tool: Text
    """The called tool."""
    params: Params = field(default_factory=dict)
    """Its parameters."""
    result: Any = None
    """Its result."""
    error: str = ""
    """The message with which it failed."""


class PastTurn(Section, frozen=True, kw_only=True):
    """Turn of a past conversation. `{n}` in its texts is the number of the repetition, from 1."""

    user: Text
    """The message of the user."""
    calls: tuple[PastCall, ...] = ()
    """The calls that the model made of it, in one step."""
    agent: Text
    """The answer of the model."""
    repeat: Annotated[Whole, Ge(1)] = 1
    """How often the turn is repeated."""


class PastExperience(Section, frozen=True, kw_only=True):
    """Experience that the agent has from an earlier time."""

    situation: Text
    """The situation, in one line."""
    action: str = ""
    """The calls that were made, or what else was done."""
    outcome: str = ""
    """The outcome."""
    success: bool | None = None
    """Whether it worked; left out: nobody knows."""
    lesson: str = ""
    """The lesson that was learnt."""


class CaseMessage(Section, frozen=True, kw_only=True):
    """Message of the user. A text instead of a table is its text."""

    text: Text
    """Its text."""
    session: Name = "main"
    """The session that gets it."""


class ExpectedCall(Section, frozen=True, kw_only=True):
    """Call that must be made, or with `times = 0` must not. A call that was denied counts as made."""

    tool: Text
    """The called tool."""
    params: Params = field(default_factory=dict)
    """Values of its parameters, references resolved; a table of `contains`, `lacks` and `matches` is a condition on a
    text. Others may have any value."""
    times: Number | None = None
    """How often it is made; left out: at least once."""


class Expected(Section, frozen=True, kw_only=True):
    """All that must hold of a case."""

    status: Literal["ok", "error"] = "ok"
    """The status of each run."""
    calls: tuple[ExpectedCall, ...] = ()
    """Calls that must be made, or must not."""
    only: bool = False
    """Whether other calls are forbidden."""
    in_order: bool = False
    """Whether the calls must be made in the order of `calls`."""
    answer: Annotated[
        TextRule, Before(lambda value: {"contains": value} if isinstance(value, (str, list)) else value)
    ] = TextRule()
    """Condition on the answer to the last message; a text instead of a table must occur in it."""
    silent: bool | None = None
    """Whether the last message gets no answer (NO_REPLY)."""
    approvals: Texts | None = None
    """The tools that ask for approval, and no others; [] for none."""
    compacted: bool | None = None
    """Whether the conversation is summed up."""
    steps: Annotated[Whole, Ge(1)] | None = None
    """The most requests to the model, without those for a summary."""
    tokens: Number | None = None
    """The most tokens, read and written."""
    cost: Annotated[float, Ge(0)] | None = None
    """The most money, as far as prices are known."""


class EvalCase(Section, frozen=True, kw_only=True):
    """One case."""

    name: Annotated[str, Len(1, 100)]
    """Its name, which no other case has."""
    group: str = ""
    """Its subject; left out: the name of its file."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings for this case, by their dotted keys: `plan.options.context_tokens: 4000`."""
    experiences: tuple[PastExperience, ...] = ()
    """Experiences of the agent from earlier times."""
    history: tuple[PastTurn, ...] = ()
    """The conversation of session "main" before the first message."""
    messages: Annotated[
        tuple[Annotated[CaseMessage, Before(lambda value: {"text": value} if isinstance(value, str) else value)], ...],
        Len(1),
    ]
    """The messages of the user, each sent when the one before is answered."""
    tools: dict[str, AnsweringTool] = field(default_factory=dict)
    """The tools that the model may call, by name."""
    expect: Expected
    """The conditions that must hold."""
    timeout: Positive = 120.0
    """Seconds after which the case has failed."""
