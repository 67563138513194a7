"""Operations on records that wait for people: approvals and grants, calls in doubt, dead letters.

All kinds are listed and shown in the same way. An answer names its record by id; the call that runs is the stored one,
or the one that an edit replaces it with. The answering person is known from the connection, never from the body; `by`
may name the person on whose word it was. The id of a call in doubt contains a slash, which may be escaped
(`cycle%2Fcall`).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import asdict, replace

from spar.data.text import value_lines, visible
from spar.errors import ConflictError, SparError
from spar.operations.fields import changed_params
from spar.operations.operation import (
    AgentStore,
    AuditRule,
    Caller,
    Column,
    CommandForm,
    GoneError,
    Operation,
    Review,
    TimedChoice,
    chosen,
    effect_form,
    operation,
    records_in,
)
from spar.records.approvals import (
    GOES_WITH,
    Approval,
    ApprovalStatus,
    Approver,
    DecidedError,
    Decision,
    Grant,
    check_decision,
)  # fmt: skip
from spar.records.journal import Answer, DeadLetter, Doubt, Item, named
from spar.review.kinds import APPROVALS, CALLS_IN_DOUBT, DEAD_LETTERS, GRANTS, ReviewKind

if TYPE_CHECKING:
    from spar.agent.parts import AgentParts
    from spar.observe.logs import Logger
    from spar.service.app import Service

S = TypeVar("S")


def _log() -> Logger:
    """Return the log, which a command does not import."""
    from spar.observe.logs import get_logger

    return get_logger("spar.recovery")


LONGEST_REASON: Final = 2000
LONGEST_NAME: Final = 200
#: States of an approval that ended without an answer: answered 410. A pending one is about to expire.
GONE: Final[tuple[ApprovalStatus, ...]] = ("pending", "expired", "void")


class RecordId(Struct, frozen=True, forbid_unknown_fields=True):
    """A record's id, or a unique beginning of it; a slash in it may stand as `%2F`."""

    id: str


class ShownApproval(Approval, frozen=True):
    """Approval with `text`, its rendering for people."""

    text: str = ""


class ShownDoubt(Doubt, frozen=True):
    """Call in doubt with `text`, its rendering for people."""

    text: str = ""


class ShownLetter(DeadLetter, frozen=True):
    """Dead letter with `text`, its rendering for people."""

    text: str = ""


async def _shown(kind: ReviewKind, shown: Callable[..., S], record: Any) -> S:
    """Return a record with its rendering. That may be megabytes long, so a thread makes it: nothing else must wait."""
    from anyio import to_thread

    return shown(**asdict(record), text=await to_thread.run_sync(kind.full, record, datetime.now(UTC)))


def _columns(kind: ReviewKind) -> tuple[Column, ...]:
    """Return the columns of a kind of records, whose cells are made together."""

    def cell(number: int) -> Any:
        return lambda record: kind.cells(record, datetime.now(UTC))[number]

    return tuple(Column(head, cell(number)) for number, head in enumerate(kind.heads))


def _check_length(name: str, text: str, most: int) -> None:
    if len(text) > most:
        raise ValueError(f"{name!r} has {len(text)} characters, at most {most} are kept")


# -- approvals


class ApprovalsChoice(TimedChoice, frozen=True, forbid_unknown_fields=True):
    """Choice of approvals."""

    status: Annotated[Literal[ApprovalStatus, "all"], Meta(description="Only with this status.")] = "pending"


class DecisionBody(RecordId, frozen=True, forbid_unknown_fields=True):
    """A decision on an approval; `digest` is that of the call which was shown to the person."""

    digest: Annotated[str, Meta(description="That of the waiting call; for a command its beginning is enough.")]
    decision: Decision
    reason: Annotated[str, Meta(description="The reason; it is stored, and the planner sees that of a denial.")] = ""
    params: Annotated[
        dict[str, Any] | None, Meta(description="The parameters to run with instead of the planned ones.")
    ] = None
    call: Annotated[dict[str, Any] | None, Meta(description="The call to run instead.")] = None
    grant_for: Annotated[float | None, Meta(
        description="Also approve further calls with exactly these parameters, for so many seconds.",
        extra={"duration": True})] = None  # fmt: skip
    grant_session: Annotated[
        bool | None, Meta(description="Whether they are approved in this session only, or in all sessions.")
    ] = None

    def check(self) -> None:
        """Check the fields. Raises: ValueError for a field that the decision does not allow, or that is missing."""
        check_decision(self.decision, params=self.params, call=self.call, grant_for=self.grant_for,
                       grant_session=self.grant_session)  # fmt: skip
        _check_length("reason", self.reason, LONGEST_REASON)
        if self.grant_session is not None and self.grant_for is None:
            raise ValueError("'grant_session' needs 'grant_for': for how many seconds")


