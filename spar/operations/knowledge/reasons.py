"""Operation on the reasons of a past cycle, by the rules and the policy of then as far as they are kept."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from spar.operations import history
from spar.operations.operation import AgentStore, CommandForm, StoreAlone, operation
from spar.replay.reasons import Reasons, reasons_of

if TYPE_CHECKING:
    from spar.config.tables.settings import Loaded

#: Keys that are named at most.
_MOST_KEYS: Final = 20


async def _with_changes(store: AgentStore, cycle: history.ShownCycle) -> history.ShownCycle:
    """Return a cycle with the changes by hand; those that a crash kept from its record are in the audit log."""
    from spar.ports.breakpoints import BY_HAND
    from spar.replay.tape import by_hand

    changes = []
    if not by_hand(cycle):
        with suppress(LookupError):  # a store without an audit log
            # The cycle may have begun before the crash.
            choice = history.AuditChoice(limit=1_000, action="breakpoint.change")
            entries = await history.list_entries.work(store, choice)
            changes = [entry.detail for entry in reversed(entries) if entry.detail.get("cycle") == cycle.cycle_id]
    return replace(cycle, notes=(*cycle.notes, {"kind": BY_HAND, "changes": changes})) if changes else cycle


async def _decided_by(store: AgentStore, cycle: history.ShownCycle, loaded: Loaded) -> tuple[Loaded, list[str], bool]:
    """Return the configuration with the rules and the policy of a cycle, sentences about how it differs from the
    present one, and whether it is that of then."""
    from spar.config.in_force import differing, digest_of, explaining, readable
    from spar.errors import ConfigError

    now = readable(loaded)
    if cycle.configuration in ("", digest_of(now)):
        return loaded, [], False
    try:
        then = await history.show_configuration.work(store, history.ConfigurationId(cycle.configuration))
        settings = explaining(loaded.settings, then.settings)
    except (LookupError, ConfigError) as error:
        return loaded, [f"{error.args[0]}; rules and policy are those of now"], False
    keys = differing(then.settings, now)
    since = f"{cycle.configuration}, in force since {then.at:%Y-%m-%d %H:%M:%S} (UTC), spar {then.version}"
    sentences = [since, f"different now: {', '.join(keys[:_MOST_KEYS])}{', …' if len(keys) > _MOST_KEYS else ''}"]
    return replace(loaded, settings=settings), sentences, True


@operation("why", "GET /v1/cycles/{cycle_id}:why", "read", is_stored=True, command=CommandForm(
    default={"cycle_id": "last"}, spelled={"cycle_id": ("[CYCLE]",)}, by_other=True,
    examples=("spar why", "spar why 18ec5a35 --json", "spar why last --config other.toml"),
))  # fmt: skip
async def reasons(store: AgentStore, given: history.CycleId) -> Reasons:
    """Say why a past cycle went as it did: what was noticed, which rules matched or failed by which condition, which
    experiences weighed, what the policy said of each call, and what it led to.

    Rules and policy are those by which it was decided, as far as they are kept. A unique beginning of the cycle's id
    is enough; "last" is the newest."""
    from anyio import to_thread

    from spar.operations import memory
    from spar.operations.review import ApprovalsChoice, list_approvals

    cycle = await _with_changes(store, await history.show_cycle.work(store, given))
    decider, configuration, is_past = store.configuration(), list[str](), False
    if not (isinstance(store, StoreAlone) and store.is_other):
        decider, configuration, is_past = await _decided_by(store, cycle, decider)
    action, learnt, asked = cycle.action, list[Any](), list[Any]()
    if action is not None and action.learnt:
        learnt = await memory.why.work(store, history.CycleId(cycle.cycle_id))
    if action is not None and action.calls:
        with suppress(LookupError):  # of an act module that asks nobody
            rows = await list_approvals.work(store, ApprovalsChoice(status="all", since=cycle.started_at))
            asked = [approval for approval in rows if approval.cycle_id == cycle.cycle_id]

    def read() -> Reasons:
        from spar.parts.factory import Parts
        from spar.ports.any_part import has
        from spar.ports.phases import OptionalActor
        from spar.ports.planners import OptionalPlanner
        from spar.types import trust_of

        parts = Parts(decider)
        planner, agent = parts.rules(), store.agent
        actor = parts.module("act") if is_past or agent is None else agent.setup.modules["act"].part

        def ruling(call: Any, plan: Any, session: str) -> tuple[str, str]:
            return actor.ruling(call, trust_of(plan), session) if has(actor, OptionalActor.ruling) else ("", "")

        explains = has(planner, OptionalPlanner.rule_names, OptionalPlanner.explain)
        looks = planner.explain(cycle.perceptions) if explains else ()
        return reasons_of(cycle, looks, learnt, asked, ruling, configuration, is_past=is_past)

    return await to_thread.run_sync(read)
