"""Duties of a store towards data besides work: state, rows, records, budgets, transcripts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from spar import facts
from spar.errors import ConflictError, FencedError, TooLargeError
from spar.records.journal import Closing, RowChange, Spend
from spar.records.transcript import Entry
from spar.testing.duties import ODD_TEXTS, Duty, are_same, listed, owed
from spar.types import CycleRecord, utcnow

#: JSON values that stores have changed before.
EXACT: tuple[Any, ...] = (
    None, True, False, 0, -1, 1.0, 2**53 + 1, 2**63 - 1, -(2**63), 0.1, -0.0, 5e-324, 1.7976931348623157e308, "",
    "null", [], {}, [[]], {"": {"": None}}, [1, [2.5, {"a": [None, False]}]], {"ключ": "†\U0001d11e"}, *ODD_TEXTS,
)  # fmt: skip
#: Values that small state refuses, too large and no JSON, each with its error.
_REFUSED: tuple[tuple[Any, type[Exception]], ...] = (("x" * (2 << 20), TooLargeError), (object(), ValueError))


class StateDuty(Duty):
    """Small state: stored exactly or refused, and the last saved value counts."""

    async def write(self) -> None:
        self.values = {f"{self.mark}{n}{how}": value for n, value in enumerate(EXACT) for how in ("told", "saved")}
        for key, value in self.values.items():
            if key.endswith("told"):
                self._append(key, value)
            else:
                await self.store.save(key, value)
        for n in range(3):  # journal and store in turns: the last value counts
            self._append(f"{self.mark}turn", {"told": n})
            await self.store.save(f"{self.mark}turn", {"saved": n})
        self.values[f"{self.mark}turn"] = {"saved": 2}
        for number, (value, kind) in enumerate(_REFUSED):
            key = f"{self.mark}refused{number}"
            self.values[key] = "former"
            await self.store.save(key, "former")
            await self.refuses("store.save() of what cannot be kept", self.opened.save(key, value), kind)
            await self.refuses("journal.append() of what cannot be kept", _call(self._append, key, value), kind)

    def _append(self, key: str, value: Any) -> None:
        self.journal.append(facts.ValueSaved(key=key, value=value))

    async def look(self) -> None:
        for key, value in self.values.items():
            is_same = are_same(loaded := await self.store.load(key), value)
            owed(is_same, f"store must load what was saved exactly, saved {value!r:.80}, found {loaded!r:.80}")


class RowsDuty(Duty):
    """Small rows: in order, all rows of one change or none."""

    async def write(self) -> None:
        mark = self.mark
        self.rows = {str(n): value for n, value in enumerate(EXACT)}
        self._append(*(RowChange(mark, key, value) for key, value in self.rows.items()))
        self._append(
            RowChange(mark, "order", 1), RowChange(mark, "order", 2), RowChange(mark, "gone", 1),
            RowChange(mark, "gone", is_dropped=True), RowChange(mark, "back", 1),
            RowChange(mark, "back", is_dropped=True), RowChange(mark, "back", 2),
        )  # fmt: skip
        await self.store.change((RowChange(mark, "stored", 1),))
        self.rows |= {"order": 2, "back": 2, "stored": 1}
        await self.harness.value("journal.safe()", self.journal.safe())
        for value, kind in _REFUSED:
            change = _call(self._append, RowChange(mark, "half", 1), RowChange(mark, "refused", value))
            await self.refuses("journal.append() of what cannot be kept", change, kind)

    def _append(self, *changes: RowChange) -> None:
        self.journal.append(facts.RowsChanged(changes=changes))

    async def look(self) -> None:
        for what, rows in (("journal.views.rows()", self.views.rows), ("store.rows()", self.store.rows)):
            stored = await rows(self.mark)
            names = sorted(set(stored) ^ set(self.rows))
            owed(not names, f"{what} must return the rows of all changes that were accepted and no other, but: {names}")
            for key, value in self.rows.items():
                is_same = are_same(now := stored[key], value)
                owed(is_same, f"{what} must return values exactly, kept {value!r:.80}, found {now!r:.80}")


class CountsDuty(Duty):
    """Counts of an agent: the last written counts, and the additions of later cycles."""

    async def write(self) -> None:
        agent, besides = self.mark, {"outcomes": {"idle": 2}, "errors_by_phase": {"plan": 1}}
        for number, total in enumerate((None, {"outcomes": {"idle": 7}, "durations": {"cycle": [7, 3.5]}})):
            if total is not None:
                self.journal.append(facts.TotalsCounted(total=total), agent)
            for cycle in range(3):
                id = f"{agent}{number}{cycle}"
                self.tell(facts.CycleOpened, cycle=id)
                record = CycleRecord(id, agent, "main", utcnow(), 0.5, "acted", phases={"plan": 0.25})
                closing = Closing("acted", record, besides=besides if cycle else None)
                self.tell(facts.CycleWritten, cycle=id, closing=closing)
        await self.harness.value("journal.safe()", self.journal.safe())

    async def look(self) -> None:
        counts = await self.views.counts(self.mark)
        expected = {"outcomes": {"idle": 11, "acted": 3}, "errors_by_phase": {"plan": 2},
                    "durations": {"cycle": (10, 5.0), "plan": (3, 0.75)}}  # fmt: skip
        for name, numbers in expected.items():
            is_sum = listed(counted := counts.get(name, {})) == listed(numbers)
            owed(is_sum, f"journal.views.counts() must add up to {name} {numbers}, found {counted!r:.200}")


class RecordsDuty(Duty):
    """Records: changed by compare-and-set, after all earlier changes of the journal."""

    async def write(self) -> None:
        kind, keep, drop = self.mark, self.store.keep, self.store.drop
        owed(await keep(kind, "a", EXACT[-4], expect=0) == 1, "versions begin at 1")
        owed(await keep(kind, "a", [1], expect=1) == 2, "versions count up")
        for expect in (0, 1, 3):
            work = self.opened.keep(kind, "a", "lost", expect=expect)
            await self.refuses("store.keep() of another version", work, ConflictError)
        for id in ("c", "b"):
            await keep(kind, id, {"id": id})
        owed(await drop(kind, "c"), "store.drop() must say that there was a row")
        owed(not await drop(kind, "c"), "store.drop() must say that there was none")
        works = (self.opened.keep(kind, "d", n, expect=0) for n in range(2))
        both = await asyncio.gather(*works, return_exceptions=True)
        won = [n for n, version in enumerate(both) if version == 1]
        owed(len(won) == 1, f"of two who create a row exactly one must succeed, found {both!r:.200}")
        self.won = won[0]

    async def look(self) -> None:
        rows = [(record.id, record.version, record.value) for record in await self.store.records(self.mark)]
        expected = [("a", 2, [1]), ("b", 1, {"id": "b"}), ("d", 1, self.won)]
        owed(rows == expected, f"store.records() must be the rows by id, expected {expected}, found {rows!r:.200}")


class BudgetsDuty(Duty):
    """Budgets: sums of all amounts, by window and quantity."""

    async def write(self) -> None:
        hour, day = f"hour:{self.mark}", f"day:{self.mark}"
        both = Spend(hour, "tokens", 1_000_003), Spend(day, "tokens", 1_000_003)
        for spends in (*[both] * 100, (Spend(hour, "tokens", -3), Spend(hour, "calls", 5), Spend(day, "calls", 0))):
            self.journal.append(facts.BudgetUsed(spends=spends))
        self.spent = {(hour, "tokens"): 100_000_297, (day, "tokens"): 100_000_300, (hour, "calls"): 5}

    async def look(self) -> None:
        spent = [total for total in await self.views.spent() if total.window.endswith(self.mark) and total.amount]
        sums = {(total.window, total.quantity): total.amount for total in spent}
        is_sum, expected = sums == self.spent, f"expected {self.spent}"
        owed(is_sum, f"journal.views.spent() must be the sums of what was spent, {expected}, found {sums}")


class TranscriptsDuty(Duty):
    """Transcripts: in order, by one run at a time, read from the last compaction on."""

    async def write(self) -> None:
        agent, append = self.mark, self.transcripts.append
        self.texts = [*ODD_TEXTS[:5], "last"]
        first = [Entry("user", {"text": text}, at=self.harness.clock.now()) for text in self.texts[:3]]
        await append(agent, "s", "one", first)
        await append(agent, "other", "one", [Entry("user", {"text": "o"})])
        await append(agent, "s", "two", [Entry("turn", {"text": text}) for text in self.texts[3:]])
        late = self.opened.transcripts.append(agent, "s", "one", [Entry("end", {"text": "!"})])
        await self.refuses("transcripts.append() of a run whose session was taken over", late, FencedError)
        entries = [Entry("turn", {"text": "half"}), Entry("turn", {"text": "strange"}, "three")]
        strange = self.opened.transcripts.append(agent, "s", "two", entries)
        await self.refuses("transcripts.append() of another run's entry", strange, ValueError)
        tail = await self.transcripts.tail(agent, "s", 1)
        owed(len(tail) == 1, "transcripts.tail() must return as many entries as are asked for")
        body = {"summary": "so far", "first_kept": tail[0].seq, "tokens_before": 2, "tokens_after": 1}
        await append(agent, "s", "two", [Entry("compaction", body)])

    async def look(self) -> None:
        texts, agent = self.transcripts, self.mark
        entries = await texts.tail(agent, "s", 100)
        texts_now = [entry.body.get("text", entry.kind) for entry in entries]
        is_whole = texts_now == [*self.texts, "compaction"]
        owed(is_whole, f"entries must come back exactly and in order, found {texts_now!r:.200}")
        numbers = [entry.seq for entry in entries]
        owed(all(a < b for a, b in pairwise(numbers)), f"seq must grow strictly, found {numbers}")
        before = await texts.tail(agent, "s", 2, numbers[2])
        owed([entry.seq for entry in before] == numbers[:2], "transcripts.tail(before=…) must be what came before that")
        kinds = [entry.body.get("text", entry.kind) for entry in await texts.read(agent, "s")]
        owed(kinds == ["compaction", "last"], f"transcripts.read() must begin with the last compaction, found {kinds}")
        sessions = [(entry.session, entry.entries) for entry in await texts.sessions(agent)]
        is_newest_first = sessions == [("s", len(entries)), ("other", 1)]
        owed(is_newest_first, f"transcripts.sessions() must be those with entries, the newest first, found {sessions}")


async def _call(function: Callable[..., object], *arguments: Any) -> object:
    return function(*arguments)
