"""Values of a session's state: its messages and runs, its cycle with the calls, its failed and interrupted work."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Final

from msgspec import Struct, field

from spar.facts import COMMAND, AttemptStarted, CycleOpened, MessagePlace, Outcome
from spar.records.journal import Item, Unfinished
from spar.records.run_options import NO_OPTIONS, RunOptions
from spar.types import Action, Call, CallResult, Perception, Trust


def least_trust(perceptions: Iterable[Perception]) -> Trust:
    """Return the trust of the least trusted of these perceptions."""
    for perception in perceptions:  # no generator: this runs for each plan, and most have one perception
        if perception.trust == "untrusted":
            return "untrusted"
    return "trusted"


class RunState(Struct):
    """An open run: a message, those that joined it, and how far it has come.

    `message` is the first message, `later` are those that joined, `new` those that no plan has answered yet. `place` is
    where it waits, None if it does not. `absorbed` are the runs that end with this one, with their options; `into` is
    the run that this one ends with. `number` is the number of its next cycle, `failures` counts failed plans in a row,
    `results` its cycles with a result. `output` is its answer so far, `verifies` whether an answer about failed calls
    is asked for once more. `used` are the amounts that it used, `waited` is the number of seconds that it waited for a
    provider. `pieces` are the ids of its interrupted work.
    """

    message: Perception
    options: RunOptions = NO_OPTIONS
    defaults: RunOptions = NO_OPTIONS
    outcome: Outcome = "queued"
    place: MessagePlace | None = None
    is_started: bool = False
    later: tuple[Perception, ...] = ()
    new: tuple[Perception, ...] = ()
    absorbed: dict[str, RunOptions] = {}
    into: str = ""
    number: int = 1
    failures: int = 0
    is_planned: bool = False
    verifies: bool = True
    output: Any = None
    results: int = 0
    used: dict[str, int] = {}
    waited: float = 0.0
    pieces: tuple[str, ...] = ()

    @property
    def is_command(self) -> bool:
        """Return whether its message is a command of a person to the agent."""
        return COMMAND in self.message.attributes

    @property
    def trust(self) -> Trust:
        """Return the trust of the least trusted of its messages."""
        return least_trust((self.message, *self.later)) if self.later else self.message.trust

    @property
    def chosen(self) -> RunOptions:
        """Return the options in force: those of its messages, the newest first, then the defaults of its session."""
        options = self.options
        if self.absorbed:
            for other in self.absorbed.values():
                options = options.followed_by(other)
        return options if self.defaults is NO_OPTIONS else options.over(self.defaults)


class InterruptedState(Struct, frozen=True):
    """Interrupted or failed work that waits for a cycle of its own: a `cycle` to continue under its own id, or an
    `item` to deal with again."""

    work: str
    run: str = ""
    cycle: Unfinished | None = None
    item: Item | None = None
    is_suspect: bool = False

    @property
    def items(self) -> tuple[str, ...]:
        """Return the ids of the accepted work that it was begun on."""
        return (self.work,) if self.cycle is None else self.cycle.items


class CycleState(Struct):
    """The current cycle, once it has taken work or noticed something.

    `piece` is the interrupted work that it continues; None for none. `opened` is its beginning, once it has noticed
    something. `action` is its plan, None before that; `calls`
    are the calls of the plan so far, `effect` is that of an actor that does not record its calls. `started` is the last
    attempt at each call, `ended` are the results by call, in the order of the ends.
    """

    id: str
    run: str = ""
    piece: InterruptedState | None = None
    items: tuple[str, ...] = ()
    is_stepped: bool = False
    opened: CycleOpened | None = None
    action: Action | None = None
    effect: str = ""
    calls: list[Call] = []
    started: dict[str, AttemptStarted] = {}
    ended: dict[str, CallResult] = {}


#: Statuses of calls that ended without a result, and are made again when their cycle continues.
NOT_FINAL: Final = ("cancelled", "skipped")
#: Shared by all states without interrupted work, which the garbage collector need not look through; never changed.
NO_PIECES: Final = OrderedDict[str, InterruptedState]()


class SessionState(Struct):
    """Open work of one session.

    `items` is the accepted work in hand, by id, as the journal keeps it; without a journal there is none.
    `pushed` are the perceptions that wait, `waiting` and `steers` the runs whose message waits: for its turn, or for
    the current run. `interrupting` is the waiting run that a newer interrupting message replaces, "" for none.
    `dropped` are the gists of dropped messages that no run has been told of. `run` is the current run, "" for none.
    `interrupted` is the interrupted work by id, `suspects` that part of it that may have killed a process;
    `interrupted_runs` counts the pieces that belong to a run. `retries` is the failed work that waits until it is due,
    `put_aside` the work that people have to decide about, `doubts` the calls in doubt, `detached` the calls that
    continue without a cycle (`cycle/call`).
    """

    key: str
    items: dict[str, Item] = {}
    pushed: dict[str, Perception] = {}
    waiting: OrderedDict[str, None] = field(default_factory=OrderedDict)
    steers: dict[str, None] = {}
    interrupting: str = ""
    dropped: tuple[Perception, ...] = ()
    runs: dict[str, RunState] = {}
    run: str = ""
    cycle: CycleState | None = None
    interrupted: OrderedDict[str, InterruptedState] = field(default_factory=lambda: NO_PIECES)
    suspects: OrderedDict[str, InterruptedState] = field(default_factory=lambda: NO_PIECES)
    interrupted_runs: int = 0
    retries: dict[str, None] = {}
    put_aside: dict[str, None] = {}
    doubts: dict[str, None] = {}
    detached: dict[str, str] = {}

    @property
    def pieces(self) -> Iterator[InterruptedState]:
        """Return all interrupted work."""
        return chain(self.interrupted.values(), self.suspects.values())

    def piece(self, work: str) -> InterruptedState | None:
        """Return a piece of interrupted work; None if it does not wait."""
        return self.interrupted.get(work) or self.suspects.get(work)

    @property
    def is_busy(self) -> bool:
        """Return whether it has a current run, or one that waits."""
        return bool(self.run or self.waiting or self.interrupted_runs)

    @property
    def is_empty(self) -> bool:
        """Return whether nothing of it is open."""
        return not (self.items or self.pushed or self.runs or self.cycle or self.interrupted or self.suspects
                    or self.retries or self.put_aside or self.doubts or self.detached or self.dropped)  # fmt: skip
