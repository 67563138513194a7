"""Command `attach`: look at a session that stands at a breakpoint, change what it is about, let it go on.

It is driven by lines: typed at a terminal, or from a pipe. While it waits for a line, it renews the leases.
"""

from __future__ import annotations

import json
import shlex
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import click
from msgspec import to_builtins

from spar.cli.blocks import ID, Branch, call_text, short, span, styled
from spar.cli.client import service
from spar.cli.context import Duration, Options, fail, show, write
from spar.client.client import Client, RefusedError, ServiceError
from spar.data.text import printable
from spar.decoding import decode
from spar.operations import breakpoints as operations
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
        self._stop: Stop | None = None
        self._reason, self._has_failed, self._is_over = "", False, False
        self._is_terminal = sys.stdin.isatty() and not options.as_json

    def run(self) -> int:
        """Carry out the lines to their end, and return the exit code."""
        with service(self._options) as self._client:
            if self._is_terminal:
                self._talk()
            else:
                self._read()
        return exits.FAILED if self._has_failed else exits.OK

    # -- lines

    def _talk(self) -> None:
        """Carry out lines that a person types. Ctrl-D and Ctrl-C let the session go on."""
        with suppress(EOFError, KeyboardInterrupt):
            while not self._is_over:
                if self._stop is None:
                    click.echo(f"waiting until {self._whose} stands; Ctrl-C leaves", err=True)
                stop, renewed = self._await_stop(), threading.Event()
                threading.Thread(target=self._renew, args=(renewed, stop.left), daemon=True).start()
                try:
                    line = input(f"{stop.session}> ")
                finally:
                    renewed.set()
                self._handle(line)
        if not self._is_over:
            click.echo("", err=True)
            self._detach()

    def _renew(self, is_over: threading.Event, left: float) -> None:
        """Renew the leases until a line was typed."""
        client = Client(self._options.state_dir())
        while not is_over.wait(min(left / 3, RENEWED)):
            with suppress(ServiceError):
                client.call(operations.attach, operations.AttachBody(self._session))

    def _read(self) -> None:
        """Carry out the lines of a pipe. What stands at its end stands until its lease is over."""
        line = ""
        for line in sys.stdin:
            if line.strip() and not line.startswith("#"):
                if line.split()[0] not in ("detach", "d"):
                    self._await_stop()
                self._handle(line)
            if self._is_over:
                break
        if not line:
            if (stop := self._look(0.0)) is None:
                fail(f"{self._whose} stands at no breakpoint; spar break list shows those that are set")
            self._show_stop(stop)

    def _handle(self, line: str) -> None:
        """Carry out one line. An error is said, and the next line goes on."""
        try:
            name, *given = shlex.split(line) or [""]
            rest = line.split(maxsplit=1)[1].strip() if given else ""
            match _SHORT.get(name, name):
                case "":
                    pass
                case "look":
                    if (stop := self._look(0.0)) is not None:
                        self._show_stop(stop)
                case "json":
                    write(json.dumps(to_builtins(self._stop), indent=None if self._options.as_json else 2))
                case "set":
                    self._set(rest, given)
                case "why":
                    self._reason = rest
                case "detach":
                    self._detach()
                case "help":
                    click.echo(HELP, err=True)
                case name if name in _GO:
                    assert self._stop is not None
                    self._tell_gone(self._client.call(operations.go_on, operations.GoBody(self._stop.id, _GO[name])))
                    self._stop = None
                case name:
                    self._say(f"no command {name!r}; help lists them")
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

    def _look(self, wait: float) -> Stop | None:
        """Return where the session stands, after at most so many seconds."""
        self._stop = self._client.call(operations.attach, operations.AttachBody(self._session, wait))
        self._session = self._session or (self._stop.session if self._stop is not None else "")
        return self._stop

    def _await_stop(self) -> Stop:
        """Wait until the session stands, and show where. Too long a wait ends the command."""
        if self._stop is not None:
            return self._stop
        began = time.monotonic()
        while (stop := self._stop) is None:
            left = WAIT if self._wait is None else self._wait - (time.monotonic() - began)
            if left <= 0:
                fail(f"{self._whose} did not come to a breakpoint within {span(self._wait or 0)}", exits.TIMED_OUT)
            self._look(min(left, WAIT))
        self._show_stop(stop)
        return stop

    def _show_stop(self, stop: Stop) -> None:
        show(self._options, to_builtins(stop), stop_block(stop))

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
        show(self._options, to_builtins(change), f"changed by {change.by}: {short(to_builtins(change.patch))}")

    def _detach(self) -> None:
        for stop in self._client.call(operations.detach, operations.DetachBody(self._session)):
            self._tell_gone(stop)
        self._stop, self._is_over = None, True

    def _tell_gone(self, stop: Stop) -> None:
        gone = {"goes_on": stop.id, "session": stop.session}
        show(self._options, gone, f"session {stop.session} goes on {stop.where}")


def stop_block(stop: Stop) -> Branch:
    """Return where a session stands as a tree."""
    of = f"breakpoint {stop.breakpoint!r}" if stop.breakpoint else "a step"
    head = f"session {stop.session} stands {stop.where}: {of}, cycle {stop.cycle_id[:ID]}, {span(stop.left)} left"
    plan = [] if stop.point == "sense" else ["nothing is to be done"]
    if stop.plan is not None:
        plan = [*filter(None, (stop.plan.goal, stop.plan.reason)),
                *(f"{at} {call_text(call)}" for at, call in enumerate(stop.plan.calls, 1)),
                *([] if stop.plan.output is None else [f"answer: {short(to_builtins(stop.plan.output))}"])]  # fmt: skip
    noticed = [f"{at} {one.source}/{one.kind}: {short(one.content)}" for at, one in enumerate(stop.perceptions, 1)]
    parts = {
        "noticed": noticed,
        "plan": plan,
        "call": [] if stop.call is None else [call_text(stop.call)],
        "result" if stop.point == "result" else "results": [_result(one) for one in stop.results],
        "changed by hand": [f"{one.part} by {one.by}: {short(to_builtins(one.patch))}" for one in stop.changes],
    }
    branches = (Branch(styled(title, "strong"), tuple(map(Branch, lines))) for title, lines in parts.items() if lines)
    return Branch(styled(head, "warn"), tuple(branches))


def _result(result: CallResult) -> str:
    why = result.fault.message if result.fault is not None else result.reason
    return f"{result.call.tool}: {result.status}{f', {why}' if why else ''}: {short(to_builtins(result.output))}"
