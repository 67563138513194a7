"""Row 8: what an idle agent holds and what importing costs, each measured in a process of its own.

The seconds are those of the processor: the files are in the system's cache, and a busy machine only adds waiting.
"""

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
before, started = pages(), time.process_time()
{lines}
sys.stdout = sys.__stdout__
print((pages() - before) * 4096, time.process_time() - started)
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
#: Megabytes and seconds of the processor that a start may take: owed, and as moonshot.
GOALS = {"import and make an Agent": ((24, 18), (0.28, None))}
EARLIER, NONE = ((20, 15), (0.4, 0.25)), (None, None)
#: The least that can begin: the event loop and the types of values; for the command line, its parser.
LEAST = {"spar --help": "import click"}
LEAST_OF_ALL = "import asyncio, msgspec"


@dataclass(frozen=True)
class Imported:
    megabytes: float
    seconds: float


async def measure(effort: Effort) -> list[Line]:
    times = 1 if effort.is_quick else 3
    task = f"{number(bytes_each('task', times) / 1000)} kB"
    lines = [
        amount(
            8,
            "idle agent",
            bytes_each("agent", times) / 1000,
            "kB",
            owed=10,
            moonshot=7,
            against=TASK,
            other=task,
            is_limit=True,
        ),
        amount(8, "idle agent, scraped once", bytes_each("scraped", times) / 1000, "kB", against=TASK, other=task),
    ]
    try:
        graph = imported(f"{LANGGRAPH}.graph", times)
        other = described(graph)
    except subprocess.CalledProcessError:
        other = "not installed (langgraph)"
    least = {text: imported(text, times) for text in {LEAST_OF_ALL, *LEAST.values()}}
    for title, text in STARTS.items():
        limit, cost = LEAST.get(title, LEAST_OF_ALL), imported(text, times + 2)
        lines += started(title, cost, limit, described(least[limit]), is_limit=True)
        lines += started(title, cost, LANGGRAPH, other)
    return lines


def started(title: str, cost: Imported, against: str, other: str, *, is_limit: bool = False) -> list[Line]:
    """Return the lines of memory and of time; the goals stand beside the limit."""
    memory, seconds = GOALS.get(title, EARLIER) if is_limit else (NONE, NONE)
    beside = {"against": against, "other": other, "is_limit": is_limit}
    return [
        amount(8, f"{title}: memory", cost.megabytes, "MB", owed=memory[0], moonshot=memory[1], **beside),
        amount(8, f"{title}: time", cost.seconds, "s", owed=seconds[0], moonshot=seconds[1], by="cpu", **beside),
    ]


def described(cost: Imported) -> str:
    return f"{number(cost.megabytes)} MB, {number(cost.seconds)} s"


def imported(lines: str, times: int) -> Imported:
    costs = [run("-c", COST_OF.format(lines=lines)) for _ in range(times)]
    return Imported(statistics.median(item[0] for item in costs) / 1e6, statistics.median(item[1] for item in costs))


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
