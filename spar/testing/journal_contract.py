"""The contract of a store with a journal; see `spar.testing.contracts` for how it is used.

Each duty writes to the store, looks at what it finds at once, and looks again after the store was closed and opened:
what it is held to must be so for the process that wrote it, and for the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any

from msgspec import Struct

from spar.clock import Clock
from spar.errors import ConflictError, FencedError, SparError, TooLargeError
from spar.ids import new_id
from spar.ports.optional import offers
from spar.ports.store import DurableStore, Journal, KeepsJournal
from spar.protocols import Records
from spar.records.journal import Closing, DeadLetter, Doubt, Item, RowChange, Spend, Unfinished
from spar.records.transcript import Entry
from spar.testing.duties import ODD_TEXTS, Harness, owed
from spar.types import Action, Call, CallResult, CycleRecord, Experience, Perception, replace

Factory = Callable[[], Any]

#: Values of JSON that have come back as something else before.
EXACT: tuple[Any, ...] = (
    None, True, False, 0, -1, 1.0, 2**53 + 1, 2**63 - 1, -(2**63), 0.1, -0.0, 5e-324, 1.7976931348623157e308, "",
    "null", [], {}, [[]], {"": {"": None}}, [1, [2.5, {"a": [None, False]}]], {"ключ": "†\U0001d11e"}, *ODD_TEXTS,
)  # fmt: skip
#: What small state is refused for.
_HUGE = "x" * (2 << 20)


async def check_journal(
    make_store: Factory, *, large: int = 64 << 20, clock: Clock | None = None, limit: float = 10.0, grace: float = 0.5
) -> None:
    """Hold a store to the guarantees of `spar.ports.store`: what it accepts, in one process after the other.

    Not what becomes of it when its process is killed (`check_process_death`), nor when it forgets
    (`check_retention`).

    Args:
        make_store: opens the same data each time; there may be something in it.
        large: characters of a message that the store may refuse, and must not cut.
    """
    harness = Harness("store", clock, limit, grace)
    duties = [
        make(harness) for make in (_Items, _Letters, _Cycles, _Doubts, _State, _Rows, _Records, _Budgets, _Transcripts)
    ]
    epochs: list[int] = []
    fence = 0
    async with harness.opened(make_store) as store:
        owed(offers(type(store), KeepsJournal), "a store that keeps a journal must have the attribute in its class")
        owed(offers(store.journal, Journal), "the journal must have all of spar.ports.store.Journal")
        owed(offers(store, DurableStore), "a store that keeps a journal must have all of spar.ports.store.DurableStore")
        await _refuses_large_work(harness, store, large)
        for duty in duties:
            await duty.write(store)
            await duty.look(store)
        _claims(store.journal)
        await harness.value("journal.safe()", store.journal.safe())
        owed(store.journal.is_safe, "journal.is_safe must hold once all is safe")
        await harness.cut("journal.safe()", lambda: store.journal.safe())
        await harness.cut("journal.items()", lambda: store.journal.items("contract"))
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
            await duty.look(store)
        epochs.append(store.journal.epoch)
        owed(epochs[1] > epochs[0], f"each opening must have a higher epoch than the one before, found {epochs}")
        owed(store.journal.next_fence() > fence, "next_fence() must be above the numbers of earlier processes")
    await _one_writer(harness, make_store)
    await harness.is_clean()


# -- one writer


def _claims(journal: Any) -> None:
    name, owner = f"w{new_id()}", object()
    journal.claim(name, owner)
    journal.claim(name, owner)
    try:
        journal.claim(name, object())
    except ConflictError:
        pass
    else:
        raise AssertionError("journal.claim() must raise ConflictError while another owner has the name")
    journal.release(name, object())
    try:
        journal.claim(name, object())
    except ConflictError:
        pass
    else:
        raise AssertionError("journal.release() by one who has not claimed the name must do nothing")
    journal.release(name, owner)
    journal.claim(name, object())


async def _one_writer(harness: Harness, make_store: Factory) -> None:
    """A second opener is refused, or the first one writes no more."""
    name = f"w{new_id()}"
    async with harness.opened(make_store) as first:
        second = await harness.make(make_store)
        _, refusal = await harness.outcome("opening a store that is open", second.__aenter__())
        if refusal is not None:
            owed(isinstance(refusal, SparError), f"a second opener must be refused by a SparError, found {refusal!r}")
            _, is_new = await harness.value("journal.accept()", first.journal.accept(name, _item("kept")))
            owed(is_new, "a second opener that was refused must leave the first one as it was")
            return
        try:
            _, error = await harness.outcome("journal.accept()", first.journal.accept(name, _item("lost")))
            owed(isinstance(error, FencedError), f"a store that was taken over must raise FencedError, found {error!r}")
            found = await harness.value("journal.items()", second.journal.items(name))
            owed(not found, "a store that was taken over must write nothing more")
        finally:
            await second.__aexit__(None, None, None)


async def _refuses_large_work(harness: Harness, store: Any, large: int) -> None:
    """Work is kept whole or not at all."""
    agent, item = f"w{new_id()}", _item("y" * large)
    answer, error = await harness.outcome("journal.accept() of a large item", store.journal.accept(agent, item))
    found = await harness.value("journal.items()", store.journal.items(agent))
    if error is None:
        owed(answer[1] and [each.perception for each in found] == [item.perception], "accepted work must be kept whole")
        return
    owed(isinstance(error, TooLargeError), f"work that is too large must raise TooLargeError, found {error!r}")
    owed(not found, "of work that was refused nothing must be kept")
    _, is_new = await harness.value(
        "journal.accept()", store.journal.accept(agent, replace(item, perception=_seen("s")))
    )
    owed(is_new, "work that was refused must not count as accepted before")


# -- the duties


class _Duty:
    """One subject: `write` makes it so, `look` must find it so, any number of times."""

    def __init__(self, harness: Harness) -> None:
        self.harness, self.mark = harness, f"w{new_id()}"

    async def write(self, store: Any) -> None:
        raise NotImplementedError

    async def look(self, store: Any) -> None:
        raise NotImplementedError

    async def value(self, what: str, work: Awaitable[Any]) -> Any:
        return await self.harness.value(what, work)

    async def conflicts(self, what: str, work: Awaitable[Any]) -> None:
        """It raises ConflictError."""
        await self.refuses(what, work, ConflictError)

    async def refuses(self, what: str, work: Awaitable[Any], kind: type[Exception]) -> None:
        """It raises an error of this kind."""
        _, error = await self.harness.outcome(what, work)
        owed(isinstance(error, kind), f"{what} must raise {kind.__name__}, found {error!r:.200}")


class _Items(_Duty):
    """Accepted work: in order, once for each id and key, with what is known of it."""

    async def write(self, store: Any) -> None:
        journal, now = store.journal, self.harness.clock.now()
        texts = ("first", "second", *ODD_TEXTS)
        self.items = [
            replace(_item(text, kind="run"), key=f"{self.mark}{number}", at=now + timedelta(milliseconds=number))
            for number, text in enumerate(texts)
        ]
        for item in self.items:
            kept, is_new = await self.value("journal.accept()", journal.accept(self.mark, item))
            owed(is_new and kept.id == item.id, "journal.accept() must say that new work is new")
        again = replace(self.items[0], perception=_seen("changed"))
        for repetition, what in ((again, "id"), (replace(again, id=new_id()), "key")):
            kept, is_new = await self.value("journal.accept()", journal.accept(self.mark, repetition))
            is_known = not is_new and kept.id == self.items[0].id
            owed(is_known, f"journal.accept() of a known {what} must return the item that has it, found {kept.id!r}")
        _, is_new = await self.value("journal.accept()", journal.accept(f"{self.mark}other", _item("of another agent")))
        owed(is_new, "the work of another agent must be accepted")
        tried = self.items[1] = replace(self.items[1], attempts=2, past=("cycle",), due_at=now + timedelta(days=1))
        journal.keep(self.mark, tried)
        self.later = replace(_item("without a wait"), at=now + timedelta(seconds=1))
        journal.keep(self.mark, self.later)
        self.ended = self.items.pop()
        journal.run_ended(self.ended.id, {"run_id": self.ended.id, "status": "error", "error": "first"})
        journal.amended(self.ended.id, {"run_id": self.ended.id, "status": "ok", "output": ODD_TEXTS[2]})

    async def look(self, store: Any) -> None:
        journal = store.journal
        found = await self.value("journal.items()", journal.items(self.mark))
        ids = [item.id for item in found]
        owed(ids == [item.id for item in (*self.items, self.later)], f"journal.items() must be in order, found {ids}")
        for item, known in zip((*self.items, self.later), found, strict=True):
            owed(_same(item, known), f"journal.items() must return items as they were kept: {item!r:.200}")
        recent = await self.value("journal.recent_ids()", journal.recent_ids(self.mark, 2))
        owed(recent == [self.later.id, self.ended.id], f"journal.recent_ids() must be the newest first, found {recent}")
        item, answer = await self.value("journal.run()", journal.run(self.mark, self.items[0].id))
        owed(answer is None and _same(item, self.items[0]), "journal.run() must return the item of a run that waits")
        item, answer = await self.value("journal.run()", journal.run(self.mark, self.ended.id))
        is_answered = item is None and answer is not None and answer.get("output") == ODD_TEXTS[2]
        owed(is_answered, f"journal.run() must return the last answer of a run that has ended, found {answer!r:.200}")
        unknown = await self.value("journal.run()", journal.run(self.mark, "unknown"))
        owed(unknown == (None, None), "journal.run() of an unknown run must be (None, None)")
        again = replace(self.ended, perception=_seen("again"))
        kept, is_new = await self.value("journal.accept()", journal.accept(self.mark, again))
        owed(not is_new and kept.id == again.id, "what was ever accepted must be known again, also once it has ended")


class _Letters(_Duty):
    """Dead letters: what was put aside, until somebody has dealt with it."""

    async def write(self, store: Any) -> None:
        journal, now = store.journal, self.harness.clock.now()
        items = [replace(_item(f"{n}"), attempts=3, at=now + timedelta(milliseconds=n)) for n in range(4)]
        for item in items:
            await self.value("journal.accept()", journal.accept(self.mark, item))
        letters = [journal.bury(self.mark, item, f"reason {item.id}") for item in items]
        owed(all(isinstance(each, DeadLetter) for each in letters), "journal.bury() must return a DeadLetter")
        self.left = letters[:2]
        back = await self.value("journal.exhume()", journal.exhume(self.mark, letters[2], waits=True))
        owed(back.attempts == 0, "journal.exhume(waits=True) must return the item as if it were new")
        await self.value("journal.exhume()", journal.exhume(self.mark, letters[3], waits=False))
        self.back = back
        for letter in letters[2:]:
            work = journal.exhume(self.mark, letter, waits=True)
            await self.conflicts("journal.exhume() of a letter that was dealt with", work)

    async def look(self, store: Any) -> None:
        found = await self.value("journal.dead_letters()", store.journal.dead_letters(self.mark))
        is_same = [(each.id, each.reason) for each in found] == [(each.id, each.reason) for each in self.left]
        owed(is_same, f"journal.dead_letters() must be what was put aside, the oldest first, found {found!r:.200}")
        items = await self.value("journal.items()", store.journal.items(self.mark))
        owed([each.id for each in items] == [self.back.id], "of dead letters only a revived one must wait again")


class RunAnswer(Struct, frozen=True):
    """The end of a run as a journal keeps it; which fields it has is the core's affair."""

    run_id: str
    status: str


