"""Tokens from outside: a real service, real sockets, and what a kill, a list, a log and a look at the machine tell."""

from __future__ import annotations

import getpass
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.process.conftest import CONFIG, PATIENCE, Service, Spar, until

pytestmark = pytest.mark.process

ROOT = CONFIG.parent


def ask(service: Service, token: str, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
    bearer = {"authorization": f"Bearer {token}"} if token else {}
    return httpx.request(method, service.address + path, json=body, headers={**bearer, **headers}, timeout=PATIENCE,
                         trust_env=False, verify=False)  # fmt: skip


def create(spar: Spar, name: str, scopes: str, *more: str) -> str:
    made = spar("tokens", "create", name, "--scopes", scopes, *more)
    assert made.code == 0, made
    assert made.out.count("\n") == 1
    return made.out.strip()


def test_tokens_are_made_and_revoked_while_the_service_runs_and_while_it_does_not(
    spar: Spar, start: Callable[..., Service]
) -> None:
    before = create(spar, "before", "read", "--days", "30")
    service = start().ready()
    during = create(spar, "during", "read,operate")
    assert spar("tokens", "create", "before", "--scopes", "read").code == 1
    assert [ask(service, token, "GET", "/v1/runs").status_code for token in (before, during)] == [200, 200]

    assert spar("tokens", "revoke", "before").code == 0
    assert [ask(service, token, "GET", "/v1/runs").status_code for token in (before, during)] == [401, 200]
    assert service.stop() == 0
    assert spar("tokens", "create", "during", "--scopes", "read").code == 1
    assert spar("tokens", "revoke", "during").code == 0
    assert spar("tokens", "revoke", "during").code == 1
    after = create(spar, "after", "read")
    (row,) = spar("--json", "tokens", "list").json
    assert (row["name"], row["scopes"], row["by"], row["used_at"]) == ("after", ["read"], getpass.getuser(), None)

    service = start().ready()
    statuses = [ask(service, token, "GET", "/v1/runs").status_code for token in (before, during, after)]
    assert statuses == [401, 401, 200]
    entries = [(each["action"], each["subject"], each["origin"]) for each in spar("--json", "audit", "list").json]
    assert entries[::-1] == [
        ("token.create", "before", "shell"), ("token.create", "during", "http"), ("token.revoke", "before", "http"),
        ("agent.stop", "main", "signal"), ("token.revoke", "during", "shell"), ("token.create", "after", "shell"),
    ]  # fmt: skip
    until(lambda: spar("--json", "tokens", "list").json[0]["used_at"], "its use")
    assert spar("memory", "verify").code == 0


def test_a_token_stands_in_no_log_list_row_or_command_line(spar: Spar, start: Callable[..., Service]) -> None:
    spar.popen = subprocess.Popen  # for a command line of its own
    service = start("--set", "log.level=debug", "--set", 'log.file="spar.log"', "--set", "log.format=json").ready()
    del spar.popen
    token = create(spar, "bot", "admin")
    for path in ("/v1/status", f"/v1/{token}", f"/v1/runs/{token}", f"/v1/status?token={token}"):
        ask(service, token, "GET", path)
        ask(service, f"{token[:-1]}A", "GET", path)
    sent = ask(service, token, "POST", "/v1/runs", {"message": "hello", "session": "room"}).json()
    ask(service, token, "GET", f"/v1/runs/{sent['run_id']}/wait")
    ask(service, token, "POST", "/v1/agent:pause")
    command = Path(f"/proc/{service.process.pid}/cmdline").read_bytes()
    shown = [
        spar(*words).out for words in (("status", "--json"), ("audit", "list", "--json"), ("tokens", "list", "--json"))
    ]
    assert service.stop() == 0

    secret = token.removeprefix("spar_").encode()
    files = [path for path in spar.folder.rglob("*") if path.is_file()]
    assert any(path.suffix == ".db" for path in files)
    assert [path.name for path in files if secret in path.read_bytes()] == []
    assert secret.decode() not in service.err + "".join(shown)
    assert secret not in command
    assert {each["actor"] for each in json.loads(shown[1])} == {"token bot", getpass.getuser()}


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_commands_of_the_page_do_what_it_says(spar: Spar, service: Service) -> None:
    page = (ROOT / "docs" / "how-to" / "http.md").read_text()
    lines = re.findall(r"^\$ (.*)$", "\n".join(re.findall(r"^```console\n(.*?)^```", page, re.M | re.S)), re.M)
    script = "\n".join(f"{line}\necho; echo ---" for line in lines).replace("http://127.0.0.1:8420", service.address)
    command = f'spar() {{ "{sys.executable}" -m spar "$@"; }}\n{script}'

    done = subprocess.run(
        ["bash", "-ec", command], cwd=spar.folder, env=spar.environ, capture_output=True, timeout=PATIENCE
    )

    assert done.returncode == 0, done.stderr
    parts = [part.strip() for part in done.stdout.decode().split("---\n")]
    told = dict(zip(lines, parts, strict=False))
    curls = [line for line in lines if line.startswith("curl")]
    assert len(curls) == 4
    status, receipt, runs, document = (json.loads(told[line]) for line in curls)
    assert status["pid"] == service.process.pid
    assert {run["run_id"] for run in runs} >= {receipt["run_id"]}
    assert document["openapi"] == "3.1.0"
    assert "revoked: bot" in parts
    assert "dashboard" in told["spar tokens list"]
    assert "token.revoke" not in told['spar audit list --actor "token bot"']
