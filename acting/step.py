"""One call of a tick, from its arrival to its result, and what can be said of it on arrival."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from acting.board import Board
from acting.catalog import Entry
from acting.launch import Launch, cut
from acting.paths import MARK, SCALARS, Path, parse, references, resolve
from acting.places import Node
from acting.proposal import STRUCTURAL, Proposal, kind_of
from acting.slots import Gate
from acting.stage import Stage, fault
from spar.types import Call, CallResult, Fault


class Step(Node, Proposal):
    """A call in the graph. `is_admitted` once it is ready, `is_started` once it asks or runs; `passed` counts the
    gates that it holds."""

    __slots__ = ("arguments", "began", "call", "draft", "entry", "gates", "is_admitted", "is_reading", "is_started",
                 "launch", "params", "passed", "path", "result")  # fmt: skip

    entry: Entry
    params: dict[str, Any]
    arguments: dict[str, Any]

    def __init__(self, call: Call) -> None:
        Node.__init__(self, call.id)
        self.call = call
        self.path: Path | None = None
        self.launch: Launch | None = None
        self.draft: CallResult | None = None  # it has ended, and hooks are looking at the result
        self.result: CallResult | None = None
        self.is_reading = self.is_admitted = self.is_started = False
        self.gates: Sequence[Gate] = ()
        self.passed = self.began = 0

    def examine(self, stage: Stage, board: Board) -> tuple[tuple[Path, ...], Fault | None]:
        """What it reads, and what is wrong with it that can be seen before anything runs."""
        call, params = self.call, self.call.params
        reads: tuple[Path, ...] = ()
        try:
            if call.output_path is not None:
                self.path = parse(call.output_path)
            entry = stage.catalog.find(call.tool)
            if entry is None:
                return (), fault("unknown_tool", stage.catalog.unknown(call.tool), call.tool)
            self.entry = entry
            for value in params.values():
                if type(value) not in SCALARS or (type(value) is str and value[:1] == MARK):
                    found = references(params)
                    reads = tuple(dict.fromkeys(path for paths in found.values() for path in paths))
                    self.is_reading = bool(reads)
                    params = params if reads else resolve(params, board.look)
                    self.arguments = entry.parameters.validate(params, found if reads else ())
                    break
            else:
                self.arguments = entry.parameters.validate(params)
            self.params = params
        except STRUCTURAL as error:
            return (), fault(kind_of(error), str(error), call.tool)
        return reads, self.objection

    def take_values(self, board: Board) -> Fault | None:
        """Read what it refers to, once, now: later writes do not change what it is given."""
        try:
            self.params = resolve(self.call.params, board.look)
            self.arguments = self.entry.parameters.validate(self.params)
        except STRUCTURAL as error:
            return fault(kind_of(error), str(error), self.call.tool)
        return None

    def failed(self, why: Fault) -> CallResult:
        return CallResult(self.call, "failed", fault=why)

    def skipped(self, why: str, reason: str = "dep_failed") -> CallResult:
        return CallResult(self.call, "skipped", reason, fault=fault("dep_failed", why, self.call.tool))

    def cut(self, stage: Stage) -> CallResult:
        """The result when it is cancelled: the one that it already has, or that it was cut off."""
        if self.draft is not None:
            return self.draft
        ended = cut(self.launch, self.call.tool)
        if self.launch is None:
            return CallResult(self.call, ended.status, fault=ended.fault)
        return self.launch.result(stage.clock, ended)
