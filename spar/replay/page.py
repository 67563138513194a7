"""Page of HTML about a backtest, with one picture and no program: it can be mailed and opened anywhere."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final

from spar.data.text import one_line

#: Size of the picture, and the most days (or groups of days) in it.
_WIDTH, _HEIGHT, _MOST_BARS = 880, 160, 62
#: Rows of a table, and characters of a value.
_MOST_ROWS, _ROOM = 200, 300
_COLOURS: Final = (("the same", "#4a7"), ("differ", "#d63"), ("unknown", "#bbb"))
_STYLE: Final = """body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 900px; padding: 0 1em }
table { border-collapse: collapse; width: 100%; margin: 1em 0 } td, th { padding: .3em .6em; text-align: left;
border-bottom: 1px solid #8884; vertical-align: top } td.n, th.n { text-align: right } code { font-size: 13px;
overflow-wrap: anywhere } svg { width: 100%; height: auto } :root { color-scheme: light dark }"""


def page_of(answer: Mapping[str, Any]) -> str:
    """Return the page. Args: answer: that of the command, as JSON values."""
    numbers = {"cycles": answer["cycles"], "the same": answer["same"], "differ": answer["differs"],
               "unknown": sum(answer["unknown"].values())}  # fmt: skip
    numbers |= {f"calls {name}": number for name, number in answer["calls"].items()}
    twice = {"questions to people": "asked", "calls denied": "denied", "calls that met a budget": "refused"}
    firsts = [(one, one["first"]) for one in answer["disagreements"]]
    parts = [
        f"<h1>Backtest of {escape(answer['configuration'])}</h1>",
        f"<p>{escape(answer['about'])}</p>",
        _picture(answer["days"]),
        _table(("", ">number"), numbers.items()),
        _table(("", ">as recorded", ">as decided now"),
               [(name, answer[key]["recorded"], answer[key]["now"]) for name, key in twice.items()]),
        "<h2>Disagreements</h2>",
        _table((">times", "what", "first in cycle", "recorded", "now"),
               [(one["count"], one["what"], first["cycle_id"], first["recorded"], first["now"])
                for one, first in firsts]),
        *(_table((name[:-1], ">added", ">saved", ">changed"),
                 [(label, of["added"], of["saved"], of["changed"]) for label, of in answer[name].items()])
          for name in ("rules", "tools")),
        _table(("session", ">cycles", ">differ"),
               [(label, of["cycles"], of["differ"]) for label, of in answer["sessions"].items()]),
    ]  # fmt: skip
    if answer["unknown"]:
        parts.append(_table((">cycles", "not decided again, because"), [
            (number, why) for why, number in answer["unknown"].items()
        ]))  # fmt: skip
    title = f"Backtest of {escape(answer['configuration'])}"
    return (f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>\n'
            f"{''.join(parts)}\n</html>\n")  # fmt: skip


def _picture(days: Mapping[str, Sequence[int]]) -> str:
    """Return the picture: a bar for each day, or group of days, of cycles that are the same, differ, are unknown."""
    names = sorted(days)
    size = -(-len(names) // _MOST_BARS) or 1
    groups = [names[start : start + size] for start in range(0, len(names), size)]
    sums = [[sum(days[name][part] for name in group) for part in range(3)] for group in groups]
    most = max(map(sum, sums), default=0) or 1
    width, bars = _WIDTH / max(len(groups), 1), list[str]()
    for place, (group, counts) in enumerate(zip(groups, sums, strict=True)):
        top = float(_HEIGHT)
        label = f"{group[0]}: " + ", ".join(
            f"{count} {name}" for count, (name, _) in zip(counts, _COLOURS, strict=True)
        )
        for count, (_, colour) in zip(counts, _COLOURS, strict=True):
            height = _HEIGHT * count / most
            top -= height
            if count:
                place_of = f'x="{place * width:.1f}" y="{top:.1f}" width="{width * 0.9:.1f}" height="{height:.1f}"'
                bars.append(f'<rect {place_of} fill="{colour}"><title>{escape(label)}</title></rect>')
    legend = "".join(f'<tspan fill="{colour}">■ </tspan>{name}  ' for name, colour in _COLOURS)
    ends = f"{escape(names[0])} … {escape(names[-1])}" if names else "no cycles"
    return (f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT + 24}" role="img" aria-label="cycles by day">{"".join(bars)}'
            f'<text x="0" y="{_HEIGHT + 18}" font-size="13" fill="currentColor">{legend}{ends}, at most {most} '
            f"in a bar</text></svg>")  # fmt: skip


def _table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table; a ">" at the beginning of a head aligns its column to the right. Empty if there are no rows."""
    classes = [' class="n"' if head.startswith(">") else "" for head in heads]
    lines = [
        "".join(f"<td{kind}>{_cell(value)}</td>" for kind, value in zip(classes, row, strict=True)) for row in rows
    ]
    if not lines:
        return ""
    more = f"<p>… and {len(lines) - _MOST_ROWS} more</p>" if len(lines) > _MOST_ROWS else ""
    head = "".join(f"<th{kind}>{escape(name.lstrip('>'))}</th>" for kind, name in zip(classes, heads, strict=True))
    body = "".join(f"<tr>{line}</tr>\n" for line in lines[:_MOST_ROWS])
    return f"<table><tr>{head}</tr>\n{body}</table>{more}"


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, str | int):
        return escape(one_line(str(value), _ROOM))
    return f"<code>{escape(one_line(json.dumps(value, ensure_ascii=False), _ROOM))}</code>"
