"""Operations on runs: submit, list, show, wait, follow, abort, give feedback; what they have cost."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import dropwhile, islice
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

from msgspec import Meta, Struct
from msgspec.structs import asdict

from spar.errors import SparError, TransientError
from spar.operations.fields import word_of
from spar.operations.operation import (
    PATIENCE,
    After,
    AgentStore,
    AuditRule,
    Caller,
    Column,
    CommandForm,
    Since,
    Stream,
    TimedChoice,
    after_of,
    operation,
)
from spar.ports.costs import Cost, Sum, costs_of, days_since
from spar.protocols import Rows
from spar.records.runs import Receipt, RunRow, RunStatus, beginning, known_status, unknown_place
from spar.records.session import Origin

if TYPE_CHECKING:
    from spar.agent.parts import AgentParts
    from spar.ports.store import DurableStore
    from spar.runs.runs import Run, Runs
    from spar.service.app import Service

R = TypeVar("R")

#: Clients that may follow runs at once: a fifth of all connections of the server.
FOLLOWERS: Final = 50
#: Runs in one list.
LONGEST_LIST: Final = 1_000
#: Seconds that an abort may take: the running phase ends first, or is abandoned.
ABORT_WITHIN: Final = 120.0
#: States in which the agent also knows the runs of earlier processes.
KNOWING: Final = ("running", "pausing", "paused")


class RunsChoice(Struct, frozen=True, forbid_unknown_fields=True):
    """Choice of runs."""

    limit: Annotated[int, Meta(ge=1, le=LONGEST_LIST, description="How many.")] = 50
    open: Annotated[bool, Meta(description="Only those that have not ended.")] = False
    before: Annotated[str | None, Meta(description="Only those that were accepted before the run of this id.")] = None
    since: Since = None


class RunBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A message.

    `mode` is the queue mode while the session is busy (as `runs.queue_mode`), `output` a JSON schema of the answer, and
    `options` may have `model`, `instructions`, `thinking`, `timeout` and `verbose`.
    """

    message: str
    session: str = "main"
    mode: str | None = None
    idempotency_key: str | None = None
    output: dict[str, Any] | None = None
    options: dict[str, Any] | None = None


class RunId(Struct, frozen=True, forbid_unknown_fields=True):
    """A run's id."""

    run_id: str


class Wait(RunId, frozen=True, forbid_unknown_fields=True):
    """A run's id, and how long to wait."""

    timeout: Annotated[float, Meta(ge=0, le=3600, description="Seconds to wait at most.")] = 30.0


class FollowRun(RunId, frozen=True, forbid_unknown_fields=True):
    """A run's id, and the position in its events."""

    after: After = None


class FeedbackBody(RunId, frozen=True, forbid_unknown_fields=True):
    """A run's id, whether it went well, and why."""

    good: bool
    why: str = ""


class FeedbackReceipt(Struct, frozen=True):
    """Feedback that was stored."""

    run_id: str
    good: bool


async def _known(agent: AgentParts, work: Awaitable[R]) -> R:
    """Return the result of work on a run.

    Raises: LookupError for an unknown run; TransientError instead, while the agent does not know all its runs.
    """
    try:
        return await work
    except LookupError:
        if (state := agent.core.state) in KNOWING:
            raise
        sentence = f"agent {agent.name!r} is {state}: it knows its runs while it runs"
        raise TransientError(sentence) from None


@operation("runs submit", "POST /v1/runs", "operate", status=202, knows_key=True,
           repeatable=lambda given: bool(given.idempotency_key))  # fmt: skip
async def submit(service: Service, given: RunBody, caller: Caller) -> Receipt:
    """Accept a message and return its receipt.

    The traces of the run link to a header `traceparent`."""
    key = given.idempotency_key or caller.idempotency_key
    origin = Origin("http", sender=caller.by) if caller.is_token else Origin("http")
    submission = service.agent.conversations.submission
    receipt = await submission.submit(
        given.message, given.session, given.mode, key, given.output, given.options, origin
    )
    if (traces := service.agent.core.traces) is not None and caller.traceparent:
        # There was no await since submit, so the first cycle of the run cannot have ended.
        traces.linked(receipt.run_id, caller.traceparent)
    return receipt


