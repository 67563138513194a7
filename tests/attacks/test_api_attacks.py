"""Attacks through the API by somebody with a token: code in texts, secrets in messages, the cage of the tools.

Each asks a real service over a real socket; the benign twin of each is let in.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from spar.server.routes.applications import served
from tests.attacks.test_port_attacks import bearer, path_of
from tests.process.conftest import Service, Spar, until

pytestmark = pytest.mark.process

#: Text that is code, or a deep computation, for who evaluates it.
EXPRESSIONS = (
    "__import__('os').system('touch pwned')", "{{''.__class__.__mro__}}", "9**9**9 == 1",
    "(lambda: 1)() == 1", "open('/etc/passwd') == 1", "text == \"" + "a" * 100_000 + "\" or", "[x for x in text] == 1",
    "(" * 5_000 + "tool" + ")" * 5_000 + ' == "x"',
)  # fmt: skip
#: Tables that decoders of other programs make objects of.
TAGGED = (
    {"lc": 1, "type": "constructor", "id": ["os", "system"], "kwargs": {"command": "touch pwned"}},
    {"__class__": "subprocess.Popen", "args": ["touch", "pwned"]}, {"py/object": "os.system"}, {"!!python/object": "x"},
    {"$type": "System.Diagnostics.Process"}, {"__reduce__": ["os.system", ["touch pwned"]]},
)  # fmt: skip
SECRET = "sk-proj-" + "Zq7" * 14
HARMLESS = "the order of the baker is 4711"


class Api:
    """A service and requests to its port with the token of an administrator."""

    def __init__(self, service: Service) -> None:
        import httpx

        self.service = service
        answer = service.api("/v1/tokens", "POST", json={"name": "all", "scopes": ["admin"]}).json()
        self.client = httpx.Client(base_url=service.address, headers=bearer(answer["token"]), timeout=120)

    def send(self, message: str, session: str = "main") -> dict[str, Any]:
        """Send a message and return the status of its run, which has ended."""
        run = self.client.post("/v1/runs", json={"message": message, "session": session}).json()["run_id"]
        status: dict[str, Any] = until(
            lambda: (answer := self.client.get(f"/v1/runs/{run}").json())["status"] != "timeout" and answer, "its end"
        )
        return status

    def called(self, call: dict[str, Any]) -> dict[str, Any]:
        """Make a call by a step of the paused agent; return its result."""
        answer = self.client.post("/v1/agent:step_act", json=call)
        result: dict[str, Any] = answer.json()
        return result["results"][0] if answer.status_code == 200 else {"status": answer.status_code}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """One service for all tests of this file."""
    service = Service(Spar(tmp_path_factory.mktemp("api"))).ready()
    api = Api(service)
    yield api
    api.client.close()
    service.kill()


@pytest.mark.parametrize("text", EXPRESSIONS, ids=lambda text: text[:20])
def test_no_expression_is_code(api: Api, text: str) -> None:
    body = {"point": "call", "when": text}
    answer = api.client.post("/v1/breakpoints", json=body)
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json"), answer.text[:300]
    api.send(f"note: {text[:2_000]}")
    assert not (api.service.spar.folder / "pwned").exists()
    good = api.client.post("/v1/breakpoints", json={"point": "call", "when": 'tool == "nothing"', "name": "good"})
    assert (good.status_code, api.client.delete("/v1/breakpoints/good").status_code) == (200, 200)


def test_tables_with_the_tags_of_other_decoders_are_only_data(api: Api) -> None:
    place = "/v1/memory/experiences:import"
    for number, table in enumerate(TAGGED):
        for path, body in (("/v1/runs", {"message": table}), ("/v1/agent:step_plan", [table]),
                           (place, {"lines": table}), (place, {"lines": json.dumps(table)})):  # fmt: skip
            assert api.client.post(path, json=body).status_code in (409, 422), (path, table)
        line = {"situation": json.dumps(table) + "\ud800", "action": "x", "outcome": "y", "id": f"tagged{number}"}
        answer = api.client.post(place, content=json.dumps({"lines": json.dumps(line)}))
        assert answer.json() == {"imported": 1}, answer.text
        shown = api.client.get(f"/v1/memory/experiences/tagged{number}").json()["experience"]
        assert shown["situation"].startswith(json.dumps(table))
    for kind in ("application/x-python-pickle", "application/x-msgpack", "application/yaml"):
        pickled = b"cos\nsystem\n(S'touch pwned'\ntR."
        answer = api.client.post("/v1/runs", content=pickled, headers={"content-type": kind})
        assert answer.status_code in (415, 422), kind
    assert not (api.service.spar.folder / "pwned").exists()


def test_a_secret_in_a_message_stands_in_no_answer_no_log_and_no_measure(api: Api) -> None:
    run = api.send(f"note: my key is {SECRET}, and {HARMLESS}", session="keys")["run_id"]
    cycle = api.client.get("/v1/cycles?session=keys").json()[0]["cycle_id"]
    paths = {path_of(operation) for operation in served() if operation.method == "GET" and operation.streams is None
             and not operation.path_fields}  # fmt: skip
    paths |= {f"/v1/cycles/{cycle}", f"/v1/cycles/{cycle}:why", "/v1/sessions/keys", "/v1/sessions/keys:transcript",
              f"/v1/memory/search?q={HARMLESS}", "/metrics", f"/v1/cycles/{cycle}/rules"}  # fmt: skip
    answers = {path: api.client.get(path).text for path in sorted(paths)}
    assert [path for path, text in answers.items() if SECRET in text] == []
    assert SECRET not in api.service.err
    events = [json.loads(line[6:]) for line in api.client.get(f"/v1/runs/{run}/events?after=0").text.splitlines()
              if line.startswith("data: ")]  # fmt: skip
    told = {event["stream"] for event in events if SECRET in str(event)}
    assert told == {"assistant", "lifecycle"}  # the answer itself, to who sent it; no call has it
    assert HARMLESS in answers["/v1/sessions/keys:transcript"]


def test_no_call_by_hand_reaches_beyond_the_workspace_or_lowers_its_cage(api: Api) -> None:
    spar = api.service.spar
    before = {path: path.read_bytes() for path in (spar.config, spar.state / "memory.db")}
    assert api.client.post("/v1/agent:pause").status_code == 200
    try:
        for place in ("../config.toml", str(spar.config), "../state/memory.db", "../past.py", "/root/.bashrc",
                      "../state/control.sock", "../.git/hooks/pre-commit"):  # fmt: skip
            result = api.called({"_tool": "files", "op": "write", "path": place, "content": "pwned"})
            assert result["status"] in ("failed", "denied", 422), (place, result)
        for own in ({"sandbox": 0}, {"_sandbox": 0}, {"dangerouslyDisableSandbox": True}, {"level": 0}):
            result = api.called({"_tool": "shell", "argv": ["id"], **own})
            assert result["status"] in ("failed", "denied", 422), (own, result)
        good = api.called({"_tool": "files", "op": "write", "path": "good.txt", "content": "good"})
        assert (good["status"], (spar.workspace / "good.txt").read_text()) == ("ok", "good")
    finally:
        api.client.post("/v1/agent:resume")
    assert spar.config.read_bytes() == before[spar.config]
    assert "level" in api.client.get("/v1/status").json()["agent"]["modules"]["act"]["parts"]["shell"]["sandbox"]


def test_nothing_listens_but_the_port_and_the_socket_of_the_owner(api: Api) -> None:
    process = psutil.Process(api.service.process.pid)
    processes = [process, *process.children(recursive=True)]
    places = {connection.laddr for one in processes for connection in one.net_connections("inet")
              if connection.status == psutil.CONN_LISTEN}  # fmt: skip
    assert places == {("127.0.0.1", int(api.service.address.rpartition(":")[2]))}
    sockets = {connection.laddr for one in processes for connection in one.net_connections("unix")
               if str(connection.laddr).endswith(".sock")}  # fmt: skip
    assert {str(path).rpartition("/")[2] for path in sockets} == {"control.sock"}
    owned = (api.service.spar.state / "control.sock").stat()
    assert stat.S_IMODE(owned.st_mode) == 0o600
    assert api.service.api("/v1/status").status_code == 200
