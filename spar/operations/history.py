"""Operations on what happened and what comes next: past cycles and their configurations, the next things, changes, and
the audit log."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, cast

from msgspec import Meta, Struct
from msgspec.structs import asdict

from spar.decoding import convert
from spar.operations.operation import (
    AgentStore,
    Column,
    CommandForm,
    Nothing,
    RowsChoice,
    Since,
    TimedChoice,
    chosen,
    demanded,
    operation,
    readable,
    records_in,
)
from spar.ports.any_part import has
from spar.ports.store import DurableStore, OptionalStore
from spar.records.audit import AuditEntry, AuditLog
from spar.records.journal import Doubt
from spar.types import Ability, CycleRecord, replace

if TYPE_CHECKING:
    from spar.protocols import Rows
    from spar.service.app import Service

Session = Annotated[str | None, Meta(description="Only of this session.")]


#: Outcomes of the cycles that leave a record.
RecordedOutcome = Literal["acted", "skipped", "degraded", "failed", "interrupted"]


class CyclesChoice(Struct, frozen=True, forbid_unknown_fields=True):
    """Choice of cycles."""

    limit: Annotated[int, Meta(ge=1, le=10_000, description="How many.")] = 20
    before: Annotated[str | None, Meta(description="Only before this time, or before the cycle of this id.")] = None
    since: Since = None
    outcome: Annotated[RecordedOutcome | None, Meta(description="Only with this outcome.")] = None
    session: Session = None
    failed: Annotated[bool, Meta(description="Only those that failed or had a failed call.")] = False

    @property
    def is_filtered(self) -> bool:
        """Return whether only some cycles are asked for."""
        return any((self.before, self.since, self.outcome, self.session, self.failed))


class CycleId(Struct, frozen=True, forbid_unknown_fields=True):
    """A cycle's id, or a unique beginning of it."""

    cycle_id: str


class CycleSummary(Struct, frozen=True, omit_defaults=True):
    """Cycle in a list: when it began, its duration in seconds, its outcome, and the numbers of its calls by status.

    Any field may have any value in the row of a damaged cycle.
    """

    cycle_id: str
    agent: Any = ""
    session: Any = ""
    started_at: Any = None
    duration: Any = 0.0
    outcome: Any = ""
    about: Any = ""
    calls: Any = None
    deferred: Any = ""


class ShownCycle(CycleRecord, frozen=True):
    """Cycle in full, with the `doubts` about its calls, answered ones too."""

    doubts: tuple[Doubt, ...] = ()


#: The style of each outcome of a cycle.
OUTCOME_STYLES: Final = {
    "acted": "good", "failed": "bad", "degraded": "warn", "interrupted": "warn", "skipped": "dim",
}  # fmt: skip


def _place(before: str | None) -> str | datetime | None:
    """Return the time in a text, or the id of a cycle."""
    try:
        at = datetime.fromisoformat(before or "")
    except ValueError:
        return before
    return at if at.tzinfo is not None else at.astimezone()


def _numbers(row: CycleSummary) -> dict[str, int]:
    return (
        {str(name): int(_finite(number)) for name, number in row.calls.items()} if isinstance(row.calls, dict) else {}
    )


def _calls(row: CycleSummary) -> str:
    """Return the results of a cycle's calls in short: `✓` if all succeeded, `✗ 1 of 3` for failures, `put off` if the
    plan was deferred; "" without calls."""
    by_status = _numbers(row)
    total = sum(by_status.values())
    if row.deferred and not total:
        return "put off"
    if failed := by_status.get("failed"):
        return f"✗ {failed} of {total}"
    skipped = f", {by_status['skipped']} not done" if by_status.get("skipped") else ""
    return f"✓ {by_status.get('ok', 0)}{skipped}" if total else ""


def _calls_style(row: CycleSummary) -> str:
    by_status = _numbers(row)
    return ("bad" if by_status.get("failed") else "good") if sum(by_status.values()) else ""


