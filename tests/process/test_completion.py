"""Completion in a real shell: commands, options, and what only the running service knows."""

from __future__ import annotations

import contextlib
import os
import pty
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spar.service import exit_codes as exits
from tests.process.conftest import PATIENCE, Spar, until

pytestmark = pytest.mark.process
BASH, FISH, ZSH = (shutil.which(name) for name in ("bash", "fish", "zsh"))


@pytest.fixture
def home(spar: Spar, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home, and a `spar` on the path as an installation puts it there."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "bin").mkdir()
    program = folder / "bin" / "spar"
    program.write_text(f"#!{sys.executable}\nfrom spar.cli import main\nmain()\n")
    program.chmod(0o755)
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "BASH_COMPLETION_USER_DIR", "ZDOTDIR"):
        spar.environ.pop(name, None)
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    spar.environ |= {"HOME": str(folder), "PATH": path, "SHELL": "/bin/bash"}
    return folder


def completed(spar: Spar, file: Path, *lines: str) -> list[list[str]]:
    """What bash offers behind each line, as it asks when Tab is pressed."""
    script = f'source {file}; f=$(complete -p spar | sed "s/.*-F \\([^ ]*\\).*/\\1/"); '
    for line in lines:
        words = line.split(" ")
        quoted = " ".join(shlex.quote(word) for word in words)
        script += (
            f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; COMPREPLY=(); "
            '"$f" spar "${COMP_WORDS[COMP_CWORD]}"; printf "%s\\n" "${COMPREPLY[@]}"; echo ---; '
        )
    command = [str(BASH), "--norc", "-c", script]
    done = subprocess.run(command, cwd=spar.folder, env=spar.environ, capture_output=True, timeout=PATIENCE, text=True)
    assert (done.returncode, done.stderr) == (0, ""), done
    return [offered.split() for offered in done.stdout.split("---\n")[:-1]]


@pytest.mark.skipif(BASH is None, reason="there is no bash")
def test_bash_completes_commands_and_what_the_service_knows(spar: Spar, home: Path, start: Callable[..., Any]) -> None:
    written = spar("completion", "install", "--json")
    file = Path(written.json["file"])
    assert written.json == {"file": str(file), "shell": "bash", "changed": True}
    assert file == home / ".local/share/bash-completion/completions/spar"
    service = start().ready()
    body = {"message": "hello", "session": "kitchen"}
    run_id = service.api("/v1/runs", "POST", json=body).json()["run_id"]
    service.api("/v1/runs", "POST", json={"message": "hello", "session": "bad key; rm"})
    until(lambda: service.api("/v1/sessions/kitchen").status_code == 200, "the session")

    def are_offered() -> bool:
        command, verb, option, kitchen, names, runs, sensors, nowhere = completed(
            spar, file, "spar com", "spar approvals de", "spar init --nothing",
            "spar sessions reset k", "spar sessions reset ", f"spar runs follow {run_id[:6]}",
            "spar sensors restore ho", "spar -c /nowhere/config.toml sessions reset k",
        )  # fmt: skip
        assert (command, verb, option) == (["completion"], ["deny"], [])
        assert "bad" not in " ".join(names), "it is no single word for a shell"
        assert (kitchen, runs.count(run_id), sensors, nowhere) == (["kitchen"], 1, ["host"], [])
        return True

    until(are_offered, "session, run and sensor, from a service that is not busy")


def completed_by_fish(spar: Spar, file: Path, line: str) -> list[str]:
    """What fish offers behind a line; it finds the file by itself."""
    command = [str(FISH), "-c", f"complete -C {shlex.quote(line)}"]
    done = subprocess.run(command, cwd=spar.folder, env=spar.environ, capture_output=True, timeout=PATIENCE, text=True)
    assert (done.returncode, done.stderr) == (0, ""), done
    return [each.partition("\t")[0] for each in done.stdout.splitlines()]


def completed_by_zsh(spar: Spar, file: Path, line: str) -> list[str]:
    """The words that zsh adds to a line when Tab is pressed behind it on a terminal."""
    told = spar.folder / "told"
    told.unlink(missing_ok=True)
    (file.parent.parent / ".zshrc").write_text(
        f"fpath+=({file.parent}); autoload -Uz compinit; compinit -u\n"
        f'keep() {{ print -r -- "$BUFFER" > {told}.new; mv {told}.new {told} }}\n'
        "zle -N keep; bindkey '^G' keep; PS1='ready> '\n"
    )
    ours, its = pty.openpty()
    environ = {**spar.environ, "TERM": "vt100"}
    shell = subprocess.Popen([str(ZSH), "-i"], cwd=spar.folder, env=environ, stdin=its, stdout=its, stderr=its,
                             start_new_session=True)  # fmt: skip
    os.close(its)
    shown = bytearray()

    def read() -> None:
        with contextlib.suppress(OSError):  # it has ended
            while piece := os.read(ours, 4096):
                shown.extend(piece)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        until(lambda: b"ready> " in shown, "its prompt")
        os.write(ours, f"{line}\t\a".encode())
        until(told.exists, f"the line after {line!r}")
    finally:
        shell.kill()
        shell.wait()
        reader.join()
        os.close(ours)
    typed = line.split(" ")
    return [word for word in told.read_text().split() if word not in typed]


OTHERS = {"fish": completed_by_fish, "zsh": completed_by_zsh}


@pytest.mark.parametrize("shell", OTHERS)
def test_zsh_and_fish_complete_commands(spar: Spar, home: Path, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} (Debian package {shell})")
    file = Path(spar("completion", "install", "--shell", shell, "--json").json["file"])
    assert OTHERS[shell](spar, file, "spar approvals de") == ["deny"]


def test_the_file_is_written_once_and_brought_up_to_date(spar: Spar, home: Path) -> None:
    for shell, place in (
        ("bash", ".local/share/bash-completion/completions/spar"),
        ("zsh", ".zfunc/_spar"),
        ("fish", ".config/fish/completions/spar.fish"),
    ):
        first = spar("completion", "install", "--shell", shell)
        assert (first.code, first.out.startswith(f"{home / place} written; ")) == (0, True), first
    text = (home / place).read_text()
    assert "is up to date, nothing was written" in spar("completion", "install", "--shell", "fish").out
    (home / place).write_text("old")
    assert "brought up to date" in spar("completion", "install", "--shell", "fish").out
    assert (home / place).read_text() == text == spar("completion", "install", "--shell", "fish", "--print").out


def test_what_cannot_be_is_refused_in_a_sentence(spar: Spar, home: Path) -> None:
    spar.environ["SHELL"] = "/bin/tcsh"
    refused = spar("completion", "install")
    assert (refused.code, "--shell bash|zsh|fish" in refused.err) == (exits.USAGE, True)
    (home / ".zfunc").write_text("a file")
    refused = spar("completion", "install", "--shell", "zsh")
    assert (refused.code, "cannot be written" in refused.err) == (exits.CANNOT_CREATE, True)
