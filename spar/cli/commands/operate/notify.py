"""Commands for notifiers: show their states, and test them."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import click

from spar.cli.blocks import table
from spar.cli.client import service
from spar.cli.context import Options, fail, show
from spar.data.text import one_line


@click.group()
def notify() -> None:
    """Look at notifiers of alerts, and test them."""


@notify.command("list")
@click.pass_obj
def list_notifiers(options: Options) -> None:
    """List the notifiers, with the numbers of notices that each has sent and that wait.

    \b
    Example:
      spar notify list
    """
    with service(options) as client:
        states = client.get("/v1/notifiers")
    heads = ("notifier", ">sent", ">waiting", ">given up", "last error")
    show(options, states, table(heads, [_cells(state) for state in states]) if states else _NONE)


@notify.command()
@click.argument("name", default="")
@click.pass_obj
def test(options: Options, name: str) -> None:
    """Send a test notice through the notifier NAME, or through all; exit 1 if one does not work.

    \b
    Examples:
      spar notify test
      spar notify test ops
    """
    with service(options) as client:
        names = [name] if name else [state["name"] for state in client.get("/v1/notifiers")]
        if not names:
            fail(_NONE)
        results = [client.post(f"/v1/notifiers/{quote(notifier, safe='')}:test") for notifier in names]
    lines = [f"{result['name']}: {'sent' if not result['error'] else result['error']}" for result in results]
    if any(result["error"] for result in results):
        fail("\n".join(lines))
    show(options, results, "\n".join(lines))


_NONE = "no notifiers are configured ([[notifiers]])"


def _cells(state: dict[str, Any]) -> tuple[str, ...]:
    return (state["name"], str(state["sent"]), str(state["waiting"]), str(state["given_up"]),
            one_line(state["last_error"], 100))  # fmt: skip