class _Cycles(_Duty):
    """Cycles: what is open can be gone on with, what has ended is there with all that came of it."""

    async def write(self, store: Any) -> None:
        journal, agent = store.journal, self.mark
        self.item = _item("work")
        await self.value("journal.accept()", journal.accept(agent, self.item))
        done, failed = _item("done"), replace(_item("failed"), attempts=1)
        self.run, self.part = _item("run", kind="run"), _item("part", kind="run")
        for item in (done, failed, self.run, self.part):
            await self.value("journal.accept()", journal.accept(agent, item))
        # One that is cut off: a call has ended, one was on its way and must not be made again, one was never begun.
        calls = [Call(tool, {"n": 1}, id=f"{tool}{new_id()}") for tool in ("ended", "begun", "waits")]
        self.cut = Unfinished(new_id(), "main", (self.item.perception,), (self.item.id,))
        self.action = Action(calls, goal=ODD_TEXTS[2])
        journal.opened(agent, self.cut.cycle_id, self.cut.perceptions, self.cut.items, lambda: self.cut, {})
        journal.acting(self.cut.cycle_id, self.action)
        for call in calls[:2]:
            journal.started(self.cut.cycle_id, call.id, 1, "once", "auto")
        self.output = {"odd": list(ODD_TEXTS), "exact": 2**53 + 1}
        journal.ended(self.cut.cycle_id, CallResult(calls[0], "ok", output=self.output, attempts=1))
        journal.change((RowChange(self.mark, "of the cut one", 1),), self.cut.cycle_id)
        # One that ends.
        self.closed, at = new_id(), self.harness.clock.now()
        record = CycleRecord(self.closed, agent, self.mark, at, 0.5, "acted", (done.perception,))
        experience = Experience(f"{self.mark}learnt", session=self.mark, origin=self.closed)
        journal.opened(agent, self.closed, (done.perception,), (done.id,), lambda: Unfinished(self.closed, "main"),
                       {f"{self.mark}cursor": 7}, (RowChange(self.mark, "sensor", 1),))  # fmt: skip
        journal.change((RowChange(self.mark, "of the module", 2),), self.closed)
        self.failed = replace(failed, attempts=2)
        journal.closed(agent, self.closed, Closing(
            "acted", record, (experience,), done=(done.id,), failed=(self.failed,), session=self.mark,
            run_id=self.run.id, run=RunAnswer(self.run.id, "ok"), parts=(RunAnswer(self.part.id, "part"),),
            entries=(Entry("user", {"text": "hello"}, self.run.id),), changes=(RowChange(self.mark, "end", 3),),
        ))  # fmt: skip
        # One that is put off to the next process.
        self.again = Unfinished(new_id(), "main", attempts=2)
        journal.opened(agent, self.again.cycle_id, (), (), lambda: replace(self.again, attempts=1), {})
        journal.closed(agent, self.again.cycle_id, Closing("interrupted", again=self.again))
        owed(journal.is_open(self.cut.cycle_id), "journal.is_open() must hold for a cycle that has not ended")
        owed(not journal.is_open(self.closed), "journal.is_open() must not hold for a cycle that has ended")

    async def look(self, store: Any) -> None:
        journal, agent = store.journal, self.mark
        found = await self.value("journal.unfinished()", journal.unfinished(agent))
        ids = [each.cycle_id for each in found]
        expected = [self.cut.cycle_id, self.again.cycle_id]
        owed(ids == expected, f"journal.unfinished() must be the cycles that have not ended, in order, found {ids}")
        cut, again = found
        owed(again.attempts == 2, "a cycle that is put off must be known as it was put off")
        owed(journal.is_open(cut.cycle_id) and journal.open_cycles >= 2, "a cycle that was cut off must count as open")
        owed(cut.items == self.cut.items and _same(cut.perceptions, self.cut.perceptions),
             "a cycle that was cut off must be known with what it was begun on")  # fmt: skip
        same_calls = cut.action is not None and _same(cut.action.calls, self.action.calls)
        owed(same_calls, "a cycle that was cut off must be known with the calls of its action, in their order")
        assert cut.action is not None
        owed(cut.action.goal == self.action.goal, "a cycle that was cut off must be known with its action")
        ends = [(each.call.tool, each.status) for each in cut.known]
        owed(ends == [("ended", "ok"), ("begun", "in_doubt")],
             f"of a cycle that was cut off must be known which calls ended and which are in doubt: {ends}")  # fmt: skip
        owed(cut.known[0].output == self.output, "the output of a call that has ended must come back exactly")
        for run, status in ((self.run, "ok"), (self.part, "part")):
            _, answer = await self.value("journal.run()", journal.run(agent, run.id))
            owed(answer and answer.get("status") == status, f"closing a cycle must end its run and its parts: {answer}")
        record = await self.value("store.cycle()", store.cycle(self.closed))
        owed(record is not None and record.outcome == "acted", "a closed cycle must be on the tape")
        recalled = await self.value("store.recall()", store.recall(f"{self.mark}learnt"))
        owed([each.origin for each in recalled].count(self.closed) == 1, "what a closed cycle taught must be recalled")
        items = await self.value("journal.items()", journal.items(agent))
        is_same = [each.id for each in items] == [self.item.id, self.failed.id] and items[1].attempts == 2
        owed(is_same, "closing a cycle must end the items that are done and keep those that failed")
        rows = await self.value("journal.rows()", journal.rows(self.mark))
        owed(rows == {"sensor": 1, "of the module": 2, "end": 3},
             f"rows must change with the beginning or the end of their cycle, and only then, found {rows}")  # fmt: skip
        owed(await self.value("store.load()", store.load(f"{self.mark}cursor")) == 7, "opening must keep the cursors")
        entries = await self.value("transcripts.read()", store.transcripts.read(agent, self.mark))
        owed([each.body.get("text") for each in entries] == ["hello"], "closing must add the entries of the transcript")


