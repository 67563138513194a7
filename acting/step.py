"""One call of a tick, from its arrival to its result, and what can be said of it on arrival."""

from __future__ import annotations

from acting.board import Board
from acting.detached import cut
from acting.launch import Launch
from acting.paths import Path, parse, references, resolve
from acting.places import Node
from acting.proposal import STRUCTURAL, Proposal, kind_of
from acting.stage import Stage, fault
from spar.types import Call, CallResult, Fault


class Step(Node):
    """A call in the graph. `is_started` once it asks or runs, `holds` while it has its slots."""

    __slots__ = ("began", "call", "draft", "holds", "is_reading", "is_started", "launch", "proposal", "result")

    def __init__(self, call: Call) -> None:
        super().__init__(call.id)
        self.call = call
        self.proposal: Proposal | None = None
        self.launch: Launch | None = None
        self.draft: CallResult | None = None  # it has ended, and hooks are looking at the result
        self.result: CallResult | None = None
        self.is_reading = self.is_started = self.holds = False
        self.began = 0

    def examine(self, stage: Stage, board: Board) -> tuple[tuple[Path, ...], Path | None, Fault | None]:
        """What it reads, where it writes, and what is wrong with it that can be seen before anything runs."""
        call = self.call
        entry = stage.catalog.get(call.tool)
        write: Path | None = None
        reads: tuple[Path, ...] = ()
        try:
            write = None if call.output_path is None else parse(call.output_path)
            if entry is None:
                return (), write, fault("unknown_tool", stage.catalog.unknown(call.tool), call.tool)
            found = references(call.params) if call.params else None
            if found:
                self.is_reading = True
                reads = tuple(dict.fromkeys(path for paths in found.values() for path in paths))
                entry.parameters.validate(call.params, found)
                self.proposal = Proposal(call, entry, call.params, {}, write)
            else:
                params = resolve(call.params, board.look) if call.params else {}
                self.proposal = Proposal(call, entry, params, entry.parameters.validate(params), write)
        except STRUCTURAL as error:
            return (), write, fault(kind_of(error), str(error), call.tool)
        return reads, write, self.proposal.objection

    def take_values(self, board: Board) -> Fault | None:
        """Read what it refers to, once, now: later writes do not change what it is given."""
        proposal = self.proposal
        if proposal is None or not self.is_reading:
            return None
        try:
            proposal.params = resolve(self.call.params, board.look)
            proposal.arguments = proposal.entry.parameters.validate(proposal.params)
        except STRUCTURAL as error:
            return fault(kind_of(error), str(error), self.call.tool)
        return None

    def failed(self, why: Fault) -> CallResult:
        return CallResult(self.call, "failed", fault=why)

    def skipped(self, why: str) -> CallResult:
        return CallResult(self.call, "skipped", "dep_failed", fault=fault("dep_failed", why, self.call.tool))

    def cut(self, stage: Stage) -> CallResult:
        """The result when it is cancelled: the one that it already has, or that it was cut off."""
        if self.draft is not None:
            return self.draft
        ended = cut(self.launch, self.call.tool)
        if self.launch is None:
            return CallResult(self.call, ended.status, fault=ended.fault)
        return self.launch.result(stage.clock, ended)
