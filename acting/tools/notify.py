"""Tool `notify`: sends a message to people through every configured notifier, with a limit per minute.

A call succeeds when one notifier delivered the message; its result names the others. A message above the limit is
refused and counted, and the next message says how many there were. `acting/notifiers` has the notifiers.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from importlib import import_module
from importlib.metadata import entry_points
from typing import Annotated, Any, Self, get_args, get_type_hints

import anyio
from annotated_types import Gt, Len

from acting.notifiers import DesktopNotifier, LogNotifier, Urgency, WebhookNotifier
from acting.tooling.tool_schema import object_schema, text_of
from spar.backoff import Intensity
from spar.clock import Clock, SystemClock
from spar.errors import ConfigError, PermanentError, TransientError
from spar.protocols import Effect, Host, Notifier
from spar.threads import Threads, Users

_BUILT_IN: dict[str, type] = {"desktop": DesktopNotifier, "log": LogNotifier, "webhook": WebhookNotifier}
_URGENCIES: tuple[str, ...] = get_args(Urgency)
_EACH = 20.0  # seconds for one notifier
_MINUTE = 60.0


class NotifyTool:
    """Notifies people through `via`: names of notifiers, `{use = "webhook", url = …}` with their options, or objects.

    At most `per_minute` messages go out in a minute.
    """

    name = "notify"
    effect: Effect = "once"
    timeout = _EACH + 5.0
    safe_with_untrusted = True  # it goes only where the configuration says, and not too often
    brings_untrusted = True  # the reasons of a failure may quote the answer of a server
    schema = object_schema(
        name,
        "Tell people something that they should know.",
        {
            "title": {"type": "string", "description": "what it is about, in a few words", "maxLength": 200},
            "text": {"type": "string", "description": "the message", "maxLength": 10_000},
            "urgency": {"enum": list(_URGENCIES), "description": "normal by default"},
        },
        "title",
    )

    def __init__(
        self,
        *,
        via: Annotated[Sequence[str | dict[str, Any] | Any], Len(1)] = ("log",),
        per_minute: Annotated[int, Gt(0)] = 30,
    ) -> None:
        if isinstance(via, str):
            raise ConfigError(f"via must be a list, found {via!r}", path=("via",))
        self._notifiers: dict[str, Notifier] = {}
        for index, item in enumerate(via):
            name, notifier = _create_notifier(item, index)
            self._notifiers[name if name not in self._notifiers else f"{name}#{index}"] = notifier
        if all(isinstance(notifier, (DesktopNotifier, LogNotifier)) for notifier in self._notifiers.values()):
            self.brings_untrusted = False  # they ask no server
        self._per_minute = per_minute
        self._rate = Intensity(per_minute, _MINUTE)
        self._use(SystemClock())
        self._stack = AsyncExitStack()
        self._users = Users()
        self._waiting = 0

    def attach(self, host: Host) -> None:
        """Use the agent's clock, and pass the host on to the notifiers."""
        self._use(host.clock)
        for notifier in self._notifiers.values():
            if callable(attach := getattr(notifier, "attach", None)):
                attach(host)

    def _use(self, clock: Clock) -> None:
        self._clock, self._threads = clock, Threads(self.name, clock)

    async def __aenter__(self) -> Self:
        await self._users.enter(self._open)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._users.leave(self._stack.aclose)

    async def _open(self) -> None:
        async with AsyncExitStack() as opened:
            for notifier in self._notifiers.values():
                if isinstance(notifier, AbstractAsyncContextManager):
                    await opened.enter_async_context(notifier)
            self._stack = opened.pop_all()

    async def __call__(self, *, title: str, text: str = "", urgency: str = "normal") -> dict[str, Any]:
        """Send the message.

        Returns `delivered`, the names of the notifiers that delivered it, and `failed`, the others with their reasons.

        Raises: ValueError for parameters out of bounds; TransientError with `retry_after` above the limit, and when no
        notifier delivered it; PermanentError when none of them ever will.
        """
        text_of("title", title, limit=200)
        text_of("text", text, limit=10_000, empty=True)
        if urgency not in _URGENCIES:
            raise ValueError(f"'urgency' must be one of {', '.join(_URGENCIES)}, found {urgency!r}")
        if not self._rate.allow(self._clock.monotonic()):
            self._waiting += 1
            limit = f"more than {self._per_minute} messages within a minute"
            raise TransientError(f"{limit}: {self._waiting} suppressed since the last one", retry_after=_MINUTE)
        missed, self._waiting = self._waiting, 0
        if missed:
            text = f"{text}\n({missed} earlier messages were suppressed, there were too many)".lstrip()
        failed: dict[str, Exception] = {}
        async with anyio.create_task_group() as ways:
            for name, notifier in self._notifiers.items():
                ways.start_soon(self._tell, name, notifier, (title, text, urgency), failed)
        delivered = [name for name in self._notifiers if name not in failed]
        if not delivered:
            self._waiting += missed
            all_final = all(isinstance(error, PermanentError) for error in failed.values())
            reasons = "; ".join(f"{name}: {_sentence(error)}" for name, error in failed.items())
            raise (PermanentError if all_final else TransientError)(f"nobody could be told: {reasons}")
        return {"delivered": delivered, "failed": {name: _sentence(error) for name, error in failed.items()}}

    async def _tell(
        self, name: str, notifier: Any, message: tuple[str, str, str], failed: dict[str, Exception]
    ) -> None:
        title, text, urgency = message
        notify = partial(notifier.notify, title, text, urgency=urgency)
        try:
            with anyio.fail_after(_EACH):
                if inspect.iscoroutinefunction(notifier.notify):
                    await notify()
                else:
                    await self._threads.run(notify)
        except Exception as error:  # a failing notifier must not keep the others from delivering
            failed[name] = error


