"""The buffer of the perceptions of one sensor that no cycle has taken yet.

Pushed from any thread or returned by a poll, checked, signed with the sensor's name and kept in one bounded buffer,
together with the cursor that belongs to it. What a flood leaves of it is the sensor's declared policy; whatever is not
kept is counted. It decides nothing else: `SensorSupervisor` opens and closes it, `Sense` empties it.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Any

import msgspec

from perception.stages.severity import IMPORTANT, severity
from perception.supervision.sensor_rows import SensorRows
from spar.errors import ContractError
from spar.protocols import SensorSpec
from spar.types import Perception, replace

_ENCODER = msgspec.json.Encoder()

NOTHING: Any = object()  # a cursor may be anything, None too
#: Bytes of text that may wait, whatever their number.
MOST_BYTES = 64 * 1024 * 1024
#: Values within a perception that is no JSON that are looked at one by one to tell its size; what one counts for.
MOST_VALUES, VALUE_BYTES = 10_000, 16
#: How many times as much may wait if what comes is important: a flood of the ordinary leaves it room.
RESERVE = 2
#: Seconds after which who has not looked yet is told again that something waits.
TOLD_AGAIN = 0.1
#: Why a perception was not kept: there was no room for it, a newer one of its key came, older ones made room for newer
#: ones, a flood was thinned out, more important ones had the room.
REASONS = ("refused", "replaced", "oldest", "sampled", "outranked")


class SensorBuffer:
    """The buffer of one sensor; `buffer(perception)` is what the sensor knows as `push`.

    `when_full` says what becomes of a push into a full one. "refuse": it is refused, and the sensor told so. "latest":
    it takes the place of the waiting one of its key, else of the oldest. "sample": of those that wait every second one
    goes, so that what is kept is spread over the flood. `shed` counts what was not kept by `REASONS`. What probably
    matters (`perception.stages.severity`) has room of its own, `RESERVE`, and is shed last.

    `waiting` tells the sensor how much of its own nobody has sensed yet. A cursor is held back until everything handed
    over before it has been taken by a cycle or was shed; `release` lets it go.

    Args: limit: how many perceptions may wait; arrived: called from the thread of the first push since `best`, and of a
    later one after `TOLD_AGAIN` seconds; rejected: called with whatever was pushed that is no perception, from its
    thread; now: monotonic seconds; rows: the sensor's, whose changes are held back as its cursor is.
    """

    def __init__(
        self,
        spec: SensorSpec,
        limit: int,
        arrived: Callable[[], None],
        rejected: Callable[[object], None],
        now: Callable[[], float] = time.monotonic,
        rows: SensorRows | None = None,
    ) -> None:
        self._spec, self._limit, self._arrived, self._rejected, self._now = spec, limit, arrived, rejected, now
        # By their number, the oldest first, with the time at which they came, their size and their level.
        self._items: OrderedDict[int, tuple[float, int, Perception, int]] = OrderedDict()
        self._levels: dict[int, OrderedDict[int, None]] = {}  # the numbers of each level of severity
        self._of_key: dict[str, int] = {}  # of those that wait, under "latest"
        self._bytes = 0
        self._lock = threading.Lock()
        self._cursors: deque[tuple[int, Any]] = deque()  # that wait until what came before this number is taken
        self._of_poll: Any = NOTHING  # the cursor that the poll in hand has set
        self._is_polling, self._told_at = False, -inf
        self.cursor: Any = None  # the latest, for opening the sensor again
        self.unsaved: Any = NOTHING  # the one whose perceptions a cycle has taken
        self.rows = rows or SensorRows("", None)
        self.is_open = False
        self.handed_over = 0
        self.shed = dict.fromkeys(REASONS, 0)

    def __call__(self, perception: Perception) -> bool:
        if not isinstance(perception, Perception):
            self._rejected(perception)
            return False
        with self._lock:
            if not self.is_open:
                self.shed["refused"] += 1
                return False
            is_kept = self._keep(perception)
            is_news = is_kept and self._now() - self._told_at >= TOLD_AGAIN
            if is_news:
                self._told_at = self._now()
        if is_news:  # to wake a loop from a thread costs more than all the rest
            self._arrived()
        return is_kept

    @property
    def waiting(self) -> int:
        return len(self._items)

    @property
    def oldest_age(self) -> float | None:
        """The seconds for which the oldest has waited; None when none does."""
        with self._lock:
            since = next((at for at, *_ in self._items.values()), None)
        return None if since is None else max(self._now() - since, 0.0)

    @property
    def has_news(self) -> bool:
        return bool(self._items) or bool(self._cursors) or self.rows.has_news

    @property
    def dropped(self) -> int:
        """The number of perceptions that were not kept, for any reason."""
        return sum(self.shed.values())

    def checkpoint(self, cursor: Any) -> None:
        """Set the cursor (the sensor's `checkpoint`)."""
        with self._lock:
            self.cursor = cursor
            if self._is_polling:
                self._of_poll = cursor
            else:
                self._hold(cursor)

    def accept(self, product: object) -> None:
        """Take what a poll returned; a cursor that the poll set comes after it.

        Raises: ContractError for what is no perception, OverflowError for what was refused; the rest was taken.
        """
        items, wrong = _perceptions_of(product)
        with self._lock:
            kept = sum([self._keep(item) for item in items])
            self._poll_ended()
        name = self._spec.name
        if wrong:
            raise ContractError(f"sensor {name!r} must return a list of Perception from poll, found {wrong}")
        if kept < len(items):
            raise OverflowError(
                f"sensor {name!r} returned {len(items)} perceptions, room was for {kept}; the rest is lost"
            )

    @property
    def is_full(self) -> bool:
        """Return whether nothing more can be kept, so that what a poll returned would be lost."""
        return self._spec.when_full == "refuse" and self._is_full(0, 0)

    def best(self, at_most: int) -> list[tuple[int, int, int, int]]:
        """Return the most important that wait, of equal ones the oldest first: level, rank within it, number, size."""
        with self._lock:
            self._told_at = -inf
            offers: list[tuple[int, int, int, int]] = []
            for level in sorted(self._levels, reverse=True):
                numbers = itertools.islice(self._levels[level], at_most - len(offers))
                offers += [(level, rank, number, self._items[number][1]) for rank, number in enumerate(numbers)]
                if len(offers) >= at_most:
                    break
            return offers

    def take(self, numbers: Iterable[int]) -> list[Perception]:
        """Take these, in the order in which they came; those that were shed meanwhile are left out."""
        with self._lock:
            return [self._pop(number) for number in sorted(numbers) if number in self._items]

    def release(self) -> None:
        """Note that a cycle holds what was taken: a cursor that waited for it may be saved, and rows written."""
        with self._lock:
            oldest = self._oldest
            while self._cursors and self._cursors[0][0] <= oldest:
                self.unsaved = self._cursors.popleft()[1]
            self.rows.release(oldest)

    def begin_poll(self) -> None:
        """Note that a cursor set from here on, and changed rows, belong to what the poll will return."""
        with self._lock:
            self._is_polling = True
            self.rows.begin_poll()

    def end_poll(self) -> None:
        """Note that the poll has ended."""
        with self._lock:
            self._poll_ended()

    # -- with the lock held

    def _poll_ended(self) -> None:
        if self._of_poll is not NOTHING:
            self._hold(self._of_poll)
        self._is_polling, self._of_poll = False, NOTHING
        self.rows.end_poll()

    @property
    def _oldest(self) -> int:
        """The number of the first that waits, or of the next to come."""
        return next(iter(self._items), self.handed_over)

    def _hold(self, cursor: Any) -> None:
        while self._cursors and self._cursors[-1][0] == self.handed_over:
            self._cursors.pop()
        while len(self._cursors) > 1 and self._cursors[1][0] <= self._oldest:  # so that there are no more than wait
            self._cursors.popleft()
        self._cursors.append((self.handed_over, cursor))

    def _keep(self, perception: Perception) -> bool:
        """Keep one more as the policy has it; False if it was refused."""
        size = size_of(perception)
        policy, key = self._spec.when_full, perception.key
        level = round(severity(perception) * 100)
        if self._is_full(size, level):
            if policy == "refuse" or size > MOST_BYTES:
                self.shed["refused"] += 1
                return False
            if policy == "latest" and key is not None and (number := self._of_key.get(key)) is not None:
                self._shed(number, "replaced")
            elif policy == "sample" and (lowest := min(self._levels, default=0)) <= level:
                matters = IMPORTANT * 100
                for number in [n for n, item in self._items.items() if item[3] < matters or lowest >= matters][::2]:
                    self._shed(number, "sampled")
            while self._is_full(size, level):
                lowest = min(self._levels)
                if lowest > level:
                    self.shed["outranked"] += 1
                    return True  # as the policy has it
                self._shed(next(iter(self._levels[lowest])), "oldest" if lowest == level else "outranked")
        self._items[self.handed_over] = self._now(), size, self.signed(perception), level
        self._levels.setdefault(level, OrderedDict())[self.handed_over] = None
        if policy == "latest" and key is not None:
            self._of_key[key] = self.handed_over
        self._bytes += size
        self.handed_over += 1
        self.rows.next = self.handed_over
        return True

    def _is_full(self, size: int, level: int) -> bool:
        room = RESERVE if level >= IMPORTANT * 100 else 1
        return len(self._items) >= self._limit * room or self._bytes + size > MOST_BYTES * room

    def _shed(self, number: int, reason: str) -> None:
        self._pop(number)
        self.shed[reason] += 1

    def _pop(self, number: int) -> Perception:
        _, size, perception, level = self._items.pop(number)
        of_level = self._levels[level]
        del of_level[number]
        if not of_level:
            del self._levels[level]
        self._bytes -= size
        if perception.key is not None and self._of_key.get(perception.key) == number:
            del self._of_key[perception.key]
        return perception

    def signed(self, perception: Perception) -> Perception:
        """Return the perception with what the sensor left open: its name, its session."""
        changes: dict[str, str] = {}
        if perception.source in ("", "manual"):
            changes["source"] = self._spec.name
        if perception.session == "main" and self._spec.session != "main":
            changes["session"] = self._spec.session
        return replace(perception, **changes) if changes else perception


def size_of(perception: Perception) -> int:
    """Return about the bytes that its content and attributes take: of a text its length, of all else that of its
    JSON."""
    content = perception.content
    size = len(content) if isinstance(content, (str, bytes, bytearray)) else _size_of(content)
    return size + _size_of(perception.attributes) if perception.attributes else size


def _size_of(value: object) -> int:
    try:
        return len(_ENCODER.encode(value))
    except Exception:  # not JSON-able, or with a lone surrogate
        return _walked(value)


def _walked(content: object) -> int:
    size, left, count = 0, [content], 0
    while left and count < MOST_VALUES:
        value, count = left.pop(), count + 1
        if isinstance(value, (str, bytes, bytearray)):
            size += len(value)
        elif isinstance(value, Mapping):
            size += VALUE_BYTES
            left += itertools.chain.from_iterable(itertools.islice(value.items(), MOST_VALUES))
        elif isinstance(value, (list, tuple)):
            size += VALUE_BYTES
            left += itertools.islice(value, MOST_VALUES)
        else:
            size += VALUE_BYTES
    return size + VALUE_BYTES * len(left)


def described(value: object) -> str:
    """A value for an error message: its type and the beginning of its repr."""
    try:
        shown = f"{value!r:.60}"
    except Exception:  # a broken __repr__ must not hide the error
        shown = "?"
    return f"{type(value).__name__} ({shown})"


def _perceptions_of(product: object) -> tuple[list[Perception], str]:
    """Return the perceptions that a poll returned, and a description of what is none."""
    if product is None:
        return [], ""
    if isinstance(product, Perception):
        return [product], ""
    if isinstance(product, (str, bytes, bytearray)) or not isinstance(product, Sequence):
        return [], described(product)
    items = [item for item in product if isinstance(item, Perception)]
    strange = [item for item in product if not isinstance(item, Perception)]
    return items, f"{described(strange[0])} in it" if strange else ""
