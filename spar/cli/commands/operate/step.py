"""A step without a running service: build the agent, run one phase, and stop it.

The output of a step is written to the state directory, so that the next step, in another process, can use it.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import click

from spar.cli.context import Options, fail
from spar.operations.agent import step_input
from spar.service import exit_codes as exits
from spar.types import Phase

LAST_STEP = "last-step.json"
#: The phase that takes the output of each.
NEXT: dict[Phase, Phase] = {"sense": "plan", "plan": "act", "act": "reflect"}


def step_alone(options: Options, phase: Phase, given: Any, folder: Path) -> Any:
    """Run one phase in this process and return its output as JSON values. A failure ends the command.

    Args: given: the input as JSON values, None for the output of the last step; folder: the state directory.
    """
    from spar.decoding import encode

    with options.agent() as agent:
        file = folder / LAST_STEP
        last = {} if phase == "sense" else _last(file)
        try:
            phase_input = last.get(phase) if given is None else given
            inputs = [] if phase_input is None else [step_input(phase, phase_input)]
        except ValueError as error:
            fail(str(error), exits.USAGE)

        async def step() -> Any:
            try:
                return await getattr(agent, f"step_{phase}")(*inputs)
            finally:
                await agent.stop()

        try:
            output = json.loads(encode(asyncio.run(step())))
        except click.ClickException:
            raise
        except Exception as error:
            fail(f"{phase} failed: {error}")
    if phase in NEXT:
        file.write_text(json.dumps({**last, NEXT[phase]: output}), "utf-8")
    return output


def _last(file: Path) -> dict[str, Any]:
    """Return the inputs that the latest steps brought, by phase. An unreadable file ends the command."""
    try:
        return dict(json.loads(file.read_text("utf-8")))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        fail(f"{file}: what the last step brought cannot be read ({error}); begin anew with: spar step sense")
