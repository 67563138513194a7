"""Command `attach`: look at a session that stands at a breakpoint, change what it is about, let it go on.

It is driven by lines: typed at a terminal, or from a pipe. While it waits for a line, it renews the leases.
"""

from __future__ import annotations

import json
import shlex
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import click

from spar.cli.blocks import ID, Block, Branch, call_text, short, span, styled
from spar.cli.client import ending
from spar.cli.context import Options, fail, show, write
from spar.cli.params import Duration
from spar.client.client import Client, RefusedError, ServiceError
from spar.data.text import printable
from spar.decoding import decode, encode
from spar.operations.debugging import stops as operations
from spar.operations.fields import changed_params
from spar.ports.breakpoints import Stop, Until
from spar.service import exit_codes as exits
from spar.types import CallResult

#: Seconds of one request that waits until the session stands; the longest time between two renewals of the leases.
WAIT, RENEWED = 20.0, 60.0
HELP: Final = """look                     where it stands: perceptions, plan, call, result, changes
json                     all of that as JSON
set NAME=VALUE …         change parameters of the call, or fields of the result
set N NAME=VALUE …       change perception N, or parameters of call N of the plan
set [N] JSON             change by a JSON merge patch; at the plan also a list of calls, or null
why TEXT                 the reason of the changes that follow
step                     go on to the next point
cycle                    go on to the first point of the next cycle
continue                 go on to the next breakpoint
detach                   go on, and leave"""
_GO: Final[Mapping[str, Until]] = {"step": "phase", "cycle": "cycle", "continue": "end"}
_SHORT: Final = {"l": "look", "s": "step", "c": "continue", "d": "detach", "h": "help", "?": "help"}


@click.command()
@click.argument("session", default="")
@click.option("--wait", type=Duration(), help="Seconds to wait until it stands; default: any time.")
@click.pass_obj
def attach(options: Options, session: str, wait: float | None) -> int:
    """Attach to a session that stands at a breakpoint: look, change a perception, the plan, a call or a result, go on.

    Commands are read line by line; "help" lists them. Without SESSION it is the first one that stands. From a pipe,
    each line waits until the session stands; a pipe without lines looks once.

    \b
    Examples:
      spar attach x
      printf 'set command=ls\\ncontinue\\n' | spar attach x
      spar attach x --json < /dev/null
    """
    return AttachedLines(options, session, wait).run()