def _reader(store: AgentStore) -> DurableStore:
    from spar.ports.any_part import has
    from spar.ports.store import DurableStore

    memory: DurableStore = store.memory
    if not has(memory, DurableStore.run_rows, DurableStore.run_record):
        raise SparError("this store keeps no runs")
    return memory


def _of_this_process(runs: Runs, given: RunsChoice) -> list[RunRow]:
    """Return rows of the runs that an agent itself knows. Raises: LookupError for a `before` that is no run."""
    newest, since = runs.newest, given.since
    if given.before is not None:
        if runs.find(given.before) is None:
            raise unknown_place("run", given.before)
        newest = islice(dropwhile(lambda run: run.id != given.before, newest), 1, None)
    chosen = (run for run in newest if (since is None or run.accepted_at >= since)
              and not (given.open and run.ended is not None))  # fmt: skip
    return list(map(_listed, islice(chosen, given.limit)))


def _listed(run: Run) -> RunRow:
    """Return a run as it is listed."""
    if (ended := run.ended) is not None:
        return RunRow(run.id, run.session, ended.status, run.accepted_at, run.started_at, ended.ended_at)
    status = "running" if run.started_at else "queued"
    return RunRow(run.id, run.session, status, run.accepted_at, run.started_at, None, **beginning(run.message))


@operation("runs list", "GET /v1/runs", "read", is_masked=True, is_stored=True, command=CommandForm(
    columns=(
        Column("run", "run_id"), Column("session", "session"), Column("status", "status"),
        Column("accepted", "accepted_at", "time"), Column("ended", "ended_at", "time"),
    ),
    empty=lambda given: "no open runs" if given.open else "no runs",
    more=lambda given, rows: f"--before {rows[-1].run_id}" if len(rows) == given.limit else "",
    examples=("spar runs list", "spar runs list --open"),
))  # fmt: skip
async def list_runs(store: AgentStore, given: RunsChoice) -> list[RunRow]:
    """List the runs, the newest first; without a memory only those of this process."""
    from spar.ports.any_part import has
    from spar.ports.store import DurableStore

    agent, is_kept = store.agent, has(store.memory, DurableStore.run_rows, DurableStore.run_record)
    if agent is not None and (agent.agent_state.journal is None or not is_kept):
        return _of_this_process(agent.runs, given)
    rows = await _reader(store).run_rows(store.agent_name, given.limit, given.before, given.since, is_open=given.open)
    find = agent.runs.open_run if agent is not None else lambda run_id: None
    return [row if (run := find(row.run_id)) is None else _listed(run) for row in rows]


@operation("runs wait", "GET /v1/runs/{run_id:path}/wait", "read", served="stopping",
           patience=lambda given: given.timeout + PATIENCE)  # fmt: skip
async def wait(service: Service, given: Wait) -> RunStatus:
    """Wait for a run and return its status."""
    return await _known(service.agent, service.agent.runs.wait(given.run_id, given.timeout))


def is_end(event: Mapping[str, Any]) -> bool:
    """Return whether an event of a run, as its stream has it, is the last one."""
    return event["stream"] == "lifecycle" and event["data"]["phase"] in ("end", "error")


@operation("runs follow", "GET /v1/runs/{run_id:path}/events", "read", served="stopping",
           streams=(FOLLOWERS, "follow runs"), ends=is_end)  # fmt: skip
async def follow(service: Service, given: FollowRun, caller: Caller) -> Stream:
    """Stream the events of a run as server-sent events, after `after` or `Last-Event-ID`."""
    source = service.agent.core.events.run(given.run_id, after=after_of(caller, given.after) or 0)
    await _known(service.agent, service.agent.runs.wait(given.run_id, 0))  # raises at once for an unknown run
    return Stream(source, lambda event: event.stream)


