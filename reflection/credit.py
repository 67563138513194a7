"""Credit that later feedback gives to the calls that it is about; no I/O.

A `Thread` holds the calls of one run, of one episode of an environment, or of one cycle outside both, step by step.
Feedback comes from a person (`Feedback`), from a rule that checks later (`verify`), or from an environment
(`Word`). It gives each step its discounted return. After a success the last step gets full credit,
and a step that is `k` steps earlier gets `RETURN` to the power of `k`. After a failure the last step is blamed fully,
and earlier steps are blamed with decreasing weight. A successful call in an episode, or one that a rule checks later,
counts only when its feedback comes.

An episode succeeded if the sum of its rewards is positive. If an episode was cut short without a positive sum, its
outcome is unknown. A step after which the exact situation is the same has changed nothing and counts as failed. When
an episode ends because the same source starts another one, without feedback, its calls are judged by their own
results.

The steps of a finished thread are stored for a while, so that people can still give feedback on them. Threads are
bounded: the session with the most threads, or the most steps, loses its oldest thread first. So a flood in one session
does not remove the threads of others.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct, field

from spar.data.bounded import SharedDict
from spar.data.learning.abilities import ToolTrial
from spar.data.learning.situations import is_exact
from spar.data.text import safe_line
from spar.decoding import convert
from spar.protocols import ModuleRows
from spar.types import ActionResult, Credit, Experience, Feedback, Perception, TriedCall, Trust, replace

#: Bound of the tools that the line of a sequence names.
_SHOWN = 12


class Step(Struct):
    """Calls of one cycle. `tasks` are the tasks of the calls; `is_open` while no feedback on it has come.

    `said` is the last feedback on it; `cases` are the experiences that its decisions used; `number` orders all steps.
    """

    cycle_id: str
    key: str
    situation: str
    session: str
    trust: Trust
    calls: list[TriedCall]
    tasks: list[str]
    run_id: str = ""
    task: str = ""
    cases: list[str] = field(default_factory=list)
    is_open: bool = False
    said: bool | None = None
    number: int = 0


class Thread(Struct):
    """Steps of one session that belong together. For an episode, `name` is the name that the environment gives it,
    `place` is where it goes on, and `total` is its reward so far."""

    id: str
    place: str = ""
    steps: list[Step] = field(default_factory=list)
    total: float = 0.0
    is_over: bool = False
    is_cut: bool = False
    is_told: bool = False  # the result of a call carried the last reward
    name: str = ""
    session: str = ""

    @property
    def run_id(self) -> str:
        """Return the id that experiences store: that of the run, or the name of the episode."""
        return self.name or self.id


def sequence_of(thread: Thread, success: bool, at: datetime) -> Experience:
    """Return the experience of a whole run or episode: the situation of its first step, and all calls in order."""
    first = thread.steps[0]
    calls = [call for step in thread.steps for call in step.calls]
    names = [call.tool for call in calls]
    shown = " → ".join(names[:_SHOWN]) + (f" → and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
    trust: Trust = "untrusted" if any(step.trust == "untrusted" for step in thread.steps) else "trusted"
    ended = "worked" if success else "did not work"
    outcome = f"{'ok' if success else 'failed'}: {len(calls)} calls in {len(thread.steps)} steps"
    lesson = safe_line(f"for {first.task}: {shown} {ended}" if first.task else f"{shown} {ended}")
    score = min(1.0, max(0.0, thread.total)) if thread.place else float(success)
    return Experience(situation=first.situation, action=safe_line(shown), outcome=outcome, success=success,
                      task=first.task, lesson=lesson, at=at, session=first.session, trust=trust,
                      origin=thread.steps[-1].cycle_id, key=first.key, run_id=thread.run_id, calls=tuple(calls),
                      score=score)  # fmt: skip


#: Factor by which credit falls for each step further away from a success.
RETURN = 0.9
#: Bounds of what is stored: threads, steps of all threads together, steps of one thread.
MOST_THREADS, MOST_STEPS, MOST_OF_THREAD = 500, 1_000, 64
#: Bound of the experiences that one step's decisions used.
_MOST_CASES = 20
_WHY = 200


class Share(Struct):
    """Share of one session in the stored threads: its threads, the one with the oldest last step first, and the number
    of their steps."""

    threads: dict[str, None] = field(default_factory=dict)
    steps: int = 0


class Judged(Struct):
    """Effects of feedback: trials of tools, feedback on cycles, credit for experiences, sequences to remember."""

    trials: list[ToolTrial] = field(default_factory=list)
    feedback: list[Feedback] = field(default_factory=list)
    credits: list[Credit] = field(default_factory=list)
    sequences: list[tuple[Thread, bool]] = field(default_factory=list)


class CreditBook:
    """Threads of one agent, and the changes since the last call of `changes`."""

    def __init__(self) -> None:
        self.threads: dict[str, Thread] = {}
        self._thread_ids: dict[str, str] = {}  # thread ids, by the id of a run, an episode or a cycle
        self._open: SharedDict[str, str] = SharedDict(MOST_THREADS)  # the unfinished episode at each place
        self._shares: dict[str, Share] = {}
        self._steps = self._last = 0
        self._changed: dict[str, tuple[Thread, Step | None] | None] = {}

    # -- steps

    def add(self, thread_id: str, episode: Word | None, step: Step, judged: Judged) -> None:
        """Add a step to an episode or to another thread. A second step of the same cycle replaces the first."""
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
                self._say(thread, former, False, 0.0, "nothing changed by it", judged)
            thread.steps.append(step)
            self._count(thread, 1)
        for name in (step.cycle_id, step.run_id, thread.name):
            if name:
                self._thread_ids[name] = thread_id
        if len(thread.steps) > MOST_OF_THREAD:
            thread.is_cut = True
            gone = thread.steps.pop(0)
            self._count(thread, -1)
            self._thread_ids.pop(gone.cycle_id, None)
            self._changed[gone.cycle_id] = None
        self._keep(thread, step)
        while len(self.threads) > MOST_THREADS:
            self._forget(next(iter(max(self._shares.values(), key=lambda share: len(share.threads)).threads)))
        while self._steps > MOST_STEPS:
            self._forget(next(iter(max(self._shares.values(), key=lambda share: share.steps).threads)))

    def begin(self, word: Word, judged: Judged) -> None:
        """Note that an episode goes on at a place. Another unfinished episode at that place ends without feedback."""
        former = self._open.get(word.session, word.place)
        if former is not None and former != word.thread and (thread := self.threads.get(former)) is not None:
            self._end(thread, None, judged)
        self._open.put(word.session, word.place, word.thread)

    def end_run(self, run_id: str, success: bool | None, judged: Judged) -> None:
        """Note that a run has given its answer: its steps become a sequence."""
        thread = self.threads.get(run_id)
        if thread is not None and not thread.is_over:
            self._close(thread, success, judged)

    # -- feedback

    def hear(self, word: Word, judged: Judged, *, is_of_call: bool = False) -> None:
        """Apply the feedback of an environment to the steps of its episode since the last feedback.

        Args: is_of_call: whether a call's result carried it; the next perception then repeats the reward, and is not
        counted.
        """
        thread = self.threads.get(word.thread)
        if thread is None or thread.is_over:
            return
        if not is_of_call and thread.is_told:  # the result of the call carried this reward already
            thread.is_told = False
            if not word.is_done:
                return
            word = replace(word, reward=0.0)
        thread.is_told = is_of_call
        thread.total += word.reward
        self._keep(thread)
        if word.is_done:
            success = word.success if word.success is not None else thread.total > 0
            if not word.is_cut or success:
                self._end(thread, success, judged)
                return
            for step in thread.steps:  # the open steps of an episode that was cut short stay without judgement
                if step.is_open:
                    self._settle(thread, step)
            self._close(thread, None, judged)
        elif word.reward > 0:
            self._judge_open(thread, True, "", judged)
        elif word.reward < 0:
            self._judge_open(thread, False, "", judged, only_last=True)

    def judge(self, word: Feedback, judged: Judged) -> bool:
        """Apply feedback on a run, a cycle or an episode; return whether a thread of it is stored."""
        name = self._thread_ids.get(word.about, word.about)
        thread = self.threads.get(name)
        judged.feedback.append(word)
        if thread is None:
            return False
        steps = [step for step in thread.steps if word.about in (thread.run_id, step.run_id, step.cycle_id)]
        for away, step in enumerate(reversed(steps)):
            if step.said is not word.success or step.is_open:
                success_share, weight = (RETURN**away, 1.0) if word.success else (0.0, RETURN**away)
                self._try(step, success_share, weight, judged)
                judged.credits += [Credit(case, word.success) for case in step.cases]
                step.said = word.success
                self._settle(thread, step)
        return True

    def _end(self, thread: Thread, success: bool | None, judged: Judged) -> None:
        """End an episode. With `success` None, only the results of its calls say how they went."""
        if not thread.is_over:
            why = "" if success is None else f"the episode ended {'well' if success else 'badly'}"
            self._judge_open(thread, success is not False, why, judged, fading=1.0 if success is None else RETURN)
            self._close(thread, success, judged)

    def _close(self, thread: Thread, success: bool | None, judged: Judged) -> None:
        """End a thread; several steps whose success is known become a sequence."""
        thread.is_over = True
        if len(thread.steps) > 1 and not thread.is_cut and success is not None:
            judged.sequences.append((thread, success))
        self._keep(thread)
        self._leave(thread)

    def _judge_open(self, thread: Thread, success: bool, why: str, judged: Judged, *, fading: float = RETURN,
                    only_last: bool = False) -> None:  # fmt: skip
        """Judge the open steps, the last one first. The steps before one that failed led there, so they get a failed
        trial of lower weight."""
        for away, step in enumerate(reversed(thread.steps)):
            if not step.is_open or (only_last and away):
                continue
            if success or not away:
                self._say(thread, step, success, fading**away if success else 0.0, why, judged)
            else:
                self._try(step, 0.0, fading**away / 2, judged)
                self._settle(thread, step)

    def _say(self, thread: Thread, step: Step, success: bool, share: float, why: str, judged: Judged) -> None:
        self._try(step, share, 1.0, judged)
        judged.credits += [Credit(case, success) for case in step.cases]
        judged.feedback.append(Feedback(step.cycle_id, success, "environment", safe_line(why, _WHY), share))
        step.said = success
        self._settle(thread, step)

    def _settle(self, thread: Thread, step: Step) -> None:
        """Note that a step waits for no feedback any more."""
        step.is_open = False
        self._keep(thread, step)

    def _try(self, step: Step, share: float, weight: float, judged: Judged) -> None:
        """Add a trial for each successful call, with the share that is now known; a failed call was counted before."""
        for call, task in zip(step.calls, step.tasks, strict=True):
            if call.status == "ok" and call.success is not False:
                judged.trials.append(ToolTrial(call.tool, task, share, call.latency, weight=weight))
        step.calls = [
            replace(call, success=share > 0) if call.status == "ok" and call.success is None and weight == 1 else call
            for call in step.calls
        ]

    # -- rows: one for each step, and one for each thread that has more than its steps

    def changes(self) -> dict[str, Any]:
        """Return the rows that changed since the last call, by key; None for a row to delete."""
        changed, self._changed = self._changed, {}
        return {key: None if entry is None else _row(*entry) for key, entry in changed.items()}

    def write(self, rows: ModuleRows | None, cycle_id: str) -> None:
        """Write the changes, in the transaction of a cycle. Args: rows: None: nowhere."""
        if rows is None:
            self._changed.clear()
            return
        for key, row in self.changes().items():
            if row is None:
                rows.drop(key, cycle_id=cycle_id)
            else:
                rows.keep(key, row, cycle_id=cycle_id)

    def restore(self, rows: Mapping[str, Any]) -> None:
        """Load the stored rows, before anything else; rows that cannot be read are deleted."""
        steps: list[tuple[str, Step]] = []
        for key, row in rows.items():
            try:
                if "step" in row:
                    steps.append((str(row["of"]), convert(row["step"], Step)))
                else:
                    self._put(convert(row, Thread))
            except (msgspec.ValidationError, KeyError, TypeError):
                self._changed[key] = None
        for name, step in sorted(steps, key=lambda pair: pair[1].number):
            thread = self.threads.get(name) or Thread(name, session=step.session)
            self._put(thread)
            thread.steps.append(step)
            self._count(thread, 1)
            self._thread_ids.update({alias: name for alias in (step.cycle_id, step.run_id, thread.name) if alias})
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
        """Move a thread to the end of all threads and of its session's: the order is that of the last steps."""
        self.threads.pop(thread.id, None)
        self.threads[thread.id] = thread
        share = self._shares.setdefault(thread.session, Share())
        share.threads.pop(thread.id, None)
        share.threads[thread.id] = None

    def _count(self, thread: Thread, more: int) -> None:
        self._steps += more
        self._shares[thread.session].steps += more

    def _leave(self, thread: Thread) -> None:
        """Note that an episode no longer goes on at its place."""
        if self._open.get(thread.session, thread.place) == thread.id:
            self._open.pop(thread.session, thread.place)

    def forget(self, session: str) -> None:
        """Drop the threads of a session."""
        for name in list(self._shares.get(session, Share()).threads):
            self._forget(name)

    def _forget(self, name: str) -> None:
        thread = self.threads.pop(name)
        self._count(thread, -len(thread.steps))
        share = self._shares[thread.session]
        del share.threads[name]
        if not share.threads:
            del self._shares[thread.session]
        for step in thread.steps:
            self._changed[step.cycle_id] = None
            for alias in (step.cycle_id, step.run_id, thread.name):
                if self._thread_ids.get(alias) == name:
                    del self._thread_ids[alias]
        self._leave(thread)
        self._changed[_of_thread(name)] = None


