"""The container file and the compose file: read as their tools do, and what they run is run."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.process.conftest import CONFIG, Service, Spar, until

ROOT = CONFIG.parent
DEPLOY = ROOT / "deploy"
#: Seconds that the platforms' notices of an end leave beyond `service.drain`.
GRACE = 10


class Instruction(NamedTuple):
    """One instruction of a container file, and the text behind it."""

    name: str
    text: str


def stages() -> list[list[Instruction]]:
    """Return the instructions of each stage, as Containerfile(5) reads them; the first has what stands before any."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Containerfile").read_text(), flags=re.M)
    found: list[list[Instruction]] = [[]]
    for line in re.sub(r"\\\n", " ", text).splitlines():
        if line.strip():
            name, _, rest = line.strip().partition(" ")
            if name == "FROM":
                found.append([])
            found[-1].append(Instruction(name, " ".join(rest.split())))
    return found


def last(name: str) -> str:
    """Return the text of the one instruction of this name in the stage that runs."""
    (text,) = (each.text for each in stages()[-1] if each.name == name)
    return text


def environment() -> dict[str, str]:
    return dict(word.split("=", 1) for word in shlex.split(last("ENV")))


def test_it_is_built_in_one_stage_and_runs_in_another_as_nobody_who_could_log_in() -> None:
    before, build, run = stages()
    assert [each.name for each in before] == ["ARG"]
    assert [build[0].text, run[0].text] == ["${BASE} AS build", "${BASE}"]
    known = {"FROM", "ARG", "WORKDIR", "COPY", "RUN", "ENV", "USER", "VOLUME", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK"}
    assert {each.name for stage in stages() for each in stage} == known | {"ENTRYPOINT", "CMD"}
    assert last("USER") == "10001:10001"
    assert last("STOPSIGNAL") == "SIGTERM"
    after = [each.name for each in run]
    assert not {"RUN", "COPY", "ADD"} & set(after[after.index("USER") :])
    assert "pip" not in " ".join(each.text for each in run)  # what builds is not there


def test_nothing_is_fetched_but_from_where_the_platform_is_told_to() -> None:
    for path in sorted(DEPLOY.rglob("*")):
        text = re.sub(r"http://127\.0\.0\.1:\d+\S*", "", path.read_text()) if path.is_file() else ""
        assert not re.search(r"https?://|--(extra-)?index-url|--trusted-host|find-links", text), path


def test_it_holds_all_packages_of_the_wheel_and_no_more() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    copied = [each.text.split() for each in stages()[1] if each.name == "COPY"]
    assert all((ROOT / source).exists() for *sources, _ in copied for source in sources)
    folders = {words[0] for words in copied if (ROOT / words[0]).is_dir()}
    assert folders == set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
    wanted = {*project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"], project["project"]["readme"]}
    assert wanted <= {source for *sources, _ in copied for source in sources}
    (extras,) = (each.text for each in stages()[1] if each.name == "ARG")
    assert set(extras.removeprefix("EXTRAS=[").rstrip("]").split(",")) <= set(
        project["project"]["optional-dependencies"]
    )


def test_what_it_writes_to_are_volumes_and_it_owns_them() -> None:
    environ, volumes = environment(), json.loads(last("VOLUME"))
    assert volumes == [environ["SPAR_SERVICE__STATE_DIR"], environ["SPAR_SERVICE__WORKSPACE"]]
    assert last("RUN").endswith(f"chown 10001:10001 {' '.join(volumes)}")
    assert environ["HOME"] in volumes


@pytest.mark.process
def test_its_command_runs_its_configuration_and_its_health_check_sees_life_and_death(
    spar: Spar, start: Callable[..., Service]
) -> None:
    # As in the container, but for the folders, which are not this machine's to write to, and the port.
    given = {name: value for name, value in environment().items() if name.startswith("SPAR_")}
    folders = {name: f"{spar.folder}{value}" for name, value in given.items() if value.startswith("/var")}
    config = {"SPAR_CONFIG": str(DEPLOY / "config.toml"), "SPAR_SERVICE__PORT": "0", "SPAR_SERVICE__HOST": "127.0.0.1"}
    spar.environ |= {**given, **folders, **config}
    spar.config.unlink()
    spar.state = Path(folders["SPAR_SERVICE__STATE_DIR"])
    assert (json.loads(last("ENTRYPOINT")), json.loads(last("CMD"))) == (["spar"], ["run"])
    assert spar("config", "check").out.startswith(f"{DEPLOY}/config.toml: all right")
    service = start().ready()
    check = json.loads(last("HEALTHCHECK").partition(" CMD ")[2])
    port = service.address.rpartition(":")[2]

    def healthy() -> bool:
        program = [sys.executable, *check[1:-1], check[-1].replace(":8420/", f":{port}/")]
        return subprocess.run(program, stderr=subprocess.DEVNULL, env={"PATH": os.environ["PATH"]}).returncode == 0

    assert healthy()
    assert spar("send", "are you there?").out == "I heard you: are you there?\n"
    assert Path(spar.folder, "var/lib/spar/state/memory.db").exists()
    service.kill()
    assert not healthy()
    start().ready()
    until(lambda: "are you there?" in spar("cycles", "list").out, "what was accepted before")


def test_compose_runs_it_confined_and_lets_it_drain() -> None:
    told: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    service = told["services"]["spar"]
    drain = 20
    assert int(service["stop_grace_period"].removesuffix("s")) >= drain + GRACE
    assert service["user"] == last("USER")
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).resolve() == DEPLOY / "Containerfile"
    assert all(each.startswith("127.0.0.1:") for each in service["ports"])
    targets = {each.split(":")[1] for each in service["volumes"]}
    assert targets == {*json.loads(last("VOLUME")), environment()["SPAR_CONFIG"]}
    assert set(told["volumes"]) == {each.split(":")[0] for each in service["volumes"] if each[0] not in "./"}
