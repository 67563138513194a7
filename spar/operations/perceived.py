"""Operations on perception: incidents and sensors."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from msgspec import Meta, Struct, field
from msgspec.structs import asdict

from spar.errors import ConflictError
from spar.observe.logs import get_logger
from spar.operations.operation import (
    NOT_RUNNING,
    AgentStore,
    AuditRule,
    Caller,
    Column,
    CommandForm,
    RowsChoice,
    Since,
    chosen,
    demanded,
    effect_form,
    operation,
)
from spar.records.perceived import Incident, IncidentState, Severity, incidents_in, owner_of
from spar.types import CycleRecord

if TYPE_CHECKING:
    from spar.agent.parts import AgentParts
    from spar.ports.phases import IncidentsKept
    from spar.service.app import Service

log = get_logger("spar.incidents")

#: Incidents in one answer.
MOST: Final = 1_000
#: Cycles of one incident that are shown; latest cycles that are searched for those that continued an interrupted one.
_DEALT, _SEARCHED = 20, 200


class IncidentsChoice(Struct, frozen=True, forbid_unknown_fields=True):
    """Choice of incidents."""

    state: Annotated[Literal["all", "open", "closed"], Meta(description="Only in this state.")] = "all"
    limit: Annotated[int, Meta(ge=1, le=MOST, description="How many.")] = 100
    since: Since = None


class IncidentId(Struct, frozen=True, forbid_unknown_fields=True):
    """An incident's id."""

    id: str


class ShownIncident(Incident):
    """Incident in full, with the latest cycles that handled it."""

    dealt: tuple[CycleRecord, ...] = ()


class IncidentSummary(Struct, frozen=True):
    """Incident in a list: without its states, examples, steps and cycles, and with the number of its things."""

    id: str
    session: str
    title: str
    severity: Severity
    opened_at: datetime
    last_at: datetime
    subject: str | None
    state: IncidentState
    trust: str
    count: int
    strange: int
    told_count: int = field(name="told")
    ordinal: int
    reason: str
    closed_at: datetime | None
    entities: dict[str, list[str]]
    things: int
    left_out: dict[str, int]
    asked_by: str


def summary_of(incident: Incident) -> IncidentSummary:
    """Return an incident as it is listed."""
    things = len(incident.things) + incident.left_out.get("things", 0)
    same = {name: getattr(incident, name) for name in IncidentSummary.__struct_fields__ if name != "told_count"}
    return IncidentSummary(**{**same, "things": things, "told_count": incident.told})


def _about(row: IncidentSummary) -> str:
    names = [names[0] for names in row.entities.values() if names]
    return ", ".join(names[:3]) or row.subject or ""


def _incidents_of(agent: AgentParts) -> IncidentsKept:
    from spar.ports.phases import OptionalSense

    sentence = f"agent {agent.name!r} keeps no incidents: its sense module has none"
    return demanded(agent.setup.modules["sense"].part, OptionalSense.incidents, sentence)


def _one(incidents: list[Incident], id: str) -> Incident:
    for incident in incidents:
        if incident.id.casefold() == id.strip().casefold():
            return incident
    known = ", ".join(incident.id for incident in incidents[-5:]) or "none"
    raise LookupError(f"no incident {id[:100]!r}; the last are: {known}")


async def _incidents(store: AgentStore) -> list[Incident]:
    """Return the incidents, the oldest first: of an agent that does not run all that cycles have begun to handle."""
    from spar.ports.rows import rows_in

    if store.agent is not None:
        return list(_incidents_of(store.agent).list())
    return incidents_in(await rows_in(store.memory, owner_of(store.agent_name)))[0]


@operation("incidents list", "GET /v1/incidents", "read", where="service", is_stored=True, command=CommandForm(
    default={"limit": 20},
    columns=(
        Column("incident", "id"), Column("state", "state"), Column("severity", "severity"), Column(">count", "count"),
        Column("opened", "opened_at", "time"), Column("last", "last_at", "time"), Column("about", _about),
        Column("now", "title", "line"),
    ),
    empty=lambda given: "no incidents yet" if given.state == "all" else f"no {given.state} incidents",
    examples=("spar incidents list", "spar incidents list --state open"),
))  # fmt: skip
async def list_incidents(store: AgentStore, given: IncidentsChoice) -> list[IncidentSummary]:
    """List incidents in short form, newest first: as the running service knows them, without one as they are stored."""
    selected = [incident for incident in await _incidents(store) if given.state in ("all", incident.state)]
    return [summary_of(incident) for incident in chosen(given, selected[::-1], lambda incident: incident.last_at)]