def _of_thread(name: str) -> str:
    return f"thread {name}"


def _row(thread: Thread, step: Step | None) -> Any:
    if step is None:
        return msgspec.to_builtins(replace(thread, steps=[]))
    return {"of": thread.id, "step": msgspec.to_builtins(step)}


def cases_of(result: ActionResult) -> list[tuple[str, str]]:
    """Return the experiences that decisions of an action used, each with the id of the call that was decided on."""
    learnt = result.action.learnt if result.action is not None else ()
    if not learnt:
        return []
    used = ((case, decision.call_id) for decision in learnt if decision.is_used and decision.call_id
            for case in decision.cases)  # fmt: skip
    return list(dict.fromkeys(used))[:_MOST_CASES]


def credits_of(result: ActionResult, cases: Sequence[tuple[str, str]], unsure: Container[str]) -> list[Credit]:
    """Return the credit of experiences (`cases_of`) for calls whose result is known; `unsure` are the ids of the other
    calls."""
    ended = {item.call.id: item.status for item in result.results if item.status in ("ok", "failed", "timeout")}
    return [Credit(case, ended[id] == "ok") for case, id in cases if id in ended and id not in unsure]


# -- what environments say

#: Characters of the name of an episode.
_LONGEST_NAME = 120
#: Parts of a perception that are searched for feedback.
_MOST_EVIDENCE = 50


