"""Pins: the accepted definitions of an MCP server's tools, stored so that no tool changes unnoticed.

A server may describe a harmless tool until people trust it, and a harmful one later. So each tool's name, description,
schemas and annotations are stored at first use, with the sha256 over their encoded JSON (the pin). After that, a tool
that differs, or that is new, is off until a person accepts it. The tools that wait for that are in the same file, so
a person can accept them whether the service runs or not. Deleting the file accepts the next listing of the server.

All functions here block: call them in a thread. Source: "tool poisoning" and "rug pull", OWASP MCP Top 10, 2025.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from spar.errors import PermanentError

Definition = Mapping[str, Any]
"""A tool as its server describes it: a value for each field in `FIELDS`."""

FIELDS = {
    "name": "name",
    "description": "description",
    "inputSchema": "parameters",
    "outputSchema": "output",
    "annotations": "annotations",
}
"""The pinned fields, and their names in sentences."""
_MOST_NAMED = 5


class PinsError(PermanentError):
    """The file of pins cannot be read or written: no tool may be used."""


def encoded(value: Any) -> str:
    """Return JSON with sorted keys and no spaces, in ASCII: the same text for the same value.

    Files of pins hold hashes of this text, so its form must stay. (Approvals have a canonical JSON of their own.)
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def pin(definition: Definition) -> str:
    """Return the sha256 of a definition."""
    text = encoded({field: definition.get(field) for field in FIELDS})
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def difference(old: Definition, new: Definition) -> str:
    """Return the changes between two definitions, as the middle of a sentence."""
    changes = []
    for field, word in FIELDS.items():
        was, now = old.get(field), new.get(field)
        if encoded(was) == encoded(now):
            continue
        changes.append(_schema_change(was, now) if field == "inputSchema" else f"its {word} changed")
    return ", ".join(changes) or "nothing changed"


def _schema_change(was: Any, now: Any) -> str:
    before, after = _properties(was), _properties(now)
    added = [name for name in after if name not in before]
    removed = [name for name in before if name not in after]
    changed = [name for name in before if name in after and encoded(before[name]) != encoded(after[name])]
    parts = (("added", added), ("removed", removed), ("changed", changed))
    changes = [f"{word} {_join_names(names)}" for word, names in parts if names]
    return f"its parameters changed ({'; '.join(changes)})" if changes else "its parameters changed"


def _properties(schema: Any) -> Mapping[str, Any]:
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    return properties if isinstance(properties, Mapping) else {}


def _join_names(names: list[str]) -> str:
    shown = ", ".join(f"{name[:60]!r}" for name in names[:_MOST_NAMED])
    return shown + (f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else "")


class Pins:
    """The file of one server's pins. All methods raise PinsError when the file cannot be read or written."""

    def __init__(self, state: str, server: str) -> None:
        self.path = Path(state) / "mcp" / f"{server}.json"
        self._server = server

    def accepted(self) -> dict[str, Definition]:
        """Return the accepted definitions, by name."""
        return {name: row["definition"] for name, row in self._read()["accepted"].items()}

    def judge(self, definitions: Mapping[str, Definition]) -> dict[str, str]:
        """Return the tools that must not be used, with the reasons, by name. The first listing of all is accepted."""
        with self._change() as rows:
            accepted = rows["accepted"]
            if not accepted:
                accepted.update({name: _row(definition) for name, definition in definitions.items()})
            off = {}
            for name, definition in definitions.items():
                if name not in accepted:
                    off[name] = f"it is new: it was not there when the tools of {self._server!r} were accepted"
                elif accepted[name]["pin"] != pin(definition):
                    off[name] = (
                        f"it changed after it was accepted: {difference(accepted[name]['definition'], definition)}"
                    )
            rows["waiting"] = {name: {**_row(definitions[name]), "why": why} for name, why in off.items()}
        return off

    def waiting(self) -> dict[str, str]:
        """Return the tools that wait to be accepted, with the reasons, by name."""
        return {name: str(row.get("why", "")) for name, row in self._read()["waiting"].items()}

    def accept(self, names: Collection[str] = ()) -> dict[str, str]:
        """Accept all tools that wait, or only those in `names`. Return them with the reasons why they waited.

        Raises: LookupError for a name that does not wait.
        """
        with self._change() as rows:
            waiting = rows["waiting"]
            for name in names:
                if name not in waiting:
                    known = ", ".join(sorted(waiting)) or "none"
                    raise LookupError(f"no tool {name!r} of {self._server!r} waits to be accepted; waiting: {known}")
            rows_to_accept = {name: waiting.pop(name) for name in list(waiting) if not names or name in names}
            rows["accepted"].update({name: _row(row["definition"]) for name, row in rows_to_accept.items()})
        return {name: str(row.get("why", "")) for name, row in rows_to_accept.items()}

    def stamp(self) -> tuple[int, int]:
        """Return a value that changes whenever the file does."""
        try:
            status = self.path.stat()
        except OSError:
            return 0, 0
        return status.st_mtime_ns, status.st_ino

    @contextmanager
    def _change(self) -> Iterator[dict[str, dict[str, Any]]]:
        """Yield the rows to be changed in place, and write them after a change; one process at a time."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with open(self.path.parent / ".lock", "ab") as lock:  # noqa: PTH123
                fcntl.flock(lock, fcntl.LOCK_EX)
                rows = self._read()
                before = encoded(rows)
                yield rows
                if encoded(rows) != before:
                    self._write(rows)
        except OSError as error:
            raise PinsError(f"the pins in {str(self.path)!r} cannot be kept: {error.strerror or error}") from error

    def _read(self) -> dict[str, dict[str, Any]]:
        try:
            text = self.path.read_bytes()
        except FileNotFoundError:
            return {"accepted": {}, "waiting": {}}
        except OSError as error:
            raise PinsError(f"the pins in {str(self.path)!r} cannot be read: {error.strerror}") from error
        try:
            rows = json.loads(text)
            for row in (*rows["accepted"].values(), *rows["waiting"].values()):
                if row["pin"] != pin(row["definition"]):
                    raise ValueError(f"the pin of {row['definition'].get('name')!r:.80} does not fit its definition")
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise PinsError(
                f"the pins in {str(self.path)!r} are damaged ({error}); delete the file to accept what is offered"
            ) from error
        return {"accepted": rows["accepted"], "waiting": rows["waiting"]}

    def _write(self, rows: Mapping[str, Any]) -> None:
        content = json.dumps({"server": self._server, **rows}, indent=1, sort_keys=True).encode("ascii")
        descriptor, temporary = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.")  # mode 0600
        try:
            with open(descriptor, "wb") as file:  # noqa: PTH123
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.path)  # noqa: PTH105
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


def _row(definition: Definition) -> dict[str, Any]:
    fields = {field: definition.get(field) for field in FIELDS}
    return {"pin": pin(fields), "definition": fields}
