"""One call of a tick, from its arrival to its result, and what can be said of it on arrival."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

from acting.graph.nodes import NOBODY, Node
from acting.run.call.attempt import Launch, cut
from acting.run.call.prepared_call import STRUCTURAL, Proposal, kind_of, objection_to
from acting.run.call.prescriptions import prescribed, rewritten
from acting.run.limits import Gate
from acting.run.runtime import Stage, fault
from acting.tooling.bound_tool import Entry, LatentEntry
from acting.tooling.parameters import check_finite
from spar.budgets.windows import Fare
from spar.data.blackboard import Board
from spar.data.json_safe import plain
from spar.data.paths import MARK, SCALARS, Expression, TooLargeError, distinct, parse_write, references, resolve
from spar.types import Call, CallResult, Fault, replace

_SHORT, _LARGE = 256, 1 << 63


def _looked_over(params: dict[str, Any]) -> tuple[bool, bool]:
    """Whether all parameters are short scalars, fit to keep as they are, and whether any may refer to something."""
    is_small, may_refer = True, False
    for value in params.values():
        kind = type(value)
        if kind is str:
            if value[:1] == MARK:
                may_refer = True
            if len(value) > _SHORT or not (value.isascii() or value.isprintable()):  # a lone surrogate is not printable
                is_small = False
        elif kind is int:
            if not -_LARGE < value < _LARGE:
                is_small = False
        elif kind is float:
            is_small = False
        elif kind not in SCALARS:
            is_small, may_refer = False, True
    return is_small, may_refer


class Step(Node, Proposal):
    """A call in the graph. `is_admitted` once it is ready, `is_started` once it asks or runs; `passed` counts the
    gates that it holds. `allowed` names the approval that let it run, `is_told` says that it is written down that it
    starts. `is_small` says that its parameters are short scalars, fit to keep as they are. `asking` is the task in
    which people are asked about it."""

    __slots__ = ("allowed", "arguments", "asking", "began", "binds", "call", "corrections", "draft", "entry", "fare",
                 "found", "gates", "is_admitted", "is_guest", "is_reading", "is_small", "is_started", "is_told",
                 "launch", "lines", "params", "passed", "result", "target", "ticket")  # fmt: skip

    entry: Entry
    params: dict[str, Any]
    arguments: dict[str, Any]

    def __init__(self, call: Call) -> None:
        Node.__init__(self, call.id)
        self.call = call
        self.target: Expression | None = None
        self.launch: Launch | None = None
        self.draft: CallResult | None = None  # it has ended, and hooks are looking at the result
        self.result: CallResult | None = None
        self.is_reading = self.is_small = self.is_admitted = self.is_started = False
        self.gates: Sequence[Gate] = ()
        self.lines: tuple[str, ...] | None = ()  # where it keeps the order of the plan; None: not known yet
        self.passed = self.began = 0
        self.ticket, self.is_guest, self.binds = "", False, None
        self.fare: Fare | None = None
        self.corrections: tuple[dict[str, Any], ...] = ()
        self.allowed, self.is_told = "", False
        self.asking: asyncio.Task[Any] | None = None
        self.found: Mapping[str, tuple[Expression, ...]] = NOBODY

    def told_corrections(self) -> Sequence[dict[str, Any]]:
        """What people and hooks made of it; `ran` is None where nothing of it has run."""
        result = self.result
        has_run = result is not None and (result.attempts > 0 or result.status == "ok")
        return self.corrections if has_run else [{**each, "ran": None} for each in self.corrections]

    def examine(self, stage: Stage, board: Board) -> tuple[Sequence[Expression], Fault | None]:
        """What it reads, and what is wrong with it that can be seen before anything runs."""
        call = self.call
        try:
            if call.output_path is not None:
                self.target = parse_write(call.output_path)
            entry = stage.catalog.find(call.tool)
            if entry is None:
                return (), fault("unknown_tool", stage.catalog.unknown(call.tool), call.tool)
            if call.meta or entry.rules is not None:
                self.call, entry = call, _ = prescribed(call, entry, stage.catalog)
                if call.output_path is not None:
                    self.target = parse_write(call.output_path)
            self.entry = entry
            self.params = params = call.params
            self.is_small, may_refer = _looked_over(params)
            if not self.is_small:
                check_finite(call.tool, params)
            if may_refer:
                self.found = found = references(params)
                reads = distinct(chain.from_iterable(found.values()))
                if reads:
                    self.is_reading = True
                    if isinstance(entry, LatentEntry) and not all(board.knows(each, call.instance) for each in reads):
                        self.entry = rewritten(call, entry, stage.catalog)
                    self.arguments = entry.parameters.validate(params, found)
                    return reads, objection_to(self.call, self.entry, self.target)
                self.params = params = resolve(params, board.look)
            self.arguments = entry.parameters.validate(params)
        except TooLargeError as error:
            self.call = replace(call, params=plain(call.params))  # what holds itself many times has no end for anybody
            return (), fault(kind_of(error), str(error), call.tool)
        except STRUCTURAL as error:
            return (), fault(kind_of(error), str(error), call.tool)
        except Exception as error:  # a stranger's object among the parameters that cannot even be looked at
            return (), fault("bad_call", f"it cannot be read: {type(error).__name__}", call.tool)
        return (), objection_to(self.call, self.entry, self.target)

    def take_values(self, board: Board) -> Fault | None:
        """Read what it refers to, once, now: later writes do not change what it is given."""
        call, found = self.call, self.found
        look = board.look if call.instance is None else partial(board.look, instance=call.instance)
        try:
            self.params = {
                name: look(found[name][0]) if type(value) is str and found.get(name) else resolve(value, look)
                for name, value in call.params.items()
            }
            self.arguments = self.entry.parameters.validate(self.params)
        except STRUCTURAL as error:
            return fault(kind_of(error), str(error), call.tool)
        return None

    def messages(self, board: Board) -> tuple[dict[str, Any], ...]:
        """What its scopes let its tool see."""
        scopes = self.call.meta.get("_scopes")
        if not scopes or not self.entry.wants_messages:
            return ()
        return tuple(board.messages_of(scopes, self.call.instance))

    def failed(self, why: Fault) -> CallResult:
        return CallResult(self.call, "failed", fault=why)

    def skipped(self, why: str, reason: str = "dep_failed") -> CallResult:
        return CallResult(self.call, "skipped", reason, fault=fault(reason, why, self.call.tool))

    def not_taken(self) -> CallResult:
        """The result when a call that it waits for took another branch: nothing is wrong with that."""
        return CallResult(self.call, "skipped", "branch")

    def cut(self, stage: Stage) -> CallResult:
        """The result when it is cancelled: the one that it already has, or that it was cut off."""
        if self.draft is not None:
            return self.draft
        ended = cut(self.launch, self.call.tool)
        if self.launch is None:
            return CallResult(self.call, ended.status, fault=ended.fault)
        return self.launch.result(stage.clock, ended)
