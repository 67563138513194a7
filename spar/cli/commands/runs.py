"""Commands about runs: send a message, wait for a run, follow it; and run one phase."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from spar.cli.blocks import style_of
from spar.cli.client import service
from spar.cli.commands.status import models, read_status
from spar.cli.context import Options, fail, show, write
from spar.cli.nouns import completion
from spar.cli.printer import NO_ANSWER, RunPrinter, failure_line
from spar.client.client import Client, NotRunningError
from spar.data.text import one_line, printable
from spar.decoding import encode
from spar.operations import agent, runs
from spar.operations.agent import step_input
from spar.records.run_options import LONGEST_INSTRUCTIONS, LONGEST_TIMEOUT, THINKING
from spar.records.runs import RunStatus
from spar.service import exit_codes as exits
from spar.types import PHASES, Phase

F = TypeVar("F", bound=Callable[..., Any])

#: The line for a run without reasoning although `--reasoning` was given.
NO_THOUGHTS = 'no thoughts came: the model told none, or runs.reasoning is "off"'


def run_options(command: F) -> F:
    """Add the options of a run to a command; `options_of_run` takes their values."""
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


def options_of_run(values: dict[str, Any]) -> dict[str, Any] | None:
    """Return the options in the form of the service, None without any. An unreadable file of instructions ends the
    command."""
    given = {name.removeprefix("run_"): value for name, value in values.items() if value is not None}
    if given.get("instructions", "").startswith("@"):
        given["instructions"] = _read(given["instructions"][1:])
    return given or None


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


@click.command()
@click.argument("text")
@click.option("--session", default="main", show_default=True, help="The session of the message.",
              shell_complete=completion(runs.submit, "session"))  # fmt: skip
@click.option("--key", help="An idempotency key: messages with the same key are handled once.")
@click.option("--mode", help="The queue mode while its session is busy: steer, followup, collect, interrupt.")
@click.option("--no-wait", is_flag=True, help="Print the receipt and do not wait for the answer.")
@click.option("--follow", "--stream", "is_followed", is_flag=True,
              help="Print the answer as it is written, however long it takes.")  # fmt: skip
@click.option("--reasoning", is_flag=True, help="As --follow, and print the model's reasoning on standard error.")
@click.option("--timeout", type=click.FloatRange(0, 3600), default=30.0, show_default=True, help="Seconds to wait.")
@run_options
@click.pass_obj
def send(options: Options, /, text: str, session: str, key: str | None, mode: str | None, no_wait: bool,
         is_followed: bool, reasoning: bool, timeout: float, **run_values: Any) -> int:  # fmt: skip
    """Send a message to the running service and print its answer ("-" reads it from standard input).

    Exits 0 when it ended well, 1 when it or one of its calls failed, 124 when there is no answer yet.

    \b
    Examples:
      spar send "what is the load?"
      spar send --session alice "hello"
      spar send --mode steer "no, the other one"
      spar send --follow "tell me a long story"
      spar send --reasoning --verbose "why is the disk full?"
      spar send --model openai:gpt-5 --thinking high "what is wrong with this host?"
      echo "a long text" | spar send -
    """
    message = sys.stdin.buffer.read().decode("utf-8", "replace") if text == "-" else text
    with service(options) as client:
        body = runs.RunBody(message, session, mode, key, options=options_of_run(run_values))
        receipt = client.answer(runs.submit, body)
        run_id = receipt["run_id"]
        if no_wait:
            show(options, receipt, run_id)
            return exits.OK
        if is_followed or reasoning:
            return follow_run(options, client, run_id, shows_thoughts=reasoning)
        return _wait(options, client, run_id, timeout)


@click.command("wait")
@click.argument("run_id", shell_complete=completion(runs.wait, "run_id"))
@click.option("--timeout", type=click.FloatRange(0, 3600), default=30.0, show_default=True, help="Seconds to wait.")
@click.pass_obj
def wait_for(options: Options, run_id: str, timeout: float) -> int:
    """Wait for a run; exit 0 when it ended well, 1 when it or one of its calls failed, 124 when it has not ended.

    \b
    Example:
      spar runs wait "$(spar send --no-wait 'how are you?')"
    """
    with service(options) as client:
        return _wait(options, client, run_id, timeout)


#: The words for calls of an answered run that did not succeed, by the kind of their error.
_LEFT = {"parked": "a call waits", "in_doubt": "a call is in doubt"}


def _wait(options: Options, client: Client, run_id: str, timeout: float) -> int:
    """Wait for a run, and print its answer or its state; return the exit code."""
    whole = client.answer(runs.wait, runs.Wait(run_id, timeout))
    status = client.typed(runs.wait, whole)
    if status.status == "ok":
        answer = status.output if status.output is not None else status.reply
        text = answer if isinstance(answer, str) else NO_ANSWER if answer is None else None
        show(options, whole if options.as_json else answer, text)
        if not options.as_json:
            for entry in status.errors:
                error, what = entry["error"], _LEFT.get(entry["error"]["kind"], "a call failed")
                tool = f"{entry['call']['_tool']}: " if entry["call"] else ""
                click.echo(one_line(printable(f"{what}: {tool}{error['message']}")), err=True)
        return exits.FAILED if has_failed(status) else exits.OK
    if options.as_json:
        show(options, whole)
    if status.status == "timeout":
        now = read_status(client.answer(agent.status, agent.StatusChoice(lanes=False)))[0].agent
        for label, why in models(now):
            if style_of(why):
                click.echo(f"{label} {printable(why)}", err=True)
        click.echo(f"no answer within {timeout:g} s; ask again with: spar runs wait {run_id}", err=True)
        return exits.TIMED_OUT
    click.echo(printable(failure_line(status.error)), err=True)
    return exits.FAILED


@click.command()
@click.argument("run_id", shell_complete=completion(runs.follow, "run_id"))
@click.option("--reasoning", is_flag=True, help="Print the model's reasoning on standard error (runs.reasoning).")
@click.option("--after", type=click.IntRange(0), default=0, help="Only the events after the one with this seq.")
@click.pass_obj
def follow(options: Options, run_id: str, reasoning: bool, after: int) -> int:
    """Follow a run to its end: print its calls, and its answer as it is written. With --json, one event a line.

    Exit 0 when it ended well, 1 when it failed. Stopping this command does not stop the run (spar runs abort does).

    \b
    Examples:
      spar runs follow "$(spar send --no-wait 'tell me a long story')"
      spar --json runs follow 18ea256e775307670000245362 --after 17
    """
    with service(options) as client:
        client.answer(runs.show, runs.RunId(run_id))  # without a service, or such a run, the command ends at once
        return follow_run(options, client, run_id, after, shows_thoughts=reasoning)


def has_failed(status: RunStatus) -> bool:
    """Return whether an answered run has a failed call. A parked call, which waits for an answer, has not failed."""
    return any(entry["error"]["kind"] != "parked" for entry in status.errors)


def follow_run(options: Options, client: Client, run_id: str, after: int = 0, *, shows_thoughts: bool = False) -> int:
    """Print the events of a run until it ends; return the exit code."""
    printer, event = RunPrinter(shows_thoughts=shows_thoughts), dict[str, Any]()
    try:
        for event in client.events(runs.follow, runs.FollowRun(run_id, str(after) if after else None)):
            after = event["seq"]
            if options.as_json:
                write(json.dumps(event))
            else:
                printer.show(event)
    except NotRunningError as error:
        fail(f"{error}; go on with: spar runs follow {run_id} --after {after}", exits.UNAVAILABLE)
    if shows_thoughts and not (printer.has_thought or options.as_json):
        click.echo(NO_THOUGHTS, err=True)
    if event["data"]["phase"] == "error":
        return exits.FAILED
    return exits.FAILED if has_failed(client.call(runs.wait, runs.Wait(run_id, 0.0))) else exits.OK


@click.command()
@click.argument("phase", type=click.Choice(PHASES))
@click.argument("given", required=False)
@click.pass_obj
def step(options: Options, phase: Phase, given: str | None) -> None:
    """Run one phase and print its output, in a paused service, or in this process if no service runs.

    GIVEN is the input: a JSON value, or @FILE; the default is the output of the last step. For act it is an action, a
    list of calls or one call.

    \b
    Examples:
      spar step sense
      spar step plan
      spar step plan '[{"content": "disk full", "kind": "message"}]'
      spar step act '[{"_tool": "note", "text": "hello"}]'
      spar step act && spar step reflect
    """
    body = _input(given)
    if body is not None and phase == "sense":
        fail("sense takes nothing: it looks for itself", exits.USAGE)
    operation = getattr(agent, f"step_{phase}")
    step_input = operation.given() if body is None else operation.given(msgspec.Raw(msgspec.json.encode(body)))
    try:
        with service(options, may_be_absent=True) as client:
            output = client.answer(operation, step_input)
    except NotRunningError:
        output = step_alone(options, phase, body, options.state_dir())
    show(options, output)


def _input(text: str | None) -> Any:
    """Return the input of a step as JSON values, None without one. Malformed JSON ends the command."""
    if text is None:
        return None
    try:
        source = Path(text[1:]).read_text() if text.startswith("@") else text
        return json.loads(source)
    except (OSError, ValueError) as error:
        fail(f"{text!r}: must be a JSON value or @FILE with one: {error}", exits.USAGE)


LAST_STEP = "last-step.json"
#: The phase that takes the output of each.
NEXT: dict[Phase, Phase] = {"sense": "plan", "plan": "act", "act": "reflect"}


def step_alone(options: Options, phase: Phase, given: Any, folder: Path) -> Any:
    """Run one phase in this process and return its output as JSON values. A failure ends the command.

    Args: given: the input as JSON values, None for the output of the last step; folder: the state directory.
    """
    import asyncio

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
