"""Commands for sessions: list and show them, set their title and defaults, begin them anew, forget them."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import click

from spar.cli import complete
from spar.cli.blocks import Fields, table
from spar.cli.client import service
from spar.cli.context import Options, fail, show
from spar.cli.tables import local, zoned
from spar.data.text import one_line
from spar.service import exit_codes as exits

#: The options that a session may have, as its runs take them.
DEFAULTS = ("model", "thinking", "timeout", "verbose", "instructions")
_FLAGS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


@click.group()
def sessions() -> None:
    """Look at sessions: list, show, set, begin anew, forget."""


@sessions.command("list")
@click.option("--limit", type=click.IntRange(1, 1_000), default=50, show_default=True, help="How many.")
@click.option("--after", default="", metavar="NEXT", help="Those behind a page: what stood below it.")
@click.pass_obj
def list_sessions(options: Options, limit: int, after: str) -> None:
    """List sessions, the one that was used last first.

    \b
    Examples:
      spar sessions list
      spar --json sessions list --limit 1000
    """
    with service(options) as client:
        page = client.get("/v1/sessions", limit=limit, after=after or None)
    rows = [(local(each["used_at"]), each["state"], str(each["ordinal"]), each["key"], _about(each))
            for each in page["sessions"]]  # fmt: skip
    shown = table((zoned("last used"), "state", ">conversation", "session", "about"), rows) if rows else "no sessions"
    more = [f"more: spar sessions list --after {page['next']}"] if page["next"] else []
    show(options, page, shown, *more)


@sessions.command("show")
@click.argument("session", shell_complete=complete.sessions)
@click.pass_obj
def show_session(options: Options, session: str) -> None:
    """Show one session: its conversation, its defaults, where it came from, what goes on.

    \b
    Example:
      spar sessions show alice
    """
    with service(options) as client:
        found = client.get(path_of(session))
    show(options, found, _shown(found))


@sessions.command("set")
@click.argument("session", shell_complete=complete.sessions)
@click.argument("values", nargs=-1, required=True, metavar="NAME=VALUE...")
@click.pass_obj
def set_session(options: Options, session: str, values: tuple[str, ...]) -> None:
    """Set a session's title, or what its runs use unless a message says otherwise; an empty value takes it back.

    \b
    Examples:
      spar sessions set alice thinking=high
      spar sessions set alice title="Holidays" model= timeout=120
    """
    body: dict[str, Any] = {}
    for each in values:
        name, is_given, value = each.partition("=")
        if not is_given or name not in ("title", *DEFAULTS):
            known = ", ".join(("title", *DEFAULTS))
            fail(f"{each!r}: must be NAME=VALUE; names: {known}", exits.USAGE)
        if name == "title":
            body["title"] = value
        else:
            body.setdefault("defaults", {})[name] = _value(name, value)
    with service(options) as client:
        found = client.patch(path_of(session), body)
    show(options, found, _shown(found))


def _reset(options: Options, session: str) -> None:
    with service(options, timeout=150.0) as client:
        found = client.post(f"{path_of(session)}:reset")
    show(options, found, f"{found['id']}: the next message begins a conversation")


@sessions.command("reset")
@click.argument("session", shell_complete=complete.sessions)
@click.pass_obj
def reset_session(options: Options, session: str) -> None:
    """Begin a session anew: its next message sees nothing of what was said before.

    \b
    Example:
      spar sessions reset alice
    """
    _reset(options, session)


@click.command()
@click.argument("session", shell_complete=complete.sessions)
@click.pass_obj
def reset(options: Options, session: str) -> None:
    """Begin a session anew: its next message sees nothing of what was said before.

    Work in it, under way or waiting, ends with reason "reset". The transcript is kept: spar transcript SESSION.

    \b
    Example:
      spar reset alice
    """
    _reset(options, session)


@sessions.command("forget")
@click.argument("session", shell_complete=complete.sessions)
@click.option("--yes", "-y", "is_sure", is_flag=True, help="Do not ask whether to go on.")
@click.pass_obj
def forget_session(options: Options, session: str, is_sure: bool) -> None:
    """Delete what is kept of a session: transcript, cycles, answers of its runs, its workspace, the session itself.

    \b
    Example:
      spar sessions forget alice
    """
    if not is_sure:
        click.confirm(f"delete everything that is kept of session {session!r}?", abort=True, err=True)
    with service(options, timeout=150.0) as client:
        done = client.delete(path_of(session))
    show(options, done, f"{session}: forgotten, {done['deleted']} rows")


def path_of(session: str) -> str:
    """Return the path of a session; any name is one segment."""
    return f"/v1/sessions/{quote(session, safe='')}"


def _value(name: str, text: str) -> Any:
    """Return the value of an option; an empty one takes it back."""
    if not text:
        return None
    if name == "timeout":
        from spar.config.tables.fields import seconds

        number = seconds(text)
        return text if number is None else number
    return _FLAGS.get(text.lower(), text) if name == "verbose" else text


def _word(value: Any, limit: int = 80) -> str:
    """Return a default as it is written in `spar sessions set`: true, not Python's True."""
    return str(value).lower() if isinstance(value, bool) else one_line(str(value), limit)


def _about(session: dict[str, Any]) -> str:
    chosen = [f"{name}={_word(value, 40)}" for name, value in session["defaults"].items()]
    return " ".join([*([session["title"]] if session["title"] else []), *chosen])


def _shown(session: dict[str, Any]) -> Fields:
    origin = " ".join(filter(None, (session["origin"][name] for name in ("door", "channel", "sender"))))
    lines = [
        ("session", session["key"]), ("id", session["id"]), ("title", session["title"]),
        ("defaults", ", ".join(f"{name} = {_word(value)}" for name, value in session["defaults"].items())),
        ("origin", origin), ("begun", local(session["created_at"])), ("conversation since", local(session["began_at"])),
        ("last used", local(session["used_at"])), ("state", session["state"]), ("runs", ", ".join(session["runs"])),
        ("workspace", session["workspace"]),
    ]  # fmt: skip
    return Fields("", tuple((name, str(value)) for name, value in lines if value), width=19, indent=0)
