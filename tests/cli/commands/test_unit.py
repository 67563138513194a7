"""The systemd unit: what systemd itself says of it, and what the commands write, refuse and take away.

`systemctl` is a program of the test's own on PATH: it writes down what it was told, and answers.
"""

from __future__ import annotations

import getpass
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from spar.cli.main import main
from spar.service import exit_codes as exits
from spar.service.unit import WRITTEN_BY, UnitTerms, unit

Run = Callable[..., tuple[int, str, str]]


def terms(tmp_path: Path, user: str | None = "daemon") -> UnitTerms:
    folder = tmp_path / 'a folder with "quotes" and 100 %'
    folder.mkdir(exist_ok=True)
    return UnitTerms(Path(sys.executable), folder / "config.toml", folder, user, (folder, tmp_path / "state"), 20.0,
                     ("hook", f"mail:{tmp_path}/mail password"))  # fmt: skip


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command in a folder with a configuration, on a machine with a `systemctl`."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "systemctl"
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/told\ncat {tmp_path}/answer 2>/dev/null || true\n')
    program.chmod(0o755)
    (tmp_path / "config.toml").write_text("[service]\ndrain = 7\n")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))

    def call(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["-c", str(tmp_path / "config.toml"), "service", *words])
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return call


def told(tmp_path: Path) -> list[str]:
    path = tmp_path / "told"
    return path.read_text().splitlines() if path.exists() else []


def test_a_start_that_waits_for_its_turn_is_not_limited(run: Run, tmp_path: Path) -> None:
    with (tmp_path / "config.toml").open("a") as file:
        file.write('[memory]\nuse = "postgres"\nurl = "postgresql:///x"\nstandby = true\n')
    assert "TimeoutStartSec=infinity\n" in run("install", "--user", "--print")[1]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze (Debian package systemd)")
@pytest.mark.parametrize("user", ["daemon", None])
def test_systemd_finds_nothing_to_say_about_the_unit(tmp_path: Path, user: str | None) -> None:
    path = tmp_path / "spar.service"
    path.write_text(unit(terms(tmp_path, user)))
    manager = ["--user"] if user is None else []

    environ = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(["systemd-analyze", *manager, "verify", path], capture_output=True, text=True, env=environ)

    assert [line for line in (done.stdout + done.stderr).splitlines() if "spar" in line] == []
    assert done.returncode == 0


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze (Debian package systemd)")
def test_the_unit_of_the_system_is_confined(tmp_path: Path) -> None:
    path = tmp_path / "spar.service"
    path.write_text(unit(terms(tmp_path)))

    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=55", path], capture_output=True, text=True
    )

    assert done.returncode == 0, done.stdout + done.stderr  # an exposure of at most 5.5 of 10


def test_a_unit_names_every_path_as_it_is(tmp_path: Path) -> None:
    given = terms(tmp_path)
    text = unit(given)
    escaped = str(given.folder).replace("%", "%%").replace('"', '\\"')
    assert f'-c "{escaped}/config.toml" run\n' in text
    assert f"WorkingDirectory={str(given.folder).replace('%', '%%')}\n" in text
    with pytest.raises(ValueError, match="control characters"):
        unit(UnitTerms(given.python, Path("/a\nExecStartPre=/bin/evil"), given.folder, None, (), 1.0))
    with pytest.raises(ValueError, match="backslash at its end"):  # else the line of the user is a part of this one
        unit(UnitTerms(given.python, given.config, Path("/srv/a\\"), "daemon", (), 1.0))


def test_systemd_starts_the_service_again_after_each_failure_that_may_pass_and_after_no_stop(tmp_path: Path) -> None:
    text = unit(terms(tmp_path))
    (prevented,) = re.findall(r"^RestartPreventExitStatus=(.*)$", text, re.M)

    assert "Restart=on-failure\n" in text  # after exit 0, as of `spar stop`, it stays away
    hopeless = {exits.USAGE, exits.DAMAGED, exits.CANNOT_CREATE, exits.NO_PERMISSION, exits.CONFIG}
    assert {int(code) for code in prevented.split()} == hopeless
    assert {exits.FAILED, exits.UNAVAILABLE, exits.GAVE_UP, exits.UNFINISHED}.isdisjoint(hopeless)
    assert "RestartForceExitStatus=SIGHUP\n" in text  # systemd takes this one for a clean end
    assert "SuccessExitStatus" not in text


