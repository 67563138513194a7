"""Operation on the attachments of an agent."""

from __future__ import annotations

from msgspec import Struct

from spar.operations.operation import NOT_RUNNING, AgentStore, Column, CommandForm, RowsChoice, chosen, operation


class PartRow(Struct, frozen=True):
    """Attachment: its name, where it comes from, its state (why, if it is not attached), and how often it failed."""

    name: str
    origin: str
    state: str
    why: str = ""
    failures: int = 0


@operation("parts", "GET /v1/parts", "read", where="service", is_stored=True, command=CommandForm(
    columns=(Column("name", "name"), Column("from", "origin"), Column("state", "state"),
             Column(">failures", lambda row: str(row.failures)), Column("why", "why")),
    empty="nothing is attached, and no attachment is installed",
    examples=("spar parts",),
))  # fmt: skip
async def list_parts(store: AgentStore, given: RowsChoice) -> list[PartRow]:
    """List the attachments of the agent in the order in which they were attached, then those that are installed and not
    attached.

    Something of an attachment that is `quarantined` has failed five times in a row and is turned off."""
    from spar.parts.factory import BUILT_IN, built_in
    from spar.parts.registry import OWN, default_registry

    if store.agent is not None:
        attached = list(store.agent.attachments.by_name.values())
        rows = [PartRow(item.name, item.origin, item.state, "", item.all_failures) for item in attached]
    else:
        settings = store.configuration("attachments", "channels", "notifiers", "tracing").settings
        rows = [PartRow(name, OWN, NOT_RUNNING) for name in built_in(settings, default_registry())]
        rows += [PartRow(part.label, part.use, NOT_RUNNING) for part in settings.attachments]
    names = {row.name for row in rows}
    for entry in default_registry().entries("spar.attachments"):
        if entry.name not in names:
            setting = BUILT_IN.get(entry.name, f'[[attachments]] use = "{entry.name}"')
            rows.append(PartRow(entry.name, entry.distribution, "not attached", f"without {setting}"))
    return chosen(given, rows)
