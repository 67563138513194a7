"""A backtest: what would have been decided otherwise, in numbers; interrupted and continued; its page."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from msgspec import to_builtins
from msgspec.json import decode, encode

from spar.config.tables.settings import Loaded
from spar.replay.again import AnswersOfRecord
from spar.replay.backtest import Backtest
from spar.replay.deciding import Decider
from spar.replay.page import page_of
from spar.replay.tally import Tally
from spar.replay.tape import Tape
from spar.types import Action, CycleRecord
from tests.replay.tapes import BEGAN, configured, cycle, decided, reading, rule, taped


async def tallied(tape: Tape, live: Loaded, loaded: Loaded, tally: Tally | None = None, *, name: str = "",
                  pages: int = 1_000, since: Any = None) -> Tally:  # fmt: skip
    """Return the numbers after so many pages."""
    tally, answers, left = tally or Tally(), AnswersOfRecord(), pages

    def progress(tally: Tally) -> bool:
        nonlocal left
        left -= 1
        return left > 0

    limits = live.settings.budgets.limits, loaded.settings.budgets.limits
    async with Decider(loaded, tape.memory, tape.agent, answer_to=answers, rows=tally.rows) as decider:
        recorded = Decider(live, tape.memory, tape.agent)
        await Backtest(decider, answers, recorded, limits, tally, name).run(
            Tape(tape.memory, tape.agent), since, progress)  # fmt: skip
    return tally


PAGE = 50


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spar.replay.tape.PAGE", PAGE)


LIVE = configured(rule("all"), rule("some", when={"kind": "reading", "pattern": "[0-4]"}))
OTHER = configured(
    rule("all", "{text}!"), rule("some", when={"kind": "reading", "pattern": "[0-6]"}),
    approval={"rules": [{"tool": "note", "decision": "ask"}]}, budgets={"hour": {"calls": 12}},
)  # fmt: skip


async def test_what_would_be_decided_otherwise_is_counted_and_has_a_first_example(tmp_path: Path) -> None:
    records = await decided(LIVE, [[reading(str(number))] for number in range(10)])
    async with taped(tmp_path, records) as tape:
        same = await tallied(tape, LIVE, LIVE)
        assert (same.cycles, same.same, same.differs, same.disagreements) == (10, 10, 0, {})
        assert (same.calls.same, same.asked.now, same.refused.now) == (15, 0, 0)
        tally = await tallied(tape, LIVE, OTHER)
        assert (tally.cycles, tally.differs) == (10, 10)
        assert to_builtins(tally.calls) == {"same": 5, "added": 2, "saved": 0, "changed": 10}
        assert to_builtins(tally.rules["some"]) == {"same": 0, "added": 2, "saved": 0, "changed": 0}
        assert to_builtins(tally.tools["note"]) == {"same": 0, "added": 2, "saved": 0, "changed": 10}
        assert to_builtins(tally.sessions) == {"main": {"cycles": 10, "differ": 10}}
        assert to_builtins([tally.asked, tally.refused]) == [{"recorded": 0, "now": 17}, {"recorded": 0, "now": 5}]
        first = tally.by_frequency[0]
        assert (first.count, first.what, first.first.cycle_id) == (10, "other: note by rule 'all'", f"{1:026x}")
        assert [one.count for one in tally.by_frequency] == [10, 2, 2]
        of_rule = await tallied(tape, LIVE, OTHER, name="some")
        assert (of_rule.differs, of_rule.same, of_rule.calls.added, of_rule.calls.changed) == (2, 8, 2, 0)
        late = await tallied(tape, LIVE, LIVE, since=BEGAN + timedelta(seconds=9))
        assert late.cycles == 2


async def test_an_interrupted_one_goes_on_and_counts_the_same(tmp_path: Path, small_pages: None) -> None:
    cool = configured(rule("all"), rule("seldom", cooldown=7))
    records = await decided(cool, [[reading(str(number))] for number in range(2 * PAGE + 5)])
    async with taped(tmp_path, records) as tape:
        whole = await tallied(tape, cool, cool)
        assert (whole.same, whole.differs) == (2 * PAGE + 5, 0)
        part = await tallied(tape, cool, cool, pages=1)
        assert part.cycles == PAGE
        part = decode(encode(part), type=Tally)
        assert to_builtins(await tallied(tape, cool, cool, part)) == to_builtins(whole)
        late = await tallied(tape, cool, cool, since=records[PAGE].started_at)
        assert (late.same, late.differs) == (PAGE + 5, 0)


async def test_a_tape_that_grows_or_shrinks_while_it_is_read_ends(tmp_path: Path, small_pages: None) -> None:
    records = await decided(LIVE, [[reading(str(number))] for number in range(PAGE + 2)])
    async with taped(tmp_path, records) as tape:
        until, pages = await tape.newest(), []
        async for page in tape.pages(None, "", until):
            pages.append(page)
            if len(pages) == 1:
                later = cycle(PAGE + 50, [], Action())
                async with taped(tmp_path, [later]):
                    pass
        assert [len(page) for page in pages] == [PAGE, 2]
        assert [len(page) async for page in tape.pages(until.started_at, "deleted", until)] == [1]


async def test_cycles_that_cannot_be_decided_again_are_counted_by_reason(tmp_path: Path) -> None:
    records: list[CycleRecord] = [
        cycle(number, [reading()], None, phases={}, outcome="interrupted") for number in (1, 2)
    ]
    records += [cycle(3, [reading()], None, phases={"sense": 0.1}, outcome="skipped")]
    async with taped(tmp_path, records) as tape:
        tally = await tallied(tape, LIVE, LIVE)

    assert tally.unknown == {"it was cut off before it decided": 2, "nothing was planned in it": 1}
    assert tally.days == {"2026-01-01": [0, 0, 3]}


async def test_an_empty_tape_has_nothing_to_count(tmp_path: Path) -> None:
    async with taped(tmp_path, []) as tape:
        tally = await tallied(tape, LIVE, LIVE)
        assert (tally.cycles, tally.last, tally.days) == (0, "", {})


async def test_the_page_has_one_picture_and_nothing_that_runs(tmp_path: Path) -> None:
    records = await decided(LIVE, [[reading("<script>alert(1)</script> & 3")], [reading("9")]])
    async with taped(tmp_path, records) as tape:
        tally = await tallied(tape, LIVE, OTHER)
    numbers = {**to_builtins(tally), "disagreements": to_builtins(tally.by_frequency)}
    page = page_of({"configuration": "a<b.toml", "about": "2 cycles", **numbers})

    assert page.count("<svg") == 1
    assert "<script" not in page
    assert "http" not in page
    assert "a&lt;b.toml" in page
    picture = ElementTree.fromstring(page[page.index("<svg") : page.index("</svg>") + 6])
    assert [bar.get("fill") for bar in picture.iter("rect")] == ["#d63"]
    empty = {**to_builtins(Tally()), "disagreements": []}
    assert "no cycles" in page_of({"configuration": "x", "about": "", **empty})
