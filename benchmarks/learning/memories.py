"""Recall with vectors, among 100,000 experiences, and after a month of them: lines beside those of `recall`."""

from __future__ import annotations

import asyncio
import resource
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.learning import recall
from benchmarks.learning.conversations import locomo, realtalk
from benchmarks.learning.gain import Gain
from benchmarks.learning.measures import Seen
from benchmarks.perception.quality import MissingDataError


def words(data: Path, seen: Seen) -> list[Gain]:
    """Return the lines of recall by words."""
    return recall.measure(data)


def vectors(data: Path, seen: Seen) -> list[Gain]:
    """Return the lines of recall by words and vectors."""
    from spar.embedding.minilm import MiniLm

    lines = []
    for name, read, owed, moonshot in (("LoCoMo", locomo, 0.74, 0.80), ("REALTALK", realtalk, 0.56, 0.64)):
        if not (data / name).exists():
            raise MissingDataError(f"no folder {name}")
        outcome = asyncio.run(recall.apart(read(data / name), MiniLm()))
        found = outcome.found[10] / max(1, outcome.questions)
        lines.append(Gain(f"  {name} with `vectors`", owed, moonshot, seen={"on": found}, remark="MiniLM"))
    return lines


def large(data: Path, seen: Seen) -> list[Gain]:
    """Return the lines of a memory of 100,000 items."""
    outcome, _, _ = _among(data, 100_000)
    found = outcome.found[10] / max(1, outcome.questions)
    return [
        Gain("recall@10 among 100,000 items, LoCoMo", 0.57, None, "0.46", {"on": found}),
        Gain("  p95 of a recall there, ms", 12.0, None, "5", {"on": _p95(outcome.times)}, is_less_better=True,
             remark="processor time"),
    ]  # fmt: skip


def month(data: Path, seen: Seen) -> list[Gain]:
    """Return the lines of a memory of a million items."""
    outcome, size, peak = _among(data, 1_000_000)
    remark = "of the process that wrote all of them and was asked 300 questions"
    return [
        Gain("a month, 1,000,000 experiences: disk, GB", 1.5, None, "", {"on": size / 1e9}, is_less_better=True),
        Gain("  p95 of a recall there, ms", 25.0, None, "", {"on": _p95(outcome.times)}, is_less_better=True,
             remark="processor time"),
        Gain("  most memory taken, MB", None, None, "", {"on": peak}, is_less_better=True, remark=remark),
    ]  # fmt: skip


def _among(data: Path, number: int) -> tuple[recall.Outcome, int, float]:
    """Return the answers, the bytes on disk and the megabytes of memory."""
    for name in ("LoCoMo", "REALTALK", "oos-eval"):
        if not (data / name).exists():
            raise MissingDataError(f"no folder {name}")
    dialogues, chats = locomo(data / "LoCoMo"), [each for each in realtalk(data / "REALTALK") if each.questions]
    sentences = (data / "oos-eval/data/all_wiki_sents.txt").read_text("utf-8").splitlines()
    with tempfile.TemporaryDirectory() as folder:
        every = [*dialogues, *chats]
        outcome, size = asyncio.run(recall.among(every, len(dialogues), sentences, number, Path(folder), None))
    return outcome, size, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024


def _p95(times: Sequence[float]) -> float:
    ordered = sorted(times)
    return ordered[int(0.95 * (len(ordered) - 1))]