def _finite(value: Any) -> float:
    """Return a number of a record, 0 for any other value, as after damage."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else 0.0


@operation("cycles list", "GET /v1/cycles", "read", where="store", served="stopping", command=CommandForm(
    columns=(
        Column("started", "started_at", "time"),
        Column("outcome", "outcome", style=lambda row: OUTCOME_STYLES.get(str(row.outcome), "")),
        Column(">took", lambda row: _finite(row.duration), "took"), Column("cycle", lambda row: row.cycle_id[:12]),
        Column("calls", _calls, style=_calls_style), Column("about", "about"),
    ),
    empty=lambda given: "no such cycles" if given.is_filtered else "no cycles yet",
    more=lambda given, rows: f"--before {rows[-1].cycle_id}" if len(rows) == given.limit else "",
    examples=("spar cycles list", "spar cycles list --failed --limit 5"),
))  # fmt: skip
async def list_cycles(store: AgentStore, given: CyclesChoice) -> list[CycleSummary]:
    """List cycles, newest first (idle ones leave no trace)."""
    rows: Any = await store.memory.cycles(
        limit=given.limit, before=_place(given.before), outcome=given.outcome, session=given.session,
        failed=given.failed, since=given.since,
    )  # fmt: skip
    return cast("list[CycleSummary]", rows)


@operation("cycles show", "GET /v1/cycles/{cycle_id}", "read", where="store", served="stopping", command=CommandForm(
    examples=("spar cycles show 18ea10a4", "spar cycles show last"),
))  # fmt: skip
async def show_cycle(store: AgentStore, given: CycleId) -> ShownCycle:
    """Show one cycle in full: what was noticed, decided, done and learnt, and the doubts about its calls.

    A unique beginning of its id is enough; "last" is the newest cycle."""
    id, memory = given.cycle_id, store.memory
    if id == "last" and (newest := await memory.cycles(limit=1)):
        id = str(newest[0]["cycle_id"])
    record: CycleRecord | None = await memory.cycle(id)
    if record is None:
        raise LookupError(f"no cycle {given.cycle_id!r} is recorded; spar cycles list shows those that are")
    if record.action is not None:
        record = replace(record, action=replace(record.action, signed=()))  # for the model's provider only
    doubts = (await memory.left(record.agent))[0] if has(memory, DurableStore.left) else ()
    return ShownCycle(**asdict(record), doubts=tuple(doubt for doubt in doubts if doubt.cycle_id == record.cycle_id))


# -- the configurations that past cycles were decided by


class ConfigurationId(Struct, frozen=True, forbid_unknown_fields=True):
    """The digest of a configuration, as recorded cycles name it."""

    id: Annotated[str, Meta(description="The digest.")]


class PastConfiguration(Struct, frozen=True):
    """Configuration that was in force: since when, by which version, and its settings; secrets are masked."""

    id: str
    at: datetime
    version: str
    settings: dict[str, Any]


@operation("configurations show", "GET /v1/configurations/{id}", "read", where="store", served="stopping")
async def show_configuration(store: AgentStore, given: ConfigurationId) -> PastConfiguration:
    """Show a configuration by the digest that a cycle names."""
    from spar.config.in_force import ROWS
    from spar.ports.rows import rows_in

    stored = await rows_in(store.memory, f"{ROWS}:{store.agent_name}")
    if given.id not in stored:
        raise LookupError(f"no configuration {given.id!r:.60} is kept any more")
    return convert({"id": given.id, **stored[given.id]}, PastConfiguration, strict=False)


# -- what comes next


class NextRow(Struct, frozen=True):
    """Thing that will happen by itself: when, of what kind, of which part, and what it is."""

    at: datetime
    kind: str
    of: str
    what: str


@operation("next", "GET /v1/next", "read", where="service", command=CommandForm(
    columns=(Column("at", "at", "time"), Column("kind", "kind"), Column("of", "of"), Column("what", "what", "line")),
    empty="nothing is planned: it waits for what it notices",
))  # fmt: skip
async def list_next(service: Service, given: RowsChoice) -> list[NextRow]:
    """List what happens next by itself and when, the nearest first: looks of sessions, ticks of schedules, next tries
    of sensors and models, budgets that are free again, approvals that expire."""
    now = datetime.now(UTC)
    status = service.status(has_lanes=True)["agent"]
    rows = [*_planned(status, now), *(
        NextRow(approval.expires_at, "approval", approval.session, f"{approval.call.tool} expires, to a denial")
        for approval in service.waiting.pending(now)
    )]  # fmt: skip
    return chosen(given, sorted(rows, key=lambda row: row.at))


def _planned(status: Mapping[str, Any], now: datetime) -> Iterator[NextRow]:
    """Yield what a status says of the time to come."""

    def after(seconds: float) -> datetime:
        return now + timedelta(seconds=max(seconds, 0.0))

    for lane in status["lanes"]:
        if lane["next_cycle_in"] is not None:
            yield NextRow(after(lane["next_cycle_in"]), "cycle", lane["session"], "looks again")
    for name, sensor in status["modules"].get("sense", {}).get("sensors", {}).items():
        if tick := sensor.get("next_tick"):
            yield NextRow(datetime.fromisoformat(tick), "schedule", name, "it is time")
        if sensor.get("next_try_in"):
            yield NextRow(after(sensor["next_try_in"]), "sensor", name, f"tried again: {sensor.get('last_error')}")
    for model in status["models"]:
        if model["state"] == "open":
            yield NextRow(after(model["wait"]), "model", model["model"], f"tried again: {model['reason']}")
    for budget in status["budgets"]:
        if budget["ends_at"] is not None and budget["ratio"] >= 1:
            yield NextRow(_time(budget["ends_at"]), "budget", budget["budget"], "free again")


def _time(value: Any) -> datetime:
    return value if isinstance(value, datetime) else datetime.fromisoformat(str(value))


# -- what changed

#: Entries of the audit log that say what lasts; those about senders are rows of their own.
_LASTING: Final = ("token.", "session.", "experience.", "grant.", "example.")
ChangeKind = Literal["version", "setting", "tool", "ability", "line", "incident", "sender", "person"]


class ChangesChoice(TimedChoice, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Choice of changes; by default those of the last day."""

    kind: Annotated[ChangeKind | None, Meta(description="Only of this kind.")] = None


