"""What a tool prescribes for its calls and what a call may choose, brought together before anything runs. Pure.

A tool that is a schema may fix where its result goes, how, for which instance and what a handler sees. What a call
leaves open is filled in; what it says otherwise is an error of the call, and so is a choice that nothing here can carry
out. A call never chooses the activity that carries it out: approval, effect and parameters are judged by its tool.
"""

from __future__ import annotations

from typing import Any

from acting.run.call.prepare import BadCallError
from acting.tooling.bound_tool import Entry, LatentEntry
from acting.tooling.registry import Catalog
from acting.tooling.tool_schema import ToolSchema
from spar.data.paths import BadReferenceError, shorten
from spar.types import Call, replace

#: Activities of these names carry out what the executor itself cannot: both ask a model.
DELEGATE = "_delegate"  # calls with `_delegate`: another request, isolated
LATENT = "_latent"  # latent calls whose result was written before what it refers to was known


def prescribed(call: Call, entry: Entry, catalog: Catalog) -> tuple[Call, Entry]:
    """The call with what its tool prescribes, and what carries it out.

    Raises: BadCallError, BadReferenceError.
    """
    rules = entry.rules
    if rules is not None:
        call = _filled(call, rules)
    meta = call.meta
    if meta.get("_delegate"):
        return call, _other(catalog, entry, DELEGATE, "be delegated")
    wanted = meta.get("_activity")
    if isinstance(entry, LatentEntry) and wanted == LATENT:
        return call, rewritten(call, entry, catalog)
    # A call that chose its handler would run it under the terms of the tool it names.
    if wanted is not None and wanted != entry.activity:
        by = f"by {entry.activity!r}" if entry.activity else "by no activity"
        raise BadCallError(f"tool {call.tool!r} is carried out {by}, not by {shorten(wanted)}")
    if isinstance(entry, LatentEntry) and "_output" not in meta:
        if LATENT not in catalog.activities:
            raise BadCallError(f"nothing carries out tool {call.tool!r}: its call must bring the result as '_output'")
        return call, rewritten(call, entry, catalog)
    return call, entry


def rewritten(call: Call, entry: Entry, catalog: Catalog) -> Entry:
    """What carries out a latent call that refers to what was not there when its result was written.

    Raises: BadCallError when nothing here can.
    """
    return _other(catalog, entry, LATENT, "be written once what it refers to is there")


def _other(catalog: Catalog, entry: Entry, activity: str, purpose: str) -> Entry:
    found = catalog.carried_out_by(entry, activity)
    if found is None:
        known = ", ".join(sorted(catalog.activities)) or "none"
        raise BadCallError(f"it is to {purpose}, and there is no activity {activity!r}; known: {known}")
    return found


def _filled(call: Call, rules: ToolSchema) -> Call:
    fixed: dict[str, Any] = {}
    for name, theirs, unsaid in (
        ("output_path", rules.output_path, None),
        ("output_method", rules.output_method, "set"),
        ("instance", rules.instance, None),
    ):
        said = getattr(call, name)
        if theirs is None or said == theirs:
            continue
        if said != unsaid:
            raise BadCallError(f"tool {call.tool!r} prescribes {theirs!r} as its {_WIRE[name]}, found {shorten(said)}")
        fixed[name] = theirs
    pattern = rules.output_path_pattern
    if pattern is not None and call.output_path is not None and pattern.search(call.output_path) is None:
        raise BadReferenceError(f"'_outputPath' of tool {call.tool!r} must match {shorten(pattern.text)}, "
                                f"found {shorten(call.output_path)}")  # fmt: skip
    meta = dict(call.meta)
    if rules.delegate is not None and meta.setdefault("_delegate", rules.delegate) != rules.delegate:
        raise BadCallError(
            f"tool {call.tool!r} is delegated to {rules.delegate!r}, not to {shorten(meta['_delegate'])}"
        )
    scopes = meta.get("_scopes")
    if rules.scopes is not None and list(meta.setdefault("_scopes", list(rules.scopes))) != list(rules.scopes):
        raise BadCallError(f"tool {call.tool!r} prescribes the scopes {list(rules.scopes)}, found {shorten(scopes)}")
    if rules.may_scope is not None and scopes and (more := [each for each in scopes if each not in rules.may_scope]):
        known = ", ".join(rules.may_scope) or "none"
        raise BadCallError(f"tool {call.tool!r} may not see {shorten(more[0])}; it may see: {known}")
    return replace(call, **fixed, meta=meta) if fixed or meta != call.meta else call


_WIRE = {"output_path": "'_outputPath'", "output_method": "'_outputMethod'", "instance": "'_instance'"}
