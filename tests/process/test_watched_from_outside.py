"""A service as Prometheus and Alertmanager see it: real ones, on loopback, with the rules and the dashboard of
`spar observe`."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from spar.observe.shipped import shipped
from tests.ports import free_port
from tests.process.conftest import CONFIG, Service, Spar, until
from tests.process.conversation import PATIENCE, Talk, configured, note, question_of
from tests.servers.llm import served
from tests.servers.llm_replies import Reply, refuses, says
from tests.servers.llm_requests import Asked

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(
        shutil.which("prometheus") is None or shutil.which("prometheus-alertmanager") is None,
        reason="needs Prometheus and Alertmanager (Debian packages prometheus, prometheus-alertmanager)",
    ),
]
pytest.importorskip("pydantic_ai", reason="the library of models (spar-agent[llm]) is not installed")

#: What the service has besides a model, so that every metric has a series.
MORE = """
[[sensors]]
use = "host"
options = { every = 1.0, load_high = 1000.0, memory_high = 1.0, disk_high = 1.0 }

[[sensors]]
use = "schedule"
name = "daily"
options = { cron = "0 8 * * *", timezone = "local", text = "a new day" }

[[sensors]]
use = "webhook"
name = "door"
options = { unauthenticated = true }

[[tools]]
use = "shell"

[[channels]]
use = "tests.recorded.parts:FolderChannel"
name = "folder"
options = { path = "line" }

