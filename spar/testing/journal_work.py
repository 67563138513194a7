"""Duties of a journal towards work: items, dead letters, cycles, calls in doubt."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from msgspec import Struct

from spar import facts
from spar.ids import new_id
from spar.records.journal import Closing, DeadLetter, Doubt, Item, RowChange, Unfinished
from spar.records.transcript import Entry
from spar.testing.duties import ODD_TEXTS, Duty, are_same, owed
from spar.types import Action, Call, CallResult, CycleRecord, Experience, Perception, replace


def seen(text: str) -> Perception:
    return Perception(text, source="contract", kind="message")


def item_of(text: str, kind: Any = "perception") -> Item:
    perception = seen(text)
    return Item(perception.id if kind == "perception" else new_id(), perception, kind)


class ItemsDuty(Duty):
    """Accepted work: in order, once for each id and key, with all its fields."""

    async def write(self, store: Any) -> None:
        journal, now = store.journal, self.harness.clock.now()
        texts = ("first", "second", *ODD_TEXTS)
        self.items = [
            replace(item_of(text, kind="run"), key=f"{self.mark}{number}", at=now + timedelta(milliseconds=number))
            for number, text in enumerate(texts)
        ]
        for item in self.items:
            stored, is_new = await self.value("journal.accept()", journal.accept(self.mark, item))
            owed(is_new and stored.id == item.id, "journal.accept() must say that new work is new")
        again = replace(self.items[0], perception=seen("changed"))
        for repetition, what in ((again, "id"), (replace(again, id=new_id()), "key")):
            stored, is_new = await self.value("journal.accept()", journal.accept(self.mark, repetition))
            is_known = not is_new and stored.id == self.items[0].id
            owed(is_known, f"journal.accept() of a known {what} must return the item that has it, found {stored.id!r}")
        _, is_new = await self.value(
            "journal.accept()", journal.accept(f"{self.mark}other", item_of("of another agent"))
        )
        owed(is_new, "the work of another agent must be accepted")
        tried = self.items[1] = replace(self.items[1], attempts=2, past=("cycle",), due_at=now + timedelta(days=1))
        journal.keep(self.mark, tried)
        self.later = replace(item_of("without a wait"), at=now + timedelta(seconds=1))
        journal.keep(self.mark, self.later)
        self.ended = self.items.pop()
        journal.run_ended(self.ended.id, {"run_id": self.ended.id, "status": "error", "error": "first"})
        journal.amended(self.ended.id, {"run_id": self.ended.id, "status": "ok", "output": ODD_TEXTS[2]})

    async def look(self, store: Any) -> None:
        journal = store.journal
        items = await self.value("journal.items()", journal.items(self.mark))
        ids = [item.id for item in items]
        owed(ids == [item.id for item in (*self.items, self.later)], f"journal.items() must be in order, found {ids}")
        for item, known in zip((*self.items, self.later), items, strict=True):
            owed(are_same(item, known), f"journal.items() must return items as they were kept: {item!r:.200}")
        recent = await self.value("journal.recent_ids()", journal.recent_ids(self.mark, 2))
        owed(recent == [self.later.id, self.ended.id], f"journal.recent_ids() must be the newest first, found {recent}")
        item, answer = await self.value("journal.run()", journal.run(self.mark, self.items[0].id))
        owed(answer is None and are_same(item, self.items[0]), "journal.run() must return the item of a run that waits")
        item, answer = await self.value("journal.run()", journal.run(self.mark, self.ended.id))
        is_answered = item is None and answer is not None and answer.get("output") == ODD_TEXTS[2]
        owed(is_answered, f"journal.run() must return the last answer of a run that has ended, found {answer!r:.200}")
        unknown = await self.value("journal.run()", journal.run(self.mark, "unknown"))
        owed(unknown == (None, None), "journal.run() of an unknown run must be (None, None)")
        again = replace(self.ended, perception=seen("again"))
        stored, is_new = await self.value("journal.accept()", journal.accept(self.mark, again))
        owed(not is_new and stored.id == again.id, "what was ever accepted must be known again, also once it has ended")


class LettersDuty(Duty):
    """Dead letters: work that was put aside, until a person has handled it."""

    async def write(self, store: Any) -> None:
        journal, now = store.journal, self.harness.clock.now()
        items = [replace(item_of(f"{n}"), attempts=3, at=now + timedelta(milliseconds=n)) for n in range(4)]
        for item in items:
            await self.value("journal.accept()", journal.accept(self.mark, item))
        letters = [journal.bury(self.mark, item, f"reason {item.id}") for item in items]
        owed(all(isinstance(letter, DeadLetter) for letter in letters), "journal.bury() must return a DeadLetter")
        self.left = letters[:2]
        back = await self.value("journal.exhume()", journal.exhume(self.mark, letters[2], waits=True))
        owed(back.attempts == 0, "journal.exhume(waits=True) must return the item as if it were new")
        await self.value("journal.exhume()", journal.exhume(self.mark, letters[3], waits=False))
        self.back = back
        for letter in letters[2:]:
            work = journal.exhume(self.mark, letter, waits=True)
            await self.conflicts("journal.exhume() of a letter that was dealt with", work)

    async def look(self, store: Any) -> None:
        letters = await self.value("journal.dead_letters()", store.journal.dead_letters(self.mark))
        is_same = [(row.id, row.reason) for row in letters] == [(row.id, row.reason) for row in self.left]
        owed(is_same, f"journal.dead_letters() must be what was put aside, the oldest first, found {letters!r:.200}")
        items = await self.value("journal.items()", store.journal.items(self.mark))
        owed([row.id for row in items] == [self.back.id], "of dead letters only a revived one must wait again")


class RunAnswer(Struct, frozen=True):
    """End of a run in the journal; the core decides on its fields."""

    run_id: str
    status: str


class CyclesDuty(Duty):
    """Cycles: open ones can be continued, closed ones are stored with all their results."""

    async def write(self, store: Any) -> None:
        journal, agent = store.journal, self.mark
        self.item = item_of("work")
        await self.value("journal.accept()", journal.accept(agent, self.item))
        done, self.waits = item_of("done"), item_of("waits")
        self.run, self.part = item_of("run", kind="run"), item_of("part", kind="run")
        for item in (done, self.waits, self.run, self.part):
            await self.value("journal.accept()", journal.accept(agent, item))
        # A cycle that is cut off: one call has ended, one had begun and must not be made again, one never began.
        calls = [Call(tool, {"n": 1}, id=f"{tool}{new_id()}") for tool in ("ended", "begun", "waits")]
        self.cut = Unfinished(new_id(), "main", (self.item.perception,), (self.item.id,))
        self.action = Action(calls, goal=ODD_TEXTS[2])
        journal.opened(agent, self.cut.cycle_id, self.cut.perceptions, self.cut.items, lambda: self.cut, {})
        journal.append(facts.Planned(session="main", cycle=self.cut.cycle_id, action=self.action))
        for call in calls[:2]:
            journal.append(
                facts.AttemptStarted(
                    session="main", cycle=self.cut.cycle_id, call=call.id, attempt=1, effect="once", allowed="auto"
                )
            )
        self.output = {"odd": list(ODD_TEXTS), "exact": 2**53 + 1}
        journal.append(
            facts.CallEnded(
                session="main",
                cycle=self.cut.cycle_id,
                result=CallResult(calls[0], "ok", output=self.output, attempts=1),
            )
        )
        journal.change((RowChange(self.mark, "of the cut one", 1),), self.cut.cycle_id)
        # A cycle that ends.
        self.closed, at = new_id(), self.harness.clock.now()
        record = CycleRecord(self.closed, agent, self.mark, at, 0.5, "acted", (done.perception,))
        experience = Experience(f"{self.mark}learnt", session=self.mark, origin=self.closed)
        journal.opened(agent, self.closed, (done.perception,), (done.id,), lambda: Unfinished(self.closed, "main"),
                       {f"{self.mark}cursor": 7}, (RowChange(self.mark, "sensor", 1),))  # fmt: skip
        journal.change((RowChange(self.mark, "of the module", 2),), self.closed)
        journal.closed(agent, self.closed, Closing(
            "acted", record, (experience,), done=(done.id,), session=self.mark,
            run_id=self.run.id, entries=(Entry("user", {"text": "hello"}, self.run.id),),
            changes=(RowChange(self.mark, "end", 3),),
        ))  # fmt: skip
        for run, status in ((self.run, "ok"), (self.part, "part")):
            journal.run_ended(run.id, RunAnswer(run.id, status), self.closed)
        # A cycle that is put off to the next process.
        self.again = Unfinished(new_id(), "main", attempts=2)
        journal.opened(agent, self.again.cycle_id, (), (), lambda: replace(self.again, attempts=1), {})
        journal.closed(agent, self.again.cycle_id, Closing("interrupted", again=self.again))
        owed(journal.is_open(self.cut.cycle_id), "journal.is_open() must hold for a cycle that has not ended")
        owed(not journal.is_open(self.closed), "journal.is_open() must not hold for a cycle that has ended")

    async def look(self, store: Any) -> None:
        journal, agent = store.journal, self.mark
        unfinished = await self.value("journal.unfinished()", journal.unfinished(agent))
        ids = [row.cycle_id for row in unfinished]
        expected = [self.cut.cycle_id, self.again.cycle_id]
        owed(ids == expected, f"journal.unfinished() must be the cycles that have not ended, in order, found {ids}")
        cut, again = unfinished
        owed(again.attempts == 2, "a cycle that is put off must be known as it was put off")
        owed(journal.is_open(cut.cycle_id) and journal.open_cycles >= 2, "a cycle that was cut off must count as open")
        owed(cut.items == self.cut.items and are_same(cut.perceptions, self.cut.perceptions),
             "a cycle that was cut off must be known with what it was begun on")  # fmt: skip
        same_calls = cut.action is not None and are_same(cut.action.calls, self.action.calls)
        owed(same_calls, "a cycle that was cut off must be known with the calls of its action, in their order")
        assert cut.action is not None
        owed(cut.action.goal == self.action.goal, "a cycle that was cut off must be known with its action")
        ends = [(row.call.tool, row.status) for row in cut.known]
        owed(ends == [("ended", "ok"), ("begun", "in_doubt")],
             f"of a cycle that was cut off must be known which calls ended and which are in doubt: {ends}")  # fmt: skip
        owed(cut.known[0].output == self.output, "the output of a call that has ended must come back exactly")
        for run, status in ((self.run, "ok"), (self.part, "part")):
            _, answer = await self.value("journal.run()", journal.run(agent, run.id))
            owed(answer and answer.get("status") == status, f"run_ended must end a run: {answer}")
        record = await self.value("store.cycle()", store.cycle(self.closed))
        owed(record is not None and record.outcome == "acted", "a closed cycle must be recorded")
        recalled = await self.value("store.recall()", store.recall(f"{self.mark}learnt"))
        owed([row.origin for row in recalled].count(self.closed) == 1, "what a closed cycle taught must be recalled")
        items = await self.value("journal.items()", journal.items(agent))
        owed(
            [row.id for row in items] == [self.item.id, self.waits.id],
            "closing a cycle must end the items that are done",
        )
        rows = await self.value("journal.rows()", journal.rows(self.mark))
        owed(rows == {"sensor": 1, "of the module": 2, "end": 3},
             f"rows must change with the beginning or the end of their cycle, and only then, found {rows}")  # fmt: skip
        owed(await self.value("store.load()", store.load(f"{self.mark}cursor")) == 7, "opening must keep the cursors")
        entries = await self.value("transcripts.read()", store.transcripts.read(agent, self.mark))
        owed([row.body.get("text") for row in entries] == ["hello"], "closing must add the entries of the transcript")


class DoubtsDuty(Duty):
    """Calls in doubt: open until they are answered, once."""

    async def write(self, store: Any) -> None:
        journal, agent, at = store.journal, self.mark, self.harness.clock.now()
        self.cycle, self.call = new_id(), Call("pay", {"amount": 1}, id=f"c{new_id()}")
        journal.opened(agent, self.cycle, (), (), lambda: Unfinished(self.cycle, "main"), {})
        journal.append(facts.Planned(session="main", cycle=self.cycle, action=Action([self.call])))
        journal.append(
            facts.AttemptStarted(
                session="main",
                cycle=self.cycle,
                call=self.call.id,
                attempt=1,
                effect="once",
                allowed="auto",
                values={"amount": 2**53 + 1},
            )
        )
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
        self.again = Unfinished(new_id(), "main", (seen("again"),), action=Action([calls[2]]))
        self.answers = [answer, replace(self.doubts[2], answer="again", answered_by="a person")]
        await self.value("journal.answer()", journal.answer(agent, self.answers[1], self.again))
        other = replace(answer, answer="failed")
        await self.conflicts("journal.answer() of an answered doubt", journal.answer(agent, other))

    async def look(self, store: Any) -> None:
        journal = store.journal
        open_doubts = await self.value("journal.doubts()", journal.doubts(self.mark))
        owed(
            [row.id for row in open_doubts] == [self.doubts[0].id], "journal.doubts() must be those nobody has answered"
        )
        every = await self.value("journal.doubts()", journal.doubts(self.mark, is_open=False))
        ids = [row.id for row in every]
        owed(ids == [row.id for row in self.doubts], f"journal.doubts(is_open=False) must be all in order, found {ids}")
        owed([row.answer for row in every[1:]] == ["done", "again"], "the first answer of a doubt must stand")
        owed(every[1].output == {"n": 1}, "an answer must be kept with its output")
        call = await self.value("journal.call()", journal.call(open_doubts[0]))
        owed(call.params == {"amount": 2**53 + 1}, "journal.call() must return the values that a call was started with")
        doubts, _ = await self.value("store.left()", store.left(self.mark))
        owed([row.id for row in doubts] == ids, "store.left() must return the doubts, answered or not")
        going = await self.value("journal.unfinished()", journal.unfinished(self.mark))
        is_begun = [row.cycle_id for row in going] == [self.again.cycle_id] and going[0].action is not None
        owed(is_begun, "an answer must begin the cycle that makes the call again")