class _Doubts(_Duty):
    """Calls in doubt: open until they are answered, once."""

    async def write(self, store: Any) -> None:
        journal, agent, at = store.journal, self.mark, self.harness.clock.now()
        self.cycle, self.call = new_id(), Call("pay", {"amount": 1}, id=f"c{new_id()}")
        journal.opened(agent, self.cycle, (), (), lambda: Unfinished(self.cycle, "main"), {})
        journal.acting(self.cycle, Action([self.call]))
        journal.started(self.cycle, self.call.id, 1, "once", "auto", {"amount": 2**53 + 1})
        journal.closed(agent, self.cycle, Closing("interrupted", done=("none",)))
        calls = [self.call, Call("other"), Call("again")]
        self.doubts = [
            Doubt(f"{self.cycle}/{call.id}", call, self.cycle, at=at + timedelta(milliseconds=n), why=ODD_TEXTS[2])
            for n, call in enumerate(calls)
        ]
        for doubt in self.doubts:
            journal.doubted(agent, doubt)
        answer = replace(self.doubts[1], answer="done", output={"n": 1}, answered_by="a person")
        await self.value("journal.answer()", journal.answer(agent, answer))
        self.again = Unfinished(new_id(), "main", (_seen("again"),), action=Action([calls[2]]))
        self.answers = [answer, replace(self.doubts[2], answer="again", answered_by="a person")]
        await self.value("journal.answer()", journal.answer(agent, self.answers[1], self.again))
        other = replace(answer, answer="failed")
        await self.conflicts("journal.answer() of an answered doubt", journal.answer(agent, other))

    async def look(self, store: Any) -> None:
        journal = store.journal
        found = await self.value("journal.doubts()", journal.doubts(self.mark))
        owed([each.id for each in found] == [self.doubts[0].id], "journal.doubts() must be those nobody has answered")
        every = await self.value("journal.doubts()", journal.doubts(self.mark, is_open=False))
        ids = [each.id for each in every]
        owed(
            ids == [each.id for each in self.doubts], f"journal.doubts(is_open=False) must be all in order, found {ids}"
        )
        owed([each.answer for each in every[1:]] == ["done", "again"], "the first answer of a doubt must stand")
        owed(every[1].output == {"n": 1}, "an answer must be kept with its output")
        call = await self.value("journal.call()", journal.call(found[0]))
        owed(call.params == {"amount": 2**53 + 1}, "journal.call() must return the values that a call was started with")
        doubts, _ = await self.value("store.left()", store.left(self.mark))
        owed([each.id for each in doubts] == ids, "store.left() must return the doubts, answered or not")
        going = await self.value("journal.unfinished()", journal.unfinished(self.mark))
        is_begun = [each.cycle_id for each in going] == [self.again.cycle_id] and going[0].action is not None
        owed(is_begun, "an answer must begin the cycle that makes the call again")


