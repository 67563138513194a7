"""Contexts that modules are given: the cycle, and the run that it belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from msgspec import Struct, field

from spar.clock import Clock
from spar.records.run_options import NO_OPTIONS, RunOptions
from spar.types import Ability, ActionResult, CallResult, Learning, Perception, Reasoning, Trust


class RunContext(Struct, frozen=True):
    """The run that a cycle belongs to: `number` counts its requests from 1; `messages` is what is known so far.

    `message` is what the run is about, `said` what people have said in it since, oldest first; `trust` is that of the
    least trusted of all of it. `output` is the schema that its answer has to fit, if it was given one. `options` are
    those that hold for its next request. `reasoning` says whether anybody wants to read what a model thinks.
    """

    id: str
    goal: str
    number: int = 1
    messages: tuple[dict[str, Any], ...] = ()
    results: tuple[ActionResult, ...] = ()
    message: Perception | None = None
    said: tuple[Perception, ...] = ()
    trust: Trust = "trusted"
    output: Mapping[str, Any] | None = None
    options: RunOptions = NO_OPTIONS
    reasoning: Reasoning = "off"


class Context(Struct, frozen=True):
    """Context of a module that asks for a second parameter. `deadline` is monotonic seconds or None.

    `abilities` holds what reflection has learnt so far, by `ability_key(tool, task)`. `known` are the ends of calls of
    a cycle that is gone on with after it was cut off, in the order in which they ended: they are not to be made again.
    `learning` says whether decisions may go by what was learnt (`on`), or only tell of it (`observe`).
    `noticed` is what sense brought where hooks at `before_plan` may have changed it; None: they were not asked.
    """

    agent: str
    cycle_id: str
    session: str = "main"
    run: RunContext | None = None
    memory: Any = None
    abilities: Mapping[str, Ability] = field(default_factory=dict)
    deadline: float | None = None
    clock: Clock | None = None
    known: tuple[CallResult, ...] = ()
    noticed: tuple[Perception, ...] | None = None
    learning: Learning = "on"


#: Inside of a call: the ids of the cycle and of the run that it is made for ("", None: for none).
CALLED_FOR: ContextVar[tuple[str, str | None]] = ContextVar("called for", default=("", None))