def _approver(agent: AgentParts) -> Approver:
    from spar.review.pending_approvals import approver_of

    approver = approver_of(agent.setup)
    if approver is None:
        raise LookupError(f"agent {agent.name!r} keeps no approvals: its act module has nobody to ask")
    return approver


async def _approvals_stored(store: AgentStore) -> list[Approval]:
    """Return the approvals of an agent that does not run, by id; one whose time is over has expired."""
    now, rows = datetime.now(UTC), list[Approval]()
    for row in await records_in(store, "approval", Approval):
        is_over = row.status in ("pending", "approved") and row.expires_at <= now
        if row.agent == store.agent_name:
            rows.append(replace(row, status="expired") if is_over else row)
    return rows


@operation("approvals list", "GET /v1/approvals", "read", is_stored=True, command=CommandForm(
    columns=_columns(APPROVALS),
    empty=lambda given: "nothing waits for an answer" if given.status == "pending" else "no approvals of that kind",
    examples=("spar approvals list", "spar approvals list --status all", "spar approvals list --status denied --json"),
))  # fmt: skip
async def list_approvals(store: AgentStore, given: ApprovalsChoice) -> list[Approval]:
    """List the calls that wait for a decision, newest first; or those of another status."""
    if store.agent is not None:
        rows = await _approver(store.agent).list(None if given.status == "all" else given.status)
    else:
        rows = sorted(await _approvals_stored(store), key=lambda row: row.asked_at)[::-1]
        rows = [row for row in rows if given.status in ("all", row.status)]
    return chosen(given, rows, lambda row: row.asked_at)


@operation("approvals show", "GET /v1/approvals/{id}", "read", is_stored=True, command=CommandForm(
    sentence=lambda given, approval: approval.text, examples=("spar approvals show 18ea10a4",),
))  # fmt: skip
async def show_approval(store: AgentStore, given: RecordId) -> ShownApproval:
    """Return one approval in full, with `text` for people: the call that would run, and why it needs approval."""
    if store.agent is not None:
        approval = await _approver(store.agent).get(given.id)
    else:
        approval = named(await _approvals_stored(store), given.id, APPROVALS.noun)
    return await _shown(APPROVALS, ShownApproval, approval)


def _about_approval(record: ShownApproval, given: DecisionBody) -> tuple[DecisionBody, str]:
    if not record.digest.startswith(given.digest.lower()):
        sentence = f"waits with digest {record.digest}, which does not begin with {given.digest!r}"
        raise ConflictError(f"approval {record.id} {sentence}")
    texts: Any = given.params
    params = None if texts is None else changed_params(record.call.params, texts)
    lines = [] if (instead := params or given.call) is None else ["  to run instead", *value_lines(instead, 2)]
    return (replace(given, id=record.id, digest=record.digest, params=params), "\n".join([record.text, *lines]))


_ANSWERED = Review(lambda: show_approval, _about_approval, lambda record: record.status == "pending")


def _decision(decision: Decision, done: str, does: str, *fields: str, **more: Any) -> CommandForm:
    """Return the command of a decision. Args: done: the words for it; fields: those that go with it."""

    def sentence(given: DecisionBody, row: ShownApproval) -> str:
        grant = f"; grant {row.grant}" if row.grant else ""
        return f"{done}: {row.id} ({row.call.tool}, digest {row.digest[:12]}) by {row.decided_by}{grant}"

    hidden = tuple(name for name in GOES_WITH if name not in fields)
    return CommandForm(does=does, sentence=sentence, default={"decision": decision, "digest": ""},
                       confirm=f"{decision}?", hidden=("decision", *hidden), review=_ANSWERED, **more)  # fmt: skip