[budgets]
day = { calls = 1000, money = 5 }
"""
#: Panels with nothing to show in a service that is well: what they count has not happened, under no name. Those of
#: nodes are of a service that is one of several (`tests/cluster/test_services.py`).
EMPTY_WHEN_WELL = {
    "spar_dead_letter_total",
    "spar_call_longest_running_seconds",
    "spar_messages_unheard_total",
    "spar_channel_passed_over_total",
    "spar_call_failures_total",
    "spar_feedback_total",
    "spar_reflection_requests_total",
    "spar_node_",
}


class Watcher:
    """A Prometheus that scrapes one service, and an Alertmanager that it tells, if one is wanted."""

    def __init__(self, folder: Path, target: str, *, tells: bool) -> None:
        self.ports = [free_port(), free_port()]
        prometheus, manager = (f"127.0.0.1:{port}" for port in self.ports)
        self._api, self._manager = f"http://{prometheus}/api/v1/", f"http://{manager}/api/v2/"
        # Nobody waits for an hour here: what is to hold for a while holds for a second.
        rules = re.sub(r"^( +for:) \w+", r"\1 1s", shipped("rules.yml"), flags=re.M)
        # Nor for a window to pass, or for an hour in which a question or a message waits. Starts take their time.
        rules = re.sub(r"\[\d+[mh]\](?=\)+ > [35]$)", "[20s]", rules, flags=re.M)
        rules = re.sub(r"\[\d+[mh]\]", "[10s]", rules)
        rules = re.sub(r"> (3600|600|300)$", "> 1", rules, flags=re.M)
        rules = re.sub(r"< 3600$", "< 20", rules, flags=re.M)
        (folder / "rules.yml").write_text(rules)
        config = {
            "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"},
            "rule_files": ["rules.yml"],
            "scrape_configs": [{"job_name": "spar", "static_configs": [{"targets": [target]}]}],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [manager] if tells else []}]}]},
        }
        (folder / "prometheus.yml").write_text(json.dumps(config))
        (folder / "alertmanager.yml").write_text(
            json.dumps({"route": {"receiver": "nobody"}, "receivers": [{"name": "nobody"}]})
        )
        storage = [f"--storage.tsdb.path={folder / 'tsdb'}", f"--web.listen-address={prometheus}"]
        peerless = [f"--storage.path={folder / 'am'}", f"--web.listen-address={manager}", "--cluster.listen-address="]
        self._client = httpx.Client(timeout=PATIENCE, trust_env=False, verify=False)  # asked again and again, over HTTP
        self._processes = [
            subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for command in (
                ["prometheus", "--config.file=prometheus.yml", *storage],
                ["prometheus-alertmanager", "--config.file=alertmanager.yml", *peerless],
            )[: 1 + tells]
        ]

    def _get(self, url: str, **params: Any) -> Any:
        answer = self._client.get(url, params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def series(self, query: str) -> list[dict[str, Any]]:
        """Return what a query finds now."""
        found: list[dict[str, Any]] = self._get(self._api + "query", query=query)["data"]["result"]
        return found

    def told(self, name: str) -> dict[str, Any] | None:
        """Return the alert of this name that the Alertmanager was told and that is not over."""
        alerts = self._get(self._manager + "alerts", active="true")
        return next((each for each in alerts if each["labels"]["alertname"] == name), None)

    def firing(self) -> set[str]:
        return {each["metric"]["alertname"] for each in self.series('ALERTS{alertstate="firing"}')}

    def end(self) -> None:
        self._client.close()
        for process in self._processes:
            process.kill()
            process.wait(PATIENCE)


@pytest.fixture
def watch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Watcher]]:
    """Begin to watch services; no watcher outlives the test."""
    begun: list[Watcher] = []

    def begin(service: Service, *, tells: bool = False) -> Watcher:
        target = service.address.removeprefix("http://")
        begun.append(watcher := Watcher(tmp_path_factory.mktemp("watcher"), target, tells=tells))
        until(lambda: watcher.series('up{job="spar"} == 1'), "the first scrape", PATIENCE)
        return watcher

    yield begin
    for watcher in begun:
        watcher.end()


def _chosen(query: str) -> str:
    """Return a query as Grafana asks it."""
    for name, value in {"$job": "spar", "$agent": "main", "$__rate_interval": "1m"}.items():
        query = query.replace(name, value)
    return query


def errand(asked: Asked) -> Reply:
    question = question_of(asked)  # a stranger's text gives no authority to note anything: it would wait for a person
    return says("all is well") if "noted milk" in question or "a visitor" in question else says("", note("milk"))


def test_every_panel_has_data_and_no_rule_fires_while_the_service_works(
    spar: Spar, start: Any, watch: Callable[..., Watcher]
) -> None:
    with served(errand) as model:
        spar.environ["PYTHONPATH"] = str(CONFIG.parent)  # where the part of the channel is
        (spar.folder / "line").mkdir()
        configured(spar, model.url, more=MORE)
        talk = Talk(spar, start().ready())
        watcher = watch(talk.service)
        for number in range(6):
            assert talk.ask(f"session {number % 3}", "how are you?") == "all is well"
        posted = httpx.post(
            f"{talk.service.address}/hooks/door", json={"text": "a visitor"}, trust_env=False, verify=False
        )
        assert posted.status_code == 202, posted.text

        panels = json.loads(shipped("dashboard.json"))["panels"]
        queries = {target["expr"] for panel in panels for target in panel.get("targets", ())}
        missing = {query for query in queries if not any(name in query for name in EMPTY_WHEN_WELL)}
        assert len(missing) > 40

        def have_data() -> bool:
            missing.difference_update([query for query in missing if watcher.series(_chosen(query))])
            assert not missing, missing
            return True

        until(have_data, "data in every panel", PATIENCE)
        assert watcher.firing() == set()


def test_the_alertmanager_is_told_what_is_wrong_and_that_it_is_over(
    spar: Spar, start: Any, watch: Callable[..., Watcher]
) -> None:
    is_down = True
    spar.environ["SPAR_SERVICE__PORT"] = str(port := free_port())
    with served(lambda asked: refuses(503, None, "not now") if is_down else says("all is well")) as model:
        configured(spar, model.url)
        talk = Talk(spar, start().ready())
        watcher = watch(talk.service, tells=True)

        run_id = talk.submit("alice", "how are you?")
        told = until(lambda: watcher.told("SparProviderDown"), "SparProviderDown", PATIENCE)
        assert told["annotations"]["summary"] == "A language model of main cannot be asked"
        is_down = False  # the model rests for half a minute, while the agent is paused

        assert spar("pause").code == 0
        told = until(lambda: watcher.told("SparPausedLong"), "SparPausedLong", PATIENCE)
        assert told["labels"]["severity"] == "ticket"
        assert told["annotations"]["summary"] == "main has been paused for twelve hours"
        assert spar("resume").code == 0
        until(lambda: watcher.told("SparPausedLong") is None, "the end of SparPausedLong", PATIENCE)
        until(lambda: watcher.told("SparProviderDown") is None, "the end of SparProviderDown", 2 * PATIENCE)
        assert talk.ended(run_id)["status"] in ("ok", "error")

        talk.service.kill()
        told = until(lambda: watcher.told("SparDown"), "SparDown", PATIENCE)
        assert told["annotations"]["summary"] == f"spar at 127.0.0.1:{port} does not answer"
        start().ready()
        until(lambda: watcher.told("SparDown") is None, "the end of SparDown", PATIENCE)
