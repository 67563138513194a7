"""The schemas of the kinds of deploy/ in the oldest and the newest API of Kubernetes, of which kubernetes_schemas.json
keeps what these kinds use.

By itself, `python -m tests.deploy.kubernetes_schemas` takes them anew from the package `kubernetes-validate`, of
17,000 files, which is installed for that only.
"""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema

KEPT = Path(__file__).with_name("kubernetes_schemas.json")
VERSIONS = ("1.29", "1.37")
KINDS = ("configmap-v1", "deployment-apps-v1", "namespace-v1", "networkpolicy-networking-v1", "secret-v1", "service-v1",
         "statefulset-apps-v1")  # fmt: skip


def validate(manifest: dict[str, Any], version: str) -> None:
    """Raise `jsonschema.ValidationError` where a manifest has what the API does not know, or lacks what it wants."""
    schema = json.loads(KEPT.read_text())[version]
    group, _, number = manifest["apiVersion"].rpartition("/")
    kind = "-".join(filter(None, (manifest["kind"].lower(), group.partition(".")[0], number)))
    jsonschema.Draft202012Validator(schema | schema["kinds"][kind]).validate(manifest)


def main() -> None:
    kept: dict[str, Any] = {}
    for version in VERSIONS:
        folder = files("kubernetes_validate") / f"kubernetes-json-schema/v{version}.0-local-strict"
        known = json.loads((folder / "_definitions.json").read_text())["$defs"]
        kinds = {kind: _plain(json.loads((folder / f"{kind}.json").read_text())) for kind in KINDS}
        used, ahead = {}, _named(kinds)
        while ahead := ahead - used.keys():
            used |= {name: _plain(known[name]) for name in ahead}
            ahead = _named(used)
        kept[version] = {"kinds": kinds, "$defs": used}
    KEPT.write_text(json.dumps(kept, sort_keys=True) + "\n")


def _plain(schema: Any) -> Any:
    """Return a schema without its descriptions, whose references point into the one file."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema.removeprefix("/api/_definitions.json") if isinstance(schema, str) else schema
    told = {key for key, value in schema.items() if key.startswith(("x-", "$schema", "$id"))}
    told |= {"description"} if isinstance(schema.get("description"), str) else set()
    return {key: _plain(value) for key, value in schema.items() if key not in told}


def _named(schemas: Any) -> set[str]:
    """Return the definitions that schemas refer to."""
    return {part.partition('"')[0] for part in json.dumps(schemas).split('"#/$defs/')[1:]}


if __name__ == "__main__":
    main()
