"""The manifests: valid by the schema of the API, confined as the strictest profile wants it, true to the container."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from spar.config.load import from_mapping
from spar.observe.shipped import shipped
from tests.deploy.kubernetes_schemas import VERSIONS, validate
from tests.deploy.test_container import DEPLOY, GRACE, environment
from tests.docs.manifests import prometheus_rule

FOLDER = DEPLOY / "kubernetes"
FILES = sorted(FOLDER.glob("*.yaml"))
#: Kinds that other projects add to the API.
ADDED = {"Kustomization", "PodMonitor", "PrometheusRule"}


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    return found


def of(name: str) -> dict[str, Any]:
    return read(FOLDER / f"{name}.yaml")


OWN = [path for path in FILES if read(path)["kind"] not in ADDED]


@pytest.mark.parametrize(
    "path", [*OWN, *(DEPLOY / "standby" / f"{name}.yaml" for name in ("deployment", "networkpolicy"))],
    ids=lambda path: f"{path.parent.name}-{path.stem}",
)  # fmt: skip
def test_a_manifest_is_valid_by_the_schema_of_the_api(path: Path) -> None:
    for version in VERSIONS:
        validate(read(path), version)


def test_a_key_that_the_api_does_not_know_would_be_seen() -> None:
    manifest = of("statefulset")
    manifest["spec"]["template"]["spec"]["containers"][0]["livenesProbe"] = {}
    with pytest.raises(jsonschema.ValidationError, match="livenesProbe"):
        validate(manifest, VERSIONS[-1])


def test_all_of_them_are_one_application_in_one_namespace() -> None:
    listed = of("kustomization")["resources"]
    assert {path.name for path in OWN} == set(listed)
    for path in FILES:
        told = read(path)
        if told["kind"] not in ("Namespace", "Kustomization"):
            assert told["metadata"]["namespace"] == of("namespace")["metadata"]["name"]
            assert told["metadata"]["labels"] == {"app.kubernetes.io/name": "spar"}
    labels = of("statefulset")["spec"]["template"]["metadata"]["labels"]
    assert of("service")["spec"]["selector"] == labels
    for name, key in (("networkpolicy", "podSelector"), ("podmonitor", "selector")):
        assert of(name)["spec"][key]["matchLabels"] == labels


def test_the_pod_fits_the_restricted_profile_and_writes_to_volumes_only() -> None:
    spec = of("statefulset")["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert (spec["replicas"], of("namespace")["metadata"]["labels"]) == (
        1, {"pod-security.kubernetes.io/enforce": "restricted"}
    )  # fmt: skip
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}
    }  # fmt: skip
    assert pod["automountServiceAccountToken"] is False
    mounts = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
    claimed = {each["metadata"]["name"] for each in spec["volumeClaimTemplates"]}
    assert set(mounts.values()) == {each["name"] for each in pod["volumes"]} | claimed
    environ = environment()
    assert {mounts[environ["SPAR_SERVICE__STATE_DIR"]], mounts[environ["SPAR_SERVICE__WORKSPACE"]]} == claimed
    assert str(Path(environ["SPAR_CONFIG"]).parent) in mounts


def test_each_probe_asks_a_route_that_there_is_and_an_end_leaves_time_to_drain() -> None:
    pod = of("statefulset")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    asked = {name: container[name]["httpGet"]["path"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert asked == {"startupProbe": "/startupz", "livenessProbe": "/livez", "readinessProbe": "/readyz"}
    assert {container[name]["httpGet"]["port"] for name in asked} == {"http"} == {container["ports"][0]["name"]}
    assert container["ports"][0]["containerPort"] == int(environment()["SPAR_SERVICE__PORT"])
    settings = from_mapping(tomllib.loads(of("configmap")["data"]["config.toml"]))
    assert pod["terminationGracePeriodSeconds"] >= settings.service.drain + GRACE
    limit = int(container["resources"]["limits"]["memory"].removesuffix("Mi")) << 20
    assert limit > settings.service.memory_hard


def test_the_configuration_is_that_of_the_container() -> None:
    assert of("configmap")["data"]["config.toml"] == (DEPLOY / "config.toml").read_text()


def test_the_rules_are_the_shipped_ones() -> None:
    assert (FOLDER / "prometheusrule.yaml").read_text() == prometheus_rule(), "out of date, run `make docs`"
    assert of("prometheusrule")["spec"] == yaml.safe_load(shipped("rules.yml"))
    job = f"{of('podmonitor')['metadata']['namespace']}/{of('podmonitor')['metadata']['name']}"
    (matched,) = set(re.findall(r'job=~"([^"]+)"', shipped("rules.yml")))
    assert re.fullmatch(matched, job)
