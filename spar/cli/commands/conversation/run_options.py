"""The options of a run on the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from spar.cli.context import fail
from spar.records.run_options import LONGEST_INSTRUCTIONS, LONGEST_TIMEOUT, THINKING
from spar.service import exit_codes as exits

F = TypeVar("F", bound=Callable[..., Any])


def run_options(command: F) -> F:
    """Add the options of a run to a command; `options_of_run` takes them as keyword arguments."""
    for option in (
        click.option("--verbose/--no-verbose", default=None, help="Print one line about each call, or none."),
        click.option("--run-timeout", type=click.FloatRange(0, LONGEST_TIMEOUT, min_open=True),
                     help="Seconds that the run itself may take (default: runs.timeout)."),
        click.option("--instructions", help="More instructions for the model: a text, or @FILE."),
        click.option("--thinking", type=click.Choice(THINKING), help="How much the model thinks before it answers."),
        click.option("--model", help="The first model to ask, one of those that the configuration allows."),
    ):  # fmt: skip
        command = option(command)
    return command


def options_of_run(
    *,
    model: str | None,
    thinking: str | None,
    instructions: str | None,
    run_timeout: float | None,
    verbose: bool | None,
) -> dict[str, Any] | None:
    """Return the options in the form of the service, None without any. An unreadable file of instructions ends the
    command."""
    if instructions is not None and instructions.startswith("@"):
        instructions = _read(instructions[1:])
    values = {"model": model, "thinking": thinking, "instructions": instructions, "timeout": run_timeout,
              "verbose": verbose}  # fmt: skip
    return {name: value for name, value in values.items() if value is not None} or None


def _read(name: str) -> str:
    """Return the text of a file of instructions. An unreadable or too long one ends the command."""
    try:
        with Path(name).open(encoding="utf-8") as file:
            text = file.read(LONGEST_INSTRUCTIONS + 1)
    except (OSError, ValueError) as error:
        fail(f"--instructions @{name}: cannot be read: {error}", exits.USAGE)
    if len(text) > LONGEST_INSTRUCTIONS:
        fail(f"--instructions @{name}: has more than {LONGEST_INSTRUCTIONS} characters", exits.USAGE)
    return text
