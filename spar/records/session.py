"""Values of a stored session, and of its use by a message and its end by a reset.

A session is a key under which conversations follow one another, each with an ordinal. Messages of the key go to the
newest conversation; a reset ends it, and the next message begins a new one. The options of a run are the choices of its
sender, and those of its session where the sender made none.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal, get_args

from msgspec import Struct
from msgspec.structs import asdict, replace

from spar.checks import shorten
from spar.records.transcript import Entry

Thinking = Literal["off", "low", "medium", "high"]
THINKING: Final[tuple[Thinking, ...]] = get_args(Thinking)
#: Most characters of the instructions of one message, and of the name of a model.
LONGEST_INSTRUCTIONS: Final = 20_000
LONGEST_MODEL: Final = 256
#: Most seconds that a sender may give a run.
LONGEST_TIMEOUT: Final = 86_400.0


class RunOptions(Struct, frozen=True, omit_defaults=True):
    """Options of a run; for None the session's defaults apply, or else the configuration.

    `model` names the model that gets the first request, `instructions` follow the configured ones, `thinking` is the
    amount of reasoning before an answer, `timeout` ends the run after so many seconds, `verbose` asks for one line
    about each call.
    """

    model: str | None = None
    instructions: str | None = None
    thinking: Thinking | None = None
    timeout: float | None = None
    verbose: bool | None = None

    @classmethod
    def read(cls, given: RunOptions | Mapping[str, Any] | None) -> RunOptions:
        """Return the options as checked values. Raises: ValueError, TypeError naming the option and what is allowed."""
        if given is None:
            return NO_OPTIONS
        if not isinstance(given, (RunOptions, Mapping)):
            raise TypeError(f"options are a table of {', '.join(cls.__struct_fields__)}, found {type(given).__name__}")
        values = asdict(given) if isinstance(given, RunOptions) else dict(given)
        for name in values:
            if name not in cls.__struct_fields__:
                raise ValueError(f"no option {shorten(name, 40)}; known: {', '.join(cls.__struct_fields__)}")
        for name, value in values.items():
            if value is not None and (expected := _misfit(name, value)):
                raise ValueError(f"option {name} is {shorten(value, 80)}, expected {expected}")
        if values.get("timeout") is not None:
            values["timeout"] = float(values["timeout"])
        return cls(**values) if any(value is not None for value in values.values()) else NO_OPTIONS

    @property
    def is_empty(self) -> bool:
        """Return whether no option is chosen."""
        return self is NO_OPTIONS or self == NO_OPTIONS

    def over(self, defaults: RunOptions) -> RunOptions:
        """Return these options, with the defaults for those that are not chosen."""
        if defaults.is_empty or self.is_empty:
            return defaults if self.is_empty else self
        return replace(defaults, **self.given)

    def followed_by(self, later: RunOptions) -> RunOptions:
        """Return the options of a run after a later message has joined it.

        The choices of the later message apply from then on; its instructions follow the earlier ones.
        """
        if later.is_empty:
            return self
        instructions = [text for text in (self.instructions, later.instructions) if text]
        return replace(later.over(self), instructions="\n\n".join(instructions) or None)

    @property
    def given(self) -> dict[str, Any]:
        """Return the chosen options by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}


#: Options without any choice.
NO_OPTIONS: Final = RunOptions()


def _misfit(name: str, value: Any) -> str:
    """Return what was expected in place of an invalid value of an option; "" for a valid one."""
    match name:
        case "model":
            is_fit = isinstance(value, str) and len(value.strip()) > 0 and len(value) <= LONGEST_MODEL
            return "" if is_fit else f"the name of a model, at most {LONGEST_MODEL} characters"
        case "instructions":
            is_fit = isinstance(value, str) and len(value.strip()) > 0 and len(value) <= LONGEST_INSTRUCTIONS
            return "" if is_fit else f"text of 1 to {LONGEST_INSTRUCTIONS} characters"
        case "thinking":
            return "" if isinstance(value, str) and value in THINKING else f"one of {', '.join(THINKING)}"
        case "timeout":
            is_fit = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= LONGEST_TIMEOUT
            return "" if is_fit else f"seconds above 0 and at most {LONGEST_TIMEOUT:g}"
        case _:
            return "" if isinstance(value, bool) else "true or false"


class Origin(Struct, frozen=True):
    """Origin of a session: the interface of its first message (`door`), the channel and the sender if there is one, and
    the person known as this sender."""

    door: str = ""
    channel: str = ""
    sender: str = ""
    person: str = ""


class SessionRecord(Struct, frozen=True, gc=False):
    """Row of one session.

    `ordinal` counts its conversations from 1; `began_at` is when the present one began, `used_at` when its newest
    message came. `title` and `defaults` (options of its runs) are set by people; a reset keeps them.
    """

    key: str
    created_at: datetime
    began_at: datetime
    used_at: datetime
    ordinal: int = 1
    title: str = ""
    defaults: RunOptions = NO_OPTIONS
    origin: Origin = Origin()

    @property
    def id(self) -> str:
        """Return the id of the present conversation."""
        return id_of(self.key, self.ordinal)


class Reset(Struct, frozen=True):
    """End of one conversation, the one of a session with this `ordinal`; it takes effect once.

    `reason` is "reset" (somebody requested it, `by`), "idle" or "daily"; `id` names it among the runs that write to the
    transcript.
    """

    id: str
    session: str
    ordinal: int
    at: datetime
    reason: Literal["reset", "idle", "daily"] = "reset"
    by: str = ""

    @property
    def entry(self) -> Entry:
        """Return the entry at which reading of the transcript begins."""
        body = {"reason": self.reason, "by": self.by, "ended": id_of(self.session, self.ordinal),
                "begun": id_of(self.session, self.ordinal + 1)}  # fmt: skip
        return Entry("reset", body, self.run_id, at=self.at)

    @property
    def run_id(self) -> str:
        """Return the run id under which it writes; entries of earlier runs are refused from then on."""
        return f"reset:{self.id}"


class SessionUse(Struct, frozen=True):
    """Use of a session by an accepted message: its time, its origin, and the reset that precedes it."""

    at: datetime
    origin: Origin = Origin()
    reset: Reset | None = None


def id_of(key: str, ordinal: int) -> str:
    """Return the id of one conversation of a session."""
    return f"{key}#{ordinal}"
