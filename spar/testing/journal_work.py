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

    async def write(self) -> None:
        now, accepted = self.harness.clock.now(), facts.WorkAccepted
        self.items = [
            replace(item_of(text, kind="run"), key=f"{self.mark}{number}", at=now + timedelta(milliseconds=number))
            for number, text in enumerate(("first", "second", *ODD_TEXTS))
        ]
        for item in self.items:
            owed(await self.commit(accepted, item=item) is None, "journal.commit() must say that new work is new")
        again = replace(self.items[0], perception=seen("changed"))
        for repetition, what in ((again, "id"), (replace(again, id=new_id()), "key")):
            known = await self.commit(accepted, item=repetition)
            is_known = known is not None and known.id == self.items[0].id
            owed(is_known, f"journal.commit() of a known {what} must return the item that has it, found {known!r:.200}")
        known = await self.commit(accepted, agent=f"{self.mark}other", item=item_of("of another agent"))
        owed(known is None, "the work of another agent must be accepted")
        self.items[1] = replace(self.items[1], attempts=2, past=("cycle",), due_at=now + timedelta(days=1))
        self.later = replace(item_of("without a wait"), at=now + timedelta(seconds=1))
        for item in (self.items[1], self.later):
            self.tell(facts.WorkChanged, item=item)
        self.ended = self.items.pop()
        for kind, end in (
            (facts.RunAnswered, {"status": "error", "error": "first"}),
            (facts.AnswerChanged, {"status": "ok", "output": ODD_TEXTS[2]}),
        ):
            self.tell(kind, run=self.ended.id, answer={"run_id": self.ended.id, **end})

    async def look(self) -> None:
        stored, expected = await self.views.items(self.mark), [*self.items, self.later]
        ids = [item.id for item in stored]
        owed(ids == [item.id for item in expected], f"journal.views.items() must be in order, found {ids}")
        for item, known in zip(expected, stored, strict=True):
            owed(are_same(item, known), f"journal.views.items() must return items as they were kept: {item!r:.200}")
        chosen = [item.id for item in await self.views.items(self.mark, ids[1:2])]
        owed(chosen == ids[1:2], "journal.views.items() of some ids must return only these")
        recent = await self.views.recent_ids(self.mark, 2)
        is_newest = recent == [self.later.id, self.ended.id]
        owed(is_newest, f"journal.views.recent_ids() must be the newest first, found {recent}")
        item, answer = await self.views.run(self.mark, self.items[0].id)
        is_waiting = answer is None and are_same(item, self.items[0])
        owed(is_waiting, "journal.views.run() must return the item of a run that waits")
        item, answer = await self.views.run(self.mark, self.ended.id)
        is_last = item is None and answer is not None and answer.get("output") == ODD_TEXTS[2]
        owed(is_last, f"journal.views.run() must return the last answer of a run that has ended, found {answer!r:.200}")
        is_unknown = await self.views.run(self.mark, "unknown") == (None, None)
        owed(is_unknown, "journal.views.run() of an unknown run must be (None, None)")
        for again in (replace(self.ended, perception=seen("again")), replace(self.ended, id=new_id())):
            known = await self.commit(facts.WorkAccepted, item=again)
            is_known = known is not None and known.id == self.ended.id
            owed(is_known, "what was ever accepted must be known again by its id and key, also once it has ended")


class LettersDuty(Duty):
    """Dead letters: work that was put aside, until a person has handled it."""

    async def write(self) -> None:
        now = self.harness.clock.now()
        items = [replace(item_of(f"{n}"), attempts=3, at=now + timedelta(milliseconds=n)) for n in range(4)]
        for item in items:
            await self.commit(facts.WorkAccepted, item=item)
        for item in items:
            self.tell(facts.PutAside, item=item, reason=f"reason {item.id}")
        letters = await self.views.dead_letters(self.mark)
        owed([row.item.attempts for row in letters] == [3] * 4, "what was put aside must be a dead letter as it was")
        by_id = {row.id: row for row in letters}
        self.left, self.back = [by_id[item.id] for item in items[:2]], items[2]
        for item in items[2:]:
            letter, is_tried_again = by_id[item.id], item is self.back
            await self.commit(facts.LetterAnswered, letter=letter, is_tried_again=is_tried_again)
            what = "a letter that was dealt with"
            await self.conflicts(what, facts.LetterAnswered, letter=letter, is_tried_again=True)

    async def look(self) -> None:
        letters = await self.views.dead_letters(self.mark)
        is_same = [(row.id, row.reason) for row in letters] == [(row.id, row.reason) for row in self.left]
        order = f"the oldest first, found {letters!r:.200}"
        owed(is_same, f"journal.views.dead_letters() must be what was put aside, {order}")
        is_new = [(row.id, row.attempts) for row in await self.views.items(self.mark)] == [(self.back.id, 0)]
        owed(is_new, "of dead letters only one that is tried again must wait, as if it were new")


