"""Commands that print files for other programs: alert rules, a dashboard, the OpenAPI document."""

from __future__ import annotations

import json

import click

from spar.observe.shipped import shipped


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
    from spar.server.routes.control import described

    click.echo(json.dumps(described(), indent=2, ensure_ascii=False))
