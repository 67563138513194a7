"""Options of a run: the choices of its sender, and those of its session where the sender made none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, get_args

from msgspec import Struct
from msgspec.structs import asdict, replace

from spar.checks import shorten

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