class RunAnswer(Struct, frozen=True):
    """End of a run in the journal; the core decides on its fields."""

    run_id: str
    status: str


class CyclesDuty(Duty):
    """Cycles: open ones can be continued, closed ones are stored with all their results."""

    async def write(self) -> None:
        done, self.item, self.waits = map(item_of, ("done", "work", "waits"))
        self.runs = {status: item_of(status, kind="run") for status in ("ok", "part")}
        for item in (self.item, done, self.waits, *self.runs.values()):
            await self.commit(facts.WorkAccepted, item=item)
        # A cycle that is cut off: one call has ended, one had begun and must not be made again, one never began.
        calls = [Call(tool, {"n": 1}, id=f"{tool}{new_id()}") for tool in ("ended", "begun", "waits")]
        self.cut = Unfinished(new_id(), "main", (self.item.perception,), (self.item.id,))
        self.journal.append(facts.CycleOpened.of(self.cut), self.mark)
        self.action = self.plan(self.cut.cycle_id, *calls, goal=ODD_TEXTS[2], begun=2)
        self.output = {"odd": list(ODD_TEXTS), "exact": 2**53 + 1}
        result = CallResult(calls[0], "ok", output=self.output, attempts=1)
        self.tell(facts.CallEnded, cycle=self.cut.cycle_id, result=result)
        self._change(self.cut.cycle_id, "of the cut one", 1)
        # A cycle that ends.
        self.closed, at = new_id(), self.harness.clock.now()
        record = CycleRecord(self.closed, self.mark, self.mark, at, 0.5, "acted", (done.perception,))
        experience = Experience(f"{self.mark}learnt", session=self.mark, origin=self.closed)
        self.tell(facts.CycleOpened, cycle=self.closed, perceptions=(done.perception,), items=(done.id,),
                  cursors={f"{self.mark}cursor": 7}, changes=(RowChange(self.mark, "sensor", 1),))  # fmt: skip
        self._change(self.closed, "of the module", 2)
        run = self.runs["ok"].id
        self.tell(facts.CycleWritten, cycle=self.closed, closing=Closing(
            "acted", record, (experience,), done=(done.id,), session=self.mark, run_id=run,
            entries=(Entry("user", {"text": "hello"}, run),), changes=(RowChange(self.mark, "end", 3),),
        ))  # fmt: skip
        for status, item in self.runs.items():
            self.tell(facts.RunAnswered, run=item.id, answer=RunAnswer(item.id, status))
        # A cycle that is put off to the next process.
        self.again = Unfinished(new_id(), "main", attempts=2)
        self.journal.append(facts.CycleOpened.of(replace(self.again, attempts=1)), self.mark)
        self.tell(facts.CycleWritten, cycle=self.again.cycle_id, closing=Closing("interrupted", again=self.again))
        is_open = self.journal.is_open
        owed(is_open(self.cut.cycle_id), "journal.is_open() must hold for a cycle that has not ended")
        owed(not is_open(self.closed), "journal.is_open() must not hold for a cycle that has ended")

    def _change(self, cycle: str, key: str, value: int) -> None:
        self.journal.append(facts.RowsChanged(changes=(RowChange(self.mark, key, value),), cycle=cycle))

    async def look(self) -> None:
        journal, mark = self.journal, self.mark
        unfinished = await self.views.unfinished(mark)
        ids = [row.cycle_id for row in unfinished]
        is_whole = ids == [self.cut.cycle_id, self.again.cycle_id]
        owed(is_whole, f"journal.views.unfinished() must be the cycles that have not ended, in order, found {ids}")
        cut, again = unfinished
        owed(again.attempts == 2, "a cycle that is put off must be known as it was put off")
        owed(journal.is_open(cut.cycle_id) and journal.open_cycles >= 2, "a cycle that was cut off must count as open")
        is_known = cut.items == self.cut.items and are_same(cut.perceptions, self.cut.perceptions)
        owed(is_known, "a cycle that was cut off must be known with what it was begun on")
        same_calls = cut.action is not None and are_same(cut.action.calls, self.action.calls)
        owed(same_calls, "a cycle that was cut off must be known with the calls of its action, in their order")
        owed(cut.action.goal == self.action.goal, "a cycle that was cut off must be known with its action")
        ends = [(row.call.tool, row.status) for row in cut.known]
        are_known = ends == [("ended", "ok"), ("begun", "in_doubt")]
        owed(are_known, f"of a cycle that was cut off must be known which calls ended and which are in doubt: {ends}")
        owed(cut.known[0].output == self.output, "the output of a call that has ended must come back exactly")
        for status, item in self.runs.items():
            _, answer = await self.views.run(mark, item.id)
            owed(answer and answer.get("status") == status, f"an answered run must have ended: {answer}")
        record = await self.store.cycle(self.closed)
        owed(record is not None and record.outcome == "acted", "a closed cycle must be recorded")
        origins = [row.origin for row in await self.store.recall(f"{mark}learnt")]
        owed(origins.count(self.closed) == 1, "what a closed cycle taught must be recalled")
        left = [row.id for row in await self.views.items(mark)]
        owed(left == [self.item.id, self.waits.id], "closing a cycle must end the items that are done")
        rows = await self.views.rows(mark)
        are_in_time = rows == {"sensor": 1, "of the module": 2, "end": 3}
        owed(are_in_time, f"rows must change with the beginning or the end of their cycle, and only then, found {rows}")
        owed(await self.store.load(f"{mark}cursor") == 7, "opening must keep the cursors")
        texts = [row.body.get("text") for row in await self.transcripts.read(mark, mark)]
        owed(texts == ["hello"], "closing must add the entries of the transcript")


