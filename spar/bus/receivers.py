"""Receivers of events: all receivers of one class of events, and the routes that are found from them."""

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
    """The bus as receivers of a blinker signal need it."""

    agent: str

    def rerouted(self) -> None: ...
    def see_through(self, outcome: Any, name: str, failed: Callable[[BaseException], None]) -> None: ...
    def tell_of_failure(self, name: str, error: BaseException, turned_off: bool) -> None: ...


class Receivers:
    """All receivers of one class of events: the blinker signal, and of it our own subscriptions and the strangers."""

    __slots__ = ("signal", "strangers", "subscriptions")

    def __init__(self, events: SignalBus, kind: type[Event]) -> None:
        self.signal = blinker.Signal(kind.__doc__)
        self.subscriptions: tuple[Subscription, ...] = ()
        self.strangers = Strangers(events, self)

    @property
    def has_strangers(self) -> bool:
        return len(self.signal.receivers) > len(self.subscriptions)


class Strangers:
    """The receivers that others connected to a signal: told one by one, each isolated from the rest."""

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
                    events.see_through(outcome, name_of(receiver), partial(self._failed, receiver))
                elif self._failures:
                    self._failures.pop(_identity(receiver), None)
        if not receivers.has_strangers:  # the last one died, of which a signal says nothing
            events.rerouted()

    def failed(self, error: BaseException) -> None:
        """Not one of them has failed, but what tells them (a stack too deep)."""
        self._events.tell_of_failure(self.name, error, False)

    def _failed(self, receiver: Callable[..., Any], error: BaseException) -> None:
        key = _identity(receiver)
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        turned_off = failures >= FAILURES_UNTIL_OFF
        if turned_off:
            del self._failures[key]
            self._receivers.signal.disconnect(receiver)
        self._events.tell_of_failure(name_of(receiver), error, turned_off)


Route = tuple[Subscription | Strangers, ...]


class Routes(dict[type[Event], Route]):
    """Receivers of the events of a class: found once, so that publishing looks nothing up."""

    __slots__ = ("_receivers",)

    def __init__(self, receivers: dict[type[Event], Receivers]) -> None:
        super().__init__()
        self._receivers = receivers

    def __missing__(self, kind: type[Event]) -> Route:
        bases = [self._receivers[base] for base in kind.__mro__ if base in self._receivers]
        found = [item for receivers in bases for item in receivers.subscriptions]
        # A plain handler may publish: who only keeps events has to have this one before that one.
        found.sort(key=lambda item: not item.only_keeps)
        # Our own subscriptions are receivers too; only signals that others connected to are asked again.
        strangers = [receivers.strangers for receivers in bases if receivers.has_strangers]
        route = self[kind] = (*found, *strangers)
        return route


def _identity(receiver: Any) -> tuple[int, int]:
    """Return one identity for every look at a bound method, of which each is another object."""
    return id(getattr(receiver, "__self__", None)), id(getattr(receiver, "__func__", receiver))
