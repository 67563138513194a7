"""One supervised sensor: due, late, failing, lying, in quarantine and back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from perception.supervision.buffer import MOST_BYTES, most_important
from perception.supervision.sensor_supervisor import SensorSupervisor
from spar.clock import Clock, SystemClock
from spar.errors import ContractError, TransientError
from spar.events import ErrorOccurred, SensorQuarantined, SensorRestored
from spar.hooks import Hooks
from spar.protocols import Context, Host, SensorContext, SensorSpec
from spar.testing import RecordingEvents, VirtualClock
from spar.types import Perception
from tests.doubles import Cursors
from tests.waiting import cancelled, until


class Recorder(RecordingEvents):
    @property
    def faults(self) -> list[Any]:
        return [event.error for event in self.of(ErrorOccurred)]


class Stage:
    """A keeper with what it needs, and time to let it work."""

    def __init__(
        self, sensor: Any, clock: Clock, store: Any = None, *, limit: int = 100, accept: Any = None, **spec: Any
    ) -> None:
        self.events, self.wakes, self.turns = Recorder(), 0, 0
        self.polls = self.awaited = 0  # turns of the open sensor, and those that the test has waited for
        self.was_open = False
        host = Host("main", clock, self.events, Hooks(), self.wake, store, accept=accept)
        self.clock = clock
        self.supervisor = SensorSupervisor(
            SensorSpec("eye", sensor, **spec),
            host,
            limit=limit,
            arrived=self.wake,
            changed=self.turned,
            report=lambda *args, **fields: None,
        )

    def wake(self) -> None:
        self.wakes += 1

    def turned(self, supervisor: SensorSupervisor) -> None:
        self.turns += 1
        self.polls += self.was_open
        self.was_open = supervisor.snapshot()["is_open"]

    async def turn(self) -> None:
        """Let time pass until the sensor's next poll has ended; one without a rhythm is asked when it is due."""
        supervisor = self.supervisor
        self.awaited += 1
        while self.polls < self.awaited:
            left = supervisor.due - self.clock.monotonic()
            if left <= 0 and not supervisor.has_rhythm:
                supervisor.begin(Context("main", "cycle-1"))
            await self.clock.sleep(
                left if 0 < left < float("inf") else 0.002 if supervisor.is_busy else 0.1 if left > 0 else 0.002
            )

    def taken(self) -> list[Perception]:
        items = most_important([self.supervisor.buffer], 1_000, MOST_BYTES)
        self.supervisor.buffer.release()
        return items


@asynccontextmanager
async def opened(sensor: Any, clock: Clock, store: Any = None, **spec: Any) -> AsyncIterator[Stage]:
    stage = Stage(sensor, clock, store, **spec)
    stage.supervisor.start()
    await until(lambda: stage.turns > 0)
    try:
        yield stage
    finally:
        await stage.supervisor.close()


class Polled:
    """Returns, raises or awaits what its script says, one item for each poll; opens and closes are counted."""

    every = 1.0

    def __init__(self, *script: Any) -> None:
        self.script = list(script)
        self.opened = self.closed = 0
        self.context: SensorContext | None = None

    async def open(self, ctx: SensorContext) -> None:
        self.opened += 1
        self.context = ctx

    async def poll(self) -> Any:
        item = self.script.pop(0) if self.script else []
        if isinstance(item, Exception):
            raise item
        return await item() if callable(item) else item

    async def close(self) -> None:
        self.closed += 1


async def test_a_polled_perception_is_signed_with_the_name_and_session_of_its_sensor(clock: VirtualClock) -> None:
    async with opened(
        Polled([Perception("a"), Perception("b", source="own", session="other")]), clock, session="ops"
    ) as stage:
        await stage.turn()

        found = [(item.content, item.source, item.session) for item in stage.taken()]

    assert found == [("a", "eye", "ops"), ("b", "own", "other")]