class DoubtsDuty(Duty):
    """Calls in doubt: open until they are answered, once."""

    async def write(self) -> None:
        cycle, at, answered = new_id(), self.harness.clock.now(), facts.DoubtAnswered
        calls = [Call("pay", {"amount": 1}, id=f"c{new_id()}"), Call("other"), Call("again")]
        self.tell(facts.CycleOpened, cycle=cycle)
        self.plan(cycle, calls[0], values={"amount": 2**53 + 1})
        self.tell(facts.CycleWritten, cycle=cycle, closing=Closing("interrupted", done=("none",)))
        self.doubts = [
            Doubt(f"{cycle}/{call.id}", call, cycle, at=at + timedelta(milliseconds=n), why=ODD_TEXTS[2])
            for n, call in enumerate(calls)
        ]
        for doubt in self.doubts:
            self.tell(facts.CallDoubted, doubt=doubt)
        answer = replace(self.doubts[1], answer="done", output={"n": 1}, answered_by="a person")
        await self.commit(answered, doubt=answer)
        self.again = Unfinished(new_id(), "main", (seen("again"),), action=Action([calls[2]]))
        repeated = replace(self.doubts[2], answer="again", answered_by="a person")
        await self.commit(answered, doubt=repeated, again=self.again)
        other = replace(self.again, cycle_id=new_id())
        await self.conflicts("an answered doubt", answered, doubt=replace(answer, answer="failed"), again=other)

    async def look(self) -> None:
        open_doubts = await self.views.doubts(self.mark)
        is_open = [row.id for row in open_doubts] == [self.doubts[0].id]
        owed(is_open, "journal.views.doubts() must be those nobody has answered")
        every = await self.views.doubts(self.mark, is_open=False)
        ids = [row.id for row in every]
        owed(ids == [row.id for row in self.doubts], f"views.doubts(is_open=False) must be all in order, found {ids}")
        owed([row.answer for row in every[1:]] == ["done", "again"], "the first answer of a doubt must stand")
        owed(every[1].output == {"n": 1}, "an answer must be kept with its output")
        call = await self.views.call(open_doubts[0])
        is_started = call.params == {"amount": 2**53 + 1}
        owed(is_started, "journal.views.call() must return the values that a call was started with")
        doubts, _ = await self.store.left(self.mark)
        owed([row.id for row in doubts] == ids, "store.left() must return the doubts, answered or not")
        going = await self.views.unfinished(self.mark)
        is_begun = [row.cycle_id for row in going] == [self.again.cycle_id] and going[0].action is not None
        owed(is_begun, "an answer must begin the cycle that makes the call again")