class _State(_Duty):
    """Small state: exact or refused, the last of what was told counts."""

    async def write(self, store: Any) -> None:
        self.values = {f"{self.mark}{n}{how}": value for n, value in enumerate(EXACT) for how in ("told", "saved")}
        for key, value in self.values.items():
            if key.endswith("told"):
                store.journal.save(key, value)
            else:
                await self.value("store.save()", store.save(key, value))
        for n in range(3):  # told and saved in turns: what comes last stands
            store.journal.save(f"{self.mark}turn", {"told": n})
            await self.value("store.save()", store.save(f"{self.mark}turn", {"saved": n}))
        self.values[f"{self.mark}turn"] = {"saved": 2}
        for number, (value, kind) in enumerate(((_HUGE, TooLargeError), (object(), ValueError))):
            key = f"{self.mark}refused{number}"
            self.values[key] = "former"
            await self.value("store.save()", store.save(key, "former"))
            await self.refuses("store.save() of what cannot be kept", store.save(key, value), kind)
            told = _told(store.journal.save, key, value)
            await self.refuses("journal.save() of what cannot be kept", told, kind)

    async def look(self, store: Any) -> None:
        for key, value in self.values.items():
            found = await self.value("store.load()", store.load(key))
            owed(
                _same(found, value), f"store must load what was saved exactly, saved {value!r:.80}, found {found!r:.80}"
            )