@operation("approvals decide", "POST /v1/approvals/{id}", "approve", repeatable=lambda given: True,
           audit=AuditRule("approval.decide", ("approval",), subject="id"), command={
    "approve": _decision(
        "approve", "approved", "Let a call run, once. It is shown first; in a terminal you are asked for confirmation.",
        "grant_for", "grant_session",
        spelled={"grant_for": ("--for",), "grant_session": ("--this-session/--any-session",)},
        examples=("spar approvals approve 18ea10a4", "spar approvals approve 18ea10a4 --yes --digest 3f9a0c",
                  "spar approvals approve 18ea10a4 --for 1h --any-session"),
    ),
    "deny": _decision("deny", "denied", "Keep a call from running.",
                      examples=('spar approvals deny 18ea10a4 --reason "not on a Friday"',)),
    "edit": _decision(
        "edit", "approved with other parameters",
        "Let a call run with other parameters, which are checked against the tool again.\n\n"
        "KEY=VALUE changes one parameter, a JSON object replaces all. A VALUE that is JSON is read as JSON, any other "
        "one is a text.",
        "params", spelled={"params": ("--param", "--params")},
        examples=("spar approvals edit 18ea10a4 --param path=/tmp/other --param count=3",
                  "spar approvals edit 18ea10a4 --params '{\"argv\": [\"uptime\"]}'"),
    ),
    "replace": _decision(
        "replace", "replaced", 'Let another CALL run instead, as JSON: {"_tool": name, …parameters}.',
        "call", arguments=("id", "call"), spelled={"call": ("CALL",)},
        examples=("spar approvals replace 18ea10a4 '{\"_tool\": \"note\", \"text\": \"asked to delete everything\"}'",),
    ),
})  # fmt: skip
async def decide(service: Service, given: DecisionBody, caller: Caller) -> ShownApproval:
    """Decide about a call that waits for approval."""
    from spar.records.audit import refine

    given.check()
    approver = _approver(service.agent)
    record = await approver.get(given.id)
    detail = {"tool": record.call.tool, "digest": given.digest, "reason": given.reason, "grant_for": given.grant_for}
    refine(action=f"approval.{given.decision}", subject=record.id,
           detail={name: value for name, value in detail.items() if value})  # fmt: skip
    more = {} if given.grant_session is None else {"grant_session": given.grant_session}
    try:
        decided = await approver.decide(
            record.id, given.digest, given.decision, by=caller.by, reason=given.reason, params=given.params,
            call=given.call, grant_for=given.grant_for, **more,
        )  # fmt: skip
    except DecidedError as error:
        latest = await approver.get(record.id)
        raise (GoneError if latest.status in GONE else ConflictError)(str(error)) from None
    if (owner := service.agent.core.owner_of(decided.session)) is not None:
        await owner.answered(decided.session)
    return await _shown(APPROVALS, ShownApproval, decided)


@operation("approvals grants", "GET /v1/grants", "read", is_stored=True, command=CommandForm(
    columns=_columns(GRANTS), empty="no grants are in force", examples=("spar approvals grants",),
))  # fmt: skip
async def list_grants(store: AgentStore, given: TimedChoice) -> list[Grant]:
    """List the grants in force: calls that run without a question."""
    if store.agent is not None:
        rows = await _approver(store.agent).grants()
    else:
        present = [row for row in await records_in(store, "grant", Grant) if row.expires_at > datetime.now(UTC)]
        rows = sorted(present, key=lambda row: row.id)
    return chosen(given, rows, lambda row: row.granted_at)


@operation("approvals revoke", "DELETE /v1/grants/{id}", "approve",
           audit=AuditRule("grant.revoke", ("grant",), subject="id"), command=CommandForm(
    sentence=lambda given, grant: "revoked:", columns=_columns(GRANTS), rows=lambda grant: [grant],
    examples=("spar approvals revoke 18ea10a4",),
))  # fmt: skip
async def revoke_grant(service: Service, given: RecordId) -> Grant:
    """End a grant: its calls need approval again."""
    return await _approver(service.agent).revoke(given.id)


# -- calls in doubt


class DoubtsChoice(TimedChoice, frozen=True, forbid_unknown_fields=True):
    """Choice of calls in doubt."""

    status: Annotated[Literal["open", "all"], Meta(description="`all`: also the answered ones.")] = "open"


