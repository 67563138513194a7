"""Secrets of a service, planted in each way there is, used by it, and looked for in all that it says and writes."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.process.conftest import Answer, Service, Spar, until
from tests.process.conversation import PATIENCE, Talk, configured
from tests.servers.llm import served
from tests.servers.llm_replies import Reply, refuses, says
from tests.servers.llm_requests import Asked
from tests.servers.web import http_served

pytestmark = pytest.mark.process
pytest.importorskip("pydantic_ai", reason="the library of models (spar-agent[llm]) is not installed")

#: One for each way. None has a shape that is known, so that only its being planted can tell that it is one.
CANARIES = {
    "file": "canary-of-a-file/tortoise",
    "env": "canary-of-the-environment",
    "credential": "canary-of-systemd: wren+2",
    "key_env": "canary-of-key-env-heron",
    "literal": "canary-in-the-configuration",
}
HOOK = """
[[tools]]
use = "notify"
[tools.options]
via = [{{ use = "webhook", url = "{url}", secret = {{ env = "HOOK_SECRET" }}, headers = {headers} }}]

[[tools]]
use = "spy:Spy"
options = {{ password = "{literal}" }}

[[notifiers]]
use = "webhook"
name = "ops"
options = {{ url = "{url}", secret = {{ env = "HOOK_SECRET" }}, headers = {headers} }}
"""
HEADERS = '{ authorization = { credential = "hook" } }'
#: A part of somebody else's that is careless with what it was given.
SPY = """
import logging
class Spy:
    name = "spy"
    def __init__(self, *, password: str) -> None:
        self._password = password
    async def __call__(self) -> str:
        logging.getLogger("spy").warning("logging in with %s", self._password)
        raise PermissionError(f"{self._password} was refused")
"""


@contextmanager
def webhook() -> Iterator[tuple[str, list[tuple[dict[str, str], bytes]]]]:
    """Answer every POST with an error that repeats its secrets; yields the address, and what came."""
    came: list[tuple[dict[str, str], bytes]] = []

    def answer(path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        came.append((headers, body))
        return 403, f"no {headers['authorization']} and no {CANARIES['env']}".encode()

    with http_served(answer) as url:
        yield f"{url}/", came


def forms(value: str) -> set[bytes]:
    encoded = base64.b64encode(value.encode()).rstrip(b"=")
    return {value.encode(), json.dumps(value)[1:-1].encode(), encoded}


def leaks(name: str, data: bytes) -> list[str]:
    return [f"{name}: {way}" for way, value in CANARIES.items() if any(form in data for form in forms(value))]


def careless(asked: Asked) -> Reply:
    """Repeat the key that came with the request, as some providers do when they refuse it."""
    if asked.headers["authorization"] == f"Bearer {CANARIES['file']}":
        return refuses(401, "invalid_api_key", f"Incorrect API key provided: {CANARIES['file']}")
    return says("all is well")


def test_no_canary_is_in_any_output_or_file(spar: Spar, start: Callable[..., Service]) -> None:
    credentials = spar.folder.parent / "credentials"
    credentials.mkdir(mode=0o700)
    (credentials / "hook").write_text(CANARIES["credential"] + "\n")
    key = spar.folder.parent / "model.key"
    key.write_text(CANARIES["file"])
    (spar.folder / "spy.py").write_text(SPY)
    environ = {"HOOK_SECRET": CANARIES["env"], "CREDENTIALS_DIRECTORY": str(credentials)}
    environ |= {"OWN_MODEL_KEY": CANARIES["key_env"]}
    with served(careless) as model, webhook() as (url, came):
        configured(spar, model.url, more=HOOK.format(url=url, headers=HEADERS, literal=CANARIES["literal"]))
        text = spar.config.read_text()
        first = f'api_key = {{ file = "{key}" }}'
        second = f'{{ name = "second", base_url = "{model.url}", key_env = "OWN_MODEL_KEY" }}'
        text = text.replace('name = "scripted",', f'name = "scripted", {first},').replace(
            "2.0 } }]", f"2.0 }} }}, {second}]"
        )
        rules = """
