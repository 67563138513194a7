"""What the pipeline has learnt outlives the process, with the cycle that took what taught it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from memory import Memory
from perception.pipeline import Pipeline
from perception.pipeline_rows import PipelineRows
from perception.sense import Sense
from spar import Action, Agent
from spar.hooks import Hooks
from spar.protocols import Host, SensorContext, SensorSpec
from spar.records.journal import RowChange
from spar.testing import RecordingEvents, VirtualClock
from spar.types import Perception


class Log:
    """Hands over lines when it is told to."""

    async def open(self, ctx: SensorContext) -> None:
        self.context = ctx

    def write(self, *lines: str) -> None:
        for line in lines:
            self.context.push(Perception(line, kind="log.line", at=self.context.clock.now()))


class Reader:
    def __init__(self) -> None:
        self.told: list[Perception] = []

    async def plan(self, perceptions: list[Perception]) -> Action | None:
        self.told += perceptions
        return None


async def life(path: Path, clock: VirtualClock, *batches: tuple[str, ...]) -> list[Perception]:
    """Run an agent over batches of lines, ten seconds apart, and stop it; returns what its planner was told."""
    log, reader = Log(), Reader()
    memory = Memory(f"sqlite:///{path}/spar.db")
    async with Agent(sense=Sense([SensorSpec("log", log)]), plan=reader, memory=memory, clock=clock, loop_interval=1.0):
        for lines in batches:
            log.write(*lines)
            await clock.sleep(10)
    return reader.told


async def test_a_template_is_known_after_a_restart_and_its_window_goes_on(tmp_path: Path, clock: VirtualClock) -> None:
    (first,) = await life(tmp_path, clock, ("job 1 done",), ("job 2 done", "job 3 done"))
    assert first.attributes["novelty"] == "template"

    told = await life(tmp_path, clock, ("job 4 done",), ("disk 1 is lost",), *[()] * 5, ("job 5 done",))

    assert [(one.content, one.attributes.get("novelty"), one.attributes.get("count")) for one in told] == [
        ("disk 1 is lost", "template", None),
        ("job 5 done", None, 4),
    ]


class RowsThatFailOnce:
    """Store whose first reading fails."""

    def __init__(self) -> None:
        self.asked = 0
        self.written: list[RowChange] = []

    async def rows(self, owner: str) -> dict[str, Any]:
        self.asked += 1
        if self.asked == 1:
            raise OSError("the disk did not answer")
        return {}

    async def change(self, changes: Sequence[RowChange]) -> None:
        self.written += changes


async def test_a_failed_reading_at_the_start_is_tried_again_at_the_next_opening(clock: VirtualClock) -> None:
    store, events, pipeline = RowsThatFailOnce(), RecordingEvents(), Pipeline()
    rows = PipelineRows(pipeline, Host("a", clock, events, Hooks(), lambda: None, store=store))
    await rows.load()
    await rows.load()
    await rows.load()
    pipeline.process([Perception("job 1 done", kind="log.line", at=clock.now())])
    await rows.close(is_at_rest=True)

    assert store.asked == 2
    assert [change.key.partition("/")[0] for change in store.written] == ["template"]


async def test_what_of_a_former_release_has_no_effect_is_noted(clock: VirtualClock) -> None:
    noted: list[tuple[str, str, bool]] = []

    def note(about: str, why: str, is_note: bool = False) -> None:
        noted.append((about, why, is_note))

    class Rows:
        async def rows(self, owner: str) -> dict[str, Any]:
            return {"series/a": [[1, 0, 0.0, 0, False, 0.0, 0.0], [300.0, 1.0, None, []], ["", "", ""], "host"]}

        async def change(self, changes: Sequence[RowChange]) -> None: ...

    store: Any = Rows()
    events: Any = None
    pipeline = Pipeline({"anomaly": {"rarity": 300}})
    rows = PipelineRows(pipeline, Host("a", clock, events, None, lambda: None, store, tell_problem=note))
    await rows.load()
    await rows.load()
    pipeline.settle()

    assert [(about, is_note) for about, _, is_note in noted] == [
        ("the setting perception.anomaly.rarity", True),
        ("anomalies of numbers", True),
    ]
    assert "the rows of 1 series cannot be read" in noted[1][1]
    assert [(change.key, change.is_dropped) for change in rows.ledger.row_changes()] == [("series/a", True)]
