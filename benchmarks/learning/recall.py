"""How well memory recalls: `python -m benchmarks.learning.recall --data FOLDER [--vectors] [--month]`.

Conversations are told to the product as messages: REFLECT makes an experience of each turn, the store keeps it, recall
is asked the questions. recall@k is the share of the turns that hold the answer among the first k, hit@k whether any is.
The weights of recall were fixed on LoCoMo; the other rows only report. Times are of this process's processor.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import resource
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path

from msgspec import Struct, field

from benchmarks.learning.conversations import Conversation, Question, Turn, locomo, notes, realtalk
from benchmarks.learning.gain import Gain
from memory import Memory
from reflection import Reflect
from spar.ports.services import Embedder
from spar.protocols import Context
from spar.types import Action, ActionResult, Experience, Perception, replace

KS = (1, 5, 10, 20)
#: Questions that are put to the large memories.
ASKED = 300


class Outcome(Struct):
    """Sums over questions: the share of the evidence found, and whether any was, by k; milliseconds of processor."""

    questions: int = 0
    found: dict[int, float] = field(default_factory=lambda: dict.fromkeys(KS, 0.0))
    hits: dict[int, int] = field(default_factory=lambda: dict.fromkeys(KS, 0))
    times: list[float] = field(default_factory=list)

    def add(self, evidence: frozenset[str], ids: Sequence[str], spent: float) -> None:
        """Take one question's answer."""
        self.questions += 1
        self.times.append(1_000 * spent)
        for k in KS:
            share = len(evidence & set(ids[:k])) / len(evidence)
            self.found[k] += share
            self.hits[k] += share > 0

    def line(self, name: str) -> str:
        """Return the row of the table."""
        count, times = max(1, self.questions), sorted(self.times) or [0.0]
        shares = " ".join(f"{self.found[k] / count:.3f}" for k in KS)
        hits = " ".join(f"{self.hits[k] / count:.3f}" for k in KS)
        p50, p95 = times[len(times) // 2], times[int(0.95 * (len(times) - 1))]
        return f"{name:<34} {self.questions:>5}   {shares}   {hits}   {p50:6.1f} {p95:6.1f}"


async def told(conversation: Conversation) -> list[Experience]:
    """Return what REFLECT makes of the turns, each answered without a word."""
    reflect, found = Reflect(), list[Experience]()
    for turn in conversation.turns:
        perception = Perception(_said(turn), kind="message", source="chat", intent="inform", session=conversation.name)
        result = ActionResult(Action((), output="", perceptions=(perception,)), "ok")
        learnt = await reflect.reflect(result, Context(agent="main", cycle_id=turn.id, session=conversation.name))
        found += [
            replace(each, id=f"{conversation.name}/{turn.id}", at=turn.at, key=each.key or "message/inform")
            for each in learnt.experiences
        ]
    return found


def _said(turn: Turn) -> str:
    return turn.text if turn.speaker == "user" else f"{turn.speaker}: {turn.text}"


@asynccontextmanager
async def remembering(path: Path | None, embedder: Embedder | None) -> AsyncIterator[Memory]:
    """Open a memory that forgets nothing."""
    url = "sqlite://:memory:" if path is None else f"sqlite:///{path}"
    memory = Memory(url, keep_days=None, keep_experiences=None, keep_bytes=None, ballast=0, durability="off",
                    embedder=embedder)  # fmt: skip
    async with memory:
        yield memory


async def embedded(memory: Memory) -> None:
    """Embed what is there now instead of when there is time."""
    await memory.flush()
    if memory.embedding is not None:
        while await memory.embedding.step():
            pass
        await memory.flush()


async def asked(memory: Memory, conversation: Conversation, outcome: Outcome, number: int = max(KS)) -> None:
    """Put the questions of a conversation to a memory, for so many experiences each."""
    for question in conversation.questions:
        began = time.process_time()
        found = await memory.recall(question.text, number)
        spent = time.process_time() - began
        ids = [id.removeprefix(f"{conversation.name}/") for id in (each.id for each in found)
               if id.startswith(f"{conversation.name}/")]  # fmt: skip
        outcome.add(question.evidence, ids, spent)


async def apart(conversations: Sequence[Conversation], embedder: Embedder | None) -> Outcome:
    """Measure with a memory for each conversation."""
    outcome = Outcome()
    for conversation in conversations:
        if conversation.questions:
            async with remembering(None, embedder) as memory:
                for experience in await told(conversation):
                    await memory.store(experience)
                await embedded(memory)
                await asked(memory, conversation, outcome)
    return outcome


async def among(conversations: Sequence[Conversation], asking: int, sentences: Sequence[str], number: int, folder: Path,
                embedder: Embedder | None) -> tuple[Outcome, int]:  # fmt: skip
    """Measure in one memory of so many items: all turns, then sentences that are newer. Returns also the bytes on disk.

    Args: asking: of how many of the conversations, the first ones, questions are put.
    """
    path, outcome, count = folder / f"{number}.db", Outcome(), 0
    async with remembering(path, embedder) as memory:
        newest: datetime | None = None
        for conversation in conversations:
            for experience in await told(conversation):
                await memory.store(experience)
                newest, count = max(newest or experience.at, experience.at), count + 1
        assert newest is not None
        for place, text in enumerate(_distinct(sentences, number - count)):
            await memory.store(_noise(text, place, newest + timedelta(seconds=2 * place)))
        await embedded(memory)
        every = [
            (conversation, question) for conversation in conversations[:asking] for question in conversation.questions
        ]
        random.Random(2).shuffle(every)
        for conversation, question in every[:ASKED]:
            only = _with_only(conversation, question)
            await asked(memory, only, outcome, 10)
    return outcome, path.stat().st_size


def _with_only(conversation: Conversation, question: Question) -> Conversation:
    """Return a conversation with this question alone."""
    return Conversation(conversation.name, (), (question,))


def _noise(text: str, place: int, at: datetime) -> Experience:
    return Experience(
        f"message (inform): {text[:160]}", "answered", "answered", success=True, task="message/inform", said=text,
        key="message/inform", session=f"other{place % 50}", at=at, origin=f"c{place}", run_id=f"r{place}",
        id=f"noise/{place}",
    )  # fmt: skip


def _distinct(sentences: Sequence[str], number: int) -> Iterator[str]:
    chosen = random.Random(1)
    for place in range(max(0, number)):
        yield sentences[place] if place < len(sentences) else f"{chosen.choice(sentences)} {chosen.choice(sentences)}"


def measure(data: Path) -> list[Gain]:
    """Return the lines of the table of this folder. Raises: MissingDataError."""
    return asyncio.run(_gains(data))


async def _gains(data: Path) -> list[Gain]:
    sets = (("LoCoMo", locomo, 10, 0.70, 0.80, "0.56"), ("REALTALK", realtalk, 10, 0.53, 0.64, "0.47"),
            ("BFCL", notes, 1, 0.80, None, "0.71"))  # fmt: skip
    lines = []
    for name, read, k, owed, moonshot, today in sets:
        if not (data / name).exists():
            lines.append(Gain(f"recall@{k} {name}", owed, remark=f"not measured: no folder {name}"))
            continue
        outcome = await apart(read(data / name), None)
        seen = (outcome.hits if k == 1 else outcome.found)[k] / max(1, outcome.questions)
        remark = "weights fixed here" if name == "LoCoMo" else "weights fixed on LoCoMo"
        lines.append(Gain(f"recall@{k} {name}", owed, moonshot, today, seen={"on": seen}, remark=remark))
    return lines


async def table(data: Path, embedder: Embedder | None, *, is_month: bool) -> None:
    """Measure and print the table."""
    shown = " + vectors" if embedder is not None else ""
    ks = " ".join(f"@{k:<4}" for k in KS)
    print(f"{'':<34} asked   recall {ks} hit {ks}   p50 ms p95 ms")
    dialogues, chats = locomo(data / "LoCoMo"), [each for each in realtalk(data / "REALTALK") if each.questions]
    print((await apart(dialogues, embedder)).line(f"LoCoMo{shown}"), flush=True)
    print((await apart(chats, embedder)).line(f"REALTALK{shown}"), flush=True)
    if (data / "BFCL").exists():
        print((await apart(notes(data / "BFCL"), embedder)).line(f"BFCL memory notes{shown}"), flush=True)
    else:
        print("BFCL memory notes                  not measured: no folder BFCL (package bfcl-eval, bfcl_eval/data)")
    sentences = (data / "oos-eval/data/all_wiki_sents.txt").read_text("utf-8").splitlines()
    with tempfile.TemporaryDirectory() as folder:
        for number in (100_000, 1_000_000) if is_month else (100_000,):
            every = [*dialogues, *chats]
            outcome, size = await among(every, len(dialogues), sentences, number, Path(folder), embedder)
            print(outcome.line(f"LoCoMo among {number:,} items{shown}"), flush=True)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024
            print(f"{'':<34} {size / 1e6:.0f} MB on disk, peak {peak:.0f} MB of memory", flush=True)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.learning.recall", description="How well memory recalls."
    )
    folders = "LoCoMo/, REALTALK/, BFCL/ and oos-eval/"
    parser.add_argument("--data", type=Path, required=True, help=f"the folder that holds {folders} (public)")
    parser.add_argument("--vectors", action="store_true", help="with the embedder minilm (extra `vectors`)")
    parser.add_argument("--month", action="store_true", help="also a million items: some minutes")
    given = parser.parse_args(arguments)
    embedder: Embedder | None = None
    if given.vectors:
        from spar.embedding.minilm import MiniLm

        embedder = MiniLm()
    asyncio.run(table(given.data, embedder, is_month=given.month))


if __name__ == "__main__":
    main()
