"""The tables `[acting]` and `[approval]`."""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Ge, Le

from spar.config.fields import Positive, Seconds, Whole
from spar.config.tables.section import Options, Section, Text
from spar.records.approvals import GRANTABLE


class ActingSettings(Section):
    """Limits and order of calls."""

    max_parallel: Annotated[Whole, Ge(1)] = 64
    """How many calls may run at once; they mostly wait for others."""
    order: Literal["parallel", "plan"] = "parallel"
    """"plan": calls of one action that are not only reading run one after another, in the order of the plan."""
    largest_result: Annotated[Whole, Ge(1024), Le(256 * 1024 * 1024)] = 16 * 1024 * 1024
    """Bytes of a result as JSON. The next call gets all of it; a call that returns more fails (`too_large`). Models and
    people are shown a short form."""


class ApprovalRule(Section):
    """One rule: the calls that it is about, by all that it names, and the decision. The first rule that matches counts.

    A text is a pattern over the whole value, upper and lower case told apart: `*` any characters, `?` one, `[ab]` one
    of these.
    """

    tool: Text | None = None
    """A pattern for the tool's name."""
    effect: Literal["read", "idempotent", "once"] | tuple[Literal["read", "idempotent", "once"], ...] | None = None
    """The effect of the call; one, or a list of which one must hold."""
    trust: Literal["trusted", "untrusted"] | None = None
    """Whether text from outside may have decided on the call; a rule that names it decides about such calls alone."""
    session: Text | None = None
    """A pattern for the session."""
    params: Options | None = None
    """The parameters by name: texts are patterns, lists match item by item, all else must be equal. A parameter that
    the call leaves out matches nothing."""
    decision: Literal["auto", "ask", "deny"]
    """Run it, ask people about it, or refuse it. A tool's own "deny" stands in any case."""


class ApprovalSettings(Section):
    """Questions to people about calls: their rules and their time."""

    hold: Seconds = 0.0
    """Seconds that a cycle waits for the answer, and everything of its session with it; then it goes on without the
    call, which follows once there is one. 0: nothing waits for a person."""
    expires: Positive = 900.0
    """Seconds until a question that nobody has answered is a denial."""
    untrusted: Literal["auto", "ask", "deny"] = "ask"
    """The decision about calls that follow from untrusted text, of tools that are not declared safe with it."""
    max_pending: Annotated[Whole, Ge(1)] = 10
    """Questions of one run (or of a session's cycles without one) that may wait; a person who is asked too much does
    not read. Further questions are denied."""
    grantable: tuple[Text, ...] = GRANTABLE
    """Names of the programs (the files that links lead to) whose very calls a person may let pass for a time; calls of
    any other are approved one by one."""
    rules: tuple[ApprovalRule, ...] = ()
    """Which calls run, are asked about, or are refused; for all others the tool's own word counts."""
