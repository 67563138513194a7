"""Judge of a model's answers, for both loops of requests: an answer is used, or the model is asked again and told why.

An answer with a problem, or with an output that does not fit, cannot be used. An output beside which something was
changed or left out (a *remark*) is asked for again once; it is used if the model gives it again. An explicit null
without calls is an answer, but one that does nothing (*idle*): it counts as an empty one. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from msgspec import Struct

from planning.llm.response import ModelResponse
from planning.prompt.prompts import EMPTY, IDLE

#: Most answers in a row that cannot be used and after which the model is asked again. Number of empty answers in a row
#: that ends a run.
MOST_MISFITS: Final = 3
MOST_EMPTY: Final = 2


class Judgement(Struct, frozen=True):
    """Decision about one answer: it is `used`, with its `output` (None: only its calls); or it cannot be used, and the
    model is told `why`, unless that was tried often enough (`is_last`)."""

    kind: Literal["used", "misfit", "empty", "idle"]
    output: Any = None
    why: str = ""
    is_last: bool = False


class AnswerFaults(Struct):
    """Faults of the last answers of one run, and what it remembers of them for its next request.

    `misfits` counts the answers in a row that could not be used, `empty` the empty ones. `notice` is a sentence for the
    next request. `output` is an output that refers to calls which have not ended. `meta` names the newest version of
    the work. `heard` is the number of messages that people had added to the run when the model was last asked.
    `query` is the text by which experiences were last recalled.
    """

    misfits: int = 0
    empty: int = 0
    notice: str = ""
    output: Any = None
    heard: int = 0
    meta: Mapping[str, Any] | None = None
    query: str = ""

    def judge(
        self, response: ModelResponse, output: Any, check: Callable[[Any], tuple[Any, str]], problem: str = "",
        *, is_asked_again: bool = True,
    ) -> Judgement:  # fmt: skip
        """Judge a complete answer, and count it.

        Args: output: that of the answer, None where it is for later; check: returns an output as it is used, and what
            is wrong with it; problem: why the answer cannot be used, besides its own problem; is_asked_again: whether
            the run can ask again.
        """
        problem = response.problem or problem
        if isinstance(output, str) and not output.strip():
            output = None
        if output is not None and not problem:
            output, problem = check(output)
            if output is not None and is_asked_again and not self.misfits:
                problem = response.remark
        if problem:
            self.misfits += 1
            return Judgement("misfit", None, problem, self.misfits > MOST_MISFITS)
        if output is None and not response.calls:
            self.empty += 1
            is_last = self.empty >= MOST_EMPTY
            return (
                Judgement("empty", None, EMPTY, is_last)
                if response.is_empty
                else Judgement("idle", None, IDLE, is_last)
            )
        self.misfits = self.empty = 0
        return Judgement("used", output)