class AttachedLines:
    """One person or script at one session."""

    def __init__(self, options: Options, session: str, wait: float | None) -> None:
        self._options, self._session, self._wait = options, session, wait
        self._client = Client(options.state_dir())
        self._stop: Stop | None = None
        self._reason, self._has_failed, self._is_over = "", False, False
        self._is_terminal = sys.stdin.isatty() and not options.as_json

    def run(self) -> int:
        """Carry out the lines to their end, and return the exit code."""
        try:
            if self._is_terminal:
                self._talk()
            else:
                self._read()
        except ServiceError as error:
            fail(*ending(self._client, error))
        return exits.FAILED if self._has_failed else exits.OK

    # -- lines

    def _talk(self) -> None:
        """Carry out lines that a person types. Ctrl-D and Ctrl-C let the session go on."""
        with suppress(EOFError, KeyboardInterrupt):
            while not self._is_over:
                if self._stop is None:
                    click.echo(f"waiting until {self._whose} stands; Ctrl-C leaves", err=True)
                    self._await_stop()
                self._handle(self._typed())
        if not self._is_over:
            click.echo("", err=True)
            self._detach()

    def _typed(self) -> str:
        assert self._stop is not None
        renewed = threading.Event()
        threading.Thread(target=self._renew, args=(renewed, self._stop.left), daemon=True).start()
        try:
            return input(f"{self._stop.session}> ")
        finally:
            renewed.set()

    def _renew(self, is_over: threading.Event, left: float) -> None:
        """Renew the leases until a line was typed."""
        client = Client(self._options.state_dir())
        while not is_over.wait(min(left / 3, RENEWED)):
            with suppress(ServiceError):
                client.call(operations.attach, operations.AttachBody(self._session))

    def _read(self) -> None:
        """Carry out the lines of a pipe. What stands at its end stands until its lease is over."""
        line = sys.stdin.readline()
        if not line:
            self._look(0.0)
            if self._stop is None:
                fail(f"{self._whose} stands at no breakpoint; spar break list shows those that are set")
            self._show_stop()
        while line and not self._is_over:
            if line.strip() and not line.startswith("#"):
                if self._stop is None and line.split()[0] not in ("detach", "d"):
                    self._await_stop()
                self._handle(line)
            line = sys.stdin.readline()

    def _handle(self, line: str) -> None:
        """Carry out one line. An error is said, and the next line goes on."""
        try:
            words = shlex.split(line)
        except ValueError as error:
            self._say(f"the line cannot be read: {error}")
            return
        if not words:
            return
        name, *given = words
        name = _SHORT.get(name, name)
        rest = line.split(maxsplit=1)[1].strip() if given else ""
        try:
            if name in _GO:
                self._go(_GO[name])
            elif (command := self._commands.get(name)) is None:
                self._say(f"no command {name!r}; help lists them")
            else:
                command(self, rest, given)
        except RefusedError as error:
            self._say(error.detail)
            if error.status == 404:  # it has gone on meanwhile
                self._look(0.0)
        except ValueError as error:
            self._say(str(error))

    def _say(self, problem: str) -> None:
        self._has_failed = not self._is_terminal
        click.echo(printable(problem), err=True)

    @property
    def _whose(self) -> str:
        return f"session {self._session!r}" if self._session else "a session"

    # -- requests

    def _look(self, wait: float) -> None:
        given = operations.AttachBody(self._session, wait)
        self._stop = self._client.call(operations.attach, given)
        self._session = self._session or (self._stop.session if self._stop is not None else "")

    def _await_stop(self) -> None:
        """Wait until the session stands, and show where. Too long a wait ends the command."""
        began = time.monotonic()
        while self._stop is None:
            left = WAIT if self._wait is None else self._wait - (time.monotonic() - began)
            if left <= 0:
                fail(f"{self._whose} did not come to a breakpoint within {span(self._wait or 0)}", exits.TIMED_OUT)
            self._look(min(left, WAIT))
        self._show_stop()

    def _show_stop(self) -> None:
        assert self._stop is not None
        show(self._options, json.loads(encode(self._stop)), *stop_blocks(self._stop))

    def _set(self, rest: str, given: list[str]) -> None:
        assert self._stop is not None
        id = ""
        if given and given[0].isdigit() and len(given) > 1:
            id, given, rest = given[0], given[1:], rest.split(maxsplit=1)[1].strip()
        if not given:
            raise ValueError("set what? NAME=VALUE, or a JSON merge patch; help lists the commands")
        patch: Any
        if rest[0] in "{[" or rest == "null":
            try:
                patch = decode(rest.encode(), Any)
            except ValueError as error:
                raise ValueError(f"the patch is no JSON: {error}") from None
        else:
            patch = changed_params({}, given)
            if self._stop.point == "call" or (self._stop.point == "plan" and id):
                patch = {"params": patch}
        body = operations.ChangeBody(self._stop.id, patch, id, self._reason)
        change = self._client.call(operations.change, body)
        self._look(0.0)
        show(self._options, json.loads(encode(change)), f"changed by {change.by}: {short(_plain(change.patch))}")

    def _go(self, until: Until) -> None:
        assert self._stop is not None
        stop = self._client.call(operations.go_on, operations.GoBody(self._stop.id, until))
        self._stop = None
        self._tell_gone(stop)

    def _detach(self, rest: str = "", given: object = None) -> None:
        for stop in self._client.call(operations.detach, operations.DetachBody(self._session)):
            self._tell_gone(stop)
        self._stop, self._is_over = None, True

    def _tell_gone(self, stop: Stop) -> None:
        if self._options.as_json:
            write(json.dumps({"goes_on": stop.id, "session": stop.session}))
        else:
            show(self._options, None, f"session {stop.session} goes on {stop.where}")

    def _show_json(self, rest: str, given: object) -> None:
        write(json.dumps(json.loads(encode(self._stop)), indent=None if self._options.as_json else 2))

    def _note_reason(self, rest: str, given: object) -> None:
        self._reason = rest

    def _show_again(self, rest: str, given: object) -> None:
        self._look(0.0)
        if self._stop is not None:
            self._show_stop()

    def _help(self, rest: str, given: object) -> None:
        click.echo(HELP, err=True)

    _commands: Final[Mapping[str, Callable[[AttachedLines, str, list[str]], None]]] = {
        "look": _show_again, "json": _show_json, "set": _set, "why": _note_reason, "detach": _detach, "help": _help,
    }  # fmt: skip


def stop_blocks(stop: Stop) -> list[Block]:
    """Return where a session stands as a tree."""
    of = f"breakpoint {stop.breakpoint!r}" if stop.breakpoint else "a step"
    head = f"session {stop.session} stands {stop.where}: {of}, cycle {stop.cycle_id[:ID]}, {span(stop.left)} left"
    parts = [_part("noticed", [f"{at} {one.source}/{one.kind}: {short(one.content)}"
                               for at, one in enumerate(stop.perceptions, 1)])]  # fmt: skip
    if (plan := stop.plan) is not None:
        about = [text for text in (plan.goal, plan.reason) if text]
        answer = [] if plan.output is None else [f"answer: {short(_plain(plan.output))}"]
        parts.append(
            _part(
                "plan",
                [
                    *about,
                    *(f"{at} {call_text(call)}" for at, call in enumerate(plan.calls, 1)),
                    *answer,
                ],
            )
        )
    elif stop.point != "sense":
        parts.append(Branch("plan: nothing is to be done"))
    if stop.call is not None:
        parts.append(_part("call", [call_text(stop.call)]))
    parts.append(_part("result" if stop.point == "result" else "results", [_result(one) for one in stop.results]))
    parts.append(
        _part("changed by hand", [f"{one.part} by {one.by}: {short(_plain(one.patch))}" for one in stop.changes])
    )
    return [Branch(styled(head, "warn"), tuple(part for part in parts if part is not None))]


def _part(title: str, lines: list[str]) -> Branch | None:
    return Branch(styled(title, "strong"), tuple(map(Branch, lines))) if lines else None


def _result(result: CallResult) -> str:
    why = result.fault.message if result.fault is not None else result.reason
    return f"{result.call.tool}: {result.status}{f', {why}' if why else ''}: {short(_plain(result.output))}"


def _plain(value: Any) -> Any:
    return value if isinstance(value, str) else json.loads(encode(value))