class _Rows(_Duty):
    """Small rows: in order, all of one change or none."""

    async def write(self, store: Any) -> None:
        journal, mark = store.journal, self.mark
        self.rows = {str(n): value for n, value in enumerate(EXACT)}
        journal.change([RowChange(mark, key, value) for key, value in self.rows.items()])
        journal.change((RowChange(mark, "order", 1), RowChange(mark, "order", 2), RowChange(mark, "gone", 1),
                        RowChange(mark, "gone", is_dropped=True), RowChange(mark, "back", 1),
                        RowChange(mark, "back", is_dropped=True), RowChange(mark, "back", 2)))  # fmt: skip
        await self.value("store.change()", store.change((RowChange(mark, "stored", 1),)))
        self.rows |= {"order": 2, "back": 2, "stored": 1, "renewed": 3}
        made: list[int] = []

        def make() -> RowChange:
            made.append(1)
            return RowChange(mark, "renewed", 3)

        for _ in range(5):
            journal.renew(f"{mark}renewed", make)
        await self.value("journal.safe()", journal.safe())
        owed(len(made) == 1, f"a row that is renewed must be made once for each transaction, found {len(made)}")
        for value, kind in ((_HUGE, TooLargeError), (object(), ValueError)):
            changes = (RowChange(mark, "half", 1), RowChange(mark, "refused", value))
            told = _told(journal.change, changes)
            await self.refuses("journal.change() of what cannot be kept", told, kind)

    async def look(self, store: Any) -> None:
        for what, rows in (("journal.rows()", store.journal.rows), ("store.rows()", store.rows)):
            found = await self.value(what, rows(self.mark))
            names = sorted(set(found) ^ set(self.rows))
            owed(not names, f"{what} must return the rows of all changes that were accepted and no other, but: {names}")
            for key, value in self.rows.items():
                owed(
                    _same(found[key], value),
                    f"{what} must return values exactly, kept {value!r:.80}, found {found[key]!r:.80}",
                )