async def test_polls_keep_their_rate_from_start_to_start(clock: VirtualClock) -> None:
    async def slowly() -> list[Perception]:
        await clock.sleep(0.4)
        return []

    async with opened(Polled(slowly, slowly), clock) as stage:
        begun = []
        for _ in range(3):
            await stage.turn()
            begun.append(stage.supervisor.snapshot()["last_poll_age"])
            rate = stage.supervisor.due - (clock.monotonic() - begun[-1])

            assert rate == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("product", "found"),
    [("text", "str"), ({"a": 1}, "dict"), (42, "int"), ([Perception("good"), "bad"], "'bad'")],
    ids=["text", "mapping", "number", "one of the list"],
)
async def test_a_sensor_that_returns_nonsense_is_named(clock: VirtualClock, product: Any, found: str) -> None:
    async with opened(Polled(product), clock) as stage:
        await stage.turn()
        taken = stage.taken()

    fault = stage.events.faults[0]
    assert (fault.kind, fault.part, fault.phase) == ("contract", "eye", "sense")
    assert "'eye'" in fault.message
    assert found in fault.message
    assert [item.content for item in taken] == (["good"] if isinstance(product, list) else [])


@pytest.mark.parametrize("product", [None, Perception("one"), (Perception("one"),)], ids=["none", "bare", "tuple"])
async def test_what_can_be_understood_as_perceptions_is_accepted(clock: VirtualClock, product: Any) -> None:
    async with opened(Polled(product), clock) as stage:
        await stage.turn()

        assert len(stage.taken()) == (0 if product is None else 1)
        assert stage.supervisor.state == "ok"


async def test_a_failing_sensor_backs_off_and_forgets_it_when_it_works_again(clock: VirtualClock) -> None:
    failures = OSError("a"), OSError("b"), OSError("c"), TransientError("busy", retry_after=90.0)
    async with opened(Polled(*failures), clock, every=0.0, within=0.1) as stage:
        pauses = []
        for _ in failures:
            await stage.turn()
            pauses.append(stage.supervisor.due - clock.monotonic())
            assert stage.supervisor.state == "backing_off"
        await stage.turn()

    assert pauses == pytest.approx([0.5, 1.0, 2.0, 90.0], abs=0.05)
    assert (stage.supervisor.state, stage.supervisor.trouble.failures) == ("ok", 0)
    assert [event.policy for event in stage.events.of(ErrorOccurred)] == ["skip"] * 4


async def test_too_many_failures_lead_to_quarantine_and_a_probe_leads_out_of_it(clock: VirtualClock) -> None:
    sensor = Polled(*[OSError("no route")] * 4)
    async with opened(sensor, clock, max_failures=3, within=60.0, probe_after=600.0) as stage:
        for _ in range(3):
            await stage.turn()
        quarantined_at = clock.monotonic()

        assert stage.supervisor.state == "quarantined"
        assert sensor.closed == 1

        await stage.turn()  # the probe fails
        assert stage.supervisor.state == "quarantined"
        assert clock.monotonic() - quarantined_at == pytest.approx(600.0, abs=1)
        assert not stage.events.of(SensorRestored)

        await stage.turn()  # the next one does not
        assert stage.supervisor.state == "ok"
        assert clock.monotonic() - quarantined_at == pytest.approx(1200.0, abs=1)

    assert [event.sensor for event in stage.events.of(SensorRestored)] == ["eye"]
    (quarantine,) = stage.events.of(SensorQuarantined)
    assert quarantine.sensor == "eye"
    assert "no route" in quarantine.reason
    assert [event.policy for event in stage.events.of(ErrorOccurred)] == ["skip", "skip", "quarantine", "quarantine"]


async def test_a_sensor_that_cannot_be_opened_is_closed_and_opened_again_later(clock: VirtualClock) -> None:
    class Stubborn(Polled):
        async def open(self, ctx: SensorContext) -> None:
            await super().open(ctx)
            if self.opened < 3:
                raise ConnectionError("refused")

    sensor = Stubborn([Perception("there")])
    async with opened(sensor, clock) as stage:
        assert stage.supervisor.state == "backing_off"
        await stage.turn()

        assert (sensor.opened, sensor.closed) == (3, 2)
        assert [item.content for item in stage.taken()] == ["there"]
        assert stage.supervisor.state == "ok"


