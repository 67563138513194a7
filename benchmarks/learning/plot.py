"""Curves drawn as SVG, small multiples beside each other: the share of successes, episode by episode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT, LEFT, TOP, GAP = 250, 150, 40, 34, 60
COLOURS = {"on": "#1a7f37", "off": "#8c959f", "observe": "#bf8700"}

#: By the name of a curve its values, 0..1, evenly spaced.
Curves = Mapping[str, Sequence[float]]


def smoothed(lives: Sequence[Sequence[float]], window: int) -> list[float]:
    """Return the mean over lives, and over the last `window` values, at each episode."""
    means = [sum(values) / len(values) for values in zip(*lives, strict=True)]
    sums = [0.0]
    for value in means:
        sums.append(sums[-1] + value)
    return [(sums[end] - sums[max(0, end - window)]) / min(window, end) for end in range(1, len(sums))]


def drawn(panels: Mapping[str, Curves], columns: int = 3) -> str:
    """Return the panels as one SVG. Args: panels: by their title."""
    rows = -(-len(panels) // columns)
    width, height = columns * (WIDTH + GAP) + LEFT, rows * (HEIGHT + GAP) + TOP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        'font-size="11">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        *_legend(),
    ]
    for number, (title, curves) in enumerate(panels.items()):
        row, column = divmod(number, columns)
        parts += _panel(LEFT + column * (WIDTH + GAP), TOP + row * (HEIGHT + GAP) + 20, title, curves)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _legend() -> list[str]:
    parts = []
    for number, (name, colour) in enumerate(COLOURS.items()):
        x = LEFT + 90 * number
        parts.append(f'<path d="M{x} 16h18" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{x + 24}" y="20">{name}</text>')
    return parts


def _panel(x: int, y: int, title: str, curves: Curves) -> list[str]:
    parts = [f'<text x="{x}" y="{y - 6}" font-weight="bold">{escape(title)}</text>']
    for share in (0.0, 0.5, 1.0):
        at = y + HEIGHT * (1 - share)
        parts.append(f'<path d="M{x} {at:.1f}h{WIDTH}" stroke="#d0d7de" stroke-width="0.7"/>')
        parts.append(f'<text x="{x - 6}" y="{at + 4:.1f}" text-anchor="end">{share:g}</text>')
    longest = max(map(len, curves.values()), default=0)
    for name, values in curves.items():
        points = " ".join(_points(x, y, values))
        colour = COLOURS[name]
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
    parts.append(f'<text x="{x + WIDTH}" y="{y + HEIGHT + 14}" text-anchor="end">{longest} episodes</text>')
    return parts


def _points(x: int, y: int, values: Sequence[float], most: int = 120) -> list[str]:
    step = max(1, len(values) // most)
    last = max(1, len(values) - 1)
    return [
        f"{x + WIDTH * number / last:.1f},{y + HEIGHT * (1 - value):.1f}"
        for number, value in enumerate(values)
        if number % step == 0 or number == last
    ]