class ChangeRow(Struct, frozen=True):
    """Change: of what, and its value before and after (null: it was not there)."""

    at: datetime
    kind: ChangeKind
    what: str
    before: Any = None
    after: Any = None


class ChangesAnswer(Struct, frozen=True):
    """Changes since a time, the newest first, and what is not known of them."""

    since: datetime
    rows: list[ChangeRow]
    unknown: list[str]


def _learnt(rows: Mapping[str, Any], since: datetime) -> list[ChangeRow]:
    """Return the tools that were tried since a time: how often each went well, by kind of task, the last one first."""
    tools: dict[str, ChangeRow] = {}
    for known in sorted(readable(rows.values(), Ability), key=lambda ability: -ability.at):
        if known.at >= since.timestamp():
            at = datetime.fromtimestamp(known.at, UTC)
            row = tools.setdefault(known.tool, ChangeRow(at, "ability", known.tool, after={}))
            row.after[known.task] = f"{known.estimate:.0%} after {known.trials} trial{'s' * (known.trials != 1)}"
    return list(tools.values())


async def _perceived(rows: Rows, agent: str, since: datetime) -> list[ChangeRow]:
    """Return the new kinds of lines and the incidents that were opened since a time."""
    from spar.records.perceived import LINES, incidents_in, new_lines, owner_of

    kinds = new_lines(await rows.rows(f"{LINES}:{agent}"), since)
    opened = incidents_in(await rows.rows(owner_of(agent)))[0]
    return [
        *(ChangeRow(kind.first_at, "line", kind.source, after=kind.example) for kind in kinds),
        *(ChangeRow(one.opened_at, "incident", one.id, after=one.title) for one in opened),
    ]


async def _people(store: AgentStore, since: datetime) -> list[ChangeRow]:
    """Return the senders that wrote for the first time or were decided about, and what people changed for good."""
    from spar.records.senders import KIND, SenderRow

    rows = []
    for sender in await records_in(store, KIND, SenderRow):
        if sender.agent == store.agent_name:
            if sender.first_at is not None:
                rows.append(ChangeRow(sender.first_at, "sender", sender.id, after="waiting"))
            if sender.decided_at is not None:
                rows.append(
                    ChangeRow(sender.decided_at, "sender", sender.id, "waiting", f"{sender.status} by {sender.by}")
                )
    if has(store.memory, OptionalStore.audit):
        entries = await store.memory.audit.entries(1_000, before=None, since=since, until=None, actor="", action="")
        rows += [ChangeRow(entry.at, "person", f"{entry.action} {entry.subject}".strip(), after=entry.actor)
                 for entry in entries if entry.action.startswith(_LASTING)]  # fmt: skip
    return rows


def _from_to(row: ChangeRow) -> str:
    """Return the values of a change in one line."""
    from spar.data.text import one_line

    if row.kind == "ability":
        return "; ".join(f"at {task}: {tried}" for task, tried in row.after.items())
    texts = [one_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), 80)
             for value in (row.before, row.after) if value is not None]  # fmt: skip
    if row.kind == "tool":
        return "changed" if len(texts) == 2 else "new" if row.before is None else "gone"
    if row.kind == "setting" and len(texts) < 2:
        return f"{'set to' if row.before is None else 'no more'} {texts[0]}" if texts else ""
    return " → ".join(texts)