def _sentence(error: Exception) -> str:
    return str(error) or type(error).__name__


def _create_notifier(item: Any, index: int) -> tuple[str, Notifier]:
    """Create the notifier for one item of `via`; return its name and it."""
    if callable(getattr(item, "notify", None)):
        return type(item).__name__, item
    options: dict[str, Any] = dict(item) if isinstance(item, Mapping) else {}
    use = options.pop("use", None) if isinstance(item, Mapping) else item
    if not isinstance(use, str):
        raise ConfigError(f"a notifier must be a name or a table with 'use', found {item!r:.80}", path=("via", index))
    kind = _load_notifier(use, index)
    hints = get_type_hints(kind.__init__, include_extras=True)
    known = [name for name in inspect.signature(kind).parameters if name in hints]
    for name, value in options.items():
        if name not in known:
            takes = ", ".join(known) or "none"
            raise ConfigError(f"notifier {use!r} has no option {name!r}; known: {takes}", path=("via", index, name))
        options[name] = _checked(hints[name], value, ("via", index, name))
    try:
        return use, kind(**options)
    except ConfigError as error:
        raise ConfigError(str(error), path=("via", index, *error.path)) from None
    except TypeError as error:
        raise ConfigError(f"notifier {use!r} cannot be made: {error}", path=("via", index)) from None


def _load_notifier(use: str, index: int) -> Any:
    if built_in := _BUILT_IN.get(use):
        return built_in
    named = {entry.name: entry for entry in entry_points(group="spar.notifiers")}
    try:
        if use in named:
            return named[use].load()
        module, colon, attribute = use.partition(":")
        if colon:
            return getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"notifier {use!r} cannot be loaded: {error}", path=("via", index)) from error
    known = ", ".join(sorted({*_BUILT_IN, *named}))
    raise ConfigError(f"no notifier named {use!r}; known: {known}, or use 'module:Class'", path=("via", index))


def _checked(hint: Any, value: Any, path: tuple[str | int, ...]) -> Any:
    """Return an option's value, validated by its annotation; the registry of parts does not check options in `via`."""
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(hint).validate_python(value)
    except ValidationError as error:
        raise ConfigError(
            f"{path[-1]}: {error.errors()[0]['msg'].lower()}, found a {type(value).__name__}", path=path
        ) from None
