"""Command `audit verify`: checks the audit log; the list of its entries follows from the table of operations."""

from __future__ import annotations

import click

from spar.cli.context import Options, fail, show
from spar.cli.nouns import ask
from spar.operations.history import verify
from spar.operations.operation import Nothing
from spar.service import exit_codes as exits


@click.command("verify")
@click.pass_obj
def verify_log(options: Options) -> None:
    """Check that no entry was changed, inserted or removed. If one was, print its number and exit with 1.

    \b
    Example:
      spar audit verify
    """
    verdict = ask(options, verify, Nothing())
    if not verdict["ok"]:
        fail(verdict["why"], exits.FAILED)
    show(options, verdict, "the audit log is whole")