async def test_a_pushing_sensor_that_never_opens_ends_in_quarantine(clock: VirtualClock) -> None:
    class Closed:
        async def open(self, ctx: SensorContext) -> None:
            raise OSError("port is taken")

    async with opened(Closed(), clock, max_failures=2) as stage:
        await until(lambda: stage.supervisor.state == "quarantined")

        assert stage.supervisor.snapshot()["last_error"] == "port is taken"


async def test_a_poll_that_hangs_is_cancelled_at_its_timeout(clock: VirtualClock) -> None:
    async with opened(Polled(lambda: clock.sleep(1e6)), clock, timeout=2.0) as stage:
        await stage.turn()

    (fault,) = stage.events.faults
    assert fault.kind == "timeout"
    assert fault.message == "sensor 'eye': poll took longer than 2 s and was cancelled"


async def test_a_poll_that_ignores_its_cancellation_is_left_behind_and_not_repeated(clock: VirtualClock) -> None:
    release = asyncio.Event()
    begun = 0

    async def deaf() -> list[Perception]:
        nonlocal begun
        begun += 1
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return [Perception("late")]

    sensor = Polled(deaf, [Perception("next")])
    async with opened(sensor, clock, timeout=1.0, every=0.0) as stage:
        await stage.turn()
        await stage.turn()

        assert begun == 1
        assert stage.supervisor.snapshot()["left_behind"] == 1
        assert [fault.message for fault in stage.events.faults] == [
            "sensor 'eye': poll took longer than 1 s and was left behind",
            "sensor 'eye': an earlier call still runs",
        ]

        release.set()
        await until(lambda: stage.supervisor.buffer.waiting > 0)
        stage.awaited += 1  # what came late was told as a turn
        await stage.turn()

        assert [item.content for item in stage.taken()] == ["late", "next"]
        assert stage.supervisor.state == "ok"


async def test_a_poll_that_blocks_its_thread_is_left_behind_and_its_late_find_is_kept() -> None:
    release = threading.Event()

    class Blocking:
        every = 0.0
        closed = False

        def poll(self) -> list[Perception]:
            release.wait(60)
            return [Perception("late")]

        def close(self) -> None:
            self.closed = True

    sensor = Blocking()
    try:
        async with opened(sensor, SystemClock(), timeout=0.03) as stage:
            await stage.turn()
            assert stage.events.faults[0].kind == "timeout"
            release.set()
            await until(lambda: stage.supervisor.buffer.waiting > 0)
            assert [item.content for item in stage.taken()] == ["late"]
    finally:
        release.set()
    assert sensor.closed


async def test_a_push_wakes_and_is_refused_and_counted_when_the_buffer_is_full(clock: VirtualClock) -> None:
    sensor = Polled()
    async with opened(sensor, clock, limit=2) as stage:
        assert sensor.context is not None
        accepted = [sensor.context.push(Perception(str(i))) for i in range(3)]

        assert accepted == [True, True, False]
        assert stage.wakes == 1  # for both
        assert stage.supervisor.snapshot()["dropped"] == 1
        assert stage.supervisor.snapshot()["pushed"] == 2
    assert sensor.context.push(Perception("too late")) is False


async def test_what_a_poll_returns_beyond_the_buffer_is_taken_and_the_next_poll_waits_for_room(
    clock: VirtualClock,
) -> None:
    sensor = Polled(
        [Perception(str(i)) for i in range(5)], *[[Perception(f"{i}a"), Perception(f"{i}b")] for i in "1234"]
    )
    async with opened(sensor, clock, every=1.0, limit=4) as stage:
        for polls, found in (1, [*"01234"]), (3, ["1a", "1b", "2a", "2b"]), (5, ["3a", "3b", "4a", "4b"]):
            await clock.sleep(3.5)
            assert stage.supervisor.snapshot()["waiting"] == len(found)
            assert stage.supervisor.polls == polls
            assert [item.content for item in stage.taken()] == found
        assert stage.supervisor.snapshot()["dropped"] == 0
        assert not stage.events.faults


