"""The files for those who work with spar from outside: alert rules, a dashboard, the document of its API."""

from __future__ import annotations

import json

import click

from spar.observe.shipped import shipped


@click.group()
def observe() -> None:
    """Print alert rules for Prometheus, a dashboard for Grafana, and what the control API takes."""


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
    """Print a dashboard for Grafana, to be imported there; it asks for the data source.

    \b
    Example:
      spar observe dashboard > spar.json
    """
    click.echo(shipped("dashboard.json"), nl=False)


@observe.command()
def openapi() -> None:
    """Print the OpenAPI document of the control API, for who makes a client; the service serves it, too.

    \b
    Example:
      spar observe openapi > spar-api.json
    """
    from spar.server.routes.control import described

    click.echo(json.dumps(described(), indent=2, ensure_ascii=False))
