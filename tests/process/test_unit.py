"""The unit's own words, carried out as systemd would: notified, watched, reloaded, upgraded, taken away."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.process.conftest import CONFIG, PATIENCE, Spar, until

pytestmark = pytest.mark.process
ROOT = CONFIG.parent


class ServiceManager:
    """Runs the commands of a unit with the sockets and variables that systemd gives them."""

    def __init__(self, spar: Spar, unit: Path, environ: dict[str, str]) -> None:
        self._text, self._spar, self._environ = unit.read_text(), spar, environ
        self.said: list[str] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        address = str(spar.folder / "notify")
        Path(address).unlink(missing_ok=True)
        self._socket.bind(address)
        self._socket.setblocking(False)
        self.process: subprocess.Popen[bytes] | None = None

    def of(self, key: str) -> str:
        (found,) = re.findall(rf"^{key}=(.*)$", self._text, re.M)
        return str(found)

    def _command(self, key: str) -> list[str]:
        return shlex.split(self.of(key).replace("%%", "%"))

    def start(self) -> None:
        usec = str(int(self.of("WatchdogSec")) * 1_000_000)
        environ = {**self._environ, "NOTIFY_SOCKET": str(self._spar.folder / "notify"), "WATCHDOG_USEC": usec}
        command, folder = self._command("ExecStart"), self.of("WorkingDirectory")
        self.process = subprocess.Popen(command, cwd=folder, env=environ, stderr=subprocess.DEVNULL)
        self.heard("READY=1")

    def heard(self, word: str) -> None:
        """Wait until the service has said a word."""

        def has_said() -> bool:
            try:
                while True:
                    self.said += self._socket.recv(4096).decode().splitlines()
            except BlockingIOError:
                assert self.process is None or self.process.poll() in (None, 0), self.process.returncode
                return word in self.said

        until(has_said, word, PATIENCE)

    def reload(self) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._command("ExecReload"), env=self._environ, capture_output=True, text=True, timeout=PATIENCE
        )

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(PATIENCE)
        self.heard("STOPPING=1")
        self.said.clear()
        return code

    def end(self) -> None:
        self._socket.close()
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(PATIENCE)


@contextmanager
def managed(spar: Spar, site: Path) -> Iterator[ServiceManager]:
    """Install a user's unit on a machine whose `systemctl` writes down what it was told; run it by hand."""
    (spar.folder / "bin").mkdir()
    (spar.folder / "bin" / "systemctl").write_text(f'#!/bin/sh\necho "$@" >> {spar.folder}/told\n')
    (spar.folder / "bin" / "systemctl").chmod(0o755)
    path = f"{spar.folder / 'bin'}:{os.environ['PATH']}"
    spar.environ |= {"PATH": path, "XDG_CONFIG_HOME": str(spar.folder / "home")}
    done = spar("-c", str(spar.config), "service", "install", "--user")
    assert done.code == 0, done
    environ = {**spar.environ, "PYTHONPATH": f"{site}{os.pathsep}{spar.environ['PYTHONPATH']}"}
    manager = ServiceManager(spar, spar.folder / "home/systemd/user/spar.service", environ)
    try:
        yield manager
    finally:
        manager.end()


def installed(into: Path, version: str) -> Path:
    """Put there what the wheel of this version holds, as an installer does with a new version: over the old one."""
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    shutil.rmtree(into, ignore_errors=True)
    for package in wheel["packages"]:
        shutil.copytree(ROOT / package, into / package)
    for source, target in wheel["force-include"].items():
        shutil.copy(ROOT / source, into / target)
    found = into / "spar/__init__.py"
    found.write_text(re.sub(r'^__version__ = ".*"$', f'__version__ = "{version}"', found.read_text(), flags=re.M))
    about = into / f"spar_agent-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: spar-agent\nVersion: {version}\n")
    points = importlib.metadata.distribution("spar-agent").read_text("entry_points.txt")
    (about / "entry_points.txt").write_text(points or "")
    return into


def test_the_unit_is_started_watched_reloaded_upgraded_and_taken_away_and_the_state_stays(
    spar: Spar, tmp_path_factory: pytest.TempPathFactory
) -> None:
    site = installed(tmp_path_factory.mktemp("installation") / "site", "0.1.97")
    with managed(spar, site) as manager:
        manager.start()
        manager.heard("WATCHDOG=1")
        assert spar("status", "--json").json["version"] == "0.1.97"
        assert spar("send", "note: kept").out == "Noted: kept\n"

        good = spar.config.read_text()
        spar.write(good + "\n[log]\nlevel = 7\n")
        refused = manager.reload()
        assert refused.returncode != 0
        assert "config.toml" in refused.stderr
        spar.write(good)
        installed(site, "0.1.98")
        assert manager.stop() == 0  # what it had begun, it ended with what it had loaded

        manager.start()
        assert spar("status", "--json").json["version"] == "0.1.98"
        assert "note: kept" in spar("cycles", "list").out
        assert spar("memory", "search", "kept").code == 0
        assert manager.stop() == 0
        gone = spar("service", "uninstall", "--user")

    assert "what the service keeps is still there" in gone.out
    assert (spar.state / "memory.db").exists()
    assert (spar.folder / "told").read_text().splitlines()[-2:] == [
        "--user disable --now spar.service", "--user daemon-reload"
    ]  # fmt: skip