class AnswerBody(RecordId, frozen=True, forbid_unknown_fields=True):
    """An answer about a call in doubt; `output` is the call's value, `by` the person on whose word it is."""

    answer: Answer
    output: Annotated[Any | UnsetType, Meta(description="With done: the value that the call returned, as JSON.")] = (
        UNSET
    )
    by: Annotated[str, Meta(description="The person on whose word it is, if not yours.")] = ""
    reason: Annotated[str, Meta(description="How you know it; it is stored.")] = ""

    def check(self) -> None:
        """Check the fields. Raises: ValueError for one that the answer does not allow, or that is too long."""
        if self.output is not UNSET and self.answer != "done":
            raise ValueError(f"'output' goes with 'done' only, the answer is {self.answer!r}")
        _check_length("by", self.by, LONGEST_NAME)
        _check_length("reason", self.reason, LONGEST_REASON)


def _journal(agent: AgentParts) -> Any:
    journal = agent.agent_state.journal
    if journal is None:
        raise LookupError(f"agent {agent.name!r} keeps no journal now: it does not run, or its memory has none")
    return journal


async def _doubt(agent: AgentParts, id: str) -> Doubt:
    views = _journal(agent).views
    doubt: Doubt = named(await views.doubts(agent.name, is_open=False), id, CALLS_IN_DOUBT.noun)
    return replace(doubt, call=await views.call(doubt))


async def _left(store: AgentStore) -> tuple[list[Doubt], list[DeadLetter]]:
    """Return the work that a stopped service left to people. Raises: SparError if the store cannot tell."""
    from spar.ports.any_part import has
    from spar.ports.store import DurableStore

    if not has(store.memory, DurableStore.left):
        raise SparError("this store cannot be asked while no service runs: spar run")
    doubts, letters = await store.memory.left(store.agent_name)
    return list(doubts), list(letters)


def _shows_doubt() -> Operation[RecordId, ShownDoubt]:
    return show_doubt


@operation("calls resolve", "POST /v1/calls/in-doubt/{id:path}/resolve", "approve",
           audit=AuditRule("doubt.resolve", ("doubt",), subject="id"), knows_key=True, command=CommandForm(
    arguments=("id", "answer"), confirm="{answer}?",
    review=Review(_shows_doubt, lambda record, given: (replace(given, id=record.id), record.text),
                  lambda record: record.answer is None),
    sentence=lambda given, row: f"{given.answer}: {visible(row.id)} ({visible(row.call.tool)}) by "
                                f"{visible(row.answered_by)}",
    does="Answer what became of a call: done, failed (it had no effect), or again (it had no effect and is made again)."
         "\n\nThe call is shown first; in a terminal you are asked for confirmation. The first answer counts.",
    examples=("spar calls resolve 18ea10a4 done",
              'spar calls resolve 18ea10a4 done --output \'{"receipt": 4711}\' --by "the bank"',
              "spar calls resolve 18ea10a4 again --yes"),
))  # fmt: skip
async def resolve(service: Service, given: AnswerBody, caller: Caller) -> ShownDoubt:
    """Answer what became of a call in doubt. With a header `Idempotency-Key` the same answer may be repeated."""
    from spar.records.audit import refine
    from spar.review.left_work import answered

    given.check()
    doubt = await _doubt(service.agent, given.id)
    output = None if given.output is UNSET else given.output
    by = f"{caller.by} for {given.by}" if given.by else caller.by
    detail = {"answer": given.answer, "by": given.by, "reason": given.reason, "repeated": doubt.answer is not None}
    refine(subject=doubt.id, detail={name: value for name, value in detail.items() if value})
    try:
        if doubt.answer is None:
            doubts = service.agent.recovery.restart.doubts
            await doubts.resolve(doubt.id, given.answer, by=by, output=output, reason=given.reason)
            _log().info("call in doubt answered", agent=service.agent.name, id=doubt.id, tool=doubt.call.tool,
                     answer=given.answer, by=by, reason=given.reason)  # fmt: skip
            return await _shown(CALLS_IN_DOUBT, ShownDoubt, await _doubt(service.agent, doubt.id))
    except ConflictError:  # another answer was faster
        doubt = await _doubt(service.agent, doubt.id)
    is_same = (doubt.answer, doubt.answered_by, doubt.output) == (given.answer, by, output)
    if is_same and caller.idempotency_key:  # repeated by a client that did not receive the first response
        return await _shown(CALLS_IN_DOUBT, ShownDoubt, doubt)
    raise ConflictError(answered(doubt))


