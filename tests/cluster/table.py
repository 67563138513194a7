"""The counts and figures of several processes on one database, each beside what is owed and what is aimed at."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from tests.cluster import nodes, simulated, speed, takeover, upgrades
from tests.cluster.simulated import NODES
from tests.cluster.takeover import Cluster, Counts
from tests.faults import report
from tests.faults.report import percentile
from tests.faults.sweep import ON_SERVER, Outcome, Plan, Sweep, on_server, standing_by
from tests.servers.postgresql import PostgresServer, postgres_server

#: Settings of a server whose figures count: a crash of it loses nothing.
DURABLE = ("shared_buffers=128MB", "max_connections=150")


class Form(Struct, frozen=True):
    """How much is done: the sweep of failpoints (None: none), kills, stops (of one that works a tenth), ends of the
    writer's backend, restarts, turns of the speed with rounds, upgrades; seeds of simulated nodes; runs in each session
    of real ones, timed kills of these, and how often a fifth of a hundred leases vanish; the seconds for which a lane
    of a worker rests between two messages."""

    sweep: Plan | None
    kills: int
    stops: int
    unanswered: int
    restarts: int
    turns: int
    rounds: int
    upgrades: int
    seeds: int
    runs: int
    timed: int
    vanish: int
    rest: float


LONG = Form(
    Plan(times=None, pairs=60, kills=120, poisons=2, services=6), kills=100, stops=400, unanswered=100, restarts=10,
    turns=8, rounds=120, upgrades=12, seeds=1_000, runs=40, timed=100, vanish=3, rest=0.0,
)  # fmt: skip
SHORT = Form(
    Plan(times=1, pairs=2, kills=6, poisons=0, services=0, points=12), kills=15, stops=40, unanswered=50, restarts=5,
    turns=5, rounds=60, upgrades=1, seeds=100, runs=20, timed=8, vanish=2, rest=0.5,
)  # fmt: skip


class Line(Struct, frozen=True):
    """Line of the table. `is_wrong`: something was lost, doubled, silent or stale; `is_owed`: its figure is not as
    good as it must be."""

    name: str
    value: str
    owed: str = ""
    aimed: str = ""
    is_wrong: bool = False
    is_owed: bool = False

    @property
    def verdict(self) -> str:
        return "WRONG" if self.is_wrong else "owed" if self.is_owed else "ok" if self.owed else ""


def counted(name: str, counts: Counts) -> Line:
    """Return the line of what was tried, and what came of it."""
    value = (
        f"{counts.tried} times, {counts.accepted} accepted: lost {counts.lost}, doubled {counts.doubled}, "
        f"silent {counts.silent}, stale {counts.stale} (in doubt and told {counts.in_doubt})"
    )
    return Line(name, value, "0", "", is_wrong=not counts.is_clean)


def swept(outcomes: Sequence[Outcome]) -> Line:
    """Return the line of the failpoints at which a process was killed while another stood by."""
    figures = report.figures(outcomes)
    value = (
        f"{figures['tried']} times, survived {figures['survived']}: lost {figures['lost']}, doubled "
        f"{figures['doubled']}, silent {figures['silent']}, stuck {figures['stuck']} (in doubt {figures['in doubt']})"
    )
    wrong = not all(outcome.has_survived for outcome in outcomes)
    return Line("killed at failpoints, another takes over", value, "0", is_wrong=wrong)


def timed(name: str, seconds: Sequence[float], owed: float, aimed: float) -> Line:
    """Return the line of seconds of which 95 % must not be above a number."""
    if not seconds:
        return Line(name, "never", f"{owed:g} s", f"{aimed:g} s", is_owed=True)
    p95 = percentile(seconds, 0.95)
    value = f"p50 {percentile(seconds, 0.5):.2f} s, p95 {p95:.2f} s, most {max(seconds):.2f} s"
    return Line(name, value, f"{owed:g} s", f"{aimed:g} s", is_owed=p95 > owed)


def table(form: Form, seed: int, told: Callable[[Line], object], *, is_alone: bool = True) -> list[Line]:
    """Measure all: first two columns side by side, each on a server of its own, then what is timed alone.

    Args: told: gets each line as it is known, from any thread; is_alone: whether nothing else runs on the machine, so
        that figures can be measured.
    """

    def noted(lines: Iterable[Line]) -> list[Line]:
        return [(told(line), line)[1] for line in lines]

    with ThreadPoolExecutor(2) as threads:
        columns = [
            threads.submit(lambda column, draw: noted(column(form, draw)), column, random.Random(seed + number))
            for number, column in enumerate((others_stand_by, all_work))
        ]
        lines = [line for column in columns for line in column.result()]
    return lines + (noted(alone(form, random.Random(seed))) if is_alone else [])


def others_stand_by(form: Form, draw: random.Random) -> Iterator[Line]:
    """Return the lines of workers of which one works and another one stands by; then those of upgrades and of
    simulated nodes, so that both columns take about as long."""
    if form.sweep is not None:
        with ExitStack() as stack:
            server = stack.enter_context(postgres_server())
            zygotes = standing_by(stack, 2)
            seed = draw.randrange(1_000)
            yield swept(Sweep(zygotes, form.sweep, seed, lambda outcome: None, ON_SERVER, on_server(server))())
    with postgres_server(DURABLE) as server:
        kills = trial(lambda it: takeover.killed(it, form.kills, draw), server, form)
        yield counted("kill -9 under load", kills)
        yield timed("kill -9 to the first commit elsewhere", kills.seconds, 1.0, 0.3)
        stops = trial(lambda it: takeover.stopped(it, form.stops // 10, draw), server, form)
        yield counted(f"SIGSTOP for 10 s, then SIGCONT (replaced {stops.taken_over} times)", stops)
        yield timed("stopped process to the first commit elsewhere", stops.seconds, 4.0, 3.5)
        yield from disturbed(server, form, draw, "standby", "")
        for name, kills in (("stopped", 0.0), ("killed", 0.5)) if form.upgrades else ():
            counts = upgraded(server, form.upgrades, kills, draw)
            yield counted(f"nodes of two formats exchanged and back, {name}", counts)
    yield lived(form.seeds)


def all_work(form: Form, draw: random.Random) -> Iterator[Line]:
    """Return the lines of nodes, which all work."""
    with postgres_server(DURABLE) as server:
        kills = trial(lambda it: takeover.nodes_killed(it, form.kills, draw), server, form, "nodes")
        yield counted("nodes: kill -9 of two of four", kills)
        stops = trial(lambda it: takeover.nodes_stopped(it, form.stops, draw), server, form, "nodes")
        yield counted("nodes: SIGSTOP of eight of nine for 10 s, then SIGCONT", stops)
        yield timed("nodes: stopped, until another one owns all", stops.seconds, 4.0, 3.5)
        yield from disturbed(server, form, draw, "nodes", "nodes: ")


def alone(form: Form, draw: random.Random) -> Iterator[Line]:
    """Return the lines of figures, for which nothing else may run."""
    with postgres_server(DURABLE) as server:
        yield from figures(speed.measure(server, form.turns, form.rounds))
        yield from shared(asyncio.run(nodes.grown(server.database(), server.database(), form.runs)))
        seconds = asyncio.run(nodes.killed(server.database(), form.timed, draw))
        yield timed("nodes: kill -9 to the first commit elsewhere", seconds, 1.0, 0.3)
        leases = nodes.leases(server.database(), NODES, form.vanish)
        p99 = percentile(leases.renewals, 0.99)
        yield Line(f"nodes: renewals of {NODES}", f"p99 {p99 * 1000:.1f} ms", "50 ms", "5 ms", is_owed=p99 > 0.05)
        yield timed(f"nodes: {NODES // 5} of {NODES} vanish, until all is owned", leases.owned, 5.0, 3.7)


def trial(work: Callable[[Cluster], Counts], server: PostgresServer, form: Form, mode: str = "standby") -> Counts:
    """Return what came of work with workers on a database of their own."""
    with (
        tempfile.TemporaryDirectory(prefix="spar-cluster-") as folder,
        Cluster(server.database(), Path(folder), mode, form.rest) as cluster,
    ):
        return work(cluster)


def disturbed(server: PostgresServer, form: Form, draw: random.Random, mode: str, beginning: str) -> Iterator[Line]:
    """Return the lines of workers whose connections or whose server end. Each end waits for the next message."""
    workers, form = 2 if mode == "nodes" else 1, replace(form, rest=form.rest / 5)
    ends = trial(
        lambda it: takeover.disturbed(it, form.unanswered, takeover.end_writer(it.url), 0.05, draw, workers),
        server, form, mode,
    )  # fmt: skip
    yield counted(f"{beginning}backend ended in a COMMIT or statement", ends)
    restarts = trial(
        lambda it: takeover.disturbed(it, form.restarts, takeover.restart(server), 1.0, draw, workers),
        server, form, mode,
    )  # fmt: skip
    yield counted(f"{beginning}server restarted at once", restarts)


def upgraded(server: PostgresServer, times: int, kills: float, draw: random.Random) -> Counts:
    """Return what came of rolling upgrades, each on a database of its own."""
    parts = [asyncio.run(upgrades.rolled(server.database(), draw, kills=kills)) for _ in range(times)]
    return Counts(**{name: sum(getattr(part, name) for part in parts) for name in Counts.__struct_fields__[:-1]})


def lived(seeds: int) -> Line:
    """Return the line of simulated nodes: what an oracle outside has seen while some vanish, stop and come back."""
    signs = Counter(sign for seed in range(seeds) for sign in simulated.signs_of(*simulated.lived(seed)))
    value = f"{seeds} seeds: {', '.join(f'{sign} {number}' for sign, number in signs.items()) or 'nothing wrong'}"
    return Line(f"nodes: {NODES} simulated, churn", value, "nothing wrong", is_wrong=bool(signs))


def shared(measured: nodes.Grown) -> list[Line]:
    """Return the lines of the speed of nodes that share an agent."""
    begun = percentile(measured.begun, 0.95)
    return [
        Line("nodes: 1 to 4 processes, calls that wait 50 ms",
             f"{measured.times:.2f}x ({measured.one:.0f}, {measured.four:.0f}/s)", "3.4x", "3.9x",
             is_owed=measured.times < 3.4),
        Line("nodes: submitted on one to begun on another", f"p95 {begun * 1000:.0f} ms", "30 ms", "5 ms",
             is_owed=begun > 0.03),
    ]  # fmt: skip


def figures(measured: speed.Speed) -> list[Line]:
    """Return the lines of the speed of 64 sessions."""
    spread = f"{min(measured.ratios):.2f} to {max(measured.ratios):.2f}"
    return [
        Line("64 sessions, cycles/s beside a file", f"{measured.ratio:.2f} ({spread}; {measured.cycles:.0f}/s)",
             "0.6", "0.95", is_owed=measured.ratio < 0.6),
        Line("processor of the server, a cycle", f"{measured.micros:.0f} µs", "100 µs", "50 µs",
             is_owed=measured.micros > 100),
        Line("log of the server, a cycle", f"{measured.log / 1000:.1f} KB", "10 KB", "6 KB",
             is_owed=measured.log > 10_000),
    ]  # fmt: skip


def written(lines: Sequence[Line]) -> str:
    """Return the table."""
    rows = [
        ("", "", "owed", "aimed at", ""),
        *((line.name, line.value, line.owed, line.aimed, line.verdict) for line in lines),
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
