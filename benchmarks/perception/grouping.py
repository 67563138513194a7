"""Grouping of log lines: which lines are of one event, on 2,000 lines of each of loghub's 16 systems.

Grouping accuracy: the share of lines whose group holds all lines of their event and no others (Zhu et al., "Tools and
Benchmarks for Automated Log Parsing", ICSE-SEIP 2019).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.perception import streams
from benchmarks.perception.quality import Quality
from perception.stages.templates.masking import words_of_line
from perception.stages.templates.tree import TemplateTree, standing

Lines = Sequence[str]
Groups = list[object]


def measure(data: Path) -> list[Quality]:
    """Raises: MissingDataError."""
    names = streams.systems(data)
    lines, events = {}, {}
    for name in names:
        pairs = streams.events(data, name)
        lines[name], events[name] = [content for content, _ in pairs], [event for _, event in pairs]
    raw = {name: streams.raw_lines(data, name) for name in names}

    def mean(group: Callable[[Lines], Groups], of: dict[str, list[str]], among: Sequence[str]) -> float:
        return sum(accuracy(group(of[name]), events[name]) for name in among) / len(among)

    drain = mean(_drain3, lines, names)
    return [
        Quality("log grouping accuracy, 16 systems", mean(_in_the_end, lines, names), 0.75, 0.85, drain, "Drain3",
                "content of the lines, as the paper has it"),
        Quality("the same, systems 2, 4, 6 … (held out)", mean(_in_the_end, lines, names[1::2]), 0.75, 0.85,
                mean(_drain3, lines, names[1::2]), "Drain3", "values of a word until it varies: chosen on 1, 3, 5 …"),
        Quality("the same, each line as it comes", mean(_at_once, lines, names), None, None, drain, "Drain3",
                "before later lines have shown which word varies"),
        Quality("the same, lines with their headers", mean(_in_the_end, raw, names), None, None,
                mean(_drain3, raw, names), "Drain3", "time, host, program and level stand in the line"),
    ]  # fmt: skip


def accuracy(groups: Sequence[object], events: Sequence[str]) -> float:
    """Return the grouping accuracy 0..1."""
    sizes, of_event, both = Counter(groups), Counter(events), Counter(zip(groups, events, strict=True))
    right = sum(count for (group, event), count in both.items() if count == sizes[group] == of_event[event])
    return right / len(events)


def _in_the_end(lines: Lines) -> Groups:
    tree = TemplateTree(5_000)
    return [standing(template) for template in [tree.find((), words_of_line(line))[0] for line in lines]]


def _at_once(lines: Lines) -> Groups:
    tree = TemplateTree(5_000)
    return [tree.find((), words_of_line(line))[0].id for line in lines]


def _drain3(lines: Lines) -> Groups:
    from drain3.drain import Drain

    drain = Drain(sim_th=0.4)
    return [drain.add_log_message(line)[0].cluster_id for line in lines]