@operation("changes", "GET /v1/changes", "read", is_stored=True, command=CommandForm(
    rows=lambda answer: answer.rows,
    columns=(Column("at", "at", "time"), Column("kind", "kind"), Column("of", "what"), Column("what", _from_to)),
    empty=lambda given: "nothing changed",
    also=(CommandForm(sentence=lambda given, answer: "\n".join(answer.unknown)),),
    examples=("spar changes", "spar changes --since 7d --kind setting"),
))  # fmt: skip
async def changes(store: AgentStore, given: ChangesChoice) -> ChangesAnswer:
    """Say what changed, newest first: version, settings and tools, abilities that were tried, new kinds of lines,
    incidents, senders, and what people changed for good."""
    from spar.ports.rows import rows_of
    from spar.service.changes import MOST, PRESENT, ROWS, SINCE

    since, kind, limit = given.since or datetime.now(UTC) - timedelta(days=1), given.kind, given.limit
    if store.changes is not None:
        await store.changes.look_at_tools()
    unknown = list[str]()
    store_rows, agent = rows_of(store.memory), store.agent_name
    rows: list[ChangeRow] = []
    if store_rows is not None:
        recorded = dict(await store_rows.rows(f"{ROWS}:{agent}"))
        first = recorded.pop(SINCE, None)
        recorded.pop(PRESENT, None)
        rows += [ChangeRow(_time(key.partition(" ")[0]), *change) for key, change in recorded.items()]
        if first is None or _time(first) > since:
            begun = "the next start of the service" if first is None else f"{_time(first):%Y-%m-%d %H:%M:%S} (UTC)"
            unknown.append(f"settings and tools are recorded since {begun}")
        if len(recorded) >= MOST and min(row.at for row in rows) > since:
            unknown.append(f"the {MOST} newest changes of settings and tools are kept")
        rows += _learnt(await store_rows.rows(f"ability:{agent}"), since)
        rows += await _perceived(store_rows, agent, since)
    rows += await _people(store, since)
    rows = [row for row in rows if row.at >= since and kind in (None, row.kind)]
    return ChangesAnswer(since, sorted(rows, key=lambda row: row.at, reverse=True)[:limit], unknown)


# -- the audit log


class AuditChoice(Struct, frozen=True, forbid_unknown_fields=True):
    """Choice of entries of the audit log."""

    limit: Annotated[int, Meta(ge=1, le=1_000, description="How many.")] = 50
    before: Annotated[int | None, Meta(description="Only those before the one with this number.")] = None
    since: Since = None
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
    return demanded(store.memory, OptionalStore.audit, "this store keeps no audit log")


@operation("audit list", "GET /v1/audit", "read", where="store", command=CommandForm(
    default={"limit": 20},
    columns=(
        Column(">number", "seq"), Column("at", "at", "time"), Column("who", "actor"), Column("what", "action"),
        Column("to", "subject"), Column("by way of", "origin"), Column("details", "detail", "line"),
    ),
    empty=lambda given: "no such entries" if given.is_filtered else "nobody changed anything",
    more=lambda given, rows: f"--before {rows[-1].seq}" if len(rows) == given.limit else "",
    examples=("spar audit list", "spar audit list --actor anna --since 2026-11-01",
              "spar audit list --action approval --limit 5"),
))  # fmt: skip
async def list_entries(store: AgentStore, given: AuditChoice) -> list[AuditEntry]:
    """List who changed what, newest first: approvals, grants, sessions, senders, pauses, reloads, steps."""
    return list(
        await _log(store).entries(given.limit, before=given.before, since=given.since, until=given.until,
                                 actor=given.actor, action=given.action)
    )  # fmt: skip


@operation("audit verify", "GET /v1/audit/verify", "read", where="store", command=CommandForm(
    sentence=lambda given, check: "the audit log is whole", failure="why", examples=("spar audit verify",),
))  # fmt: skip
async def verify(store: AgentStore, given: Nothing) -> ChainCheck:
    """Check that no entry of the audit log was changed, inserted or removed. The first wrong one is named by `why`,
    with which the command ends (code 1)."""
    why = await _log(store).verify()
    return ChainCheck(not why, why)
