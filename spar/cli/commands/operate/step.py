"""A step without a running service: build the agent, run one phase, and stop it.

The output of a step is written to the state directory, so that the next step, in another process, can use it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click
import msgspec

from spar.cli.context import Options, fail
from spar.decoding import decode
from spar.operations.agent import step_input
from spar.service import exit_codes as exits
from spar.types import Action, ActionResult, Perception, Phase

LAST_STEP = "last-step.json"


class LastSteps(msgspec.Struct):
    """Outputs of the latest steps."""

    perceptions: list[Perception] | None = None
    action: Action | None = None
    result: ActionResult | None = None


#: The input and the output of each phase, as a field of `LastSteps`.
TAKES: dict[Phase, str] = {"plan": "perceptions", "act": "action", "reflect": "result"}
BRINGS: dict[Phase, str] = {"sense": "perceptions", "plan": "action", "act": "result"}


def step_alone(options: Options, phase: Phase, given: Any, folder: Path) -> Any:
    """Run one phase in this process and return its output as JSON values. A failure ends the command.

    Args: given: the input as JSON values, None for the output of the last step; folder: the state directory.
    """
    from spar.server.encoding import encode

    with options.agent() as agent:
        file = folder / LAST_STEP
        last = LastSteps() if phase == "sense" else _last(file)
        phase_input = _read(given, phase) if given is not None else getattr(last, TAKES.get(phase, ""), None)

        async def step() -> Any:
            try:
                method = getattr(agent, f"step_{phase}")
                return await (method() if phase == "sense" or phase_input is None else method(phase_input))
            finally:
                await agent.stop()

        try:
            output = asyncio.run(step())
        except click.ClickException:
            raise
        except Exception as error:
            fail(f"{phase} failed: {error}")
    if phase in BRINGS:
        setattr(last, BRINGS[phase], output)
        file.write_bytes(encode(last))
    return msgspec.json.decode(encode(output))


def _last(file: Path) -> LastSteps:
    """Return the outputs of the latest steps. An unreadable file ends the command."""
    try:
        return decode(file.read_bytes(), LastSteps)
    except FileNotFoundError:
        return LastSteps()
    except (OSError, msgspec.DecodeError) as error:
        fail(f"{file}: what the last step brought cannot be read ({error}); begin anew with: spar step sense")


def _read(given: Any, phase: Phase) -> Any:
    """Return JSON values as the input of a phase. Malformed values end the command."""
    try:
        return step_input(phase, given)
    except ValueError as error:
        fail(str(error), exits.USAGE)
