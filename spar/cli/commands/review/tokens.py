"""Commands for access tokens of programs: create, list, revoke, whether the service runs or not."""

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
    """Manage access tokens of programs that use the API over the network: create, list, revoke."""


@tokens.command()
@click.argument("name")
@click.option("--scopes", required=True, help="Scopes, separated by commas: read, operate, step, approve, admin (all).")
@click.option(
    "--days", type=click.FloatRange(0, 3650, min_open=True), help="Validity in days (default: until it is revoked)."
)
@click.pass_obj
def create(options: Options, name: str, scopes: str, days: float | None) -> None:
    """Create a token called NAME and print it. It is printed once; only its digest is stored.

    Programs send it as `Authorization: Bearer TOKEN` to /v1 at service.host and service.port. In the audit log their
    actor is `token NAME`.

    \b
    Examples:
      spar tokens create dashboard --scopes read
      spar tokens create chat-bot --scopes read,operate --days 90
    """
    from spar.service.token_rows import SCOPES, check_name

    names = [scope.strip() for scope in scopes.split(",") if scope.strip()]
    if unknown := [scope for scope in names if scope not in SCOPES]:
        fail(f"--scopes {unknown[0]!r:.80}: must be of {', '.join(SCOPES)}", exits.USAGE)
    if not names:
        fail(f"--scopes is empty: must be of {', '.join(SCOPES)}", exits.USAGE)
    try:
        check_name(name)
    except ValueError as error:
        fail(str(error), exits.USAGE)
    token = _change(
        options,
        lambda client: client.post("/v1/tokens", {"name": name, "scopes": names, "days": days}),
        lambda tokens, by: tokens.create(name, names, days=days, by=by),  # type: ignore[arg-type]
        ("token.create", name, {"scopes": names, "days": days}),
    )
    show(options, token, token["token"])


@tokens.command("list")
@click.pass_obj
def list_tokens(options: Options) -> None:
    """List the tokens: their scopes, when they were created and last used (to the hour), and until when they are valid.

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
    """Revoke the token called NAME: it becomes invalid, and the streams that it has opened end.

    \b
    Example:
      spar tokens revoke dashboard
    """
    row = _change(
        options,
        lambda client: client.delete(f"/v1/tokens/{quote(name, safe='', errors='replace')}"),
        lambda tokens, by: tokens.revoke(name),
        ("token.revoke", name, {}),
    )
    show(options, row, f"revoked: {row['name']}")


def _change(options: Options, ask: Callable[[Any], Any], work: Callable[[Tokens, str], Awaitable[Any]],
            entry: tuple[str, str, dict[str, Any]]) -> Any:  # fmt: skip
    """Let the running service make a change; without a service, change the rows of the store here and audit that.

    Args:
        ask: Requests the change of the service.
        work: Makes the change in the table of tokens, for a creator.
        entry: The action, the subject and the details of the audit log's entry.
    """
    import os

    from spar.errors import ConflictError
    from spar.records.audit import AuditDraft, auditing
    from spar.server.peers import name_of

    try:
        return ask(connect(options.state_dir()))
    except NotRunningError:
        pass
    who, (action, subject, detail) = name_of(os.getuid()), entry
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