@operation("runs feedback", "POST /v1/runs/{run_id:path}/feedback", "operate",
           audit=AuditRule("run.feedback", subject="run_id", detail=("good", "why")), command=CommandForm(
    arguments=("run_id", "good", "why"), words={"good": {"good": True, "bad": False}},
    sentence=lambda given, row: f"{row.run_id}: {'good' if row.good else 'bad'}, it is kept",
    examples=("spar runs feedback \"$(spar send --no-wait 'clean the disk')\" good",
              'spar runs feedback 01JZ4Q5X9T bad "the wrong host"'),
))  # fmt: skip
async def feedback(service: Service, given: FeedbackBody) -> FeedbackReceipt:
    """Give feedback on a run that has ended, or on a cycle by its id: the agent learns from it.

    It is on disk when this answers."""
    await _known(service.agent, service.agent.attached("learning").give(given.run_id, given.good, given.why))
    return FeedbackReceipt(given.run_id, given.good)


@operation("runs abort", "POST /v1/runs/{run_id:path}:abort", "operate", served="stopping", patience=ABORT_WITHIN,
           repeatable=lambda given: True, audit=AuditRule("run.abort", subject="run_id"), command=CommandForm(
    sentence=lambda given, run: f"{run.run_id}: {run.error or run.status}",
    examples=("spar runs abort \"$(spar send --no-wait 'count all files')\"",),
))  # fmt: skip
async def abort(service: Service, given: RunId) -> RunStatus:
    """Abort a run: a waiting one never starts, a running one is cancelled; returns when the run has ended."""

    async def work() -> RunStatus:
        if (await service.agent.runs.wait(given.run_id, 0)).status == "timeout":
            await service.agent.conversations.submission.abort(given.run_id)
        return await service.agent.runs.wait(given.run_id, 0)

    return await _known(service.agent, work())


def _options(run: RunStatus) -> list[str]:
    return [f"{name} = {word_of(value)}" for name, value in asdict(run.options).items() if value is not None]


def _used(run: RunStatus) -> list[str]:
    usage = {name: value for name, value in asdict(run.usage).items() if value and name != "waited"}
    return [f"{value} {name.replace('_', ' ')}" for name, value in usage.items()]


@operation("runs show", "GET /v1/runs/{run_id:path}", "read", served="stopping", is_stored=True,
           command=CommandForm(
    fields=(
        Column("run", "run_id"), Column("state", lambda run: "goes on" if run.status == "timeout" else run.status),
        Column("message", "outcome"), Column("started", "started_at", "time"), Column("ended", "ended_at", "time"),
        Column("options", _options, "list"),
        Column("used", _used, "list"), Column("waited for a provider", lambda run: run.usage.waited or "", "took"),
        Column("error", "error", "line"), Column("reply", "reply", "line"),
    ),
    examples=("spar runs show \"$(spar send --no-wait --thinking high 'what is wrong?')\"",),
))  # fmt: skip
async def show(store: AgentStore, given: RunId) -> RunStatus:
    """Show a run: its state, its options, its usage, its error or reply."""
    if store.agent is None:
        return known_status(given.run_id, *await _reader(store).run_record(store.agent_name, given.run_id))
    return await _known(store.agent, store.agent.runs.wait(given.run_id, 0))


# -- what it has cost


#: Days that are told if none are chosen.
USUAL_DAYS: Final = 7