async def test_pushing_nonsense_from_a_thread_is_told_by_name(clock: VirtualClock) -> None:
    sensor = Polled()
    async with opened(sensor, clock) as stage:
        push: Any = sensor.context.push
        thread = threading.Thread(target=push, args=({"content": "x"},))
        thread.start()
        thread.join()
        await until(lambda: bool(stage.events.faults))

    fault = stage.events.faults[0]
    assert (fault.kind, fault.part) == ("contract", "eye")
    assert "found dict ({'content': 'x'})" in fault.message


async def test_a_sensor_is_not_opened_again_before_its_closing_has_ended(clock: VirtualClock) -> None:
    order: list[str] = []

    class Slow(Polled):
        async def open(self, ctx: SensorContext) -> None:
            order.append("open")
            await super().open(ctx)

        async def close(self) -> None:
            order.append("closes")
            await clock.sleep(5.0)
            order.append("closed")

    sensor = Slow()
    async with opened(sensor, clock, max_failures=1, probe_after=1.0, timeout=30.0) as stage:
        push: Any = sensor.context.push
        push("no perception")  # between two polls: the next one would be due while the sensor closes
        await clock.sleep(10.0)
        assert stage.supervisor.state == "ok"

    assert order == ["open", "closes", "closed"] * 2


async def test_a_sensor_may_hold_a_task_group_from_open_to_close_and_is_opened_again_when_its_work_fails(
    clock: VirtualClock,
) -> None:
    class Grouped:
        opened = 0

        async def open(self, ctx: SensorContext) -> None:
            self.opened += 1
            self.group = anyio.create_task_group()
            await self.group.__aenter__()
            self.group.start_soon(self.serve, ctx)

        async def serve(self, ctx: SensorContext) -> None:
            if self.opened == 1:
                await clock.sleep(1.0)
                raise ConnectionError("lost the broker")
            ctx.push(Perception("again"))
            await clock.sleep(1e6)

        async def close(self) -> None:
            self.group.cancel_scope.cancel()
            await self.group.__aexit__(None, None, None)

    sensor = Grouped()
    async with opened(sensor, clock) as stage:
        await until(lambda: stage.supervisor.buffer.waiting > 0)
        assert sensor.opened == 2
        assert [item.content for item in stage.taken()] == ["again"]
    assert [fault.message for fault in stage.events.faults] == ["lost the broker"]


async def test_a_sensor_that_cancels_itself_has_failed_and_nothing_else_has(clock: VirtualClock) -> None:
    async def cancel() -> None:
        raise asyncio.CancelledError

    async with opened(Polled(cancel, [Perception("fine")]), clock) as stage:
        await stage.turn()
        await stage.turn()

        assert [item.content for item in stage.taken()] == ["fine"]
    assert [fault.kind for fault in stage.events.faults] == ["transient"]


async def test_closing_cuts_a_poll_that_runs_and_then_closes(clock: VirtualClock) -> None:
    steps: list[str] = []

    class Long:
        every = 0.0

        async def poll(self) -> list[Perception]:
            try:
                await clock.sleep(1e6)
            finally:
                steps.append("poll ended")
            return []

        async def close(self) -> None:
            steps.append("closed")

    async with opened(Long(), clock, timeout=1e9) as stage:
        stage.supervisor.begin(None)
        await clock.sleep(0.01)

    assert steps == ["poll ended", "closed"]


# -- cursors


