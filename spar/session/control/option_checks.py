"""Checks of the options of runs and of sessions: by the planner in force, and by who sends them."""

from __future__ import annotations

from msgspec.structs import replace

from spar.loop.setup import Setup
from spar.ports.optional import TakesOptions, offers
from spar.records.run_options import RunOptions
from spar.types import Perception

#: The options of a run that its planner goes by.
_PLANNED = frozenset({"model", "instructions", "thinking"})


async def check_options(setup: Setup, options: RunOptions) -> None:
    """Raises: ValueError for options that the planner in force cannot go by."""
    asked = [name for name in options.given if name in _PLANNED]
    planner = setup.modules["plan"].part
    if asked and not offers(planner, TakesOptions):
        raise ValueError(f"option {asked[0]} means nothing here: {type(planner).__name__} plans, which asks no model")
    if asked and offers(planner, TakesOptions):
        await planner.check_options(options)


async def check_message(setup: Setup, options: RunOptions, message: Perception) -> None:
    """Raises: ValueError for options of a message that the planner cannot go by, PermissionError for instructions of
    somebody who is not trusted: they would have the authority of the configured ones."""
    if options.instructions is not None and message.trust == "untrusted":
        raise PermissionError("option instructions is refused: the message comes from an untrusted source")
    await check_options(setup, options)


async def fitting(setup: Setup, options: RunOptions, defaults: RunOptions) -> tuple[RunOptions, str]:
    """Return the defaults of a session as far as they can hold for a message with these options, and why some cannot.

    They could when they were set; the configuration may be another one now, or the message chooses another model.
    Raises: ValueError for thoughts that the message asks of the session's model, which does not have them.
    """
    why = ""
    for left_out in ((), ("thinking",), ("model", "thinking"), ("model", "thinking", "instructions")):
        left = replace(defaults, **dict.fromkeys(left_out))
        if not (found := await _why_not(setup, options.over(left))):
            return left, why
        why = why or found
        is_about_thoughts = options.thinking and not options.model and left.model
        if is_about_thoughts and not await _why_not(setup, RunOptions(model=left.model)):
            raise ValueError(found)
    return RunOptions(timeout=defaults.timeout, verbose=defaults.verbose), why


async def _why_not(setup: Setup, options: RunOptions) -> str:
    """Return why the planner cannot go by options; "" where it can."""
    try:
        await check_options(setup, options)
    except ValueError as error:
        return str(error)
    return ""
