"""Commands for those who watch from elsewhere: alert rules, a dashboard, the OpenAPI document, tests of notifiers."""

from __future__ import annotations

import json

import click

from spar.cli.context import Options, fail, show
from spar.cli.nouns import ask
from spar.observe.shipped import shipped
from spar.operations.access import NotifierName, list_notifiers, test
from spar.operations.operation import RowsChoice


@click.group()
def observe() -> None:
    """Print alert rules for Prometheus, a dashboard for Grafana, and the OpenAPI document of the control API."""


@observe.command()
def rules() -> None:
    """Print alert rules for Prometheus.

    \b
    Example:
      spar observe rules > /etc/prometheus/spar.rules.yml
    """
    click.echo(shipped("rules.yml"), nl=False)


@observe.command()
def dashboard() -> None:
    """Print a dashboard to import into Grafana, which asks for the data source then.

    \b
    Example:
      spar observe dashboard > spar.json
    """
    click.echo(shipped("dashboard.json"), nl=False)


@observe.command()
def openapi() -> None:
    """Print the OpenAPI document of the control API, for authors of clients; the service serves it, too.

    \b
    Example:
      spar observe openapi > spar-api.json
    """
    from spar.server.routes.applications import described

    click.echo(json.dumps(described(), indent=2, ensure_ascii=False))


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
    names = [name] if name else [state["name"] for state in ask(options, list_notifiers, RowsChoice())]
    if not names:
        fail("no notifiers are configured ([[notifiers]])")
    results = [ask(options, test, NotifierName(notifier)) for notifier in names]
    lines = [f"{result['name']}: {'sent' if not result['error'] else result['error']}" for result in results]
    if any(result["error"] for result in results):
        fail("\n".join(lines))
    show(options, results, "\n".join(lines))
