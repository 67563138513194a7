"""Commands for tokens of programs that ask over the network: make, list, revoke; the service may run or not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from spar.cli.blocks import table
from spar.cli.client import NotRunningError, connect
from spar.cli.context import STORE, Options, fail, from_store, refusals, show
from spar.cli.tables import local, zoned
from spar.service import exit_codes as exits

if TYPE_CHECKING:
    from spar.service.tokens import Tokens


@click.group()
def tokens() -> None:
    """Tokens of programs that ask over the network: make one, list them, revoke one."""


@tokens.command()
@click.argument("name")
@click.option("--scopes", required=True, help="Rights, with commas: read, operate, approve, admin (all).")
@click.option("--days", type=click.FloatRange(0, 3650, min_open=True), help="For how many days; else until revoked.")
@click.pass_obj
def create(options: Options, name: str, scopes: str, days: float | None) -> None:
    """Make a token called NAME and print it. It is printed once and kept nowhere: only its digest is.

    Programs send it as `Authorization: Bearer TOKEN` to /v1 at service.host and service.port. The audit log tells
    what they do as of `token NAME`.

    \b
    Examples:
      spar tokens create dashboard --scopes read
      spar tokens create chat-bot --scopes read,operate --days 90
    """
    from spar.service.token_rows import SCOPES, check_name

    given = [each.strip() for each in scopes.split(",") if each.strip()]
    if unknown := [each for each in given if each not in SCOPES]:
        fail(f"--scopes {unknown[0]!r:.80}: must be of {', '.join(SCOPES)}", exits.USAGE)
    if not given:
        fail(f"--scopes is empty: must be of {', '.join(SCOPES)}", exits.USAGE)
    try:
        check_name(name)
    except ValueError as error:
        fail(str(error), exits.USAGE)
    made = _changed(
        options,
        lambda client: client.post("/v1/tokens", {"name": name, "scopes": given, "days": days}),
        lambda tokens, by: tokens.create(name, given, days=days, by=by),  # type: ignore[arg-type]
        ("token.create", name, {"scopes": given, "days": days}),
    )
    show(options, made, made["token"])


@tokens.command("list")
@click.pass_obj
def list_tokens(options: Options) -> None:
    """List the tokens: their rights, when they were made and last used (to the hour), until when they are good.

    \b
    Example:
      spar tokens list
    """
    try:
        rows = connect(options.state_dir()).get("/v1/tokens")
    except NotRunningError:
        rows = from_store(options, lambda store: _table_of(store).list())
    heads = ("name", "scopes", zoned("made"), "by", zoned("last used"), "good until")
    cells = [
        (row["name"], ", ".join(row["scopes"]), local(row["made_at"]), row["by"], local(row["used_at"]) or "never",
         f"{local(row['expires_at']) or 'it is revoked'}{' (expired)' if row['is_expired'] else ''}")
        for row in rows
    ]  # fmt: skip
    show(options, rows, table(heads, cells) if rows else "no tokens: nobody reaches /v1 over the network")


@tokens.command()
@click.argument("name")
@click.pass_obj
def revoke(options: Options, name: str) -> None:
    """Revoke the token called NAME: it is good for nothing from now on, and streams that it has opened end.

    \b
    Example:
      spar tokens revoke dashboard
    """
    row = _changed(
        options,
        lambda client: client.delete(f"/v1/tokens/{quote(name, safe='', errors='replace')}"),
        lambda tokens, by: tokens.revoke(name),
        ("token.revoke", name, {}),
    )
    show(options, row, f"revoked: {row['name']}")


def _changed(options: Options, ask: Callable[[Any], Any], work: Callable[[Tokens, str], Awaitable[Any]],
             told: tuple[str, str, dict[str, Any]]) -> Any:  # fmt: skip
    """Have the running service do it; where none runs, change the rows of its store here, with their audit entry.

    Args: told: the action, the subject and the details of that entry.
    """
    import os

    from spar.errors import ConflictError
    from spar.records.audit import AuditDraft, auditing
    from spar.server.peers import name_of

    try:
        return ask(connect(options.state_dir()))
    except NotRunningError:
        pass
    who, (action, subject, detail) = name_of(os.getuid()), told
    draft = AuditDraft(who, "shell", action, subject, agent=options.load(*STORE).settings.agent.name,
                       rows=("token",))  # fmt: skip
    draft.detail |= detail

    async def change(store: Any) -> Any:
        try:
            with auditing(draft):
                return await work(_table_of(store), who)
        except ConflictError as error:
            fail(str(error))

    with refusals():
        return from_store(options, change, read_only=False)


def _table_of(store: Any) -> Tokens:
    from spar.clock import SystemClock
    from spar.service.tokens import Tokens

    return Tokens(lambda: store, SystemClock.now)