@operation("incidents show", "GET /v1/incidents/{id}", "read", is_stored=True, command=CommandForm(
    examples=("spar incidents show I-12",),
))  # fmt: skip
async def show(store: AgentStore, given: IncidentId) -> ShownIncident:
    """Show the history of one incident: what joined it and why, what the agent did about it, how it ended."""
    incident = _one(await _incidents(store), given.id)
    known, memory = incident.cycles[-_DEALT:], store.memory
    cycles = [cycle for cycle_id in known if (cycle := await memory.cycle(cycle_id)) is not None]
    # Another cycle may have continued the work of one that was interrupted.
    if len(cycles) < len(known) or any(cycle.outcome == "interrupted" for cycle in cycles):
        latest = {entry["cycle_id"] for entry in await memory.cycles(limit=_SEARCHED)} - set(incident.cycles)
        others = [await memory.cycle(cycle_id) for cycle_id in latest if cycle_id > min(known)]
        cycles += [cycle for cycle in others if cycle is not None and any(
            perception.attributes.get("incident") == incident.id for perception in cycle.perceptions)]  # fmt: skip
    return ShownIncident(**asdict(incident), dealt=tuple(cycles))


@operation("incidents close", "POST /v1/incidents/{id}:close", "operate", status=202,
           audit=AuditRule("incident.close", subject="id"),
           command=effect_form("closed with the next cycle", lambda incident: incident.id,
                               "spar incidents close I-12"))  # fmt: skip
async def close(service: Service, given: IncidentId, caller: Caller) -> Incident:
    """Close an incident in the next cycle; 409 if it is closed already. Later perceptions of the same problem open it
    again, or open a new one."""
    incidents = _incidents_of(service.agent)
    incident = _one(list(incidents.list()), given.id)
    try:
        closing = incidents.ask_closing(incident.id, caller.by)
    except ValueError as error:
        raise ConflictError(str(error)) from None
    log.info("incident closed", agent=service.agent.name, incident=incident.id, by=caller.by)
    return closing


# -- sensors


class SensorName(Struct, frozen=True, forbid_unknown_fields=True):
    """Name of a sensor."""

    sensor: str


@operation("sensors list", "GET /v1/sensors", "read", where="service", is_stored=True, command=CommandForm(
    rows=lambda states: list(states.items()),
    columns=(
        Column("sensor", lambda row: row[0]), Column("state", lambda row: str(row[1].get("state", "?"))),
        Column("last error", lambda row: str(row[1].get("last_error") or "")),
    ),
    empty="no sensors are configured",
    examples=("spar sensors list",),
))  # fmt: skip
async def list_sensors(store: AgentStore, given: RowsChoice) -> dict[str, dict[str, Any]]:
    """List the sensors by name, each with its state and its last error."""
    if store.agent is None:
        sensors = {part.label: {"state": NOT_RUNNING} for part in store.configuration("sensors").settings.sensors}
    else:
        from spar.service.agent_metrics import snapshot_of

        sensors = snapshot_of(store.agent.setup.modules["sense"].part).get("sensors", {})
    return dict(chosen(given, sensors.items()))


@operation("sensors restore", "POST /v1/sensors/{sensor}:restore", "operate", status=202,
           audit=AuditRule("sensor.restore", subject="sensor"), command=CommandForm(
    sentence=lambda given, row: f"{row.sensor}: is tried again now", examples=("spar sensors restore inbox",),
))  # fmt: skip
async def restore(service: Service, given: SensorName) -> SensorName:
    """Poll a sensor in quarantine again now, instead of at the planned time."""
    from spar.ports.any_part import has
    from spar.ports.phases import OptionalSense

    sense = service.agent.setup.modules["sense"].part
    if not has(sense, OptionalSense.restore):
        raise LookupError(f"no sensor {given.sensor!r}: this sense module keeps none")
    sense.restore(given.sensor)
    return given
