"""Credit and feedback: counts which experiences helped or harmed, and changes experiences when feedback comes later.

The writer's thread calls these functions inside the transaction of a cycle's end. Their work is proportional to the
number of credits and feedbacks. Id, run and cycle of a merged experience are kept for a while (`experience_source`):
feedback on one of several merged experiences takes that one out of their row, as it is not like the others any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from memory.codec import decode, moment, safe
from memory.experiences import rows
from spar.checks import problem_of
from spar.data.scrub import mask
from spar.data.text import safe_line
from spar.errors import ContractError
from spar.failpoints import crashpoint
from spar.types import Credit, Experience, Feedback, replace

if TYPE_CHECKING:
    from memory.engine.connection import Connection

#: Most experiences that one feedback on a run or a cycle changes.
MOST_CHANGED = 1_000

_CREDIT = "UPDATE experience SET helped = helped + ?, harmed = harmed + ? WHERE seq = ({})"
_BY_ID = _CREDIT.format("SELECT seq FROM experience WHERE id = ?")
_BY_SOURCE = _CREDIT.format("SELECT experience FROM experience_source WHERE id = ?")
#: Find the experiences that a feedback is about: the first of a row, and those that were merged into a row.
_FIRSTS = (
    "SELECT seq FROM experience WHERE id = ?1 OR (run = ?1 AND run <> '') OR (cycle = ?1 AND cycle <> '') LIMIT ?2"
)
_MERGED = "SELECT experience, id, at FROM experience_source WHERE id = ?1 OR run = ?1 OR cycle = ?1 LIMIT ?2"


W = TypeVar("W", Credit, Feedback)


def checked(words: Iterable[W]) -> tuple[W, ...]:
    """Return the credits or feedbacks if all are valid. Raises: ContractError naming the problem."""
    judgements = tuple(words)
    for word in judgements:
        if problem := problem_of(word):
            raise ContractError(f"it cannot be taken as it is: {problem}")
    return judgements


def count(connection: Connection, credits: Sequence[Credit]) -> None:
    """Count whether experiences helped or harmed a decision. Experiences that do not exist any more are ignored."""
    for credit in credits:
        given = int(credit.has_helped), int(not credit.has_helped), safe(credit.experience_id)
        connection.execute(_BY_ID, given)
        if not connection.changes():
            connection.execute(_BY_SOURCE, given)
    crashpoint("memory.credit")


def take(connection: Connection, feedbacks: Sequence[Feedback]) -> int:
    """Apply feedback to the experiences that it is about. Return the number of changed experiences."""
    changed = 0
    for feedback in feedbacks:
        about = safe(feedback.about)
        if not about:
            continue
        merged = list(connection.execute(_MERGED, (about, MOST_CHANGED)))
        firsts = list(connection.execute(_FIRSTS, (about, MOST_CHANGED)))
        for seq, id, at in merged:
            changed += _judge_one_of(connection, int(str(seq)), str(id), float(str(at)), feedback)
        for (seq,) in firsts:
            changed += _judge(connection, int(str(seq)), feedback)
        crashpoint("memory.feedback")
    return changed


def _judge(connection: Connection, seq: int, feedback: Feedback) -> bool:
    """Apply feedback to the first experience of a row. If others are merged with it, it gets a row of its own."""
    if (row := _row(connection, seq, feedback)) is None:
        return False
    experience, judged, apart = row
    if experience.count == 1:
        _put(connection, seq, judged, apart)
        return True
    heir = connection.execute(
        "SELECT id, run, cycle, at FROM experience_source WHERE experience = ? ORDER BY at LIMIT 1", (seq,)
    ).fetchone()
    if heir is None:  # the others have no known ids: the feedback changes all of them
        _put(connection, seq, judged, apart)
        return True
    connection.execute("DELETE FROM experience_source WHERE id = ?", (heir[0],))
    connection.execute(
        "UPDATE experience SET id = ?, run = ?, cycle = ?, count = count - 1, first_at = ? WHERE seq = ?", (*heir, seq)
    )
    first_at = experience.first_at or experience.at
    _add(connection, replace(judged, count=1, helped=0, harmed=0, at=first_at, first_at=None), apart)
    return True


def _judge_one_of(connection: Connection, seq: int, id: str, at: float, feedback: Feedback) -> bool:
    """Take one of several merged experiences out of their row, as its result was another one."""
    row = _row(connection, seq, feedback)
    source = connection.execute("SELECT run, cycle FROM experience_source WHERE id = ?", (id,)).fetchone()
    if row is None or source is None:
        return False
    _, judged, apart = row
    connection.execute("DELETE FROM experience_source WHERE id = ?", (id,))
    connection.execute(
        "UPDATE experience SET count = CASE WHEN count > 1 THEN count - 1 ELSE 1 END WHERE seq = ?", (seq,)
    )
    run, cycle = map(str, source)
    one = replace(judged, id=id, run_id=run, origin=cycle, at=moment(at), count=1, first_at=None, helped=0,
                  harmed=0)  # fmt: skip
    _add(connection, one, apart)
    return True


def _judged(experience: Experience, feedback: Feedback) -> Experience:
    """Return an experience with the result that the feedback says."""
    score = feedback.score if feedback.score is not None else float(feedback.success)
    why = safe_line(mask(feedback.why))
    cause = experience.cause if feedback.success or not why else f"{_SAID[feedback.by]}: {why}"
    lesson = experience.lesson
    if lesson and not feedback.success and experience.success is not False:  # the lesson was that this works
        reason = cause if why else _SAID[feedback.by].replace(" says", " said so")
        lesson = f"for {experience.task or 'this'}: {experience.action} did not work: {reason}"
    return replace(experience, success=feedback.success, score=score, cause=cause, lesson=lesson)


_SAID = {
    "expect": "what was expected did not hold",
    "verify": "it did not last",
    "person": "a person says",
    "environment": "the environment says",
}


def _row(connection: Connection, seq: int, feedback: Feedback) -> tuple[Experience, Experience, str] | None:
    """Return the experience of a row, as it is and as the feedback judges it, and the origin that keeps it apart from
    similar ones; None if the feedback changes nothing, or the row is unreadable."""
    row = connection.execute(f"SELECT {rows.SHOWN}, digest FROM experience WHERE seq = ?", (seq,)).fetchone()
    if row is None:
        return None
    *columns, digest = row
    try:
        experience: Any = rows.shown(columns)
        body = decode(str(columns[2]), Experience)
    except (ValueError, RecursionError):
        return None
    apart = "" if rows.encoded_row(replace(body, success=experience.success)).digest == digest else rows.IMPORTED
    experience = replace(experience, id=str(columns[1]))
    judged = _judged(experience, feedback)
    return None if judged == experience else (experience, judged, apart)


def _put(connection: Connection, seq: int, judged: Experience, apart: str) -> None:
    """Write a row again. If it is now like another row, it is merged into that."""
    item = rows.encoded_row(judged, apart)
    other = None if item.digest is None else rows.alike_of(connection, item.digest)
    if other is not None and other != seq:
        connection.execute("DELETE FROM experience WHERE seq = ?", (seq,))
        rows.insert(connection, (item,))
        return
    rows.rewrite(connection, seq, item)


def _add(connection: Connection, judged: Experience, apart: str) -> None:
    rows.insert(connection, (rows.encoded_row(judged, apart),))
