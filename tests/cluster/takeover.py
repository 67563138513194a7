"""Workers are killed and stopped, backends are ended, the server restarts at once: what became of all that was
accepted, judged from outside by what the workers said, the ledger of effects, and the database."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import psycopg
from msgspec import Struct, field

from tests.faults.ledger import Ledger
from tests.faults.lives import ROOT
from tests.faults.oracle import link
from tests.process.template import Forked, clean_environ
from tests.servers.postgresql import PostgresServer

_PATIENCE = 90.0
#: Where a worker is stopped: at any moment, in a group, between fence and COMMIT, between the fact of a call and its
#: tool.
POINTS = ("", "memory.index", "postgres.before_commit", "act.intent_committed")
_STOPPED = 10.0  # seconds
_PROGRAM = Path(__file__).parent / "worker.py"

_FACTS = "SELECT seq, at, work, call, kind, body, link FROM fact ORDER BY seq"
_SILENT = """
SELECT count(*) FROM fact AS begun WHERE kind = 'started'
AND NOT EXISTS (SELECT FROM fact WHERE kind = 'ended' AND work = begun.work AND call = begun.call)
AND NOT EXISTS (SELECT FROM doubt WHERE id = begun.work || '/' || begun.call)
"""


class Counts(Struct):
    """What was tried, and what came of it: `seconds` from the end of one worker to the first commit of the next."""

    tried: int = 0
    accepted: int = 0
    lost: int = 0
    doubled: int = 0
    silent: int = 0
    stale: int = 0
    in_doubt: int = 0
    taken_over: int = 0
    seconds: list[float] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.doubled or self.silent or self.stale)


class Worker:
    """Process with an agent; `lines` are what it has said, each with the time at which that was read."""

    def __init__(self, url: str, name: str, ledger: Path, point: str, mode: str, rest: float) -> None:
        command = [sys.executable, str(_PROGRAM), url, name, str(ledger), point, mode, str(rest)]
        self._log = ledger.with_suffix(".log")
        with self._log.open("a") as log:
            environ = {**clean_environ(), "PYTHONPATH": str(ROOT)}
            self.process = Forked(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=log)
        self.name, self.point, self.lines = name, point, list[tuple[float, str]]()
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self.lines.append((time.monotonic(), line.decode().strip()))

    def first(self, beginning: str, after: float = 0.0) -> float | None:
        """When it said something first that begins so, after a time; None if it did not."""
        return next((at for at, line in list(self.lines) if at > after and line.startswith(beginning)), None)

    def until(self, beginning: str, after: float = 0.0) -> float:
        """Wait until it has said something that begins so. Return when that was."""
        deadline = time.monotonic() + _PATIENCE
        while (at := self.first(beginning, after)) is None:
            has_ended = self.process.poll() not in (None, 0)
            if has_ended:
                self._reading.join(_PATIENCE)
            if time.monotonic() > deadline or (has_ended and self.first(beginning, after) is None):
                last = self._log.read_text(errors="replace")[-4_000:]
                raise AssertionError(f"{self.name} never said {beginning!r}: {self.lines[-3:]}\n{last}")
            time.sleep(0.01)
        return at

    def said(self, word: str) -> set[str]:
        return {line.partition(" ")[2] for _, line in list(self.lines) if line.startswith(f"{word} ")}

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.send(number)
        self.wait()

    def wait(self) -> None:
        """Wait for its end, and until all that it has said is read."""
        self.process.wait(_PATIENCE)
        self._reading.join(_PATIENCE)


class Cluster:
    """Workers on one database, of which one works and the others stand by; of the mode "nodes" all work.

    Args: rest: seconds for which each of the four lanes of a worker rests on average between two messages.
    """

    def __init__(self, url: str, folder: Path, mode: str = "standby", rest: float = 0.0) -> None:
        self.url, self.ledger, self._mode, self._rest = url, folder / "effects.jsonl", mode, rest
        self.workers: list[Worker] = []

    def begin(self, point: str = "") -> Worker:
        """Begin a worker, which stands by while another works."""
        worker = Worker(self.url, f"w{len(self.workers)}", self.ledger, point, self._mode, self._rest)
        self.workers.append(worker)
        return worker

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for worker in self.workers:
            if worker.process.poll() is None:
                worker.send(signal.SIGKILL)
            worker.wait()

    def end(self) -> None:
        """End all workers in good order: the last one goes on with what the others leave."""
        *others, last = self.workers
        for worker in others:
            worker.send(signal.SIGTERM)
        for worker in others:
            worker.wait()
        last.end()

    def judge(self, counts: Counts) -> Counts:
        """Add up what is wrong, once the last worker has ended in good order; what is lost or doubled is named on
        standard error."""
        accepted = set[str]().union(*(worker.said("accepted") for worker in self.workers))
        done, failed = (set[str]().union(*(each.said(word) for each in self.workers)) for word in ("done", "failed"))
        effects = Counter(str(line["id"]) for line in Ledger(self.ledger).read())
        with psycopg.connect(self.url) as connection:
            states = {str(key): str(state) for key, state in connection.execute("SELECT key, state FROM item")}
            doubts = [str(body) for (body,) in connection.execute("SELECT body FROM doubt")]
            counts.silent += _number(connection, _SILENT)
            facts = list(connection.execute(_FACTS))
        doubtful = {id for id in accepted for body in doubts if f'"{id}"' in body}
        counts.accepted += len(accepted)
        counts.in_doubt += len(doubts)
        lost = [id for id in accepted if states.get(id) not in ("done", "dead")]  # a dead letter is told
        lost += [id for id in done if id not in effects and id not in doubtful]
        lost += [id for id in failed if states.get(id) != "dead"]
        doubled = [id for id, number in effects.items() if number > 1]
        for id in (*lost, *doubled):
            sys.stderr.write(f"{id}: stored as {states.get(id)}, carried out {effects[id]} times\n")
        counts.lost += len(lost)
        counts.doubled += len(doubled)
        before = bytes(32)
        for number, (seq, at, work, call, kind, body, stored) in enumerate(facts, 1):
            before = link(before, seq, at, work, call, kind, body)
            if seq != number or before != stored:
                counts.lost += 1
                sys.stderr.write(f"the chain is broken at {seq}, which is number {number}: {kind} of {work or call}\n")
                break
        return counts


def _number(connection: psycopg.Connection, query: str) -> int:
    row = connection.execute(query.encode()).fetchone()
    return 0 if row is None else int(row[0])


def killed(cluster: Cluster, times: int, draw: random.Random) -> Counts:
    """Kill the worker at random moments; one that stands by takes over each time."""
    counts = Counts()
    working = cluster.begin()
    working.until("done")
    standing = cluster.begin()
    for _ in range(times):
        standing.until("standing by")
        time.sleep(draw.uniform(0.1, 0.6))
        at = time.monotonic()
        working.end(signal.SIGKILL)
        counts.tried += 1
        counts.seconds.append(standing.until("accepted", at) - at)
        counts.taken_over += 1
        working, standing = standing, cluster.begin()
        working.until("done", at)
    standing.end(signal.SIGKILL)
    working.end()
    return cluster.judge(counts)


def stopped(cluster: Cluster, times: int, draw: random.Random) -> Counts:
    """Stop the worker for ten seconds at each point in turn; one that was replaced must write nothing more."""
    counts = Counts()
    for number in range(times):
        point = POINTS[number % len(POINTS)]
        working = cluster.begin(point)
        working.until("done")
        standing = cluster.begin()
        standing.until("standing by")
        time.sleep(draw.uniform(0.2, 0.5))
        at = time.monotonic()
        working.send(signal.SIGUSR1 if point else signal.SIGSTOP)
        if point:
            at = working.until("stopping")
        time.sleep(_STOPPED)
        counts.tried += 1
        before, resumed_at = _written(cluster.url, working.name), time.monotonic()
        working.send(signal.SIGCONT)
        while standing.first("working") is None and working.first("accepted", resumed_at) is None:
            time.sleep(0.01)
        if (taken_at := standing.first("working")) is None:  # the stopped one keeps its place
            standing.end(signal.SIGKILL)
            working.end()
        else:
            counts.taken_over += 1
            counts.seconds.append(standing.until("accepted") - at)
            working.wait()
            late = _written(cluster.url, working.name) - before
            counts.stale += late if taken_at < resumed_at else 0
            standing.until("done")
            standing.end()
    return cluster.judge(counts)


def _written(url: str, name: str) -> int:
    with psycopg.connect(url) as connection:
        return _number(connection, f"SELECT count(*) FROM item WHERE key LIKE '{name}-%'")


def nodes_killed(cluster: Cluster, times: int, draw: random.Random) -> Counts:
    """Kill two of four workers that all work, at a random moment; others begin each time."""
    counts, working = Counts(), [cluster.begin() for _ in range(4)]
    for worker in working:
        worker.until("done")
    while counts.tried < times:
        time.sleep(draw.uniform(0.1, 0.6))
        victims = draw.sample(working, min(2, times - counts.tried))
        for victim in victims:
            victim.send(signal.SIGKILL)
        counts.tried += len(victims)
        counts.taken_over += len(victims)
        begun = [cluster.begin() for _ in victims]
        for worker in (*victims, *begun):
            worker.wait() if worker in victims else worker.until("done")
        working = [worker for worker in working if worker not in victims] + begun
    cluster.end()
    return cluster.judge(counts)


def nodes_stopped(cluster: Cluster, times: int, draw: random.Random) -> Counts:
    """Stop eight of nine workers that all work for ten seconds, two at each point, again and again. The ninth takes all
    over; what the others wrote after that would break the chain of facts, or do something twice."""
    counts, at = Counts(), 0.0
    *victims, other = (cluster.begin(point) for point in (*POINTS, *POINTS, ""))
    while counts.tried < times:
        for worker in (other, *victims):
            worker.until("done", at)
        time.sleep(draw.uniform(0.2, 0.5))
        at = time.monotonic()
        for victim in victims:
            victim.send(signal.SIGUSR1 if victim.point else signal.SIGSTOP)
        at = max(victim.until("stopping", at) for victim in victims if victim.point)
        until_owned(cluster.url)
        counts.seconds.append(time.monotonic() - at)
        time.sleep(max(0.0, _STOPPED - (time.monotonic() - at)))
        counts.tried += len(victims)
        counts.taken_over += len(victims)
        at = time.monotonic()
        for victim in victims:
            victim.send(signal.SIGCONT)
        for victim in victims:
            victim.until("accepted", at)
    cluster.end()
    return cluster.judge(counts)


def until_owned(url: str) -> None:
    """Wait until one node owns all partitions."""
    query = "SELECT count(*) FROM partition WHERE owner IS NOT NULL GROUP BY owner"
    deadline = time.monotonic() + _PATIENCE
    with psycopg.connect(url, autocommit=True) as connection:
        while connection.execute(query).fetchall() != [(256,)]:
            assert time.monotonic() < deadline, "nobody owns all partitions"
            time.sleep(0.02)


def disturbed(
    cluster: Cluster, times: int, disturb: Callable[[], object], pause: float, draw: random.Random, workers: int = 1
) -> Counts:
    """Disturb the database while workers work; the last one must go on by itself each time."""
    counts = Counts()
    for _ in range(workers):
        working = cluster.begin()
        working.until("done")
    for _ in range(times):
        time.sleep(draw.uniform(0.0, pause))
        disturb()
        at = time.monotonic()
        counts.tried += 1
        counts.seconds.append(working.until("accepted", at) - at)
    cluster.end()
    return cluster.judge(counts)


def end_writer(url: str) -> Callable[[], object]:
    """Return what ends the backend of the writer, whatever it does: now and then its COMMIT has no answer."""
    query = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'spar %' "
        "AND (query LIKE 'COMMIT%' OR state = 'active') AND pid <> pg_backend_pid()"
    )

    def end() -> None:
        with psycopg.connect(url, autocommit=True, application_name="test") as connection:
            deadline = time.monotonic() + 5.0
            while not any(done for (done,) in connection.execute(query)) and time.monotonic() < deadline:
                pass

    return end


def restart(server: PostgresServer) -> Callable[[], object]:
    """Return what restarts the server at once, as after a crash."""

    def again() -> None:
        server.stop()
        server.start()

    return again
