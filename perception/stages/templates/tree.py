"""Known templates of log lines: found by their words, merged where one word varies.

A line is identified by its words without those that vary by their form (`masking`). Lines that differ in one word only
belong to one template once that word has had `VARIANTS` values, unless it describes a state ("opened", "failed"). This
replaces the similarity threshold of Drain (He et al., "Drain: An Online Log Parsing Approach with Fixed Depth Tree",
ICWS 2017), which merges lines that differ in half of their words. Everything is bounded: the least recently used
template of the source with the most templates is forgotten first, and counted. A known line costs one look-up, a new
one as many as it has words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from perception.stages.templates.masking import VARIES, Words
from perception.stages.wording import TELLING
from spar.data.bounded import SharedDict

VARIANTS = 4  # values of a word from which it varies
STATIC = 2  # words of a template that never vary, at least
LINES = 8  # distinct lines remembered for each stored template
PLACES = 32  # words that may vary, remembered for each stored template

_TELLING = frozenset(word.decode() for word in TELLING)
_PUNCTUATION = ".,:;!?()[]{}<>\"'="

Scope = tuple[str, ...]


class Template:
    """One kind of line: its words and its counts.

    `first_at` is the time of its first line (None: not known). `told_at` is the time of the line that was last reported
    (seconds since 1970), `told_id` the id of that perception, and `hidden` the number of lines since then. `minute` and
    `in_minute` count for its rate. `into` is the template that it was merged into.
    """

    __slots__ = (
        "count", "example", "first_at", "hidden", "id", "in_minute", "into", "is_gone", "minute", "scope", "told_at",
        "told_id", "words",
    )  # fmt: skip

    def __init__(self, template_id: int, scope: Scope, words: Words, example: str = "") -> None:
        self.id, self.scope, self.words, self.example = template_id, scope, words, example
        self.count = self.hidden = self.in_minute = 0
        self.minute: int | None = None
        self.told_at: float | None = None
        self.first_at: float | None = None
        self.told_id = ""
        self.into: Template | None = None
        self.is_gone = False

    def add(self, other: Template) -> None:
        """Add the counts of a template that was merged into this one."""
        first = [other.first_at, *([self.first_at] if self.count else [])]
        self.first_at = None if None in first else min(at for at in first if at is not None)
        self.count += other.count
        self.hidden += other.hidden
        self.example = self.example or other.example
        if other.told_at is not None and (self.told_at is None or other.told_at > self.told_at):
            self.told_at, self.told_id = other.told_at, other.told_id
        if other.minute is not None:
            if self.minute is None or other.minute > self.minute:
                self.minute, self.in_minute = other.minute, other.in_minute
            elif other.minute == self.minute:
                self.in_minute += other.in_minute

    def row(self) -> list[Any]:
        """Return the state as a JSON-able row."""
        scope = [_plain(word) for word in self.scope]
        counts = [self.count, self.hidden, self.minute, self.in_minute, self.told_at]
        return [scope, list(self.words), counts, self.told_id, _plain(self.example), self.first_at]

    @staticmethod
    def read(key: str, row: Any) -> Template | None:
        """Return the template of a row; None for a row that cannot be read."""
        try:
            scope, words, (count, hidden, minute, in_minute, told_at), told_id, example, *more = row
            template = Template(int(key), tuple(map(str, scope)), tuple(map(str, words)), str(example))
            template.count, template.hidden, template.in_minute = int(count), int(hidden), int(in_minute)
            template.minute = None if minute is None else int(minute)
            template.told_at = None if told_at is None else float(told_at)
            template.first_at = float(more[0]) if more and more[0] is not None else None
        except (TypeError, ValueError):
            return None
        template.told_id = str(told_id)
        return template


class TemplateTree:
    """At most `most` templates. `changed` holds those whose row is not written yet, by number; None for a merged or
    forgotten one. `evicted` counts the forgotten ones."""

    def __init__(self, most: int) -> None:
        self.templates: SharedDict[int, Template] = SharedDict(most)
        self._of_line: SharedDict[int, Template] = SharedDict(LINES * most)
        self._variants: SharedDict[int, list[Template]] = SharedDict(PLACES * most)
        self._next = 1
        self.changed: dict[int, Template | None] = {}
        self.evicted = 0

    def shed(self) -> int:
        """Forget the older half to free memory, and return their number."""
        older = self.templates.shed()
        for template in older:
            self._evict(template)
        return len(older)

    def find(self, scope: Scope, words: Words) -> tuple[Template, bool]:
        """Return the template of a line, and whether it is new."""
        mark = hash((scope, words))
        known = self._of_line.get(owner_of(scope), mark)
        if known is not None and (template := standing(known)) is not None:
            return template, False
        return self._learn(scope, words, mark)

    def use(self, template: Template) -> None:
        """Note that a template is in use; the least recently used one is forgotten first."""
        self.templates.use(owner_of(template.scope), template.id)

    def restore(self, rows: Mapping[str, Any]) -> None:
        """Load the stored rows in the order in which the templates were learnt; one that cannot be read is left out."""
        templates = (template for key, row in rows.items() if (template := Template.read(key, row)) is not None)
        for template in sorted(templates, key=lambda template: template.id):
            self._next = max(self._next, template.id + 1)
            self._add(template, hash((template.scope, template.words)))
            for _ in self._places(template):
                pass

    def _learn(self, scope: Scope, words: Words, mark: int) -> tuple[Template, bool]:
        template = Template(self._next, scope, words)
        wider = next(self._wider(template), None)
        if wider is not None:
            self._of_line.put(owner_of(scope), mark, wider)
            return wider, False
        self._next += 1
        self._add(template, mark)
        result, is_new = template, True
        widened: Template | None = template
        while widened is not None:
            widened = next((wide for group in self._places(widened) if (wide := self._widen(*group))), None)
            if widened is not None:
                result, is_new = widened, False
        return result, is_new

    def _add(self, template: Template, mark: int) -> None:
        owner = owner_of(template.scope)
        self._of_line.put(owner, mark, template)
        if (gone := self.templates.put(owner, template.id, template)) is not None:
            self._evict(gone)

    def _evict(self, template: Template) -> None:
        template.is_gone = True
        self.changed[template.id] = None
        self.evicted += 1

    def _wider(self, template: Template) -> Iterator[Template]:
        """Yield the templates with these words, except for one word that varies."""
        words = template.words
        for place in _places_of(words):
            mark = hash((template.scope, _without(words, place)))
            known = self._of_line.get(owner_of(template.scope), mark)
            if known is not None and (wider := standing(known)) is not None:
                yield wider

    def _places(self, template: Template) -> Iterator[tuple[Words, list[Template]]]:
        """Index a template under each word that may vary; yield the wider words that now have enough variants."""
        words, owner = template.words, owner_of(template.scope)
        for place in _places_of(words):
            wider = _without(words, place)
            mark = hash((template.scope, wider, place))
            known = self._variants.get(owner, mark) or []
            variants = [other for other in known if not other.is_gone and other.into is None and other is not template]
            variants.append(template)
            if len(variants) >= VARIANTS:
                self._variants.pop(owner, mark)
                yield wider, variants
                return
            self._variants.put(owner, mark, variants)

    def _widen(self, words: Words, variants: list[Template]) -> Template:
        """Replace the variants by a wider template."""
        scope = variants[0].scope
        mark = hash((scope, words))
        known = self._of_line.get(owner_of(scope), mark)
        wide = None if known is None else standing(known)
        if wide is None:
            wide = Template(self._next, scope, words)
            self._next += 1
        for variant in variants:
            if variant is wide:
                continue
            wide.add(variant)
            variant.into = wide
            self.templates.pop(owner_of(scope), variant.id)
            self.changed[variant.id] = None
        self._add(wide, mark)
        return wide


def _plain(text: str) -> str:
    # A lone surrogate in an untrusted line cannot be written.
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def owner_of(scope: Scope) -> str:
    """Return the owner of the templates of a scope, which is the source."""
    return scope[2] if len(scope) > 2 else ""


def standing(template: Template) -> Template | None:
    """Return the template that replaces this one now; None if it was forgotten."""
    while template.into is not None:
        if template.into.into is not None:
            template.into = template.into.into
        template = template.into
    return None if template.is_gone else template


def _places_of(words: Words) -> Iterator[int]:
    """Yield the positions of the words that may vary."""
    if len(words) - words.count(VARIES) <= STATIC:
        return
    for place, word in enumerate(words):
        if word != VARIES and word.strip(_PUNCTUATION).lower() not in _TELLING:
            yield place


def _without(words: Words, place: int) -> Words:
    return (*words[:place], VARIES, *words[place + 1 :])
