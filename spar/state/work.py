"""Values of a session's state: its messages and runs, its cycle with the calls, its failed and interrupted work."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from spar.facts import COMMAND, AttemptStarted, CycleOpened, MessagePlace, Outcome, WorkHandedOut
from spar.records.run_options import NO_OPTIONS, RunOptions
from spar.types import Action, Call, CallResult, Perception


class RunState(Struct):
    """An open run: a message, those that joined it, and how far it has come.

    `message` is the first message, `later` are those that joined, `new` those that no plan has answered yet. `place` is
    where it waits, None if it does not. `absorbed` are the runs that end with this one, with their options; `chosen`
    are the options in force: those of its messages, the newest first, then the defaults of its session. `into` is the
    run that this one ends with. `number` is the number of its next cycle, `failures` counts failed plans in a row.
    `output` is its answer so far, `verifies` whether an answer about failed calls is asked for once more. `used` are
    the amounts that it used, `waited` is the number of seconds that it waited for a provider. `pieces` are the ids of
    its interrupted work.
    """

    message: Perception
    options: RunOptions = NO_OPTIONS
    defaults: RunOptions = NO_OPTIONS
    outcome: Outcome = "queued"
    place: MessagePlace | None = None
    later: tuple[Perception, ...] = ()
    new: tuple[Perception, ...] = ()
    absorbed: dict[str, RunOptions] = {}
    chosen: RunOptions = NO_OPTIONS
    into: str = ""
    number: int = 1
    failures: int = 0
    is_planned: bool = False
    verifies: bool = True
    output: Any = None
    used: dict[str, int] = {}
    waited: float = 0.0
    pieces: tuple[str, ...] = ()

    @property
    def is_command(self) -> bool:
        """Return whether its message is a command of a person to the agent."""
        return COMMAND in self.message.attributes


class CycleState(Struct):
    """The current cycle, once it has taken work or noticed something.

    `piece` is the interrupted work that it continues; None for none. `opened` is its beginning, once it has noticed
    something. `action` is its plan, None before that; `calls` are the calls of the plan so far, `effect` is that of an
    actor that does not record its calls. `started` is the last attempt at each call, `ended` are the results by call,
    in the order of the ends.
    """

    id: str
    run: str = ""
    piece: WorkHandedOut | None = None
    items: tuple[str, ...] = ()
    opened: CycleOpened | None = None
    action: Action | None = None
    effect: str = ""
    calls: list[Call] = []
    started: dict[str, AttemptStarted] = {}
    ended: dict[str, CallResult] = {}


#: Statuses of calls that ended without a result, and are made again when their cycle continues.
NOT_FINAL: Final = ("cancelled", "skipped")