[[rules]]
name = "tell"
when = { kind = "message", pattern = "^tell" }
[[rules.calls]]
tool = "notify"
params = { title = "sick" }
[[rules.calls]]
tool = "spy"
"""
        spar.write(text.replace("recall = 0", 'recall = 0\nrules_are = "first"') + rules)
        service = start(environ=environ).ready()
        talk = Talk(spar, service)
        assert talk.ended(talk.submit("alice", "how are you?"))["status"] in ("ok", "error")
        talk.ended(talk.submit("bob", "tell them"))

        # Each was used as it is.
        assert {each.headers["authorization"] for each in model.requests} == {
            f"Bearer {CANARIES['file']}", f"Bearer {CANARIES['key_env']}"
        }  # fmt: skip
        headers, body = until(lambda: came and came[0], "the webhook asked")
        assert headers["authorization"] == CANARIES["credential"]
        signature = hmac.new(CANARIES["env"].encode(), body, hashlib.sha256).hexdigest()
        assert headers["x-spar-signature-256"] == f"sha256={signature}"

        service.process.send_signal(signal.SIGUSR1)
        until(lambda: "thread stack" in service.err, "the dump")
        said: dict[str, bytes] = {}
        ids = [each["cycle_id"] for each in spar("--json", "cycles", "list", environ=environ).json]
        commands = [
            ["config", "show"], ["config", "show", "--origins"], ["--json", "config", "show"], ["config", "check"],
            ["status"], ["--json", "status"], ["doctor"], ["--json", "doctor"],
            ["cycles", "list"], *(["--json", "cycles", "show", id] for id in ids),
            ["--json", "transcript", "alice"], ["--json", "transcript", "bob"], ["reload"],
            ["memory", "search", "canary"], ["notifiers", "test"],
        ]  # fmt: skip
        for command in commands:
            answer: Answer = spar(*command, environ=environ)
            said[" ".join(command)] = (answer.out + answer.err).encode()
        assert (answer.code, "403" in answer.err) == (1, True), "of the last one, whose hook refuses it"
        said["metrics"] = service.get("/metrics").content
        key.unlink()  # the next reload cannot read it, and says so
        refused = spar("reload", environ=environ)
        said["a reload that is refused"] = (refused.out + refused.err).encode()
        service.process.send_signal(signal.SIGABRT)  # a crash: the stacks of faulthandler, and no core
        service.process.wait(PATIENCE)
        until(lambda: "Fatal Python error" in service.err, "the stacks of the crash")
        said["the log"] = service.err.encode()

    assert b"***" in said["the log"]  # it was said, and masked
    assert "configuration reloaded" in service.err
    found = [leak for name, data in said.items() for leak in leaks(name, data)]
    every = [Path(folder, name) for folder, _, names in os.walk(spar.folder) for name in names]
    files = [path for path in every if path.is_file()]  # the control socket holds nothing
    assert len(files) > 5
    # What a part itself made its result of is the journal's fact of that call, from which work goes on: kept as it is.
    own = {"config.toml": {"literal"}, "memory.db": {"env", "credential", "literal"}}
    for path in files:
        expected = {f"{path}: {way}" for way in own.get(path.name.removesuffix("-wal"), ())}
        found += [leak for leak in leaks(str(path), path.read_bytes()) if leak not in expected]
    assert found == []


def test_a_key_that_was_changed_in_its_file_is_used_after_a_reload(spar: Spar, start: Callable[..., Service]) -> None:
    key = spar.folder / "model.key"
    key.write_text("the first key")
    with served(says("all is well")) as model:
        configured(spar, model.url)
        spar.edit('name = "scripted",', 'name = "scripted", api_key = { file = "model.key" },')
        talk = Talk(spar, start().ready())
        assert talk.ask("alice", "how are you?") == "all is well"
        assert spar("reload").out.endswith("changed: nothing\n")

        key.write_text("the second key")
        assert "changed: plan.options.model" in spar("reload").out
        assert talk.ask("alice", "and now?") == "all is well"
        keys = [each.headers["authorization"] for each in model.requests]

    assert keys[0] == "Bearer the first key"
    assert keys[-1] == "Bearer the second key"


def test_a_refusal_that_repeats_what_a_part_was_given_shows_no_secret(spar: Spar) -> None:
    (spar.folder / "key").write_text(CANARIES["file"])
    spar.write(
        '[[tools]]\nuse = "notify"\noptions = { via = [{ url = "http://127.0.0.1:9/", secret = { file = "key" } }] }'
    )

    answer = spar("config", "check")

    assert answer.code == 78
    assert "'secret': '***'" in answer.err
