"""What an acceptance run came to: one line for each kind of fault, a closing line, and all of it as JSON."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from tests.faults.lives import ROOT
from tests.faults.oracle import KINDS
from tests.faults.sweep import Outcome

_PACKAGES = ("acting", "memory", "perception", "planning", "reflection", "spar")
_POINT = re.compile(r"^ +crashpoint\(\"([a-z_.]+)\"\)", re.M)
_COLUMNS = ("planned", "tried", "vacuous", "survived", *KINDS, "in doubt", "p50 s", "p95 s", "max s")


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that so many (0..1) are not above; 0.0 of none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


def figures(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """`planned` faults, of which `tried` came to pass, and after how many nothing was wrong. Findings count cases."""
    tried = [outcome for outcome in outcomes if outcome.is_tried]
    found = Counter(kind for each in outcomes for kind in {finding.kind for finding in each.judgement.findings})
    seconds = [outcome.recovery for outcome in tried]
    return {
        "planned": len(outcomes),
        "tried": len(tried),
        "vacuous": len(outcomes) - len(tried),
        "survived": sum(outcome.has_survived for outcome in tried),
        **{kind: found[kind] for kind in KINDS},
        "in doubt": sum(outcome.judgement.in_doubt for outcome in tried),
        "p50 s": round(percentile(seconds, 0.5), 3),
        "p95 s": round(percentile(seconds, 0.95), 3),
        "max s": round(max(seconds, default=0.0), 3),
    }


def by_kind(outcomes: Iterable[Outcome]) -> dict[str, list[Outcome]]:
    kinds: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        kinds.setdefault(outcome.case.kind, []).append(outcome)
    return kinds


def table(outcomes: Sequence[Outcome]) -> str:
    """One line for each kind of fault and one for all."""
    rows: list[tuple[str, ...]] = [("", *_COLUMNS)]
    for kind, some in {**by_kind(outcomes), "all": list(outcomes)}.items():
        found = figures(some)
        rows.append((kind, *(str(found[column]) for column in _COLUMNS)))
    widths = [max(len(row[number]) for row in rows) for number in range(len(rows[0]))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)


def closing(outcomes: Sequence[Outcome]) -> str:
    """One sentence; of n clean trials the failure rate is below 3/n with 95 % confidence (the rule of three)."""
    found = figures(outcomes)
    parts = [
        f"acceptance: crash {found['survived']}/{found['tried']} survived (vacuous {found['vacuous']})",
        f"lost {found['lost']}",
        f"doubled {found['doubled']}",
        f"in doubt {found['in doubt']} (silent {found['silent']})",
        f"recovery p95 {found['p95 s']} s",
    ]
    if found["tried"] and found["survived"] == found["tried"]:
        parts.append(f"failure rate below {300 / found['tried']:.2g} % (95 %)")
    return " · ".join(parts)


def unreached(outcomes: Iterable[Outcome]) -> list[str]:
    """The crash points that are named in the code and that no life got to: what they would show is not proven."""
    named = {
        label
        for package in _PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        for label in _POINT.findall(path.read_text())
    }
    reached = {label for outcome in outcomes for label in outcome.reached}
    return sorted(named - reached)


def failures(outcomes: Iterable[Outcome], most: int = 20) -> str:
    """What was wrong, where it can be looked at."""
    wrong = [outcome for outcome in outcomes if not outcome.has_survived]
    lines = []
    for outcome in wrong[:most]:
        lines.append(f"{outcome.case}  [{outcome.folder}]")
        lines += [f"    {finding.kind}: {finding.what}" for finding in outcome.judgement.findings[:8]]
    if len(wrong) > most:
        lines.append(f"and {len(wrong) - most} more")
    return "\n".join(lines)


def is_accepted(outcomes: Sequence[Outcome]) -> bool:
    """Whether every fault came to pass and nothing was wrong after any."""
    return bool(outcomes) and all(outcome.is_tried and outcome.has_survived for outcome in outcomes)


def everything(outcomes: Sequence[Outcome], seed: int, seconds: float) -> dict[str, Any]:
    """All figures, and each case that was not as it should be, as JSON-able values."""
    return {
        "seed": seed,
        "seconds": round(seconds, 1),
        "kinds": {kind: figures(some) for kind, some in by_kind(outcomes).items()},
        "all": figures(outcomes),
        "closing": closing(outcomes),
        "unreached": unreached(outcomes),
        "vacuous": [str(outcome.case) for outcome in outcomes if not outcome.is_tried],
        "findings": [
            {"case": str(outcome.case), "findings": [[each.kind, each.what] for each in outcome.judgement.findings]}
            for outcome in outcomes
            if not outcome.has_survived
        ],
    }
