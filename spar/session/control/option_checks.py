"""Checks of the options of runs and of sessions, against the planner in force and the trust of the sender."""

from __future__ import annotations

from msgspec.structs import replace

from spar.loop.setup import Setup
from spar.ports.optional import TakesOptions, offers
from spar.records.run_options import RunOptions
from spar.types import Perception

#: The options of a run that concern its planner.
_PLANNED = frozenset({"model", "instructions", "thinking"})


async def check_options(setup: Setup, options: RunOptions) -> None:
    """Check that the planner in force supports these options. Raises: ValueError naming an option that it does not
    support."""
    if options.is_empty:
        return
    names = [name for name in options.given if name in _PLANNED]
    planner = setup.modules["plan"].part
    if names and not offers(planner, TakesOptions):
        raise ValueError(f"option {names[0]} means nothing here: {type(planner).__name__} plans, which asks no model")
    if names and offers(planner, TakesOptions):
        await planner.check_options(options)


async def check_message(setup: Setup, options: RunOptions, message: Perception) -> None:
    """Check the options of a message.

    Raises: ValueError for options that the planner does not support; PermissionError for instructions from an untrusted
    source, since they would have the authority of the configured instructions.
    """
    if options.instructions is not None and message.trust == "untrusted":
        raise PermissionError("option instructions is refused: the message comes from an untrusted source")
    await check_options(setup, options)


async def fitting(setup: Setup, options: RunOptions, defaults: RunOptions) -> tuple[RunOptions, str]:
    """Return the defaults of a session that hold for a message with these options, and the reason if some do not.

    The defaults were valid when they were set. Since then the configuration may have changed, and the message may
    choose another model.
    Raises: ValueError if the message asks for thinking and the session's own model does not support it.
    """
    first_reason = ""
    for left_out in ((), ("thinking",), ("model", "thinking"), ("model", "thinking", "instructions")):
        remaining = replace(defaults, **dict.fromkeys(left_out))
        if not (reason := await _why_not(setup, options.over(remaining))):
            return remaining, first_reason
        first_reason = first_reason or reason
        is_about_thinking = options.thinking and not options.model and remaining.model
        if is_about_thinking and not await _why_not(setup, RunOptions(model=remaining.model)):
            raise ValueError(reason)
    return RunOptions(timeout=defaults.timeout, verbose=defaults.verbose), first_reason


async def _why_not(setup: Setup, options: RunOptions) -> str:
    """Return why the planner does not support these options; "" if it does."""
    try:
        await check_options(setup, options)
    except ValueError as error:
        return str(error)
    return ""
