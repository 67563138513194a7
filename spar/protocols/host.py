"""Services that an agent and its service lend to a part."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, runtime_checkable

from msgspec import Struct

from spar.clock import Clock
from spar.errors import ConfigError
from spar.protocols.sensors import Accept, accept_nothing
from spar.protocols.stores import ModuleRows, Store
from spar.records.session import id_of
from spar.records.transcript import Transcripts
from spar.types import Feedback, Perception

if TYPE_CHECKING:
    from spar.facts import Fact

#: Characters of a session's key that the name of its folder shows.
_KNOWN_BY: Final = 40


@runtime_checkable
class Notifier(Protocol):
    """Sender of messages to a person. Raises when the message cannot have arrived."""

    async def notify(
        self, title: str, text: str, *, urgency: Literal["low", "normal", "critical"] = "normal"
    ) -> None: ...


class Publisher(Protocol):
    """Receiver of events; an agent's `events` is one. Never raises."""

    def publish(self, event: Any) -> None: ...


def own_parts(session: str) -> tuple[str, ...]:
    """Return the path, as names, from the workspace to the folder of a session.

    The last name is a readable beginning of the key and a digest of the whole key. So the author of a key can neither
    choose a path by it nor reach the folder of another session.
    """
    plain = "".join(
        character if character.isascii() and character.isalnum() else "-" for character in session[:_KNOWN_BY]
    ).strip("-")
    mark = blake2b(session.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return "sessions", f"{plain.lower()}-{mark}" if plain else mark


class Home(Struct, frozen=True):
    """Folders of the service. A part whose constructor has a parameter annotated `Home` gets it.

    `config` is the folder of the configuration file (relative paths in options start there), `workspace` the only
    folder that tools may touch, `state` the folder of the service's own files. With `is_split` each session has its own
    folder in the workspace, and tools touch only that one.
    """

    config: str
    workspace: str
    state: str
    is_split: bool = False

    def parts_of(self, session: str) -> tuple[str, ...]:
        """Return the path, as names, from the workspace to the folder of a session; empty if all sessions share the
        workspace."""
        return own_parts(session) if self.is_split else ()

    def folder_of(self, session: str) -> str:
        """Return the folder of a session; "" if all sessions share the workspace."""
        parts = self.parts_of(session)
        return str(Path(self.workspace, *parts)) if parts else ""

    def keep_apart(self, folder: str, option: str) -> None:
        """Refuse the folder of an option that holds the service's own files, or lies among them.

        Args: folder: relative to the configuration's, or absolute. Raises: ConfigError.
        """
        real = Path(self.config, folder).resolve()
        for what, own in (("state", self.state), ("configuration", self.config)):
            mine = Path(own).resolve()
            if mine.is_relative_to(real) or (what == "state" and real.is_relative_to(mine)):
                sentence = f"{option} {folder!r} and the service's {what} {own!r} must not lie in one another"
                raise ConfigError(sentence, path=(option,))


class ModelState(Struct, frozen=True):
    """State of a model: `closed` for normal use; `open` for no requests until `until` (monotonic seconds), after which
    one request tries again. `fault` is the reason as a sentence."""

    model: str
    state: Literal["closed", "open"] = "closed"
    fault: str = ""
    until: float = 0.0


async def _first_conversation(session: str) -> str:
    return id_of(session, 1)


@runtime_checkable
class CallJournal(Protocol):
    """Journal in which an actor records its calls (`spar.facts`); such an actor has the attribute
    `keeps_journal`."""

    epoch: int

    def append(self, fact: Fact) -> None:
        """Record what happened to a call, without waiting for the disk."""

    def next_fence(self, above: int = 0) -> int:
        """Return a number above `above` and above all numbers returned before, also to other processes and actors."""

    def is_open(self, work: str) -> bool:
        """Return whether this cycle has begun and not ended, in this process or an earlier one."""

    def safe(self) -> Awaitable[None]:
        """Return when all earlier writes are durable. Raises: SparError when the store is closed."""


class Held(Protocol):
    """Resource that this process alone has while `is_held`; a call gives it back."""

    @property
    def is_held(self) -> bool: ...
    def __call__(self) -> None: ...


class Host(Struct, frozen=True):
    """Services that an agent lends to a module with `attach(host)`; called once, before the module is opened.

    `wake()` makes the loop sense at once and may be called from any thread; `store` is None without a memory.
    `accept(perception)` accepts perceptions as for sensors, see `Accept`.
    `resume(session)` reports that the actor has calls to continue (`OptionalActor.resumable`); the session's next cycle
    then comes at once. An actor records its calls in `journal` (`CallJournal`); None: without a journal. Calls
    and requests to models use up `budgets` (`spar.budgets.budgets.Budgets`).

    `tools()` are the tools that can be called now, by name: objects with `name` and `schema`. `transcripts` are those
    of the agent's sessions. `deliver(run_id, session, route, text)` sends people a text, unless a hook denies it or the
    run has sent them the same text there before; it returns whether it was sent. `pursue(perception)` starts a run for
    the perception, once, and returns its id. `note(cycle_id, what)` stores the object that `what()` returns in the
    record of the cycle.
    `used(run_id, usage)` reports what a request of a run used, by quantity as budgets name them, `counted(run_id,
    parts)` the parts of its tokens (`input_tokens output_tokens cached_tokens`). `rows(name)` are small durable rows
    under a name that the module chooses; None without a memory. `is_in_hand(cycle_id)` says whether a cycle is running
    now, perhaps with the module that this one replaces. `tell_problem(about, why)` reports a problem of something that
    a model reads, a file or a skill; "" once it is solved. With `is_note=True` it is logged without an alert: it may be
    intended. `conversation(session)` is the id of the present conversation of a session: another one after each reset.
    `judge(word, done)` reports later feedback on an earlier cycle or run; `done()` is called once it is stored.
    `traceparent(to, cycle_id, *names)` is the header of a request to `to` (`models`, `mcp`, `http`), so that the
    receiver can link to the span of these names; "" for none. `may_sense()` says whether sensors may be open here:
    of several processes that run one agent, one has them. `acquire(resource)` returns when this one alone has a
    resource, `resources()` those that live processes have or wait for; None if no other process runs the agent. `place`
    is where this one is.

    A module that replaces another one while both are open may have `async take_over()`: it is called when one session,
    or all of them, have left the former module, and continues what that one left on disk.
    """

    agent: str
    clock: Clock
    events: Publisher
    hooks: Any
    wake: Callable[[], None]
    store: Store | None = None
    home: Home | None = None
    resume: Callable[[str], None] = lambda session: None
    journal: CallJournal | None = None
    budgets: Any = None
    tools: Callable[[], Mapping[str, Any]] = dict
    transcripts: Transcripts | None = None
    deliver: Callable[[str, str, str, str], Awaitable[bool]] | None = None
    pursue: Callable[[Perception], Awaitable[str]] | None = None
    used: Callable[[str, Mapping[str, int]], None] = lambda run_id, usage: None
    note: Callable[[str, Callable[[], dict[str, Any]]], None] = lambda cycle_id, what: None
    rows: Callable[[str], ModuleRows | None] = lambda name: None
    is_in_hand: Callable[[str], bool] = lambda cycle_id: False
    tell_model: Callable[[ModelState], None] = lambda state: None
    counted: Callable[[str, Mapping[str, int]], None] = lambda run_id, parts: None
    accept: Accept = accept_nothing
    tell_problem: Callable[..., None] = lambda about, why, is_note=False: None
    conversation: Callable[[str], Awaitable[str]] = _first_conversation
    judge: Callable[[Feedback, Callable[[], None]], None] = lambda word, done: done()
    traceparent: Callable[..., str] = lambda to, cycle_id, *names: ""
    may_sense: Callable[[], bool] = lambda: True
    acquire: Callable[[str], Awaitable[Held]] | None = None
    resources: Callable[[], Awaitable[Collection[str]]] | None = None
    place: str = ""
