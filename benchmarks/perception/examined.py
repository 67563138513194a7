"""Memory of `spar cycles perceive -` under endless input: `python -m benchmarks.perception.examined [--megabytes 9]`.

Lines of many kinds and lengths are written to the command; the greatest resident memory of its process is read at each
tenth of them, so that a growth with the input would be seen. No data is needed.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_WORDS = ("disk", "mount", "node", "worker", "queue", "link", "session", "index", "packet", "cache", "lease", "quota")


def main() -> None:
    parser = argparse.ArgumentParser(description="Memory of spar cycles perceive under an endless input.")
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--longest", type=int, default=30_000, help="bytes of a line")
    given = parser.parse_args()
    whole, written, lines, tenth = given.megabytes * 1_000_000, 0, 0, 1
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "spar", "cycles", "perceive", "-"]
        process = subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        assert process.stdin is not None
        for line in _lines(given.longest):
            written, lines = written + len(line), lines + 1
            process.stdin.write(line)
            if written >= whole * tenth / 10:
                print(f"{written / 1e6:6.0f} MB, {lines} lines: {_most_memory(process.pid)} MB", flush=True)
                tenth += 1
            if written >= whole:
                break
        process.stdin.close()
        code = process.wait()
    print(f"ended with {code} after {time.monotonic() - began:.0f} s")


def _lines(longest: int) -> Iterator[bytes]:
    """Yield lines: of few kinds mostly, now and then of a kind never seen, short and long."""
    draw = random.Random(7)
    while True:
        words = draw.choices(_WORDS, k=4) if draw.random() < 0.1 else ["request", "served", "in", "time"]
        size = int(longest ** draw.random())
        rest = " ".join(f"{draw.randrange(1 << 32):x}" for _ in range(min(size // 9 + 1, 40)))
        text = f"ERROR {' '.join(words)} {rest}"
        yield text.ljust(size, "x").encode() + b"\n"


def _most_memory(pid: int) -> int:
    """Return the greatest resident memory of a process so far, in MB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024


if __name__ == "__main__":
    main()
