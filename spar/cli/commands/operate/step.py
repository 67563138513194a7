"""One step without a running service: the agent is built, opened, stepped once and closed.

What a step brought is kept in the state directory, so that the next one, another process, can go on from it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click
import msgspec

from spar.cli.context import Options, fail
from spar.server.routes.steps import step_input
from spar.service import exit_codes as exits
from spar.types import Action, ActionResult, Perception, Phase

LAST_STEP = "last-step.json"


class LastSteps(msgspec.Struct):
    """Outputs of the steps so far."""

    perceptions: list[Perception] | None = None
    action: Action | None = None
    result: ActionResult | None = None


#: What a phase takes, what it brings, by the names of `LastSteps`.
TAKES: dict[Phase, str] = {"plan": "perceptions", "act": "action", "reflect": "result"}
BRINGS: dict[Phase, str] = {"sense": "perceptions", "plan": "action", "act": "result"}


def step_alone(options: Options, phase: Phase, given: Any, folder: Path) -> Any:
    """Run one phase here and now; its product as plain JSON. Ends the command when it cannot."""
    from spar.server.encoding import encode

    with options.agent() as agent:
        file = folder / LAST_STEP
        last = LastSteps() if phase == "sense" else _last(file)
        taken = _read(given, phase) if given is not None else getattr(last, TAKES.get(phase, ""), None)

        async def step() -> Any:
            try:
                method = getattr(agent, f"step_{phase}")
                return await (method() if phase == "sense" or taken is None else method(taken))
            finally:
                await agent.stop()

        try:
            product = asyncio.run(step())
        except click.ClickException:
            raise
        except Exception as error:
            fail(f"{phase} failed: {error}")
    if phase in BRINGS:
        setattr(last, BRINGS[phase], product)
        file.write_bytes(encode(last))
    return msgspec.json.decode(encode(product))


def _last(file: Path) -> LastSteps:
    try:
        return msgspec.json.decode(file.read_bytes(), type=LastSteps)
    except FileNotFoundError:
        return LastSteps()
    except (OSError, msgspec.DecodeError) as error:
        fail(f"{file}: what the last step brought cannot be read ({error}); begin anew with: spar step sense")


def _read(given: Any, phase: Phase) -> Any:
    try:
        return step_input(phase, given)
    except ValueError as error:
        fail(str(error), exits.USAGE)
