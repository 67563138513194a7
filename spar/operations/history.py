"""Operations on what happened: past cycles, and the audit log."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, cast

from msgspec import Meta, Struct

from spar.operations.operation import AgentStore, Column, CommandForm, Nothing, operation
from spar.records.audit import AuditEntry, AuditLog, KeepsAudit
from spar.types import CycleRecord

Session = Annotated[str | None, Meta(description="Only of this session.")]


class CyclesChoice(Struct, frozen=True, forbid_unknown_fields=True):
    """Choice of cycles."""

    limit: Annotated[int, Meta(ge=1, le=10_000, description="How many.")] = 20
    before: Annotated[str | None, Meta(description="Only before this time, or this cycle's id.")] = None
    outcome: Annotated[str | None, Meta(description="Only with this outcome.")] = None
    session: Session = None
    failed: Annotated[bool, Meta(description="Only those that failed or had a failed call.")] = False


class CycleId(Struct, frozen=True, forbid_unknown_fields=True):
    """A cycle's id."""

    cycle_id: str


class CycleSummary(Struct, frozen=True, omit_defaults=True):
    """Cycle in a list: when it began, its duration in seconds, its outcome, and the numbers of its calls by status."""

    cycle_id: str
    agent: Any = ""
    session: Any = ""
    started_at: Any = None
    duration: Any = 0.0
    outcome: Any = ""


@operation("cycles list", "GET /v1/cycles", "read", where="store", served="stopping")
async def list_cycles(store: AgentStore, given: CyclesChoice) -> list[CycleSummary]:
    """List cycles, newest first."""
    rows: Any = await store.memory.cycles(
        limit=given.limit, before=given.before, outcome=given.outcome, session=given.session, failed=given.failed
    )
    return cast("list[CycleSummary]", rows)


@operation("cycles show", "GET /v1/cycles/{cycle_id}", "read", where="store", served="stopping")
async def show_cycle(store: AgentStore, given: CycleId) -> CycleRecord:
    """Return one cycle with its calls and results."""
    record: CycleRecord | None = await store.memory.cycle(given.cycle_id)
    if record is None:
        raise LookupError(f"no cycle {given.cycle_id!r} is recorded")
    return record


class AuditChoice(Struct, frozen=True, forbid_unknown_fields=True):
    """Choice of entries of the audit log."""

    limit: Annotated[int, Meta(ge=1, le=1_000, description="How many.")] = 50
    before: Annotated[int | None, Meta(description="Only those before the one with this number.")] = None
    since: Annotated[datetime | None, Meta(description="Only from this time on.")] = None
    until: Annotated[datetime | None, Meta(description="Only from before this time.")] = None
    actor: Annotated[str, Meta(description="Only of this user, token, sender or part.")] = ""
    action: Annotated[str, Meta(description="Only this action (`approval.deny`), or all of a kind (`approval`).")] = ""

    @property
    def is_filtered(self) -> bool:
        """Return whether only some entries are asked for."""
        return any((self.before, self.since, self.until, self.actor, self.action))


class ChainCheck(Struct, frozen=True):
    """Result of a check; `why` names the first wrong entry, "" if it is whole."""

    ok: bool
    why: str


def _log(store: AgentStore) -> AuditLog:
    if not isinstance(store.memory, KeepsAudit):
        raise LookupError("this store keeps no audit log")
    return store.memory.audit


@operation("audit list", "GET /v1/audit", "read", where="store", command=CommandForm(
    hidden=("before",),
    default={"limit": 20},
    columns=(
        Column(">number", "seq"), Column("at", "at", "time"), Column("who", "actor"), Column("what", "action"),
        Column("to", "subject"), Column("by way of", "origin"), Column("details", "detail", "line"),
    ),
    empty=lambda given: "no such entries" if given.is_filtered else "nobody changed anything",
    examples=("spar audit list", "spar audit list --actor anna --since 2026-11-01",
              "spar audit list --action approval --limit 5"),
))  # fmt: skip
async def list_entries(store: AgentStore, given: AuditChoice) -> list[AuditEntry]:
    """List who changed what, newest first: approvals, grants, sessions, senders, pauses, reloads, steps."""
    return list(
        await _log(store).entries(given.limit, before=given.before, since=given.since, until=given.until,
                                 actor=given.actor, action=given.action)
    )  # fmt: skip


@operation("audit verify", "GET /v1/audit/verify", "read", where="store")
async def verify(store: AgentStore, given: Nothing) -> ChainCheck:
    """Check that no entry of the audit log was changed, inserted or removed; `why` names the first wrong one."""
    why = await _log(store).verify()
    return ChainCheck(not why, why)
