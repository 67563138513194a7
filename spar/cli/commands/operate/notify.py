"""Commands for notifiers: they show how each is doing, and try one."""

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
    """Notifiers of alerts: how each is doing, and whether it works."""


@notify.command("list")
@click.pass_obj
def list_notifiers(options: Options) -> None:
    """List the notifiers: how many notices each has sent, and how many wait.

    \b
    Example:
      spar notify list
    """
    with service(options) as client:
        found = client.get("/v1/notifiers")
    heads = ("notifier", ">sent", ">waiting", ">given up", "last error")
    show(options, found, table(heads, [_cells(each) for each in found]) if found else _NONE)


@notify.command()
@click.argument("name", default="")
@click.pass_obj
def test(options: Options, name: str) -> None:
    """Send a test through the notifier NAME, or through each; exit 1 if one does not work.

    \b
    Examples:
      spar notify test
      spar notify test ops
    """
    with service(options) as client:
        names = [name] if name else [each["name"] for each in client.get("/v1/notifiers")]
        if not names:
            fail(_NONE)
        tried = [client.post(f"/v1/notifiers/{quote(each, safe='')}:test") for each in names]
    lines = [f"{each['name']}: {'sent' if not each['error'] else each['error']}" for each in tried]
    if any(each["error"] for each in tried):
        fail("\n".join(lines))
    show(options, tried, "\n".join(lines))


_NONE = "no notifiers are configured ([[notifiers]])"


def _cells(state: dict[str, Any]) -> tuple[str, ...]:
    return (state["name"], str(state["sent"]), str(state["waiting"]), str(state["given_up"]),
            one_line(state["last_error"], 100))  # fmt: skip
