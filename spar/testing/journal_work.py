"""Duties of a journal towards work: items, dead letters, cycles, calls in doubt."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from msgspec import Struct

from spar import facts
from spar.ids import new_id
from spar.records.journal import Closing, Doubt, Item, RowChange, Unfinished
from spar.records.transcript import Entry
from spar.testing.duties import ODD_TEXTS, Duty, are_same, owed
from spar.types import Action, Call, CallResult, CycleRecord, Experience, Perception, replace


def seen(text: str) -> Perception:
    return Perception(text, source="contract", kind="message")


def item_of(text: str, kind: Any = "perception") -> Item:
    perception = seen(text)
    return Item(perception.id if kind == "perception" else new_id(), perception, kind)


def accepted(journal: Any, item: Item, agent: str) -> Any:
    """Accept work; returns the earlier item that has its id or key, None if it is new."""
    return journal.commit(facts.WorkAccepted(session=item.session, item=item), agent)


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
            known = await self.value("journal.commit()", accepted(journal, item, self.mark))
            owed(known is None, "journal.commit() must say that new work is new")
        again = replace(self.items[0], perception=seen("changed"))
        for repetition, what in ((again, "id"), (replace(again, id=new_id()), "key")):
            known = await self.value("journal.commit()", accepted(journal, repetition, self.mark))
            is_known = known is not None and known.id == self.items[0].id
            owed(is_known, f"journal.commit() of a known {what} must return the item that has it, found {known!r:.200}")
        known = await self.value(
            "journal.commit()",
            accepted(journal, item_of("of another agent"), f"{self.mark}other"),
        )
        owed(known is None, "the work of another agent must be accepted")
        tried = self.items[1] = replace(self.items[1], attempts=2, past=("cycle",), due_at=now + timedelta(days=1))
        journal.append(facts.WorkChanged(session="main", item=tried), self.mark)
        self.later = replace(item_of("without a wait"), at=now + timedelta(seconds=1))
        journal.append(facts.WorkChanged(session="main", item=self.later), self.mark)
        self.ended = self.items.pop()
        journal.append(
            facts.RunAnswered(
                session="main", run=self.ended.id, answer={"run_id": self.ended.id, "status": "error", "error": "first"}
            )
        )
        journal.append(
            facts.AnswerChanged(
                session="main",
                run=self.ended.id,
                answer={"run_id": self.ended.id, "status": "ok", "output": ODD_TEXTS[2]},
            )
        )

    async def look(self, store: Any) -> None:
        journal = store.journal
        items = await self.value("journal.views.items()", journal.views.items(self.mark))
        ids = [item.id for item in items]
        owed(
            ids == [item.id for item in (*self.items, self.later)],
            f"journal.views.items() must be in order, found {ids}",
        )
        for item, known in zip((*self.items, self.later), items, strict=True):
            owed(are_same(item, known), f"journal.views.items() must return items as they were kept: {item!r:.200}")
        chosen = await self.value("journal.views.items()", journal.views.items(self.mark, ids[1:2]))
        owed([item.id for item in chosen] == ids[1:2], "journal.views.items() of some ids must return only these")
        recent = await self.value("journal.views.recent_ids()", journal.views.recent_ids(self.mark, 2))
        owed(
            recent == [self.later.id, self.ended.id],
            f"journal.views.recent_ids() must be the newest first, found {recent}",
        )
        item, answer = await self.value("journal.views.run()", journal.views.run(self.mark, self.items[0].id))
        owed(
            answer is None and are_same(item, self.items[0]),
            "journal.views.run() must return the item of a run that waits",
        )
        item, answer = await self.value("journal.views.run()", journal.views.run(self.mark, self.ended.id))
        is_answered = item is None and answer is not None and answer.get("output") == ODD_TEXTS[2]
        owed(
            is_answered,
            f"journal.views.run() must return the last answer of a run that has ended, found {answer!r:.200}",
        )
        unknown = await self.value("journal.views.run()", journal.views.run(self.mark, "unknown"))
        owed(unknown == (None, None), "journal.views.run() of an unknown run must be (None, None)")
        for again in (replace(self.ended, perception=seen("again")), replace(self.ended, id=new_id())):
            known = await self.value("journal.commit()", accepted(journal, again, self.mark))
            is_known = known is not None and known.id == self.ended.id
            owed(is_known, "what was ever accepted must be known again by its id and key, also once it has ended")


class LettersDuty(Duty):
    """Dead letters: work that was put aside, until a person has handled it."""

    async def write(self, store: Any) -> None:
        journal, now = store.journal, self.harness.clock.now()
        items = [replace(item_of(f"{n}"), attempts=3, at=now + timedelta(milliseconds=n)) for n in range(4)]
        for item in items:
            await self.value("journal.commit()", accepted(journal, item, self.mark))
        for item in items:
            fact = facts.PutAside(session=item.session, item=item, reason=f"reason {item.id}")
            journal.append(fact, self.mark)
        letters = await self.value("journal.views.dead_letters()", journal.views.dead_letters(self.mark))
        owed([row.item.attempts for row in letters] == [3] * 4, "what was put aside must be a dead letter as it was")
        by_id = {row.id: row for row in letters}
        self.left, self.back = [by_id[item.id] for item in items[:2]], items[2]
        for letter, is_tried_again in ((by_id[items[2].id], True), (by_id[items[3].id], False)):
            answer = facts.LetterAnswered(session="main", letter=letter, is_tried_again=is_tried_again)
            await self.value("journal.commit()", journal.commit(answer, self.mark))
            again = facts.LetterAnswered(session="main", letter=letter, is_tried_again=True)
            await self.conflicts("journal.commit() of a letter that was dealt with", journal.commit(again, self.mark))

    async def look(self, store: Any) -> None:
        letters = await self.value("journal.views.dead_letters()", store.journal.views.dead_letters(self.mark))
        is_same = [(row.id, row.reason) for row in letters] == [(row.id, row.reason) for row in self.left]
        owed(
            is_same,
            f"journal.views.dead_letters() must be what was put aside, the oldest first, found {letters!r:.200}",
        )
        items = await self.value("journal.views.items()", store.journal.views.items(self.mark))
        owed([(row.id, row.attempts) for row in items] == [(self.back.id, 0)],
             "of dead letters only one that is tried again must wait, as if it were new")  # fmt: skip


class RunAnswer(Struct, frozen=True):
    """End of a run in the journal; the core decides on its fields."""

    run_id: str
    status: str


class CyclesDuty(Duty):
    """Cycles: open ones can be continued, closed ones are stored with all their results."""

    async def write(self, store: Any) -> None:
        journal, agent = store.journal, self.mark
        self.item = item_of("work")
        await self.value("journal.commit()", accepted(journal, self.item, agent))
        done, self.waits = item_of("done"), item_of("waits")
        self.run, self.part = item_of("run", kind="run"), item_of("part", kind="run")
        for item in (done, self.waits, self.run, self.part):
            await self.value("journal.commit()", accepted(journal, item, agent))
        # A cycle that is cut off: one call has ended, one had begun and must not be made again, one never began.
        calls = [Call(tool, {"n": 1}, id=f"{tool}{new_id()}") for tool in ("ended", "begun", "waits")]
        self.cut = Unfinished(new_id(), "main", (self.item.perception,), (self.item.id,))
        self.action = Action(calls, goal=ODD_TEXTS[2])
        journal.append(facts.CycleOpened.of(self.cut), agent)

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
        journal.append(facts.RowsChanged(changes=(RowChange(self.mark, "of the cut one", 1),), cycle=self.cut.cycle_id))
        # A cycle that ends.
        self.closed, at = new_id(), self.harness.clock.now()
        record = CycleRecord(self.closed, agent, self.mark, at, 0.5, "acted", (done.perception,))
        experience = Experience(f"{self.mark}learnt", session=self.mark, origin=self.closed)
        journal.append(
            facts.CycleOpened(
                session="main",
                cycle=self.closed,
                perceptions=(done.perception,),
                items=(done.id,),
                cursors={f"{self.mark}cursor": 7},
                changes=(RowChange(self.mark, "sensor", 1),),
            ),
            agent,
        )
        journal.append(facts.RowsChanged(changes=(RowChange(self.mark, "of the module", 2),), cycle=self.closed))
        journal.append(facts.CycleWritten(session="main", cycle=self.closed, closing=Closing(
            "acted", record, (experience,), done=(done.id,), session=self.mark,
            run_id=self.run.id, entries=(Entry("user", {"text": "hello"}, self.run.id),),
            changes=(RowChange(self.mark, "end", 3),),
        )), agent)  # fmt: skip
        for run, status in ((self.run, "ok"), (self.part, "part")):
            journal.append(facts.RunAnswered(session="main", run=run.id, answer=RunAnswer(run.id, status)))
        # A cycle that is put off to the next process.
        self.again = Unfinished(new_id(), "main", attempts=2)
        journal.append(facts.CycleOpened.of(replace(self.again, attempts=1)), agent)

        journal.append(
            facts.CycleWritten(
                session="main", cycle=self.again.cycle_id, closing=Closing("interrupted", again=self.again)
            ),
            agent,
        )
        owed(journal.is_open(self.cut.cycle_id), "journal.is_open() must hold for a cycle that has not ended")
        owed(not journal.is_open(self.closed), "journal.is_open() must not hold for a cycle that has ended")

    async def look(self, store: Any) -> None:
        journal, agent = store.journal, self.mark
        unfinished = await self.value("journal.views.unfinished()", journal.views.unfinished(agent))
        ids = [row.cycle_id for row in unfinished]
        expected = [self.cut.cycle_id, self.again.cycle_id]
        owed(
            ids == expected, f"journal.views.unfinished() must be the cycles that have not ended, in order, found {ids}"
        )
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
            _, answer = await self.value("journal.views.run()", journal.views.run(agent, run.id))
            owed(answer and answer.get("status") == status, f"an answered run must have ended: {answer}")
        record = await self.value("store.cycle()", store.cycle(self.closed))
        owed(record is not None and record.outcome == "acted", "a closed cycle must be recorded")
        recalled = await self.value("store.recall()", store.recall(f"{self.mark}learnt"))
        owed([row.origin for row in recalled].count(self.closed) == 1, "what a closed cycle taught must be recalled")
        items = await self.value("journal.views.items()", journal.views.items(agent))
        owed(
            [row.id for row in items] == [self.item.id, self.waits.id],
            "closing a cycle must end the items that are done",
        )
        rows = await self.value("journal.views.rows()", journal.views.rows(self.mark))
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
        journal.append(facts.CycleOpened(session="main", cycle=self.cycle), agent)

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
        journal.append(
            facts.CycleWritten(session="main", cycle=self.cycle, closing=Closing("interrupted", done=("none",))), agent
        )
        calls = [self.call, Call("other"), Call("again")]
        self.doubts = [
            Doubt(f"{self.cycle}/{call.id}", call, self.cycle, at=at + timedelta(milliseconds=n), why=ODD_TEXTS[2])
            for n, call in enumerate(calls)
        ]
        for doubt in self.doubts:
            journal.append(facts.CallDoubted(session="main", doubt=doubt), agent)
        answer = replace(self.doubts[1], answer="done", output={"n": 1}, answered_by="a person")
        await self.value("journal.commit()", journal.commit(facts.DoubtAnswered(session="main", doubt=answer), agent))
        self.again = Unfinished(new_id(), "main", (seen("again"),), action=Action([calls[2]]))
        self.answers = [answer, replace(self.doubts[2], answer="again", answered_by="a person")]
        await self.value(
            "journal.commit()",
            journal.commit(facts.DoubtAnswered(session="main", doubt=self.answers[1], again=self.again), agent),
        )
        other = replace(answer, answer="failed")
        await self.conflicts(
            "journal.commit() of an answered doubt",
            journal.commit(
                facts.DoubtAnswered(session="main", doubt=other, again=replace(self.again, cycle_id=new_id())), agent
            ),
        )

    async def look(self, store: Any) -> None:
        journal = store.journal
        open_doubts = await self.value("journal.views.doubts()", journal.views.doubts(self.mark))
        owed(
            [row.id for row in open_doubts] == [self.doubts[0].id],
            "journal.views.doubts() must be those nobody has answered",
        )
        every = await self.value("journal.views.doubts()", journal.views.doubts(self.mark, is_open=False))
        ids = [row.id for row in every]
        owed(ids == [row.id for row in self.doubts], f"views.doubts(is_open=False) must be all in order, found {ids}")
        owed([row.answer for row in every[1:]] == ["done", "again"], "the first answer of a doubt must stand")
        owed(every[1].output == {"n": 1}, "an answer must be kept with its output")
        call = await self.value("journal.views.call()", journal.views.call(open_doubts[0]))
        owed(
            call.params == {"amount": 2**53 + 1},
            "journal.views.call() must return the values that a call was started with",
        )
        doubts, _ = await self.value("store.left()", store.left(self.mark))
        owed([row.id for row in doubts] == ids, "store.left() must return the doubts, answered or not")
        going = await self.value("journal.views.unfinished()", journal.views.unfinished(self.mark))
        is_begun = [row.cycle_id for row in going] == [self.again.cycle_id] and going[0].action is not None
        owed(is_begun, "an answer must begin the cycle that makes the call again")