class CostChoice(TimedChoice, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Choice of costs: of whole days (UTC), by default the last seven."""

    by: Annotated[Sum, Meta(description="One row for each of these.")] = "model"


class CostRow(Struct, frozen=True):
    """Cost of the requests of one model, session, rule or day: `what` is "" for none. `money` is in millionths of the
    currency's unit, null if no price is known; `unpriced` counts the requests that are not part of it because no price
    is known, `unmeasured` those whose usage was not reported. `cached` is the share of the input that a cache served.
    """

    what: str
    requests: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    cached: float | None
    money: int | None
    unpriced: int
    unmeasured: int


class CostAnswer(Struct, frozen=True):
    """Costs since the beginning of a day, the dearest first, or the newest day; their sum; what is not known."""

    since: datetime
    rows: list[CostRow]
    total: CostRow
    unknown: list[str]


def _row(what: str, cost: Cost) -> CostRow:
    measured = cost.requests - cost.unmeasured
    share = cost.cached_tokens / cost.input_tokens if cost.input_tokens else None
    money = None if measured <= cost.unpriced else cost.money
    return CostRow(what, cost.requests, cost.input_tokens, cost.cached_tokens, cost.output_tokens,
                   None if share is None else round(share, 4), money, cost.unpriced, cost.unmeasured)  # fmt: skip


def _unknown(total: Cost, asked: datetime, since: datetime, recorded_since: datetime | None) -> Iterator[str]:
    """Yield a sentence about each cost that is not known."""
    if asked < since:
        yield f"costs of days before {since.date()} are not kept"
    if recorded_since is None:
        yield "nothing is recorded yet: costs are recorded from the first start of a service, or first request, on"
    elif recorded_since > since:
        first = f"{recorded_since.astimezone(UTC):%Y-%m-%d %H:%M:%S} (UTC)"
        yield f"what was asked before {first} is not known: costs are recorded since then"
    if total.unpriced:
        yield (f"no price is known for {total.unpriced} of {total.requests} requests: their tokens are counted, their "
               "money is not (prices of plan.options.model)")  # fmt: skip
    if total.unmeasured:
        yield f"of {total.unmeasured} of {total.requests} requests no usage was reported: what they cost is not known"


def _money(row: CostRow) -> str:
    """Return the money of a row: "?" if it is not known, with a sign if it is only a part."""
    if row.money is None:
        return "?" if row.requests else ""
    amount = f"{row.money / 1_000_000:,.4f}".rstrip("0").rstrip(".")
    return f"≥ {amount}" if row.unpriced or row.unmeasured else amount


@operation("cost", "GET /v1/costs", "read", where="store", served="stopping", command=CommandForm(
    rows=lambda answer: [*answer.rows, answer.total] if answer.rows else [],
    columns=(
        Column("of", "what", absent="(none)"), Column(">requests", "requests"), Column(">read", "input_tokens"),
        Column(">cached", lambda row: "" if row.cached is None else f"{row.cached:.0%}"),
        Column(">written", "output_tokens"), Column(">cost", _money),
    ),
    empty="no model was asked",
    also=(CommandForm(sentence=lambda given, answer: "\n".join(answer.unknown)),),
    examples=("spar cost", "spar cost --since 30d --by session --limit 10", "spar cost --by day"),
))  # fmt: skip
async def cost(store: AgentStore, given: CostChoice) -> CostAnswer:
    """Say what requests to models have cost: by model, session, rule or day, with the share that a cache served.

    Money is in the currency of the prices. The rule of a request is the one whose calls its run has made before. Costs
    of whole days (UTC) are kept for 400 days."""
    if not isinstance(store.memory, Rows):
        raise LookupError("this store keeps no costs")
    now = datetime.now(UTC)
    asked = given.since or now - timedelta(days=USUAL_DAYS)
    days = days_since(asked, now)
    costs = await costs_of(store.memory, store.agent_name, days, given.by)
    since = datetime.combine(days[-1], datetime.min.time(), UTC) if days else now
    rows = [_row(what, cost) for what, cost in costs.sums.items()]
    if given.by != "day":
        rows.sort(key=lambda row: (row.money or 0, row.input_tokens + row.output_tokens), reverse=True)
    return CostAnswer(since, rows[: given.limit], _row("all", costs.whole),
                      list(_unknown(costs.whole, asked, since, costs.recorded_since)))  # fmt: skip
