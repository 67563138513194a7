"""A call that is ready: resolved, validated, and able to be put in another one's place.

A call with another one's parameters is checked like any new one; the original stays with it as `_original`.
What was data in the call that people were shown stays data in what they hand back, even if it looks like a reference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from acting.run.call.prepare import BadCallError, read
from acting.run.call.prescriptions import prescribed
from acting.run.runtime import Stage, fault, wire_of
from acting.tooling.bound_tool import Entry
from acting.tooling.parameters import ParametersError, check_finite
from spar.budgets.windows import Fare
from spar.data.blackboard import Board
from spar.data.paths import (
    BadReferenceError,
    Expression,
    TooLargeError,
    copied,
    escape,
    marked,
    parse_write,
    references,
    resolve,
)
from spar.types import Call, Fault, replace, without_service_keys

#: What is raised for a call that cannot run as it is.
STRUCTURAL = (BadReferenceError, TooLargeError, ParametersError, BadCallError)


class Proposal:
    """A call that is ready: `call` as proposed, `params` resolved, `arguments` validated, `entry` its tool.

    `ticket` is the approval that it waits for or may use; `is_guest`: it was another call that asked for it. `binds` is
    what bound the call when it was let run (None: nobody had to), `fare` what is reserved for it of the budgets,
    `corrections` what people and hooks made of it, in order.
    """

    if not TYPE_CHECKING:
        __slots__ = ()  # whoever is a proposal has the room for these

    call: Call
    entry: Entry
    params: dict[str, Any]
    arguments: dict[str, Any]
    target: Expression | None
    ticket: str
    is_guest: bool
    binds: Mapping[str, Any] | None
    fare: Fare | None
    corrections: tuple[dict[str, Any], ...]

    def shown(self) -> Call:
        """A copy to show, its references resolved."""
        return replace(self.call, params=copied(self.params))

    def corrected(self, old: Call, decision: str, by: str, reason: str) -> None:
        """Note that `old` was put aside for the call as it is now, by whom and why."""
        told = {"call": _shown(old), "decision": decision, "by": by, "reason": reason, "ran": _shown(self.call)}
        self.corrections = (*self.corrections, told)

    def swap(self, stage: Stage, board: Board, new: Call, is_done: Callable[[str], bool]) -> Fault | None:
        """Put `new` in its place under its id; what is wrong with it, if anything: nothing is changed then."""
        old = self.call
        texts = frozenset(marked(self.params))
        if texts:
            new = replace(new, params=escape(new.params, texts))
        meta = {**new.meta, "_original": old.meta.get("_original", wire_of(old))}
        path = old.output_path if new.output_path is None else new.output_path
        method = old.output_method if new.output_path is None else new.output_method
        instance = old.instance if new.instance is None else new.instance
        new, wrong = read(replace(new, id=old.id, output_path=path, output_method=method, instance=instance, meta=meta))
        if wrong:
            return fault("bad_call", wrong, old.tool)
        entry = stage.catalog.get(new.tool)
        if entry is None:
            return fault("unknown_tool", stage.catalog.unknown(new.tool), new.tool)
        try:
            if late := [id for id in new.after if not is_done(id)]:
                raise BadReferenceError(
                    f"the call that replaces {old.id!r} is to run after {late[0]!r}, which has not ended well"
                )
            new, entry = prescribed(new, entry, stage.catalog)
            references(new.params)
            check_finite(new.tool, new.params)
            params = resolve(new.params, partial(board.look, instance=new.instance))
            arguments = entry.parameters.validate(params)
            place = None if new.output_path is None else parse_write(new.output_path)
        except STRUCTURAL as error:
            return fault(kind_of(error), str(error), new.tool)
        if objection := objection_to(new, entry, place):
            return objection
        self.call, self.entry, self.params, self.arguments, self.target = new, entry, params, arguments, place
        return None


def _shown(call: Call) -> dict[str, Any]:
    return without_service_keys(wire_of(call))


def objection_to(call: Call, entry: Entry, target: Expression | None) -> Fault | None:
    """Return what is wrong with a call as a whole."""
    if target is not None and entry.detaches(call):
        message = "a detached call is not waited for and cannot write: drop '_outputPath' or '_detach'"
        return fault("bad_call", message, call.tool)
    return None


def kind_of(error: Exception) -> str:
    """The kind of structural error that this one is."""
    known: dict[type[Exception], str] = {BadReferenceError: "bad_reference", ParametersError: "bad_parameters"}
    return known.get(type(error), "bad_call")
