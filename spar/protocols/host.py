"""Services that an agent and its service lend to a part."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from hashlib import blake2b
from typing import Any, Final, Literal, Protocol, runtime_checkable

from msgspec import Struct

from spar.clock import Clock
from spar.protocols.sensors import Accept, accept_nothing
from spar.protocols.stores import ModuleRows, Store
from spar.records.journal import CallJournal
from spar.records.session import id_of
from spar.records.transcript import Transcripts
from spar.types import Feedback, Perception

#: Characters of a session's key that its folder is known by.
_KNOWN_BY: Final = 40


@runtime_checkable
class Notifier(Protocol):
    """Tells a person. Raises when the message cannot have arrived."""

    async def notify(
        self, title: str, text: str, *, urgency: Literal["low", "normal", "critical"] = "normal"
    ) -> None: ...


class Publisher(Protocol):
    """Anything that takes events; an agent's `events` is one. Never raises."""

    def publish(self, event: Any) -> None: ...


def own_parts(session: str) -> tuple[str, ...]:
    """Return the names that lead from the workspace to the folder of a session: at last some letters that people know
    it by, and a digest of all of its key.

    Whoever chooses a key can neither choose a path by it nor meet another session's folder.
    """
    plain = "".join(each if each.isascii() and each.isalnum() else "-" for each in session[:_KNOWN_BY]).strip("-")
    mark = blake2b(session.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return "sessions", f"{plain.lower()}-{mark}" if plain else mark


class Home(Struct, frozen=True):
    """Folders of the service. A part whose constructor has a parameter annotated `Home` is given it.

    `config` is the folder of the configuration file (relative paths in options start there),
    `workspace` the only folder that tools may touch, `state` where the service keeps its own files. With `is_split`
    each session has a folder of its own in the workspace, and tools touch that alone.
    """

    config: str
    workspace: str
    state: str
    is_split: bool = False

    def parts_of(self, session: str) -> tuple[str, ...]:
        """Return the names that lead from the workspace to the folder of a session; none where all share it."""
        return own_parts(session) if self.is_split else ()


class ModelState(Struct, frozen=True):
    """State of a model: `closed` it may be asked, `open` it is left alone until `until` (monotonic seconds), after
    which one request tries; `fault` says why, in a sentence."""

    model: str
    state: Literal["closed", "open"] = "closed"
    fault: str = ""
    until: float = 0.0


async def _first_conversation(session: str) -> str:
    return id_of(session, 1)


class Host(Struct, frozen=True):
    """Services that an agent lends to a module that has `attach(host)`; called once, before the module is opened.

    `wake()` makes the loop sense at once and may be called from any thread; `store` is None without a memory.
    `accept(perception)` takes in what sensors are handed, see `Accept`.
    `resume(session)` says that the actor has calls to go on with (`Resumable`); that session's next cycle then comes at
    once. `journal` (`spar.records.journal.CallJournal`) is where an actor writes down its calls; None: nobody keeps
    one. `budgets` (`spar.budgets.budgets.Budgets`) is what calls and requests to models are taken from.

    `tools()` is what can be called now, by name: objects with `name` and `schema`. `transcripts` are those of the
    agent's sessions. `deliver(run_id, session, route, text)` tells people something, unless a hook is against it or the
    run has told them the same there before; it returns whether it did. `pursue(perception)` makes a run of what was
    noticed, once, and returns its id. `note(cycle_id, what)` has the object that it returns kept on the tape.
    `used(run_id, usage)` says what a request of a run took, by quantity as budgets name them,
    `counted(run_id, parts)` of which parts its tokens were (`input_tokens output_tokens cached_tokens`). `rows(name)`
    are small durable rows under a name of the module's choice; None without a memory. `is_in_hand(cycle_id)` says
    whether a cycle goes on now, perhaps with the module that this one follows. `tell_problem(about, why)` says what is
    wrong with something that a model is told, a file or a skill; "" once it is well again. With `is_note=True` it is
    logged and no alert: it may be meant so. `conversation(session)` is the id of the conversation that goes on in a
    session: another one after each reset. `judge(word, done)` has the agent learn how an earlier cycle or run went
    after all; `done()` is called once that is kept. `traceparent(to, cycle_id, *names)` is the header that a request to
    `to` (`models`, `mcp`, `http`) carries, so that who serves it can link to the span of these names; "" for none.

    A module that follows another one, side by side with it, may have `async take_over()`: a session has left the former
    one, or all have; what that left on disk is to be taken up.
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