class Word(Struct, frozen=True):
    """Feedback of an environment in a session, from one perception or one result.

    The trusted perceptions of an environment carry `episode`, a name; `reward`, a number for the actions since the last
    perception; `done`, true once the episode is over; perhaps `success`; and `cut` beside `done` when the episode was
    cut short, for example by a limit of steps. A tool of the environment may report the same at once, by returning a
    table with `reward` and `done`.
    """

    episode: str
    session: str
    source: str
    reward: float
    is_done: bool
    success: bool | None = None
    is_cut: bool = False

    @property
    def place(self) -> str:
        """Return the name of the place where the episode goes on."""
        return f"{self.session} {self.source}"

    @property
    def thread(self) -> str:
        """Return the id of the episode's thread; it holds the place, because another place may have an episode of the
        same name."""
        return f"{self.episode} at {self.place}"


def words_in(perceptions: Iterable[Perception], session: str) -> Iterator[Word]:
    """Yield the feedback of environments in trusted perceptions and in the parts that they were fused from."""
    for perception in perceptions:
        if perception.attributes and (word := _word_of(perception, session)) is not None:
            yield word
        for part in perception.evidence[:_MOST_EVIDENCE]:
            if part.id != perception.id and (word := _word_of(part, session)) is not None:
                yield word


def word_of_calls(result: ActionResult, episode: Word) -> Word | None:
    """Return the feedback on an episode that the results of an environment's tools carry; None when they carry none."""
    outputs = [item.output for item in result.results if item.status == "ok" and isinstance(item.output, Mapping)]
    outputs = [output for output in outputs if "reward" in output and "done" in output]
    if not outputs:
        return None
    is_done, is_cut = (any(output.get(name) is True for output in outputs) for name in ("done", "cut"))
    reward = sum(_number(output["reward"]) for output in outputs)
    return replace(episode, reward=reward, is_done=is_done, success=None, is_cut=is_cut)


def _word_of(perception: Perception, session: str) -> Word | None:
    attributes = perception.attributes
    name = attributes.get("episode")
    if perception.trust != "trusted" or not isinstance(name, str) or not name or len(name) > _LONGEST_NAME:
        return None
    success = attributes.get("success")
    return Word(name, session, perception.source, _number(attributes.get("reward")), attributes.get("done") is True,
                success if isinstance(success, bool) else None, attributes.get("cut") is True)  # fmt: skip


def _number(value: object) -> float:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) else 0.0  # type: ignore[arg-type]
