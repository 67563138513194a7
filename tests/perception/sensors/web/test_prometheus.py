"""Values of a Prometheus: each series with its value, and what is not well said."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from perception.sensors.web.prometheus import PrometheusSensor
from spar.clock import SystemClock
from spar.errors import PermanentError, TransientError
from spar.testing import check_sensor

PATH = "/api/v1/query"


def vector(*rows: tuple[dict[str, str], str], **more: Any) -> str:
    result = [{"metric": labels, "value": [1.0, value]} for labels, value in rows]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}, **more})


async def test_it_keeps_to_the_contract(server: Any) -> None:
    server.put(PATH, vector(({"__name__": "up"}, "1")))
    await check_sensor(lambda: PrometheusSensor(server.url, "up", every=0.01), provoke=lambda: None, limit=20.0)


async def test_each_series_is_told_with_its_value_and_its_end_once(server: Any, asked: Any) -> None:
    up = {"__name__": "up", "instance": "db1:9100", "job": "node"}
    server.put(PATH, vector((up, "1"), ({"__name__": "up", "instance": "db2:9100"}, "NaN")))
    sensor = await asked.open(PrometheusSensor(server.url, 'up{job=~".+"} > 0'))

    first, second = await sensor.poll()

    assert first.text == 'up{instance="db1:9100", job="node"} is 1'
    assert (first.attributes["value"], first.attributes["labels"]) == (1.0, up)
    assert (first.attributes["host"], first.attributes["service"]) == ("db1", "node")
    assert "value" not in second.attributes
    assert second.attributes["problem"] == "NaN"
    assert "query=up%7Bjob%3D~%22.%2B%22%7D%20%3E%200" in server.requests[0]
    again = await asked.open(PrometheusSensor(server.url, 'up{job=~".+"} > 0'))
    server.put(PATH, vector((up, "1")))
    assert [each.kind for each in await again.poll()] == ["metric.value", "metric.gone"]
    assert [each.kind for each in await again.poll()] == ["metric.value"]


async def test_too_many_series_and_warnings_are_told_once(server: Any, asked: Any) -> None:
    rows = [({"__name__": "x", "n": str(number)}, "1") for number in range(5)]
    server.put(PATH, vector(*rows, warnings=["slow"]))
    sensor = await asked.open(PrometheusSensor(server.url, "x", most=3, tell="rare"))

    noticed = await sensor.poll()

    assert [each.kind for each in noticed] == ["metric.value"] * 3 + ["metric.warning"]
    assert noticed[-1].text == "slow; 5 series answer 'x', 3 are read (most)"
    assert noticed[0].attributes["reading"] is True
    assert [each.kind for each in await sensor.poll()] == ["metric.value"] * 3


@pytest.mark.parametrize(
    ("body", "kind", "said"),
    [
        (
            '{"status": "error", "errorType": "bad_data", "error": "no"}',
            PermanentError,
            "refuses the query: bad_data: no",
        ),
        ('{"status": "success", "data": {"resultType": "matrix", "result": []}}', PermanentError, "gives ranges"),
        ('{"status": "success", "data": {"resultType": "vector", "result": [3]}}', TransientError, "not answer as"),
        ("<html>", TransientError, "is the address right"),
        ("[]", TransientError, "is the address right"),
    ],
)
async def test_answers_that_make_no_sense_are_told(
    server: Any, asked: Any, body: str, kind: type[Exception], said: str
) -> None:
    server.put(PATH, body)
    sensor = await asked.open(PrometheusSensor(server.url, "x"))

    with pytest.raises(kind, match=said):
        await sensor.poll()


@pytest.mark.skipif(not shutil.which("prometheus"), reason="Debian's prometheus is not installed")
async def test_a_real_prometheus_answers(asked: Any, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    (tmp_path / "prometheus.yml").write_text("{}")
    command = ["prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/series",
               f"--web.listen-address=127.0.0.1:{port}"]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:  # noqa: ASYNC220
        try:
            sensor = await asked.open(PrometheusSensor(f"http://127.0.0.1:{port}", "vector(42)"))
            found: list[Any] = []
            while not found:
                try:
                    found = await sensor.poll()
                except TransientError:
                    await SystemClock().sleep(0.1)
            assert found[0].attributes["value"] == 42.0
            sensor = await asked.open(PrometheusSensor(f"http://127.0.0.1:{port}", "up{"))
            with pytest.raises(PermanentError):
                await sensor.poll()
        finally:
            process.kill()
