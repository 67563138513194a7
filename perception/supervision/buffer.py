"""Buffer of the perceptions of one sensor that no cycle has taken yet.

A sensor pushes perceptions from any thread, or returns them by a poll. The buffer checks them, adds the sensor's name
and stores a bounded number, together with the cursor that belongs to them. The sensor's policy decides which
perceptions remain in a flood; all others are counted. `SensorSupervisor` opens and closes the buffer, `Sense` empties
it.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Any

import msgspec

from perception.stages.severity import IMPORTANT, severity
from perception.supervision.unconfirmed import CURSOR, Unconfirmed
from spar.checks import shorten
from spar.errors import ContractError
from spar.protocols import SensorSpec
from spar.records.journal import RowChange
from spar.types import Perception, replace

_ENCODER = msgspec.json.Encoder()

#: Bound of the bytes of text that may wait.
MOST_BYTES = 64 * 1024 * 1024
#: For the size of a perception that is not JSON-able: the values in it that are counted, and the bytes of each.
MOST_VALUES, VALUE_BYTES = 10_000, 16
#: Factor of the bounds for important perceptions, so that a flood of ordinary ones leaves room for them.
RESERVE = 2
#: Seconds after which `arrived` is called again if nobody has called `best` since.
TOLD_AGAIN = 0.1
#: Reasons for dropping a perception: there was no room for it, a newer one of its key came, older ones made room for
#: newer ones, a flood was sampled, more important ones took the room.
REASONS = ("refused", "replaced", "oldest", "sampled", "outranked")


class SensorBuffer:
    """Buffer of one sensor; `buffer(perception)` is the sensor's `push`.

    `when_full` is the policy of a full buffer. "refuse": a push is refused and returns False; the result of a poll is
    taken as a whole, since the sensor does not return it again, and the next poll waits for room. "latest": the new
    perception replaces the waiting one of its key, else the oldest. "sample": every second waiting perception is
    dropped, so that the remaining ones are spread over the flood. `shed` counts the dropped perceptions by
    `REASONS`. Perceptions that probably matter (`perception.stages.severity`) have additional room, `RESERVE`, and are
    dropped last.

    `waiting` is the number of perceptions that no cycle has taken yet. A cursor is held back until everything handed
    over before it was taken by a cycle or dropped; then `release` confirms it.

    Args: limit: how many perceptions may wait; arrived: called in the thread of the first push since `best`, and of a
    later push after `TOLD_AGAIN` seconds; rejected: called in its thread with a pushed object that is not a
    perception; now: monotonic seconds; unconfirmed: the changes of the sensor's state, to which its cursor belongs;
    begun: called in the thread of a checkpoint before the first perception.
    """

    def __init__(
        self,
        spec: SensorSpec,
        limit: int,
        arrived: Callable[[], None],
        rejected: Callable[[object], None],
        now: Callable[[], float] = time.monotonic,
        unconfirmed: Unconfirmed | None = None,
        begun: Callable[[], object] = lambda: None,
    ) -> None:
        self._spec, self._limit, self._arrived, self._rejected, self._now = spec, limit, arrived, rejected, now
        self._begun = begun
        # Perceptions by their number, the oldest first, with the time of arrival, the size and the level.
        self._items: OrderedDict[int, tuple[float, int, Perception, int]] = OrderedDict()
        self._levels: dict[int, OrderedDict[int, None]] = {}  # the numbers of each level of severity
        self._of_key: dict[str, int] = {}  # numbers of the waiting ones by their key, for the policy "latest"
        self._bytes = 0
        self._lock = threading.Lock()
        self._told_at = -inf
        self.cursor: Any = None  # the latest cursor, for opening the sensor again
        self.unconfirmed = unconfirmed or Unconfirmed()
        self.is_open = False
        self.handed_over = 0
        self.shed = dict.fromkeys(REASONS, 0)

    def __call__(self, perception: Perception) -> bool:
        if not isinstance(perception, Perception):
            self._rejected(perception)
            return False
        measured = _measured(perception)
        with self._lock:
            if not self.is_open:
                self.shed["refused"] += 1
                return False
            is_kept = self._keep(perception, *measured)
            is_news = is_kept and self._now() - self._told_at >= TOLD_AGAIN
            if is_news:
                self._told_at = self._now()
        if is_news:  # not for each push, because waking a loop from a thread costs more than everything else here
            self._arrived()
        return is_kept

    @property
    def waiting(self) -> int:
        return len(self._items)

    @property
    def oldest_age(self) -> float | None:
        """Return the seconds for which the oldest perception has waited; None when none waits."""
        with self._lock:
            since = next((at for at, *_ in self._items.values()), None)
        return None if since is None else max(self._now() - since, 0.0)

    @property
    def has_news(self) -> bool:
        return bool(self._items) or self.unconfirmed.has_any

    @property
    def dropped(self) -> int:
        """Return the number of perceptions that were dropped, for any reason."""
        return sum(self.shed.values())

    def checkpoint(self, cursor: Any) -> None:
        """Set the cursor (the sensor's `checkpoint`)."""
        with self._lock:
            self.cursor = cursor
            self.unconfirmed.hold(RowChange("", CURSOR, cursor))
        if not self.handed_over:
            self._begun()

    def accept(self, product: object) -> None:
        """Take the result of a poll, and then the cursor that the poll has set.

        Raises: ContractError for objects that are not perceptions, OverflowError for perceptions larger than
            `MOST_BYTES`; the others are taken.
        """
        items, wrong = _perceptions_of(product)
        measured = [_measured(item) for item in items]
        with self._lock:
            count = sum([self._keep(item, *of, is_polled=True) for item, of in zip(items, measured, strict=True)])
            self.unconfirmed.end_poll()
        name = self._spec.name
        if wrong:
            raise ContractError(f"sensor {name!r} must return a list of Perception from poll, found {wrong}")
        if too_large := len(items) - count:
            verb = "is" if too_large == 1 else "are"
            raise OverflowError(
                f"sensor {name!r} returned {len(items)} perceptions; {too_large} of them {verb} larger than "
                f"{MOST_BYTES} bytes and lost: return the place of such content, not the content"
            )

    @property
    def is_full(self) -> bool:
        """Return whether no perception fits, so that the next poll has to wait."""
        return self._spec.when_full == "refuse" and self._is_full(0, 0)

    def best(self, at_most: int) -> list[tuple[int, int, int, int]]:
        """Return the most important waiting perceptions, of equal ones the oldest first: level, rank within it,
        number, size."""
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
        """Take the perceptions with these numbers, in the order of arrival; those that were dropped meanwhile are left
        out."""
        with self._lock:
            return [self._pop(number) for number in sorted(numbers) if number in self._items]

    def release(self) -> None:
        """Note that a cycle holds the taken perceptions: the changes of state that waited for them may be written."""
        with self._lock:
            self.unconfirmed.confirm(next(iter(self._items), self.handed_over))

    # -- with the lock held

    def _keep(self, perception: Perception, size: int, level: int, *, is_polled: bool = False) -> bool:
        """Store a perception by the policy; return False if it was refused."""
        policy, key = self._spec.when_full, perception.key
        if self._is_full(size, level):
            if size > MOST_BYTES or (policy == "refuse" and not is_polled):
                self.shed["refused"] += 1
                return False
            if policy == "latest" and key is not None and (number := self._of_key.get(key)) is not None:
                self._shed(number, "replaced")
            elif policy == "sample" and (lowest := min(self._levels, default=0)) <= level:
                matters = IMPORTANT * 100
                for number in [n for n, item in self._items.items() if item[3] < matters or lowest >= matters][::2]:
                    self._shed(number, "sampled")
            while policy != "refuse" and self._is_full(size, level):
                lowest = min(self._levels)
                if lowest > level:
                    self.shed["outranked"] += 1
                    return True  # dropped by the policy, but not refused
                self._shed(next(iter(self._levels[lowest])), "oldest" if lowest == level else "outranked")
        self._items[self.handed_over] = self._now(), size, self.signed(perception), level
        self._levels.setdefault(level, OrderedDict())[self.handed_over] = None
        if policy == "latest" and key is not None:
            self._of_key[key] = self.handed_over
        self._bytes += size
        self.handed_over += 1
        self.unconfirmed.next = self.handed_over
        if self.unconfirmed.steps > 2 * len(self._items):  # of those that were dropped nothing remains to wait for
            self.unconfirmed.join(self._items)
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
        """Return the perception with the sensor's name and session, where it has none of its own."""
        changes: dict[str, str] = {}
        if perception.source in ("", "manual"):
            changes["source"] = self._spec.name
        if perception.session == "main" and self._spec.session != "main":
            changes["session"] = self._spec.session
        return replace(perception, **changes) if changes else perception


def most_important(buffers: Sequence[SensorBuffer], at_most: int, most_bytes: int) -> list[Perception]:
    """Take the most important waiting perceptions of these buffers, at least one of any size.

    The others stay in their buffers. Of equal importance each sensor gives its oldest in turn, so that a flood of one
    does not delay the others. The result holds those of the first buffer, then of the next, each in the order of
    arrival.
    """
    offers = [
        (-level, rank, place, number, size)
        for place, buffer in enumerate(buffers)
        for level, rank, number, size in buffer.best(at_most)
    ]
    offers.sort()
    chosen: list[list[int]] = [[] for _ in buffers]
    for count, (_, _, place, number, size) in enumerate(offers[:at_most]):
        most_bytes -= size
        if count and most_bytes < 0:
            break
        chosen[place].append(number)
    return [item for buffer, numbers in zip(buffers, chosen, strict=True) for item in buffer.take(numbers)]


def _measured(perception: Perception) -> tuple[int, int]:
    """Return the size and the level of a perception. Do it without the lock: other threads need not wait for it."""
    return size_of(perception), round(severity(perception) * 100)


def size_of(perception: Perception) -> int:
    """Return approximately the bytes of content and attributes: of a text its length, of other values the length of
    their JSON."""
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
    """Return a value for an error message: its type and the beginning of its repr."""
    return f"{type(value).__name__} ({shorten(value, 60)})"


def _perceptions_of(product: object) -> tuple[list[Perception], str]:
    """Return the perceptions that a poll returned, and a description of the first other object."""
    given = () if product is None else (product,) if isinstance(product, Perception) else product
    if isinstance(given, (str, bytes, bytearray)) or not isinstance(given, Sequence):
        return [], described(product)
    items = [item for item in given if isinstance(item, Perception)]
    others = [item for item in given if not isinstance(item, Perception)]
    return items, f"{described(others[0])} in it" if others else ""
