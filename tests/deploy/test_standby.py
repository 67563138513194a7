"""Two processes on one database, as the compose file and the manifests start them: true to those of one process."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.test_container import DEPLOY, environment
from tests.deploy.test_kubernetes import of, read
from tests.process.conftest import Service, Spar, until

FOLDER = DEPLOY / "standby"
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
ONE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["spar"]


def container(manifest: dict[str, Any]) -> dict[str, Any]:
    (found,) = manifest["spec"]["template"]["spec"]["containers"]
    return dict(found)


def variables() -> dict[str, str]:
    """Return the variables of the memory, which both have."""
    deployed = {each["name"]: each["value"] for each in container(read(FOLDER / "deployment.yaml"))["env"]}
    composed = dict(COMPOSE["services"]["spar-1"]["environment"])
    assert deployed.keys() == composed.keys()
    assert {name for name in deployed if deployed[name] != composed[name]} == {"SPAR_MEMORY__URL"}
    return composed


def test_the_pods_are_that_of_the_stateful_set_but_for_what_standing_by_needs() -> None:
    two, one = read(FOLDER / "deployment.yaml"), of("statefulset")
    pod, other = two["spec"]["template"]["spec"], one["spec"]["template"]["spec"]
    assert two["spec"]["selector"] == one["spec"]["selector"]
    assert two["spec"]["template"]["metadata"] == one["spec"]["template"]["metadata"]
    assert {name for name in pod.keys() | other.keys() if pod.get(name) != other.get(name)} == {
        "containers", "volumes", "topologySpreadConstraints"
    }  # fmt: skip
    mine, its = container(two), container(one)
    differ = {name for name in mine.keys() | its.keys() if mine.get(name) != its.get(name)}
    assert differ == {"env", "startupProbe", "readinessProbe"}
    assert "startupProbe" not in mine, "it would end a process that stands by"
    assert mine["readinessProbe"]["httpGet"] == its["readinessProbe"]["httpGet"]
    assert {each["name"] for each in pod["volumes"]} == {each["name"] for each in mine["volumeMounts"]}
    # The pod that stands by is not ready, so no update may wait until it is.
    assert (two["spec"]["replicas"], two["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"]) == (2, "100%")
    kustomization = read(FOLDER / "kustomization.yaml")
    assert (FOLDER / kustomization["resources"][0] / "kustomization.yaml").exists()
    assert {path.name for path in FOLDER.glob("*.yaml")} == {
        "compose.yaml", "kustomization.yaml", *kustomization["resources"][1:]
    }  # fmt: skip
    deleted = yaml.safe_load(kustomization["patches"][0]["patch"])
    assert (deleted["kind"], deleted["metadata"]["name"]) == (one["kind"], one["metadata"]["name"])


def test_each_process_of_the_compose_file_is_confined_as_the_one_is() -> None:
    services = {name: service for name, service in COMPOSE["services"].items() if name != "database"}
    assert len(services) == 2
    same = set(ONE) - {"build", "ports", "volumes"}
    for service in services.values():
        assert {name: service[name] for name in same} == {name: ONE[name] for name in same}
        assert {each.split(":")[1] for each in service["volumes"]} == {each.split(":")[1] for each in ONE["volumes"]}
        assert all(each.startswith("127.0.0.1:") for each in service["ports"])
    ports, states = ([service[name] for service in services.values()] for name in ("ports", "volumes"))
    assert ports[0] != ports[1]
    assert states[0][1] != states[1][1]
    assert "postgres" in last_extras()


def last_extras() -> str:
    text = (DEPLOY / "Containerfile").read_text()
    return next(line for line in text.splitlines() if line.startswith("ARG EXTRAS="))


@pytest.mark.process
def test_one_works_the_other_is_alive_and_not_ready_until_it_takes_over(url: str, tmp_path: Path) -> None:
    secret = tmp_path / "database"
    secret.write_text("s3cret\n")
    given = {name: value for name, value in environment().items() if name.startswith("SPAR_")}
    memory = {**variables(), "SPAR_MEMORY__URL": url,
              "SPAR_MEMORY__PASSWORD": json.dumps({"file": str(secret)})}  # fmt: skip
    both = []
    for number in (1, 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        spar = Spar(folder)
        folders = {name: f"{folder}{value}" for name, value in given.items() if value.startswith("/var")}
        config = {
            "SPAR_CONFIG": str(DEPLOY / "config.toml"),
            "SPAR_SERVICE__PORT": "0",
            "SPAR_SERVICE__HOST": "127.0.0.1",
        }
        spar.environ |= {**given, **folders, **config, **memory}
        spar.config.unlink()
        spar.state = Path(folders["SPAR_SERVICE__STATE_DIR"])
        both.append(spar)
    first, second = both
    working = Service(first)
    standing: Service | None = None
    try:
        working.ready()
        standing = Service(second)
        holder = f"'spar {socket.gethostname()[:30]} {working.process.pid}'"
        assert f"is in use by {holder}" in standing.said("memory stands by")["reason"]
        assert [working.get(path).status_code for path in ("/livez", "/readyz")] == [200, 200]
        assert [standing.get(path).status_code for path in ("/livez", "/readyz")] == [200, 503]
        assert second("status", "--json").json["agent"]["state"] == "standby"
        assert first("send", "are you there?").out == "I heard you: are you there?\n"
        working.kill()
        until(lambda: standing.get("/readyz").status_code == 200, "the second ready")
        assert "are you there?" in second("cycles", "list").out
    finally:
        for service in filter(None, (working, standing)):
            service.kill()