class _Records(_Duty):
    """Records: changed by compare-and-set, and not before what the journal was told."""

    async def write(self, store: Records) -> None:
        kind = self.mark
        owed(await self.value("store.keep()", store.keep(kind, "a", EXACT[-4], expect=0)) == 1, "versions begin at 1")
        owed(await self.value("store.keep()", store.keep(kind, "a", [1], expect=1)) == 2, "versions count up")
        for expect in (0, 1, 3):
            await self.conflicts("store.keep() of another version", store.keep(kind, "a", "lost", expect=expect))
        for id in ("c", "b"):
            await self.value("store.keep()", store.keep(kind, id, {"id": id}))
        owed(await self.value("store.drop()", store.drop(kind, "c")), "store.drop() must say that there was a row")
        owed(not await self.value("store.drop()", store.drop(kind, "c")), "store.drop() must say that there was none")
        both = await asyncio.gather(*(store.keep(kind, "d", n, expect=0) for n in range(2)), return_exceptions=True)
        won = [n for n, each in enumerate(both) if each == 1]
        owed(len(won) == 1, f"of two who create a row exactly one must succeed, found {both!r:.200}")
        self.won = won[0]

    async def look(self, store: Records) -> None:
        found = [(each.id, each.version, each.value) for each in await self.value("records", store.records(self.mark))]
        expected = [("a", 2, [1]), ("b", 1, {"id": "b"}), ("d", 1, self.won)]
        owed(found == expected, f"store.records() must be the rows by id, expected {expected}, found {found!r:.200}")


