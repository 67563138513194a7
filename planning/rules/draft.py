"""Draft of a plan by rules: what the rules decided and what went wrong, which become one action; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec import Struct, field

from planning.dataflow import colliding
from planning.rules.firing import Firing
from spar.types import Action, Call, Learnt, Perception, replace

#: Characters of the reason of an action, and of an error in it.
REASON_LIMIT = 2_000
_ERROR_LIMIT = 200


class Draft(Struct):
    """Draft of one plan.

    `firings` are the decisions of the rules, in order; `troubles` are sentences for the reason; `request` counts the
    requests of a run from 1.
    """

    request: int = 1
    firings: list[Firing] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)

    def tell(self, trouble: str) -> None:
        """Add a sentence about something that went wrong, once."""
        if trouble not in self.troubles:
            self.troubles.append(trouble)

    def action(self, perceptions: Sequence[Perception]) -> Action | None:
        """Return one action, or None when no rule asks for anything and nothing went wrong."""
        answers = [firing.answer for firing in self.firings if firing.answer is not None]
        texts = [answer.text for answer in answers if answer.text is not None]
        looks = [look for firing in self.firings for look in (firing.rule.next_look, firing.look) if look is not None]
        learnt = tuple(change for firing in self.firings for change in firing.learnt)
        calls = tuple(self._calls())
        reason = self._reason()
        goal = next((firing.goal for firing in self.firings if firing.goal), "")
        left_out = any(firing.left_out for firing in self.firings)
        if not (calls or answers or looks or goal or left_out or self.troubles):
            return None
        return Action(
            calls=calls,
            goal=goal,
            perceptions=tuple(perceptions),
            reason=reason,
            output="\n".join(texts) if texts else None,
            next_look=min(looks, default=None),
            trust="trusted",
            answers=tuple(answers) if calls else (),
            learnt=learnt,
        )

    def _calls(self) -> Iterator[Call]:
        """Yield the calls in order. Firings that write the same places get an instance each: none reads another's
        results.

        All calls of a firing are of its instance, so what one reads there is what the other one wrote. The data of a
        run lasts: its later requests name their instances differently, or they would find what the earlier ones left.
        """
        apart = colliding([firing.writes for firing in self.firings])
        request = "" if self.request == 1 else f"{self.request}."
        for number, firing in enumerate(self.firings):
            if number in apart:
                instance = f"{firing.rule.name}#{request}{number}"
                yield from (replace(call, instance=instance) for call in firing.calls)
            else:
                yield from firing.calls

    def _reason(self) -> str:
        used = Counter(firing.rule.name for firing in self.firings)
        sentences = [f"rule {name!r} matched" + (f" {n} times" if n > 1 else "") for name, n in used.items()]
        wrong = [*(text for firing in self.firings for text in firing.left_out), *self.troubles]
        learnt = [_learnt_sentence(change) for firing in self.firings for change in firing.learnt]
        # The sentences about what went wrong come first: they must not be what is cut off.
        reason = "; ".join([*wrong, *sentences, *learnt])
        return reason if len(reason) <= REASON_LIMIT else f"{reason[: REASON_LIMIT - 1]}…"


def _learnt_sentence(learnt: Learnt) -> str:
    """Return a decision that memory changed as a sentence."""
    instead = f" instead of {learnt.instead_of}" if learnt.instead_of else ""
    return f"{'by memory' if learnt.is_used else 'memory would have decided'}{instead}: {learnt.why}"


def sentence_of(error: Exception) -> str:
    """Return the message of an error, cut to a length that a reason can hold."""
    text = str(error.args[0] if error.args else type(error).__name__)
    return text if len(text) <= _ERROR_LIMIT else f"{text[:_ERROR_LIMIT]}…"
