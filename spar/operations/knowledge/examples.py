"""Operations on the examples that perception learns from."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, cast

from msgspec import Meta, Struct

from spar.data.text import visible
from spar.operations.operation import (
    AgentStore,
    AuditRule,
    Caller,
    Column,
    CommandForm,
    TimedChoice,
    chosen,
    operation,
)

if TYPE_CHECKING:
    from spar.agent.parts import AgentParts
    from spar.ports.phases import OptionalSense
    from spar.service.app import Service

_LEARNS_NOTHING: Final = "this sense module learns nothing from examples; the standard one does"


class TeachBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A text, its label, and whether that is an intent or a kind."""

    text: str
    label: str
    what: Annotated[
        Literal["intent", "kind"], Meta(description="Whether it is the intent of a text or the kind of a log line.")
    ] = "intent"


class ForgetBody(Struct, frozen=True, forbid_unknown_fields=True):
    """An example's id, or a unique beginning of it."""

    id: str


class TryBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A text to classify."""

    text: str


class Label(Struct, frozen=True):
    """Known label, and how many of its examples the configuration has and people taught."""

    what: str
    label: str
    written: int
    taught: int


class ExampleRow(Struct, frozen=True):
    """Example that a person taught."""

    id: str
    what: str = ""
    label: str = ""
    text: str = ""
    by: str = ""
    at: datetime | None = None


class Examples(Struct, frozen=True):
    """Known labels, the examples that people taught, and the state of the training."""

    labels: list[Label] = []
    taught: list[ExampleRow] = []
    examples: int = 0
    examples_taught: int = 0
    trained: Any = None
    is_training: bool = False
    failure: str = ""


class ReadingRow(Struct, frozen=True):
    """Reading of a text: its label (None: none of the known ones), the confidence (0 to 1), and why."""

    label: str | None
    confidence: float
    nearest: str
    why: str
    slots: dict[str, Any] = {}


class Taught(Struct, frozen=True):
    """Example that was just taught: how its text is read now, and whether similar texts count only later."""

    label: str
    what: str = ""
    reading: ReadingRow | None = None
    is_training: bool = False
    examples: int = 0
    examples_taught: int = 0
    trained: Any = None
    failure: str = ""


def _learner(agent: AgentParts) -> OptionalSense:
    from spar.ports.any_part import has
    from spar.ports.phases import OptionalSense

    sense: OptionalSense = agent.setup.modules["sense"].part
    if not has(sense, OptionalSense.teach, OptionalSense.unteach, OptionalSense.taught, OptionalSense.read):
        raise LookupError(_LEARNS_NOTHING)
    return sense


@operation("examples list", "GET /v1/examples", "read", is_stored=True, command=CommandForm(
    rows=lambda answer: answer.labels,
    columns=(Column("what", "what"), Column("label", "label"), Column(">written", "written"),
             Column(">taught", "taught")),
    empty="nothing was learnt yet",
    also=(
        CommandForm(
            rows=lambda answer: answer.taught, empty="",
            columns=(Column("id", "id"), Column("what", "what"), Column("label", "label"), Column("text", "text"),
                     Column("by", "by"), Column("at", "at", "time")),
        ),
        CommandForm(sentence=lambda given, answer: answer.failure),
    ),
    examples=("spar examples list",),
))  # fmt: skip
async def list_examples(store: AgentStore, given: TimedChoice) -> Examples:
    """List the known labels, and the examples that people taught, the oldest first."""
    if store.agent is not None:
        answer = _learner(store.agent).taught()
    else:
        from spar.parts.factory import Parts
        from spar.ports.any_part import has
        from spar.ports.phases import OptionalSense

        sense = Parts(store.configuration("sense", "perception")).module("sense")
        if not has(sense, OptionalSense.stored_examples):
            raise LookupError(_LEARNS_NOTHING)
        answer = await sense.stored_examples(store.agent_name, store.memory)
    return cast("Examples", {**answer, "taught": chosen(given, answer.get("taught", ()), lambda row: row.at)})


def _taught(given: TeachBody, row: Taught) -> str:
    later = "; texts like it count when the training has ended" if row.is_training else ""
    return f"learnt: {visible(given.text)!r} has the {given.what} {visible(row.label)}{later}"


@operation("examples teach", "POST /v1/examples:teach", "operate",
           audit=AuditRule("example.teach", ("",), subject="label", detail=("what",)), command=CommandForm(
    arguments=("text", "label"), sentence=_taught,
    examples=('spar examples teach "the shop is slow again" restart_shop',
              'spar examples teach "bounce {service} please" restart_service',
              'spar examples teach --what kind "RAS KERNEL FATAL data TLB error interrupt" log.alert'),
))  # fmt: skip
async def teach(service: Service, given: TeachBody, caller: Caller) -> Taught:
    """Teach that a text has a label. The example is stored, and counts at once, also for similar texts.

    {name} in the text marks a word that the planner gets as a slot."""
    return cast("Taught", await _learner(service.agent).teach(given.what, given.text, given.label, by=caller.by))


@operation("examples forget", "POST /v1/examples:forget", "operate",
           audit=AuditRule("example.forget", ("",), subject="id"), command=CommandForm(
    arguments=("id",),
    sentence=lambda given, row: f"forgotten: {visible(row.text)!r} had the {row.what} {visible(row.label)}",
    examples=("spar examples forget 3f9a1c",),
))  # fmt: skip
async def forget_example(service: Service, given: ForgetBody, caller: Caller) -> ExampleRow:
    """Forget an example that a person taught."""
    return cast("ExampleRow", await _learner(service.agent).unteach(given.id, by=caller.by))


def _reading(reading: ReadingRow | None) -> str:
    """Return the label of a text with its confidence, slots and reason."""
    if reading is None:
        return "nothing was learnt"
    slots = "".join(f", {name} {visible(value)!r}" for name, value in reading.slots.items())
    label = "unknown" if reading.label is None else visible(reading.label)
    return f"{label} ({reading.confidence:.2f}){slots}: {visible(reading.why)}"


@operation("examples try", "POST /v1/examples:try", "read", command=CommandForm(
    arguments=("text",),
    sentence=lambda given, readings: "\n".join(f"{what:<8}{_reading(row)}" for what, row in readings.items()),
    examples=('spar examples try "please bounce nginx"',),
))  # fmt: skip
async def attempt(service: Service, given: TryBody) -> dict[str, ReadingRow | None]:
    """Show how a text would be classified; nothing is stored."""
    return cast("dict[str, ReadingRow | None]", _learner(service.agent).read(given.text))
