"""Credit: what a later word on how things went says of each call that it is about; no I/O.

A `Thread` holds the calls of one run, of one episode of an environment, or of one cycle that belonged to neither, step
by step. A word (`Feedback`) comes from a person, from a rule that looks later (`verify`) or from an environment
(`reflection.environment`). It says of a step its discounted return: the last step before a success has worked, one
that is `k` steps away from it by `RETURN` to the power of `k`; of a failure the last step is guilty, those before it
less and less surely. A call that ended well in an episode, or that a rule looks at later, counts when its word comes,
and not before.

An episode succeeded if its rewards add up to more than nothing; of one that was cut short and brought nothing, nobody
knows how it would have ended. A step after which the exact situation is the same has changed nothing. An episode that
another one of the same source follows without a word is over: its calls have told all.

The steps of a thread that is over are kept for a while, for the words of people. Threads are bounded: the session that
has most of them, or of their steps, forgets its oldest first. So a flood in one session leaves the threads of others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct, field

from reflection.ability import Trial
from reflection.environment import Word
from reflection.threads import Step, Thread
from spar.data.bounded import SharedDict
from spar.data.text import safe_line
from spar.records.abilities import is_exact
from spar.types import ActionResult, Credit, Feedback, FeedbackSource, replace

#: What one step further away from a success leaves of its credit.
RETURN = 0.9
#: Threads, and steps of all of them together and of one, that are kept.
MOST_THREADS, MOST_STEPS, MOST_OF_THREAD = 500, 1_000, 64
#: Experiences that one step went by.
_MOST_CASES = 20
_WHY = 200


class Share(Struct):
    """Share of one session in what is kept: its threads, the one with the oldest last step first, and their steps."""

    threads: dict[str, None] = field(default_factory=dict)
    steps: int = 0


class Judged(Struct):
    """Effects of words: trials of tools, feedback on cycles, credit for experiences, sequences to remember."""

    trials: list[Trial] = field(default_factory=list)
    feedback: list[Feedback] = field(default_factory=list)
    credits: list[Credit] = field(default_factory=list)
    sequences: list[tuple[Thread, bool]] = field(default_factory=list)


class CreditBook:
    """The threads of one agent, and what changed of them since they were last asked for (`changes`)."""

    def __init__(self) -> None:
        self.threads: dict[str, Thread] = {}
        self._of: dict[str, str] = {}  # the thread of a run, an episode or a cycle
        self._open: SharedDict[str, str] = SharedDict(MOST_THREADS)  # the thread that goes on at a place of a session
        self._shares: dict[str, Share] = {}
        self._steps = self._last = 0
        self._changed: dict[str, tuple[Thread, Step | None] | None] = {}

    # -- what was done

    def add(self, thread_id: str, episode: Word | None, step: Step, judged: Judged) -> None:
        """Add a step, of an episode or of another thread; the same cycle's again replaces it."""
        if episode is not None:
            thread_id = episode.thread
        thread = self.threads.get(thread_id)
        if thread is None:
            thread = Thread(thread_id, session=step.session)
            if episode is not None:
                thread.name, thread.place = episode.episode, episode.place
        self._put(thread)
        place = thread.place
        self._last = step.number = self._last + 1
        former = thread.steps[-1] if thread.steps else None
        if former is not None and former.cycle_id == step.cycle_id:
            thread.steps[-1] = step
        else:
            if place and former is not None and former.is_open and former.key == step.key and is_exact(step.key):
                self._say(thread, former, False, 0.0, "environment", "nothing changed by it", judged)
            thread.steps.append(step)
            self._count(thread, 1)
        for name in (step.cycle_id, step.run_id, thread.name):
            if name:
                self._of[name] = thread_id
        if len(thread.steps) > MOST_OF_THREAD:
            thread.is_cut = True
            gone = thread.steps.pop(0)
            self._count(thread, -1)
            self._of.pop(gone.cycle_id, None)
            self._changed[gone.cycle_id] = None
        self._keep(thread, step)
        while len(self.threads) > MOST_THREADS:
            self._forget(next(iter(max(self._shares.values(), key=lambda share: len(share.threads)).threads)))
        while self._steps > MOST_STEPS:
            self._forget(next(iter(max(self._shares.values(), key=lambda share: share.steps).threads)))

    def begin(self, word: Word, judged: Judged) -> None:
        """An episode goes on at a place; another one that went on there is over without a word."""
        former = self._open.get(word.session, word.place)
        if former is not None and former != word.thread and (thread := self.threads.get(former)) is not None:
            self._end(thread, None, judged)
        self._open.put(word.session, word.place, word.thread)

    def end_run(self, run_id: str, success: bool | None, judged: Judged) -> None:
        """A run has given its answer: its steps are a sequence."""
        thread = self.threads.get(run_id)
        if thread is not None and not thread.is_over:
            thread.is_over = True
            if len(thread.steps) > 1 and not thread.is_cut and success is not None:
                judged.sequences.append((thread, success))
            self._keep(thread)

    # -- what is said of it

    def hear(self, word: Word, judged: Judged, *, is_of_call: bool = False) -> None:
        """Take the word of an environment on what was done in its episode since its last one."""
        thread = self.threads.get(word.thread)
        if thread is None or thread.is_over:
            return
        if not is_of_call and thread.is_told:  # the call itself has said so
            thread.is_told = False
            if not word.is_done:
                return
            word = replace(word, reward=0.0)
        thread.is_told = is_of_call
        thread.total += word.reward
        self._keep(thread)
        if word.is_done:
            success = word.success if word.success is not None else thread.total > 0
            if word.is_cut and not success:
                self._cut(thread)
            else:
                self._end(thread, success, judged)
        elif word.reward > 0:
            self._credit(thread, "environment", "", judged)
        elif word.reward < 0:
            self._blame(thread, "environment", "", judged, only_last=True)

    def judge(self, word: Feedback, judged: Judged) -> bool:
        """Take a word on a run, a cycle or an episode; returns whether anything is known of that."""
        name = self._of.get(word.about, word.about)
        thread = self.threads.get(name)
        judged.feedback.append(word)
        if thread is None:
            return False
        steps = [step for step in thread.steps if word.about in (thread.run_id, step.run_id, step.cycle_id)]
        fresh = [step for step in steps if step.said is not word.success or step.is_open]
        for away, step in enumerate(reversed(steps)):
            if any(step is each for each in fresh):
                share, weight = (RETURN**away, 1.0) if word.success else (0.0, RETURN**away)
                self._try(step, share, weight, judged)
                judged.credits += [Credit(case, word.success) for case in step.cases]
                step.said, step.is_open = word.success, False
                self._keep(thread, step)
        return True

    def _end(self, thread: Thread, success: bool | None, judged: Judged) -> None:
        """An episode is over; None: nothing but its calls has said how."""
        if thread.is_over:
            return
        thread.is_over = True
        if success is None:
            for step in thread.steps:
                if step.is_open:
                    self._say(thread, step, True, 1.0, "environment", "", judged)
        elif success:
            self._credit(thread, "environment", "the episode ended well", judged)
        else:
            self._blame(thread, "environment", "the episode ended badly", judged)
        if len(thread.steps) > 1 and not thread.is_cut and success is not None:
            judged.sequences.append((thread, success))
        self._close(thread)

    def _cut(self, thread: Thread) -> None:
        """An episode was cut short: of the steps that nobody has judged, nobody will."""
        thread.is_over = True
        for step in thread.steps:
            if step.is_open:
                step.is_open = False
                self._keep(thread, step)
        self._close(thread)

    def _close(self, thread: Thread) -> None:
        self._keep(thread)
        self._leave(thread)

    def _credit(self, thread: Thread, by: FeedbackSource, why: str, judged: Judged) -> None:
        for away, step in enumerate(reversed(thread.steps)):
            if step.is_open:
                self._say(thread, step, True, RETURN**away, by, why, judged)

    def _blame(self, thread: Thread, by: FeedbackSource, why: str, judged: Judged, *, only_last: bool = False) -> None:
        """The last step has failed; of those before it nobody knows, only that they led there."""
        for away, step in enumerate(reversed(thread.steps)):
            if not step.is_open or (only_last and away):
                continue
            if away == 0:
                self._say(thread, step, False, 0.0, by, why, judged)
            else:
                self._try(step, 0.0, RETURN**away / 2, judged)
                step.is_open = False
                self._keep(thread, step)

    def _say(self, thread: Thread, step: Step, success: bool, share: float, by: FeedbackSource, why: str,
             judged: Judged) -> None:  # fmt: skip
        self._try(step, share, 1.0, judged)
        judged.credits += [Credit(case, success) for case in step.cases]
        judged.feedback.append(Feedback(step.cycle_id, success, by, safe_line(why, _WHY), share))
        step.said, step.is_open = success, False
        self._keep(thread, step)

    def _try(self, step: Step, share: float, weight: float, judged: Judged) -> None:
        """Each call that ended well is tried anew, with what is known now; one that failed has been counted."""
        for call, task in zip(step.calls, step.tasks, strict=True):
            if call.status == "ok" and call.success is not False:
                judged.trials.append(Trial(call.tool, task, share, call.latency, weight=weight))
        step.calls = [
            replace(call, success=share > 0) if call.status == "ok" and call.success is None and weight == 1 else call
            for call in step.calls
        ]

    # -- what is kept: a row for each step, and one for a thread of which there is more to say

    def changes(self) -> dict[str, Any]:
        """Return the rows to be written, by key, None for one to be deleted; they are not given twice."""
        changed, self._changed = self._changed, {}
        return {key: None if each is None else _row(*each) for key, each in changed.items()}

    def restore(self, rows: Mapping[str, Any]) -> None:
        """Take up the rows that were written, before anything else; what cannot be read is dropped."""
        steps: list[tuple[str, Step]] = []
        for key, row in rows.items():
            try:
                if "step" in row:
                    steps.append((str(row["of"]), msgspec.convert(row["step"], Step)))
                else:
                    self._put(msgspec.convert(row, Thread))
            except (msgspec.ValidationError, KeyError, TypeError):
                self._changed[key] = None
        for name, step in sorted(steps, key=lambda each: each[1].number):
            thread = self.threads.get(name) or Thread(name, session=step.session)
            self._put(thread)
            thread.steps.append(step)
            self._count(thread, 1)
            self._of.update({each: name for each in (step.cycle_id, step.run_id, thread.name) if each})
            self._last = step.number
        for name, thread in self.threads.items():
            if thread.place and not thread.is_over:
                self._open.put(thread.session, thread.place, name)

    def _keep(self, thread: Thread, step: Step | None = None) -> None:
        if step is not None:
            self._changed[step.cycle_id] = thread, step
        if thread.place or thread.is_over or thread.is_cut:
            self._changed[_of_thread(thread.id)] = thread, None

    def _put(self, thread: Thread) -> None:
        """Make a thread the last one, of all and of its session: their order is that of their last step."""
        self.threads.pop(thread.id, None)
        self.threads[thread.id] = thread
        share = self._shares.setdefault(thread.session, Share())
        share.threads.pop(thread.id, None)
        share.threads[thread.id] = None

    def _count(self, thread: Thread, more: int) -> None:
        self._steps += more
        self._shares[thread.session].steps += more

    def _leave(self, thread: Thread) -> None:
        """Note that an episode does not go on where it did."""
        if self._open.get(thread.session, thread.place) == thread.id:
            self._open.pop(thread.session, thread.place)

    def _forget(self, name: str) -> None:
        thread = self.threads.pop(name)
        self._count(thread, -len(thread.steps))
        share = self._shares[thread.session]
        del share.threads[name]
        if not share.threads:
            del self._shares[thread.session]
        for step in thread.steps:
            self._changed[step.cycle_id] = None
            for each in (step.cycle_id, step.run_id, thread.name):
                if self._of.get(each) == name:
                    del self._of[each]
        self._leave(thread)
        self._changed[_of_thread(name)] = None


def _of_thread(name: str) -> str:
    return f"thread {name}"


def _row(thread: Thread, step: Step | None) -> Any:
    if step is None:
        return msgspec.to_builtins(replace(thread, steps=[]))
    return {"of": thread.id, "step": msgspec.to_builtins(step)}


def cases_of(result: ActionResult) -> list[tuple[str, str]]:
    """Return the experiences that decisions of an action went by, each with the id of the call that was decided on."""
    learnt = result.action.learnt if result.action is not None else ()
    found = ((case, each.call_id) for each in learnt if each.is_used and each.call_id for case in each.cases)
    return list(dict.fromkeys(found))[:_MOST_CASES]


def credits_of(result: ActionResult, unsure: Iterable[str]) -> list[Credit]:
    """Return the credit of experiences for calls of which it is known how they went."""
    ended = {item.call.id: item for item in result.results}
    open_ = set(unsure)
    credits = []
    for case, call_id in cases_of(result):
        item = ended.get(call_id)
        if item is not None and call_id not in open_ and item.status in ("ok", "failed", "timeout"):
            credits.append(Credit(case, item.status == "ok"))
    return credits
