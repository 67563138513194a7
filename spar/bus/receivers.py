"""Receivers of one class of events, and the routes that are computed from them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import blinker

from spar.bus.subscriptions import FAILURES_UNTIL_OFF, Subscription, name_of
from spar.errors import ENDS_PROCESS
from spar.events import Event


class SignalBus(Protocol):
    """Bus, reduced to the members that receivers of a blinker signal use."""

    agent: str

    def reset_routes(self) -> None: ...
    def await_outcome(self, outcome: Any, name: str, failed: Callable[[BaseException], None]) -> None: ...
    def report_failure(self, name: str, error: BaseException, turned_off: bool) -> None: ...


class Receivers:
    """Receivers of one class of events: the blinker signal, our own subscriptions to it, and the other receivers
    (`strangers`)."""

    __slots__ = ("signal", "strangers", "subscriptions")

    def __init__(self, events: SignalBus, kind: type[Event]) -> None:
        self.signal = blinker.Signal(kind.__doc__)
        self.subscriptions: tuple[Subscription, ...] = ()
        self.strangers = Strangers(events, self)

    @property
    def has_strangers(self) -> bool:
        return len(self.signal.receivers) > len(self.subscriptions)


class Strangers:
    """Receivers that others connected to a signal directly: called one by one, each isolated from the rest."""

    __slots__ = ("_events", "_failures", "_receivers", "delivered")
    name = "receivers of a signal"

    def __init__(self, events: SignalBus, receivers: Receivers) -> None:
        self._events, self._receivers = events, receivers
        self._failures: dict[tuple[int, int], int] = {}
        self.delivered = 0

    def hand(self, event: Event) -> None:
        events, receivers = self._events, self._receivers
        for receiver in receivers.signal.receivers_for(events.agent):
            if getattr(receiver, "subscription", None) is not None:
                continue
            try:
                outcome = receiver(events.agent, event=event)
            except ENDS_PROCESS:
                raise
            except BaseException as error:
                self._failed(receiver, error)
            else:
                if inspect.iscoroutine(outcome):
                    events.await_outcome(outcome, name_of(receiver), partial(self._failed, receiver))
                elif self._failures:
                    self._failures.pop(_identity(receiver), None)
        if not receivers.has_strangers:  # the last one was collected, which a signal does not report
            events.reset_routes()

    def failed(self, error: BaseException) -> None:
        """Report an error of the delivery itself (a stack too deep), as opposed to an error of one receiver."""
        self._events.report_failure(self.name, error, False)

    def _failed(self, receiver: Callable[..., Any], error: BaseException) -> None:
        key = _identity(receiver)
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        turned_off = failures >= FAILURES_UNTIL_OFF
        if turned_off:
            del self._failures[key]
            self._receivers.signal.disconnect(receiver)
        self._events.report_failure(name_of(receiver), error, turned_off)


Route = tuple[Subscription | Strangers, ...]


class Routes(dict[type[Event], Route]):
    """Receivers by class of event: computed once, so that publishing needs one lookup."""

    __slots__ = ("_receivers",)

    def __init__(self, receivers: dict[type[Event], Receivers]) -> None:
        super().__init__()
        self._receivers = receivers

    def __missing__(self, kind: type[Event]) -> Route:
        bases = [self._receivers[base] for base in kind.__mro__ if base in self._receivers]
        subscriptions = [item for receivers in bases for item in receivers.subscriptions]
        # A plain handler may publish: a subscription that only keeps events must get this event before the next one.
        subscriptions.sort(key=lambda item: not item.only_keeps)
        # Our own subscriptions are blinker receivers too; only signals with other receivers are asked for these.
        strangers = [receivers.strangers for receivers in bases if receivers.has_strangers]
        route = self[kind] = (*subscriptions, *strangers)
        return route


def _identity(receiver: Any) -> tuple[int, int]:
    """Return an identity that is the same for each access to a bound method, which makes a new object each time."""
    return id(getattr(receiver, "__self__", None)), id(getattr(receiver, "__func__", receiver))
