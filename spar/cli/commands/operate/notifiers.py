"""Commands for notifiers: list them, and test one or all."""

from __future__ import annotations

import click

from spar.cli.context import Options, fail, show
from spar.cli.nouns import ask
from spar.operations.channels import NotifierName, list_notifiers, test
from spar.operations.operation import Nothing


@click.command("test")
@click.argument("name", default="")
@click.pass_obj
def test_notifiers(options: Options, name: str) -> None:
    """Send a test notice through the notifier NAME, or through all; exit 1 if one does not work.

    \b
    Examples:
      spar notifiers test
      spar notifiers test ops
    """
    names = [name] if name else [state["name"] for state in ask(options, list_notifiers, Nothing())]
    if not names:
        fail("no notifiers are configured ([[notifiers]])")
    results = [ask(options, test, NotifierName(notifier)) for notifier in names]
    lines = [f"{result['name']}: {'sent' if not result['error'] else result['error']}" for result in results]
    if any(result["error"] for result in results):
        fail("\n".join(lines))
    show(options, results, "\n".join(lines))
