"""Starts of a service while all cores are busy: `python -m tests.faults.starts [NUMBER]`.

Services start side by side, each on a memory with conversations, while one more process for each core computes. As soon
as a service answers, several readers ask it at once, so that many threads use for the first time what only started.
Then it is told to stop. Each has to end with exit code 0, and none by a signal.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.ports import SocketConnection
from tests.process.template import clean_environ

CONFIG = Path(__file__).parents[2] / "config.toml"
#: Services at once, conversations in the memory of each, readers of each.
LANES, SESSIONS, READERS = 4, 20, 8
#: Seconds that anything may take on a loaded machine.
PATIENCE = 300.0
PATHS = ("/v1/sessions", "/v1/cycles", "/v1/approvals", "/v1/calls/in-doubt", "/v1/dead-letters", "/v1/runs",
         "/v1/transcripts", "/v1/memory/figures")  # fmt: skip


def asked(folder: Path, path: str, body: object = None) -> tuple[int, Any]:
    """Return the status and the content of the answer to one request. Raises: OSError while the service does not
    listen."""
    with SocketConnection(folder / "state" / "control.sock", PATIENCE) as door:
        door.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body))
        answer = door.getresponse()
        return answer.status, json.loads(answer.read())


def prepared(folder: Path) -> None:
    """Write the configuration of a service: that of the tree, which a busy machine does not trouble."""
    calm = re.sub(r"(memory|disk)_high = [0-9.]+", r"\1_high = 1.0", CONFIG.read_text())
    (folder / "config.toml").write_text(re.sub(r"load_high = [0-9.]+", "load_high = 1000.0", calm))


def life(folder: Path, talks: int = 0) -> str:
    """Start a service in a folder, ask it, stop it; return how it ended, "exit 0" for well.

    Args: talks: the number of conversations to begin.
    """
    environ = {**clean_environ(), "SPAR_SERVICE__PORT": "0", "PYTHONFAULTHANDLER": "1"}
    with (folder / "err").open("wb") as err, subprocess.Popen(
        [sys.executable, "-m", "spar", "run"], cwd=folder, env=environ, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=err,
    ) as process:  # fmt: skip
        try:
            why = _used(process, folder, talks)
            process.send_signal(signal.SIGTERM)
            code = process.wait(PATIENCE)
        except BaseException:
            process.kill()
            raise
    if code == 0 and not why:
        return "exit 0"
    ended = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit {code}"
    return f"{ended}{why}\n{(folder / 'err').read_text(errors='replace')[-3_000:]}"


def _used(process: subprocess.Popen[bytes], folder: Path, talks: int) -> str:
    """Use a service from its first answer on; return what was wrong, "" for nothing."""
    deadline = time.monotonic() + PATIENCE
    while process.poll() is None:
        try:
            if asked(folder, "/v1/status")[1]["agent"]["state"] == "running":
                break
        except OSError:
            pass
        if time.monotonic() > deadline:
            return f", not ready within {PATIENCE:g} s"
        time.sleep(0.02)
    try:
        with ThreadPoolExecutor(READERS) as readers:
            requests: list[tuple[str, object]] = [(path, None) for path in PATHS]
            requests += [("/v1/runs", {"message": "hello", "session": f"s{number}"}) for number in range(talks)]
            answers = list(readers.map(lambda request: (request[0], *asked(folder, *request)), requests))
            waits = [f"{path}/{answer['run_id']}/wait" for path, _, answer in answers if "run_id" in answer]
            answers += readers.map(lambda path: (path, *asked(folder, path)), waits)
    except (OSError, http.client.HTTPException) as error:
        return f", gave no answer: {error!r}"
    wrong = [f"{path}: {status}" for path, status, _ in answers if status >= 300]
    return f", answered {', '.join(wrong)}" if wrong else ""


@contextmanager
def busy_cores() -> Iterator[None]:
    """Keep each core busy."""
    computing = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for process in computing:
            process.kill()
            process.wait()


def starts(number: int, lanes: int = LANES) -> Counter[str]:
    """Start services so often; return how they ended, "exit 0" for well."""
    ends: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="spar-") as place, ThreadPoolExecutor(lanes) as pool:

        def lane(index: int) -> list[str]:
            (folder := Path(place, str(index))).mkdir()
            prepared(folder)
            share = range(index, number, lanes)
            return [life(folder, talks=SESSIONS if start == index else 0) for start in share]

        for outcomes in pool.map(lane, range(lanes)):
            ends.update(outcomes)
    return ends


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.starts", description=__doc__)
    parser.add_argument("number", nargs="?", type=int, default=300, help="how many starts")
    number, began = parser.parse_args().number, time.monotonic()
    with busy_cores():
        ends = starts(number)
    lines = [f"{times:5} {end}" for end, times in ends.most_common()]
    lines.append(f"{ends['exit 0']} of {number} starts ended well, in {time.monotonic() - began:.0f} s")
    sys.stdout.write("\n".join(lines) + "\n")
    return 0 if ends == Counter({"exit 0": number}) else 1


if __name__ == "__main__":
    sys.exit(main())