def test_a_unit_is_written_started_written_again_and_taken_away(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "home" / "systemd" / "user" / "spar.service"

    assert run("install", "--user")[0] == 0
    assert path.read_text().startswith(WRITTEN_BY)
    assert f"-c {tmp_path}/config.toml run" in path.read_text()
    assert "TimeoutStopSec=22\n" in path.read_text()
    assert not re.search("^User=", path.read_text(), re.M)
    assert run("install", "--user")[0] == 0
    code, out, _ = run("uninstall", "--user")

    assert (code, path.exists()) == (0, False)
    assert "what the service keeps is still there" in out
    begin = ["--user daemon-reload", "--user enable --now spar.service"]
    assert told(tmp_path) == [*begin, *begin, "--user disable --now spar.service", "--user daemon-reload"]


def test_what_cannot_be_installed_is_refused_and_nothing_is_written(tmp_path: Path, run: Run) -> None:
    assert run("install", "--name", "../evil", "--user")[0] == 64
    assert run("install", "--as", "nobody-of-this-name")[0] == 64
    if getpass.getuser() == "root":
        code, _, error = run("install")
        assert (code, "it would run as root" in error) == (77, True)
    (tmp_path / "config.toml").write_text("[service]\ndrain = 'soon'\n")
    code, _, error = run("install", "--user")
    assert (code, "service.drain" in error) == (78, True)
    assert told(tmp_path) == []
    assert not (tmp_path / "home").exists()


def test_a_unit_of_somebody_else_is_left_alone(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "home" / "systemd" / "user" / "spar.service"
    path.parent.mkdir(parents=True)
    path.write_text("[Service]\nExecStart=/bin/true\n")

    assert run("install", "--user")[0] == 73
    assert run("uninstall", "--user")[0] == 73
    assert path.read_text() == "[Service]\nExecStart=/bin/true\n"
    assert told(tmp_path) == []


def test_a_unit_is_shown_without_being_written(tmp_path: Path, run: Run) -> None:
    code, out, _ = run("install", "--print", "--as", "nobody")
    assert (code, told(tmp_path)) == (0, [])
    assert "\nUser=nobody\n" in out
    assert f"\nReadWritePaths=-{tmp_path} -{tmp_path}/state -{tmp_path}/workspace\n" in out


def test_a_unit_loads_the_credentials_that_the_configuration_names(tmp_path: Path, run: Run) -> None:
    part = '[[tools]]\nuse = "notify"\noptions = { via = [{ use = "webhook", url = "http://127.0.0.1:9/", secret = '
    (tmp_path / "config.toml").write_text(part + '{ credential = "hook" } }] }\n')

    assert "\nLoadCredential=hook\n" in run("install", "--print", "--user")[1]  # of /etc/credstore
    given = run("install", "--print", "--user", "--credential", "hook:/root/hook.key")[1]
    assert "\nLoadCredential=hook:/root/hook.key\n" in given
    code, _, error = run("install", "--user", "--credential", "hok:/root/hook.key")
    assert (code, "'hok': the configuration names no such credential; it names: hook" in error) == (64, True)
    code, _, error = run("install", "--user", "--credential", "hook:hook.key")
    assert (code, "must be NAME:FILE with an absolute path" in error) == (64, True)
    assert told(tmp_path) == []


def test_the_state_of_the_unit_is_told_in_one_line(tmp_path: Path, run: Run) -> None:
    (tmp_path / "answer").write_text(
        "LoadState=loaded\nActiveState=active\nSubState=running\nNRestarts=2\nMainPID=77\n"
    )
    assert run("status")[1] == "spar: active (running), process 77, restarted 2 times\n"
    (tmp_path / "answer").write_text("LoadState=not-found\n")
    code, _, error = run("status")
    assert (code, "there is no unit spar" in error) == (69, True)


def test_a_service_that_does_not_start_is_told_with_the_place_of_its_log(tmp_path: Path, run: Run) -> None:
    (tmp_path / "bin" / "systemctl").write_text(
        "#!/bin/sh\n[ $2 != enable ] && exit 0\n"
        "printf 'Created symlink /a → /b.\\nJob for spar.service failed because of this.\\nSee more.\\n' >&2\nexit 1\n"
    )
    code, _, error = run("install", "--user")
    assert code == 69
    assert "systemctl enable: Job for spar.service failed because of this; " in error
    assert "why it does not start stands in: journalctl --user -u spar" in error


def test_a_machine_without_systemd_is_told_so(tmp_path: Path, run: Run) -> None:
    (tmp_path / "bin" / "systemctl").write_text(
        "#!/bin/sh\necho 'System has not been booted with systemd' >&2\nexit 1\n"
    )
    code, _, error = run("install", "--user")
    assert code == 69
    assert "System has not been booted with systemd" in error
    assert "spar.service is written" in error