class _Budgets(_Duty):
    """Budgets: sums of all amounts, by window and quantity."""

    async def write(self, store: Any) -> None:
        windows = [f"hour:{self.mark}", f"day:{self.mark}"]
        for _ in range(100):
            store.journal.spend([Spend(window, "tokens", 1_000_003) for window in windows])
        store.journal.spend(
            [Spend(windows[0], "tokens", -3), Spend(windows[0], "calls", 5), Spend(windows[1], "calls", 0)]
        )
        self.spent = {
            (windows[0], "tokens"): 100_000_297,
            (windows[1], "tokens"): 100_000_300,
            (windows[0], "calls"): 5,
        }

    async def look(self, store: Any) -> None:
        found = await self.value("journal.spent()", store.journal.spent())
        sums = {(each.window, each.quantity): each.amount for each in found if each.window.endswith(self.mark)}
        sums = {key: amount for key, amount in sums.items() if amount}
        owed(
            sums == self.spent,
            f"journal.spent() must be the sums of what was spent, expected {self.spent}, found {sums}",
        )


class _Transcripts(_Duty):
    """Transcripts: in order, by one run at a time, read from the last compaction on."""

    async def write(self, store: Any) -> None:
        texts, agent, session = store.transcripts, self.mark, "s"
        self.texts = [*ODD_TEXTS[:5], "last"]
        first = [Entry("user", {"text": text}, at=self.harness.clock.now()) for text in self.texts[:3]]
        await self.value("transcripts.append()", texts.append(agent, session, "one", first))
        await self.value("transcripts.append()", texts.append(agent, "other", "one", [Entry("user", {"text": "o"})]))
        rest = [Entry("turn", {"text": text}) for text in self.texts[3:]]
        await self.value("transcripts.append()", texts.append(agent, session, "two", rest))
        _, error = await self.harness.outcome(
            "append", texts.append(agent, session, "one", [Entry("end", {"text": "!"})])
        )
        owed(
            isinstance(error, FencedError),
            f"a run whose session was taken over must raise FencedError, found {error!r}",
        )
        entries = [Entry("turn", {"text": "half"}), Entry("turn", {"text": "strange"}, "three")]
        more = texts.append(agent, session, "two", entries)
        await self.refuses("transcripts.append() of another run's entry", more, ValueError)
        kept = await self.value("transcripts.tail()", texts.tail(agent, session, 1))
        owed(len(kept) == 1, "transcripts.tail() must return as many entries as are asked for")
        body = {"summary": "so far", "first_kept": kept[0].seq, "tokens_before": 2, "tokens_after": 1}
        await self.value("transcripts.append()", texts.append(agent, session, "two", [Entry("compaction", body)]))

    async def look(self, store: Any) -> None:
        texts, agent = store.transcripts, self.mark
        found = await self.value("transcripts.tail()", texts.tail(agent, "s", 100))
        said = [each.body.get("text", each.kind) for each in found]
        owed(said == [*self.texts, "compaction"], f"entries must come back exactly and in order, found {said!r:.200}")
        numbers = [each.seq for each in found]
        owed(all(a < b for a, b in pairwise(numbers)), f"seq must grow strictly, found {numbers}")
        before = await self.value("transcripts.tail()", texts.tail(agent, "s", 2, numbers[2]))
        owed([each.seq for each in before] == numbers[:2], "transcripts.tail(before=…) must be what came before that")
        read = await self.value("transcripts.read()", texts.read(agent, "s"))
        kinds = [each.body.get("text", each.kind) for each in read]
        owed(kinds == ["compaction", "last"], f"transcripts.read() must begin with the last compaction, found {kinds}")
        held = await self.value("transcripts.sessions()", texts.sessions(agent))
        sessions = [(each.session, each.entries) for each in held]
        owed(sessions == [("s", len(found)), ("other", 1)],
             f"transcripts.sessions() must be those with entries, the newest first, found {sessions}")  # fmt: skip


# -- values


def _seen(text: str) -> Perception:
    return Perception(text, source="contract", kind="message")


def _item(text: str, kind: Any = "perception") -> Item:
    perception = _seen(text)
    return Item(perception.id if kind == "perception" else new_id(), perception, kind)


async def _told(tell: Callable[..., object], *given: Any) -> object:
    return tell(*given)


def _same(found: Any, expected: Any) -> bool:
    """Return whether two values are equal to their types: True is not 1, and 1 is not 1.0."""
    return bool(found == expected) and repr(_listed(found)) == repr(_listed(expected))


def _listed(value: Any) -> Any:
    """The value with lists for tuples, which JSON does not know, and the keys of objects in order."""
    if isinstance(value, dict):
        return {key: _listed(value[key]) for key in sorted(value)}
    if isinstance(value, (list, tuple)):
        return [_listed(each) for each in value]
    return value
