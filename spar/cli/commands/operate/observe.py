"""The files for those who watch spar from outside: alert rules and a dashboard."""

from __future__ import annotations

import click

from spar.observe.shipped import shipped


@click.group()
def observe() -> None:
    """Print alert rules for Prometheus and a dashboard for Grafana."""


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
