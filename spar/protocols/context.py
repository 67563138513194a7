"""Contexts that modules get: the cycle, and the run that it belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from msgspec import Struct, field

from spar.clock import Clock
from spar.records.run_options import NO_OPTIONS, RunOptions
from spar.types import Ability, ActionResult, CallResult, Learning, Perception, Reasoning, Trust


class RunContext(Struct, frozen=True):
    """Run that a cycle belongs to.

    `number` counts its requests from 1; `messages` is what is known so far. `message` started the run, `said` are the
    messages of people since then, the oldest first; `trust` is that of the least trusted of them. `output` is the JSON
    schema of its answer, if it has one. `options` are those of its next request. `reasoning` says who may read the
    model's reasoning.
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
    """Context of a module that asks for one more parameter. `deadline` is in monotonic seconds, or None.

    `abilities` is what reflection has learnt so far, by `ability_key(tool, task)`. `known` are the results of calls of
    a cycle that continues after it was cut off, in the order of their ends: these calls must not run again. `learning`
    says whether decisions may use what was learnt (`on`) or only report it (`observe`). `noticed` are the sensed
    perceptions if a hook at `before_plan` may have changed them; None: no hook ran.
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


#: Ids of the cycle and of the run that the current call belongs to ("", None: none).
CALLED_FOR: ContextVar[tuple[str, str | None]] = ContextVar("called for", default=("", None))
