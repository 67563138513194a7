"""Values of a run as people and programs see it: its receipt, its status, its row in a list."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct

from spar.records.run_options import NO_OPTIONS, RunOptions
from spar.types import Perception, RunUsage

if TYPE_CHECKING:
    from spar.records.journal import Item


class Receipt(Struct, frozen=True):
    """Result of `submit`: the run's id, and when it was accepted (UTC)."""

    run_id: str
    accepted_at: datetime


class RunStatus(Struct, frozen=True):
    """Result of `wait`. `status` is `timeout` while the run continues; `outcome` says how its message was handled.

    `reply` is the text for people: from the output, or one sentence about the failure. `silent` says that the run chose
    to send none. `usage` counts all its cycles, but `waited` those of this process; `options` are those in force.
    """

    run_id: str
    status: Literal["ok", "error", "timeout"]
    outcome: str = "queued"
    started_at: datetime | None = None
    ended_at: datetime | None = None
    error: str = ""
    output: Any = None
    errors: tuple[dict[str, Any], ...] = ()
    reply: str | None = None
    silent: bool = False
    usage: RunUsage = RunUsage()
    options: RunOptions = NO_OPTIONS


def known_status(run_id: str, item: Item | None, answer: Mapping[str, Any] | None) -> RunStatus:
    """Return the status of a run of an earlier process: from its item while it waits, from its answer once it has
    ended. Raises: LookupError for neither."""
    if answer is not None:
        from spar.decoding import convert  # an agent without earlier processes needs neither this nor `cut`

        return convert(answer, RunStatus, strict=False)
    if item is None:
        raise LookupError(f"no run {run_id!r}; runs are known by the run_id of their receipt")
    return RunStatus(run_id, "timeout", options=(item.options or NO_OPTIONS).over(item.defaults or NO_OPTIONS))


#: Characters of the message of an open run in a list.
LONGEST_BEGINNING: Final = 1_000


class RunRow(Struct, frozen=True):
    """Run in a list. `status` is queued, running, ok or error.

    While it is open, `message` is the beginning of its message, and `message_id` the id that the transcript has of it.
    """

    run_id: str
    session: str
    status: str
    accepted_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    message: str = ""
    message_id: str = ""


def beginning(message: Perception) -> dict[str, str]:
    """Return the fields of an open run's row that are about its message."""
    from spar.data.text import cut

    return {"message": cut(message.text, LONGEST_BEGINNING), "message_id": message.id}


def unknown_place(what: str, before: str) -> LookupError:
    """Return the error of a list that goes on before a row that is not known, or not any more."""
    return LookupError(f"no {what} {before!r:.100} to go on before: begin anew, without `before`")
