"""Contract of a store with a journal; `spar.testing.contracts` describes its use.

Each duty writes to the store and checks the data at once, and again after the store was closed and opened. So the data
must be right for the process that wrote it, and for the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spar.clock import Clock
from spar.errors import ConflictError, FencedError, SparError, TooLargeError
from spar.ids import new_id
from spar.ports.any_part import has, offers
from spar.ports.store import DurableStore, Journal
from spar.testing.duties import Duty, Harness, owed
from spar.testing.journal_rows import BudgetsDuty, CountsDuty, RecordsDuty, RowsDuty, StateDuty, TranscriptsDuty
from spar.testing.journal_work import CyclesDuty, DoubtsDuty, ItemsDuty, LettersDuty, accepted, item_of, seen
from spar.types import replace

Factory = Callable[[], Any]


DUTIES: tuple[type[Duty], ...] = (
    ItemsDuty,
    LettersDuty,
    CyclesDuty,
    DoubtsDuty,
    StateDuty,
    RowsDuty,
    CountsDuty,
    RecordsDuty,
    BudgetsDuty,
    TranscriptsDuty,
)


async def check_journal(
    make_store: Factory, *, large: int = 64 << 20, clock: Clock | None = None, limit: float = 10.0, grace: float = 0.5
) -> None:
    """Check a store against the guarantees of `spar.ports.store` for the data that it accepts, in one process after
    the other.

    `check_process_death` checks a killed process, and `check_retention` the forgetting.

    Args:
        make_store: opens the same data each time; there may be data already.
        large: characters of a message that the store may refuse, but must not shorten.
    """
    harness = Harness("store", clock, limit, grace)
    duties = [make(harness) for make in DUTIES]
    epochs: list[int] = []
    fence = 0
    async with harness.opened(make_store) as store:
        has_journal = has(type(store), DurableStore.journal)
        owed(has_journal, "a store that keeps a journal must have the attribute in its class")
        owed(offers(store.journal, Journal), "the journal must have all of spar.ports.store.Journal")
        owed(offers(store, DurableStore), "a store that keeps a journal must have all of spar.ports.store.DurableStore")
        await _refuses_large_work(harness, store, large)
        for duty in duties:
            duty.use(store)
            await duty.write()
            await duty.look()
        _claims(store.journal)
        await harness.value("journal.safe()", store.journal.safe())
        owed(store.journal.is_safe, "journal.is_safe must hold once all is safe")
        await harness.cut("journal.safe()", lambda: store.journal.safe())
        await harness.cut("journal.views.items()", lambda: store.journal.views.items("contract"))
        epochs.append(store.journal.epoch)
        fence = store.journal.next_fence()
        owed(store.journal.next_fence(fence + 100) > fence + 100, "next_fence(above) must be above it")
        fence += 100
    try:
        journal = store.journal
    except SparError:
        journal = None
    owed(journal is None, "the journal of a store that is closed must raise SparError")
    async with harness.opened(make_store) as store:
        for duty in duties:
            duty.use(store)
            await duty.look()
        epochs.append(store.journal.epoch)
        owed(epochs[1] > epochs[0], f"each opening must have a higher epoch than the one before, found {epochs}")
        owed(store.journal.next_fence() > fence, "next_fence() must be above the numbers of earlier processes")
    await _one_writer(harness, make_store)
    await harness.is_clean()


# -- one writer


def _claims(journal: Any) -> None:
    name, owner = f"w{new_id()}", object()
    release = journal.claim(name, owner)
    journal.claim(name, owner)
    try:
        journal.claim(name, object())
    except ConflictError:
        pass
    else:
        raise AssertionError("journal.claim() must raise ConflictError while another owner has the name")
    release()
    journal.claim(name, object())
    release()
    try:
        journal.claim(name, owner)
    except ConflictError:
        return
    raise AssertionError("ending a claim must not end that of another owner")


async def _one_writer(harness: Harness, make_store: Factory) -> None:
    """Check that a second opener is refused, or that the first one writes nothing more."""
    name = f"w{new_id()}"
    async with harness.opened(make_store) as first:
        second = await harness.make(make_store)
        _, refusal = await harness.outcome("opening a store that is open", second.__aenter__())
        if refusal is not None:
            owed(isinstance(refusal, SparError), f"a second opener must be refused by a SparError, found {refusal!r}")
            known = await harness.value("journal.commit()", accepted(first.journal, item_of("kept"), name))
            owed(known is None, "a second opener that was refused must leave the first one as it was")
            return
        try:
            _, error = await harness.outcome("journal.commit()", accepted(first.journal, item_of("lost"), name))
            owed(isinstance(error, FencedError), f"a store that was taken over must raise FencedError, found {error!r}")
            items = await harness.value("journal.views.items()", second.journal.views.items(name))
            owed(not items, "a store that was taken over must write nothing more")
        finally:
            await second.__aexit__(None, None, None)


async def _refuses_large_work(harness: Harness, store: Any, large: int) -> None:
    """Check that work is stored completely or not at all."""
    agent, item = f"w{new_id()}", item_of("y" * large)
    known, error = await harness.outcome("journal.commit() of a large item", accepted(store.journal, item, agent))
    items = await harness.value("journal.views.items()", store.journal.views.items(agent))
    if error is None:
        is_whole = known is None and [stored_item.perception for stored_item in items] == [item.perception]
        owed(is_whole, "accepted work must be kept whole")
        return
    owed(isinstance(error, TooLargeError), f"work that is too large must raise TooLargeError, found {error!r}")
    owed(not items, "of work that was refused nothing must be kept")
    work = accepted(store.journal, replace(item, perception=seen("s")), agent)
    known = await harness.value("journal.commit()", work)
    owed(known is None, "work that was refused must not count as accepted before")
