"""Table of a part in `config.toml`: its name, its options, its supervision."""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Ge, Le
from msgspec import field

from spar.config.tables.section import After, Also, Name, Options, Positive, Seconds, Section, Text, Whole
from spar.ports.notifier import AlertKind, QuietHours
from spar.types import QueueMode


class Part(Section, frozen=True, kw_only=True):
    """The part to use, and its options."""

    use: Text
    """A part (`spar config parts` lists them), or "package.module:Class"."""
    options: Options = field(default_factory=dict)
    """The arguments of its constructor."""


class LabelledPart(Part, frozen=True, kw_only=True):
    """Part in a list, with a name."""

    name: Name | None = None
    """The name, unique among the parts of this kind; left out: `use`. The senders of a channel have it, too."""

    @property
    def label(self) -> str:
        return self.name or self.use


class VectorsPart(Section, frozen=True, kw_only=True):
    """The embedder, which turns texts of like meaning into near vectors."""

    use: Text | None = None
    """An embedder, such as "minilm" (English; extra `vectors`); left out: texts are compared by their words."""
    options: Options = field(default_factory=dict)
    """The arguments of its constructor."""


class SupervisedPart(LabelledPart, frozen=True, kw_only=True):
    """Part that is put in quarantine when it fails too often."""

    timeout: Positive = 30.0
    """Seconds for one use of it, such as a poll, or sending one message."""
    max_failures: Annotated[Whole, Ge(1)] = 5
    """Failures within `within` seconds until it (a channel: receiving, or sending) is put in quarantine."""
    within: Positive = 60.0
    """Seconds over which its failures are counted."""
    probe_after: Positive = 600.0
    """Seconds in quarantine until it is tried again."""


class SensorPart(SupervisedPart, frozen=True, kw_only=True):
    """One sensor, with its limits."""

    every: Seconds | None = None
    """Least seconds between two polls; 0: each cycle; left out: the sensor's own choice."""
    session: Name = "main"
    """The session of its perceptions."""
    when_full: Literal["refuse", "latest", "sample"] = "refuse"
    """When ten thousand of its perceptions wait: "refuse" the next one; "latest": keep the newest of each key;
    "sample": drop some, spread over time."""
    place: str = ""
    """The `memory.place` of its nodes, one of which runs it; left out: where the session `main` is."""


class ChannelPart(SupervisedPart, frozen=True, kw_only=True):
    """One channel, with its limits."""

    session: Name | None = None
    """The conversation of all its messages; left out: one for each address, `NAME:ADDRESS`."""
    mode: QueueMode | None = None
    """The place of a message while its conversation has a run; left out: `runs.queue_mode`."""
    stream: bool = True
    """Whether an answer is shown while it is written, if the channel can change sent messages."""
    reasoning: bool = False
    """Whether the model's reasoning is sent before its answer, if `runs.reasoning` is "reply"."""
    give_up_after: Positive = 86_400.0
    """Seconds for which a message is tried again until it is put aside."""


def _hours(text: str) -> str:
    if text:
        QuietHours.parse(text)
    return text


class NotifierPart(LabelledPart, frozen=True, kw_only=True):
    """One notifier, which sends alerts to people."""

    kinds: tuple[AlertKind, ...] = ()
    """The kinds of alerts that it sends; left out: all."""
    min_severity: Literal["warning", "critical"] = "warning"
    """The least severity that it sends."""
    repeat: Seconds = 0.0
    """Seconds after which an alert that is still open is sent again; 0: only once."""
    timeout: Positive = 20.0
    """Seconds for one attempt."""
    give_up_after: Positive = 86_400.0
    """Seconds for which a notice is tried again until it is put aside."""
    quiet: Annotated[str, After(_hours)] = ""
    """Hours in the machine's time zone in which it sends only critical alerts, such as `22:00-07:00`; the others follow
    as one notice."""


class ToolPart(Part, frozen=True, kw_only=True):
    """One tool."""

    name: Name | None = None
    """The name in calls; left out: the one that the tool gives itself."""
    timeout: Positive | None = None
    """Seconds of one attempt. For this and all keys below, left out: the term of the tool itself."""
    retries: Annotated[Whole, Ge(0), Le(100)] | None = None
    """Further attempts at a call that may be repeated."""
    concurrency: Annotated[Whole, Ge(0)] | None = None
    """Calls at once; 0: any number."""
    rate: Annotated[str, Also({"pattern": r"^([1-9]\d{0,5}/(s|min|h|day))?$"})] | None = None
    """Calls that may start in a time: "10/min", "2/s", "100/h", "1000/day"; "": any number."""
    resources: tuple[Text, ...] | None = None
    """Names of resources; calls that share one never overlap."""
    order: Literal["parallel", "plan"] | None = None
    """"plan": its calls run one after another, in the order of the plan."""
    approval: Literal["auto", "ask", "deny"] | None = None
    """Whether people are asked before a call; rules under `approval` may decide otherwise."""
    safe_with_untrusted: bool | None = None
    """Whether text from outside may fill its parameters unasked."""
    brings_untrusted: bool | None = None
    """Whether its result is text from outside; true where neither this nor the tool says otherwise."""
