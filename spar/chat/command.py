"""Command `chat`: a conversation with the running service."""

from __future__ import annotations

from typing import Any

import click

from spar.chat.lines import Keyboard, Lines
from spar.cli.client import service
from spar.cli.context import Options, fail
from spar.client.client import NotRunningError
from spar.operations.agent import StatusChoice, status
from spar.records.run_options import THINKING
from spar.service import exit_codes as exits


def _longest_message(answer: Any) -> int | None:
    """Return the characters that a message may have; None if the status does not say it."""
    sensors = answer.get("agent", {}).get("modules", {}).get("sense", {}).get("sensors", {})
    limits = [sensor["longest"] for sensor in sensors.values() if isinstance(sensor.get("longest"), int)]
    return min(limits, default=None)


@click.command()
@click.argument("session", default="main")
@click.option("--history", type=click.IntRange(0, 1000), default=10, show_default=True,
              help="How many of the last messages are shown first (not in a pipe).")  # fmt: skip
@click.option("--mode", type=click.Choice(["steer", "followup", "collect", "interrupt"]), default="steer",
              show_default=True, help="The queue mode of a line that is typed during a run.")  # fmt: skip
@click.option("--model", help="A model that the configuration allows, for all messages.")
@click.option("--thinking", type=click.Choice(THINKING), help="How much the model thinks before it answers.")
@click.option("--verbose", "-v", is_flag=True, help="Print lines about calls.")
@click.option("--reasoning", is_flag=True, help="Show the model's reasoning (if runs.reasoning allows it).")
@click.option("--plain", is_flag=True, help="Lines instead of a screen, as in a pipe and on a simple terminal.")
@click.pass_obj
def chat(options: Options, session: str, history: int, mode: str, model: str | None, thinking: str | None,
         verbose: bool, reasoning: bool, plain: bool) -> int:  # fmt: skip
    """Talk with the running service in a terminal or a pipe; /help lists the commands.

    A message during a run steers it. A call that waits for approval is shown, and you are asked to decide. On a
    terminal the input stays below the answer; Esc or Ctrl-C aborts the run, Ctrl-C twice leaves. From a pipe each line
    is a message, answered before the next one is read; the exit code is 1 if the last one failed.

    \b
    Examples:
      spar chat
      spar chat alice --history 3 --verbose
      echo "what is the load?" | spar chat
    """
    run_options = {key: value for key, value in (("model", model), ("thinking", thinking)) if value is not None}
    with service(options) as client:
        answer = client.answer(status, StatusChoice(lanes=False))  # without a service the command ends at once
        keyboard = Keyboard()
        is_shown = keyboard.is_terminal and not options.as_json
        if is_shown and keyboard.is_able and not plain:
            from spar.chat.screen import Screen

            talk: Screen | Lines = Screen(client, session, mode, run_options, _longest_message(answer))
        else:
            talk = Lines(options, client, keyboard, session, mode, run_options)
        talk.printer.is_verbose, talk.printer.shows_thoughts = verbose, reasoning
        try:
            if is_shown:
                talk.begin(history)
            return talk.run()
        except NotRunningError as error:
            fail(f"the service does not come back: {error}", exits.UNAVAILABLE)
        except KeyboardInterrupt:
            return exits.INTERRUPTED
