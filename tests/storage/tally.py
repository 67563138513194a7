"""What a series of faults came to: one line and one dict for each class of fault."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from tests.storage.rows import Broken

#: Of so many broken promises it is said how they were broken.
MOST_SEEN = 10
HEAD = f"{'class':32} {'tried':>6} {'fired':>6} {'survived':>9} {'lost':>5} {'doubled':>8} {'corrupt':>8} {'stuck':>6}"


@dataclass
class Tally:
    """The figures of one class of fault.

    `tried` faults were planned and `fired` of them seen to happen; `survived` left every promise whole. `lost` counts
    what was acknowledged and is gone, `doubled` what is there twice, `corrupt` what is there and was never written or
    cannot be read, `stuck` how often it did not go on by itself once the fault was over. What is not `is_owed` is
    promised by nobody and only looked at. `seen` says of the first few broken promises how to see them again.
    """

    name: str
    tried: int = 0
    fired: int = 0
    survived: int = 0
    lost: int = 0
    doubled: int = 0
    corrupt: int = 0
    stuck: int = 0
    is_owed: bool = True
    seen: list[str] = field(default_factory=list)

    def add(self, broken: Broken, label: str, *, fired: bool = True) -> None:
        """Count one fault and what it broke; `label` says how to see it again."""
        self.tried += 1
        self.fired += fired
        self.lost += broken.lost
        self.doubled += broken.doubled
        self.corrupt += broken.corrupt
        self.stuck += broken.stuck
        if not broken:
            self.survived += 1
        elif len(self.seen) < MOST_SEEN:
            self.seen.append(f"{label}: {'; '.join(broken.what[:3])}")

    @property
    def is_whole(self) -> bool:
        """Whether every fault fired and none broke anything."""
        return self.tried == self.fired == self.survived > 0

    def __str__(self) -> str:
        line = f"{self.name:32} {self.tried:6} {self.fired:6} {self.survived:9} {self.lost:5} {self.doubled:8}"
        return "\n".join([f"{line} {self.corrupt:8} {self.stuck:6}", *(f"    {what}" for what in self.seen)])

    def as_dict(self) -> dict[str, Any]:
        """The figures, JSON-able."""
        return asdict(self)
