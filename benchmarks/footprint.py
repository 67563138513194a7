"""Row 8: what an idle agent holds and what importing costs, each measured in a process of its own."""

from __future__ import annotations

import statistics
import subprocess
import sys
from dataclasses import dataclass

from benchmarks.harness import Effort
from benchmarks.table import Line, amount, number

FEW, MANY = 1000, 5000
WITHIN = 60.0

#: Memory in bytes and seconds that a few lines cost a fresh interpreter.
COST_OF = """
import sys, time
pages = lambda: int(open("/proc/self/statm").read().split()[1])
before, started = pages(), time.perf_counter()
{lines}
sys.stdout = sys.__stdout__
print((pages() - before) * 4096, time.perf_counter() - started)
"""
#: As the console script does it, its output thrown away.
SPAR_HELP = """
import io
sys.argv, sys.stdout = ["spar", "--help"], io.StringIO()
try:
    from spar.cli import main; main()
except SystemExit:
    pass
"""
#: What is begun with: by title, the lines.
STARTS = {
    "from spar import Agent": "from spar import Agent",
    "import and make an Agent": "from spar import Agent; Agent(sense=lambda: [])",
    "spar --help": SPAR_HELP,
}
LANGGRAPH, TASK = "import langgraph", "parked anyio task"


@dataclass(frozen=True)
class Imported:
    megabytes: float
    seconds: float


async def measure(effort: Effort) -> list[Line]:
    times = 1 if effort.is_quick else 3
    task = f"{number(bytes_each('task', times) / 1000)} kB"
    lines = [
        amount(8, "idle agent", bytes_each("agent", times) / 1000, "kB", first=8, then=6, against=TASK, other=task),
        amount(8, "idle agent, scraped once", bytes_each("scraped", times) / 1000, "kB", against=TASK, other=task),
    ]
    try:
        graph = imported(f"{LANGGRAPH}.graph", times)
        other = f"{number(graph.megabytes)} MB, {number(graph.seconds)} s"
    except subprocess.CalledProcessError:
        other = "not installed (langgraph)"
    for title, text in STARTS.items():
        cost = imported(text, times + 2)
        lines += [
            amount(8, f"{title}: memory", cost.megabytes, "MB", first=20, then=15, against=LANGGRAPH, other=other),
            amount(8, f"{title}: time", cost.seconds, "s", first=0.4, then=0.25, against=LANGGRAPH, other=other),
        ]
    return lines


def imported(lines: str, times: int) -> Imported:
    found = [run("-c", COST_OF.format(lines=lines)) for _ in range(times)]
    return Imported(statistics.median(item[0] for item in found) / 1e6, statistics.median(item[1] for item in found))


def bytes_each(kind: str, times: int) -> float:
    """Bytes of each further one: the slope from few to many, as a freshly grown heap has slack for the first."""

    def held(agents: int) -> float:
        return run("-m", "benchmarks.idle", kind, str(agents))[0]

    return statistics.median((held(MANY) - held(FEW)) / (MANY - FEW) for _ in range(times))


def run(*arguments: str) -> list[float]:
    """The numbers that a process prints. Raises: CalledProcessError, TimeoutExpired."""
    command = [sys.executable, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN, check=True)
    return [float(word) for word in done.stdout.split()]