@operation("calls list", "GET /v1/calls/in-doubt", "read", is_stored=True, command=CommandForm(
    columns=_columns(CALLS_IN_DOUBT),
    empty=lambda given: "no call is in doubt" if given.status == "open" else "no call is or was in doubt",
    examples=("spar calls list", "spar calls list --status all --json"),
))  # fmt: skip
async def list_doubts(store: AgentStore, given: DoubtsChoice) -> list[Doubt]:
    """List the calls in doubt, the oldest first: they may have had an effect that must not be repeated."""
    if store.agent is not None:
        doubts = await _journal(store.agent).views.doubts(store.agent.name, is_open=given.status == "open")
    else:
        doubts = [doubt for doubt in (await _left(store))[0] if given.status == "all" or doubt.answer is None]
    return chosen(given, doubts, lambda row: row.at)


@operation("calls show", "GET /v1/calls/in-doubt/{id:path}", "read", is_stored=True, command=CommandForm(
    sentence=lambda given, doubt: doubt.text, examples=("spar calls show 18ea10a4",),
))  # fmt: skip
async def show_doubt(store: AgentStore, given: RecordId) -> ShownDoubt:
    """Return one call in doubt in full, with `text` for people: the call, and why it is unknown what became of it."""
    if store.agent is not None:
        doubt = await _doubt(store.agent, given.id)
    else:
        doubt = named((await _left(store))[0], given.id, CALLS_IN_DOUBT.noun)
    return await _shown(CALLS_IN_DOUBT, ShownDoubt, doubt)


# -- dead letters


def _name(item: Item) -> str:
    return visible(item.id)


@operation("dead retry", "POST /v1/dead-letters/{id:path}/retry", "operate",
           audit=AuditRule("dead_letter.retry", ("dead_letter",), subject="id"),
           command=effect_form("tried again", _name, "spar dead retry 18ea10a4"))  # fmt: skip
async def retry_letter(service: Service, given: RecordId, caller: Caller) -> Item:
    """Try a dead letter again, as if it were new."""
    _journal(service.agent)
    item = await service.agent.recovery.restart.letters.revive(given.id)
    _log().info("dead letter retried", agent=service.agent.name, id=item.id, by=caller.by)
    return item


@operation("dead drop", "POST /v1/dead-letters/{id:path}/drop", "operate",
           audit=AuditRule("dead_letter.drop", ("dead_letter",), subject="id"),
           command=effect_form("dropped", _name, "spar dead drop 18ea10a4"))  # fmt: skip
async def drop_letter(service: Service, given: RecordId, caller: Caller) -> Item:
    """End a dead letter permanently; it is not tried again."""
    _journal(service.agent)
    item = await service.agent.recovery.restart.letters.bury(given.id)
    _log().info("dead letter dropped", agent=service.agent.name, id=item.id, by=caller.by)
    return item


@operation("dead list", "GET /v1/dead-letters", "read", is_stored=True, command=CommandForm(
    columns=_columns(DEAD_LETTERS), empty="there are no dead letters", examples=("spar dead list",),
))  # fmt: skip
async def list_letters(store: AgentStore, given: TimedChoice) -> list[DeadLetter]:
    """List the dead letters, the oldest first: work that failed too often, put aside until a person decides."""
    if store.agent is None:
        letters = (await _left(store))[1]
    else:
        _journal(store.agent)
        letters = await store.agent.recovery.restart.letters.list()
    return chosen(given, letters, lambda row: row.at)


@operation("dead show", "GET /v1/dead-letters/{id:path}", "read", is_stored=True, command=CommandForm(
    sentence=lambda given, letter: letter.text, examples=("spar dead show 18ea10a4",),
))  # fmt: skip
async def show_letter(store: AgentStore, given: RecordId) -> ShownLetter:
    """Return one dead letter in full, with `text` for people: its content, and why it failed."""
    letter = named(await list_letters.work(store, TimedChoice()), given.id, DEAD_LETTERS.noun)
    return await _shown(DEAD_LETTERS, ShownLetter, letter)
