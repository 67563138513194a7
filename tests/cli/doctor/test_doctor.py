"""Findings of the doctor: each provoked, by files, limits, sockets and processes as they are."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spar import __version__
from spar.cli.commands.status import read_status
from spar.cli.doctor import checks, installation, machine
from spar.cli.doctor.machine import Subject, is_clock_kept
from spar.config.load import load
from spar.parts.factory import Parts
from spar.ports.store import CareLine
from spar.service.unit import WRITTEN_BY

HOOK = """
[[tools]]
use = "notify"
options = { via = [{ use = "webhook", url = "http://127.0.0.1:9/", secret = SECRET }] }
"""
MODEL = '[plan]\nuse = "llm"\noptions = { model = [{ name = "openai:gpt-5", api_key = SECRET }] }\n'


def subject(folder: Path, text: str, **more: Any) -> Subject:
    path = folder / "config.toml"
    if not path.exists():
        path.write_text(text)
        path.chmod(0o600)
    given: dict[str, Any] = {"environ": {}, "proc": folder / "proc", "is_clock_kept": lambda: True, **more}
    return Subject(Parts(load(path, environ={})), **given)


def found(check: Callable[[Subject], Iterator[CareLine]], about: Subject) -> dict[str, CareLine]:
    return {each.name: each for each in check(about)}


def one(check: Callable[[Subject], Iterator[CareLine]], about: Subject) -> CareLine:
    (finding,) = check(about)
    return finding


# -- the installation


def test_a_configuration_that_others_can_change_is_bad(tmp_path: Path) -> None:
    about = subject(tmp_path, "")
    assert one(installation.configuration, about).state == "ok"
    (tmp_path / "config.toml").chmod(0o666)

    finding = one(installation.configuration, about)

    assert (finding.state, finding.advice) == ("bad", f"chmod go-w {tmp_path}/config.toml")


@pytest.mark.parametrize(("secret", "state"), [('"swordfish"', "warn"), ('{ env = "HOOK" }', "ok")])
def test_a_secret_in_a_configuration_that_others_read_is_a_warning(tmp_path: Path, secret: str, state: str) -> None:
    about = subject(tmp_path, HOOK.replace("SECRET", secret))
    (tmp_path / "config.toml").chmod(0o644)
    assert one(installation.configuration, about).state == state


def test_folders_that_cannot_be_used_or_are_open_are_told(tmp_path: Path) -> None:
    about = subject(tmp_path, '[service]\nworkspace = "file/inside"\n')
    assert {each.state for each in found(installation.folders, about).values()} == {"ok"}
    (tmp_path / "state").mkdir(mode=0o755)
    assert found(installation.folders, about)["state folder"].advice == f"chmod 700 {tmp_path}/state"
    (tmp_path / "state").rmdir()
    (tmp_path / "state").touch()
    assert found(installation.folders, about)["state folder"].found == f"{tmp_path}/state is no folder"


def test_a_secret_that_is_not_there_is_bad_and_one_that_all_can_read_a_warning(tmp_path: Path) -> None:
    about = subject(tmp_path, HOOK.replace("SECRET", '{ file = "hook.key" }'))
    finding = one(installation.secrets, about)
    assert (finding.state, finding.advice) == ("bad", "write it there, readable by the service's user")
    (tmp_path / "hook.key").write_text("correct horse battery")
    (tmp_path / "hook.key").chmod(0o604)
    finding = one(installation.secrets, about)
    assert (finding.state, finding.advice) == ("warn", f"chmod o= {tmp_path}/hook.key")
    (tmp_path / "hook.key").chmod(0o640)
    assert one(installation.secrets, about).state == "ok"


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("sk-one two", "has a space"),
        ('"sk-abcdefgh"', "stands in quotes"),
        ("sk-schlüssel", "no header can carry"),
        ("${OPENAI_API_KEY}", "a variable that nothing has put in"),
        ("<your key>", "has a space"),
        ("your-api-key-here", "is an example"),
        ("sk-xxxxxxxx", "is an example"),
        ("sk-", "fewer than any key"),
    ],
)
def test_a_key_of_a_model_that_is_none_by_its_shape_is_bad(tmp_path: Path, key: str, words: str) -> None:
    about = subject(tmp_path, MODEL.replace("SECRET", '{ env = "KEY" }'), environ={"KEY": key})
    finding = one(installation.secrets, about)
    assert finding.state == "bad"
    assert words in finding.found
    assert key not in finding.found + finding.advice
    good = Subject(about.parts, environ={"KEY": "sk-proj-0123456789abcdef"})
    assert one(installation.secrets, good).state == "ok"


def test_a_key_that_nobody_has_set_is_found_by_its_variable(tmp_path: Path) -> None:
    about = subject(
        tmp_path, '[plan]\nuse = "llm"\noptions = { model = ["openai:gpt-5", "anthropic:claude-sonnet-5"] }\n'
    )
    findings = found(installation.secrets, about)
    assert {each.state for each in findings.values()} == {"bad"}
    assert findings["secret ANTHROPIC_API_KEY"].advice == "set ANTHROPIC_API_KEY in the environment of the service"
    assert "secret OPENAI_API_KEY" in findings


def test_a_port_in_use_is_bad_unless_the_service_itself_has_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        about = subject(tmp_path, f"[service]\nport = {taken}\n")
        finding = one(installation.port, about)
        assert finding.state == "bad"
        assert finding.advice.startswith("set service.port to another one")
        assert found(installation.port, Subject(about.parts, process=1)) == {}
    assert one(installation.port, about).state == "ok"


def test_a_unit_that_has_failed_or_whose_program_is_gone_is_bad(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    units = tmp_path / "home/systemd/user"
    units.mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/systemctl").write_text("#!/bin/sh\necho failed\nexit 3\n")
    (tmp_path / "bin/systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    about = subject(tmp_path, "", environ={"XDG_CONFIG_HOME": str(tmp_path / "home")})
    text = f"{WRITTEN_BY}\n[Service]\nExecStart=PYTHON -m spar -c {tmp_path.resolve()}/config.toml run\n"
    assert found(installation.unit, about) == {}

    (units / "mine.service").write_text(text.replace("PYTHON", f"{tmp_path}/gone/python"))
    finding = one(installation.unit, about)
    assert (finding.state, finding.advice) == ("bad", "write it again: spar service install --user --name mine")
    (units / "mine.service").write_text(text.replace("PYTHON", "/bin/sh"))
    finding = one(installation.unit, about)
    assert finding.found == "mine has failed"
    assert "journalctl --user -u mine" in finding.advice
    (tmp_path / "bin/systemctl").write_text("#!/bin/sh\necho active\n")
    assert one(installation.unit, about).found == "mine: active"


def test_a_service_that_runs_an_older_version_is_to_be_restarted(tmp_path: Path) -> None:
    about = subject(tmp_path, "")
    (finding,) = installation.versions(about, "0.0.1")
    assert (finding.state, "restart it" in finding.advice) == ("warn", True)
    (finding,) = installation.versions(about, __version__)
    assert finding.state == "ok"


# -- the machine


def mounted(folder: Path, kind: str) -> list[Any]:
    """The mounted file systems of a machine on which a folder is of this kind."""
    mounts = {"/": "ext4", str(folder.parent): "nfs", str(folder): kind}
    return [SimpleNamespace(fstype=fstype, mountpoint=place) for place, fstype in mounts.items()]


@pytest.mark.parametrize(
    ("kind", "state"), [("nfs4", "bad"), ("fuse.sshfs", "bad"), ("9p", "bad"), ("tmpfs", "warn"), ("xfs", "ok")]
)
def test_a_file_system_without_locks_or_that_is_memory_is_told(tmp_path: Path, kind: str, state: str) -> None:
    about = subject(tmp_path, "", mounts=lambda: mounted(tmp_path, kind))
    finding = one(machine.file_system, about)
    assert (finding.state, kind in finding.found) == (state, True)
    assert ("service.state_dir" in finding.advice) == (state != "ok")


def test_a_file_system_that_takes_no_file_is_bad(tmp_path: Path) -> None:
    about = subject(tmp_path, '[service]\nstate_dir = "/proc/spar"\n', proc=Path("/proc"))
    if not os.access("/proc", os.W_OK):
        assert found(installation.folders, about)["state folder"].state == "bad"
        return
    finding = one(machine.file_system, about)
    assert (finding.state, "/proc on proc cannot hold a new file" in finding.found) == ("bad", True)


def test_a_clock_that_nobody_keeps_and_a_zone_that_nobody_named_are_warnings(tmp_path: Path) -> None:
    about = subject(tmp_path, "", is_clock_kept=lambda: False)
    finding = found(machine.clock, about)["clock kept"]
    assert (finding.state, "timedatectl set-ntp true" in finding.advice) == ("warn", True)
    assert isinstance(is_clock_kept(), bool)  # this machine answers, either way


def test_limits_of_the_kernel_that_are_too_low_are_warnings(tmp_path: Path) -> None:
    about = subject(tmp_path, '[[sensors]]\nuse = "directory"\noptions = { path = "." }\n')
    (tmp_path / "proc/sys/fs/inotify").mkdir(parents=True)
    (tmp_path / "proc/sys/fs/inotify/max_user_watches").write_text("100\n")
    finding = one(machine.watches, about)
    assert (finding.state, "fs.inotify.max_user_watches=" in finding.advice) == ("warn", True)
    (tmp_path / "proc/sys/fs/inotify/max_user_watches").write_text("524288\n")
    assert one(machine.watches, about).state == "ok"
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    try:
        finding = one(machine.open_files, about)
        assert (finding.state, "may open 512 files" in finding.found) == ("warn", True)
        of_service = Subject(about.parts, process=os.getpid())
        assert f"process {os.getpid()} may open 512" in one(machine.open_files, of_service).found
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_container_that_is_killed_before_it_drains_is_bad_and_little_memory_a_warning(tmp_path: Path) -> None:
    about = subject(tmp_path, "", free_memory=lambda: 100_000 * 1024)
    (tmp_path / "proc/self").mkdir(parents=True)
    finding = one(machine.memory, about)
    assert (finding.state, "97 MiB are free" in finding.found) == ("warn", True)
    (tmp_path / "sys/fs/cgroup/pod").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/pod/memory.max").write_text(f"{256 << 20}\n")
    (tmp_path / "proc/self/cgroup").write_text("0::/pod\n")
    finding = one(machine.memory, about)
    assert finding.state == "bad"
    assert finding.advice == "allow more, or set service.memory_hard below 256 MiB"


# -- all of it


def test_programs_that_run_in_no_sandbox_are_a_warning_with_its_reason(tmp_path: Path) -> None:
    about = subject(tmp_path, '[[tools]]\nuse = "shell"\n')
    told = {"agent": {"modules": {"act": {"parts": {"shell": {"sandbox": {"level": 0, "why": "no bwrap"}}}}}}}
    (finding,) = checks.sandbox(read_status(told)[0].agent, about)
    assert (finding.state, "run in none (no bwrap)" in finding.found) == ("warn", True)
    (finding,) = checks.sandbox(None, about)
    assert finding.name == "sandbox"
    assert finding.found.startswith(("level", "programs of tools run in"))
    assert list(checks.sandbox(None, Subject(Parts(load(None, environ={}, overrides={"tools": "[]"}))))) == []


def test_every_finding_that_is_not_well_has_a_remedy_and_a_check_that_fails_is_one(tmp_path: Path) -> None:
    about = subject(tmp_path, HOOK.replace("SECRET", '{ file = "gone" }'), is_clock_kept=lambda: False)
    findings = list(checks.diagnoses(about))
    assert {each.state for each in findings} >= {"bad", "warn"}
    for each in findings:
        assert bool(each.advice) == (each.state != "ok"), each
        assert "\n" not in each.found + each.advice

    def broken() -> bool:
        raise OSError("no clock")

    (finding,) = [
        each for each in checks.diagnoses(subject(tmp_path, "", is_clock_kept=broken)) if each.name == "clock"
    ]
    assert finding.found == "could not be looked at: OSError('no clock')"