async def test_a_row_and_a_cursor_are_saved_only_after_what_came_before_them_was_taken(clock: VirtualClock) -> None:
    store, sensor = Cursors(), Polled()
    async with opened(sensor, clock, store) as stage:
        sensor.context.push(Perception("1"))
        sensor.context.rows.keep("a", 1)
        sensor.context.push(Perception("2"))
        sensor.context.checkpoint({"at": 2})

        await stage.supervisor.ledger.save()
        assert store.values == {}

        most_important([stage.supervisor.buffer], 1, MOST_BYTES)
        stage.supervisor.buffer.release()
        await stage.supervisor.ledger.save()
        assert store.values == {"sensor:main:eye": {"a": 1}}

        most_important([stage.supervisor.buffer], 1, MOST_BYTES)
        stage.supervisor.buffer.release()
        await stage.supervisor.ledger.save()
        assert store.values == {"cursor:main:eye": {"at": 2}, "sensor:main:eye": {"a": 1}}


async def test_a_cursor_and_a_row_of_a_poll_wait_for_what_the_poll_returns_though_another_always_runs(
    clock: VirtualClock,
) -> None:
    store = Cursors()

    class Paging(Polled):
        page = 0

        async def poll(self) -> list[Perception]:
            self.page += 1
            self.context.checkpoint(self.page)
            self.context.rows.keep("page", self.page)
            await clock.sleep(1.0)
            return [Perception(f"page {self.page}")]

    async with opened(Paging(), clock, store, every=1.0) as stage:
        await clock.sleep(0.5)
        assert stage.taken() == []
        await stage.supervisor.ledger.save()
        assert store.values == {}
        for page in range(1, 6):
            await clock.sleep(1.0)
            assert stage.supervisor.is_busy
            assert [item.content for item in stage.taken()] == [f"page {page}"]
            await stage.supervisor.ledger.save()
            assert store.values == {"cursor:main:eye": page, "sensor:main:eye": {"page": page}}


async def test_a_store_that_fails_to_load_delays_the_opening_instead_of_forgetting(clock: VirtualClock) -> None:
    store, sensor = Cursors(), Polled()
    store.values["cursor:main:eye"] = 5
    store.fails = True

    async with opened(sensor, clock, store):
        assert sensor.opened == 0
        store.fails = False
        await until(lambda: sensor.opened == 1)

        assert sensor.context.cursor == 5


async def test_a_cursor_and_rows_that_could_not_be_saved_are_saved_the_next_time(clock: VirtualClock) -> None:
    store, sensor = Cursors(), Polled()
    async with opened(sensor, clock, store) as stage:
        sensor.context.rows.keep("a", 1)
        sensor.context.rows.keep("b", 1)
        sensor.context.checkpoint(1)
        stage.taken()
        store.fails = True
        await stage.supervisor.ledger.save()
        sensor.context.rows.keep("a", 2)
        stage.taken()
        store.fails = False
        await stage.supervisor.ledger.save()
        assert store.values == {"cursor:main:eye": 1, "sensor:main:eye": {"a": 2, "b": 1}}
        sensor.context.checkpoint(2)
        stage.taken()
        saving = asyncio.ensure_future(stage.supervisor.ledger.save())
        await asyncio.sleep(0)
        await cancelled(saving)
        await stage.supervisor.ledger.save()
    assert store.values["cursor:main:eye"] == 2
    assert [event.policy for event in stage.events.of(ErrorOccurred)] == ["retry"]


async def test_what_a_sensor_accepts_is_signed_and_taken_in_by_the_agent(clock: VirtualClock) -> None:
    accepted: list[Perception] = []

    async def accept(perception: Perception) -> bool:
        accepted.append(perception)
        return len(accepted) == 1

    sensor = Polled()
    async with opened(sensor, clock, accept=accept, session="alerts") as stage:
        assert await sensor.context.accept(Perception("disk full")) is True
        assert await sensor.context.accept(Perception("disk full")) is False
        with pytest.raises(ContractError, match="must accept a Perception, found str"):
            await sensor.context.accept("x")  # type: ignore[arg-type]

        assert stage.supervisor.buffer.waiting == 0
    assert [(each.source, each.session) for each in accepted] == [("eye", "alerts")] * 2
