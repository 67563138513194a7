"""A Python prompt with the agent loaded and top-level `await`."""

from __future__ import annotations

import ast
import asyncio
import code
import contextlib
import inspect
import sys
import types
from typing import Any

import click

from spar.cli.context import Options
from spar.service import exit_codes as exits

BANNER = """spar shell: `agent` is loaded and not started; await works.
  await agent.step_sense()    await agent.step_plan()    await agent.step_act()    await agent.step_reflect()
  await agent.start()         agent.stats                agent.state               Ctrl+D ends
"""


@click.command()
@click.pass_obj
def shell(options: Options) -> int:
    """Open a Python prompt with the agent loaded; `await agent.step_sense()` works.

    Piped input is run as a script; exit 1 if it raised.

    \b
    Example:
      echo 'print(await agent.step_sense())' | spar shell
    """
    import spar

    names = {name: getattr(spar, name) for name in spar.__all__}
    with options.agent() as agent, asyncio.Runner() as runner:
        console = Console({**names, "agent": agent, "spar": spar}, runner)
        try:
            if sys.stdin.isatty():
                console.talk()
            else:
                console.read(sys.stdin.read())
        finally:
            if agent.requests.loop is not None:  # None: the agent was never used
                runner.run(agent.stop())
    return exits.FAILED if console.has_failed else exits.OK


class Console(code.InteractiveConsole):
    """The standard Python prompt with top-level `await`; all lines run in the same event loop."""

    def __init__(self, names: dict[str, Any], runner: asyncio.Runner) -> None:
        super().__init__(names)
        self.compile.compiler.flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        self._runner = runner
        self.has_failed = False

    def talk(self) -> None:
        """Read, run, print, until Ctrl+D."""
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 - lines can be edited and repeated from here on

        self.interact(banner=BANNER, exitmsg="")
        self.has_failed = False

    def read(self, script: str) -> None:
        """Run a whole script; as in Python, values of expressions are not printed."""
        try:
            code_object = self.compile.compiler(script, "<stdin>", "exec")
        except (SyntaxError, ValueError, OverflowError):
            self.has_failed = True
            self.showsyntaxerror("<stdin>")
        else:
            self.runcode(code_object)

    def runcode(self, code_object: types.CodeType) -> None:
        """Run a compiled line in the event loop, and print the traceback of an error."""

        async def run() -> None:
            result = types.FunctionType(code_object, self.locals)()
            if inspect.isawaitable(result):
                await result

        try:
            self._runner.run(run())
        except SystemExit:
            raise
        except BaseException:
            self.has_failed = True
            self.showtraceback()
