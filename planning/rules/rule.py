"""Rules that are ready to be matched: their conditions, templates and calls; pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from planning.rules.conditions import Matcher
from planning.rules.templates import Placeholder, Template
from spar.data.paths import Expression
from spar.data.paths import Path as Place


class CallRule(Struct, frozen=True):
    """One call of a rule.

    `after` holds the numbers of other calls in the rule, `writes` the places in the state that it writes, `reads` its
    references, `foreign` the placeholders that may bring in a stranger's text. `literals` are the parameters that are
    the same for each perception: no placeholder, no reference. Instead of `tools` it may have `globs`: tests for the
    names of the tools that exist when the rule fires. `written` are the texts of these globs.
    """

    name: str
    tools: tuple[str, ...]
    params: dict[str, Any]
    after: tuple[int, ...]
    output: str | None
    writes: tuple[Place, ...]
    reads: tuple[Expression, ...]
    min_ability: float | None
    literals: dict[str, Any]
    foreign: tuple[Placeholder, ...] = ()
    globs: tuple[Callable[[str], bool], ...] = ()
    written: tuple[str, ...] = ()


class Verify(Struct, frozen=True):
    """Verification of a rule, ready to be matched: see `verify` in the table of a rule."""

    within: float
    when: Matcher
    is_good: bool = False


class Rule(Struct, frozen=True):
    """A rule that is ready to be matched; `number` is its place in the configuration."""

    number: int
    name: str
    when: Matcher
    unless: Matcher | None
    cooldown: float
    stop: bool
    answer: Template | None
    on_failure: Template | None
    goal: Template | None
    next_look: float | None
    calls: tuple[CallRule, ...]
    learn: bool = True
    verify: Verify | None = None

    @property
    def is_open(self) -> bool:
        """Return whether one of its calls may take one of several tools."""
        return any(len(call.tools) != 1 for call in self.calls)
