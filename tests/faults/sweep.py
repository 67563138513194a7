"""Who is killed where: every crash point at every time it is reached, pairs of them, any moment, and by its own work.

A clean life tells which points there are; none is listed here. A case is a row of strikes, each of which ends one life;
the last life is left alone and must bring everything to its end. All choices come from one seed.
"""

from __future__ import annotations

import io
import random
import shutil
import subprocess
import tarfile
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from queue import SimpleQueue

from msgspec import Struct, field

from tests.faults import service
from tests.faults.lives import ROOT, Life, Order, Standby, Starter, Strike, Upgraded, Zygote
from tests.faults.oracle import DEATHS, Finding, Judgement, judge
from tests.faults.workloads import POISONED, SWEPT, WORKLOADS
from tests.faults.workloads.life import ANSWERS
from tests.faults.world import World
from tests.servers.postgresql import PostgresServer

#: How often a strike that met nothing is tried again: not every life goes the same way.
_TRIES = 4
_RECOVERY = "recover."
_ALL = {**WORKLOADS, service.NAME: service.WORKLOAD}


class Case(Struct, frozen=True):
    """`answers` says whether somebody answers calls in doubt ("truth") or nobody does ("none")."""

    kind: str
    workload: str
    strikes: tuple[Strike, ...]
    answers: str = "truth"

    def __str__(self) -> str:
        strikes = ", then ".join(map(str, self.strikes)) or "nothing"
        return f"{self.kind} {self.workload}: {strikes} (answers {self.answers})"


class Outcome(Struct):
    """`folder` is kept where something was found. `reached` are the crash points of the last life. `missed` is the
    number of the strike that met nothing, if one did, and `passed` what the life that it missed got to."""

    case: Case
    is_tried: bool
    judgement: Judgement
    recovery: float
    reached: dict[str, int] = field(default_factory=dict)
    folder: str = ""
    missed: int = 0
    passed: dict[str, int] = field(default_factory=dict)

    @property
    def has_survived(self) -> bool:
        return self.judgement.is_clean


class Plan(Struct, frozen=True):
    """How much is done: strikes for each point of each workload (None: every time), pairs, kills, services; of the
    strikes at points only so many (None: all), or each point, of recovery as well, in one of the
    workloads that reach it."""

    times: int | None
    pairs: int
    kills: int
    poisons: int
    services: int
    points: int | None = None
    is_spread: bool = False


#: The workloads that a server can have: all but the file of the first release.
ON_SERVER = tuple(name for name in (*SWEPT, *POISONED) if name != "old")
HUNT = Plan(times=6, pairs=0, kills=60, poisons=5, services=0)
SHORT = Plan(times=2, pairs=24, kills=100, poisons=1, services=3)
LONG = Plan(times=None, pairs=240, kills=3000, poisons=5, services=60)


#: Makes the world of a case ready, and clears up what it has made; after a finding nothing is cleared up.
Housing = Callable[[World], AbstractContextManager[object]]


def run(starter: Starter, case: Case, housing: Housing = nullcontext) -> Outcome:
    """All lives of one case, and the judgement; a strike that met nothing is tried anew where that life did get to."""
    for tries_left in reversed(range(_TRIES)):
        outcome = _run(starter, case, housing)
        if outcome.is_tried or not tries_left or not outcome.has_survived:
            break
        strikes = list(case.strikes)
        strikes[outcome.missed] = _nearer(strikes[outcome.missed], outcome.passed)
        case = Case(case.kind, case.workload, tuple(strikes), case.answers)
    return outcome


def _run(starter: Starter, case: Case, housing: Housing) -> Outcome:
    folder = Path(tempfile.mkdtemp(prefix="spar-faults-"))
    with housing(World(folder)):
        return _judged(starter, case, folder)


def _judged(starter: Starter, case: Case, folder: Path) -> Outcome:
    lives = list(_lives(starter, case, folder))
    starter.settle()
    is_tried = len(lives) == len(case.strikes) + 1 and all(life.is_struck for life in lives[:-1])
    workload, left = _ALL[case.workload], sum(life.left for life in lives)
    last = lives[-1]
    if last.code != 0:
        told = (folder / "out").read_text()[-2000:]
        judgement = Judgement([Finding("stuck", f"its last life ended with {last.code}: {told}")])
    else:
        judgement = judge(World(folder), workload.wants, left=left, excused=workload.excused)
    outcome = Outcome(case, is_tried, judgement, last.seconds, _hits(folder / "hits"))
    if not is_tried and case.strikes:
        missed = next((number for number, life in enumerate(lives) if not life.is_struck), 0)
        outcome.missed, outcome.passed = missed, _hits(folder / f"hits{missed}")
    if judgement.is_clean:
        shutil.rmtree(folder)
    else:
        outcome.folder = str(folder)
    return outcome


def _lives(starter: Starter, case: Case, folder: Path) -> Iterator[Life]:
    """Each strike's, as long as they come to pass, then one that is left alone."""

    def order(strike: Strike | None, hits: str) -> Order:
        return Order(case.workload, folder, strike, {ANSWERS: case.answers, "SPAR_CRASH_LOG": str(folder / hits)})

    orders = [order(strike, f"hits{number}") for number, strike in enumerate(case.strikes)]
    last = order(None, "hits")
    for struck, following in pairwise([*orders, last]):
        life = starter.live(struck, following)
        yield life
        if not life.is_struck:
            return
    deaths = DEATHS if _ALL[case.workload].excused else 0
    for left in reversed(range(deaths + 1)):
        life = starter.live(last, last if left else None)
        if not life.is_struck:
            break
    yield life


def _nearer(strike: Strike, passed: Mapping[str, int]) -> Strike:
    """A strike that the life would have met which this one missed: sooner, or at a place that it did get to."""
    if strike.after is not None:
        return Strike(after=strike.after * 0.6)
    label = strike.label if strike.label in passed else min(passed, default=strike.label)
    return Strike(label, min(strike.number, passed.get(label, 1)))


def _hits(path: Path) -> dict[str, int]:
    try:
        return dict(Counter(path.read_text().split()))
    except FileNotFoundError:
        return {}


# -- what is done


class Sweep:
    """All cases of a plan, on so many zygotes at once; `told` hears of each outcome as it comes."""

    def __init__(
        self,
        starters: Sequence[Starter],
        plan: Plan,
        seed: int,
        told: Callable[[Outcome], object],
        workloads: Sequence[str] = (*SWEPT, *POISONED),
        housing: Housing = nullcontext,
    ) -> None:
        self._starters, self._plan, self._told, self._housing = starters, plan, told, housing
        self._swept, self._poisoned = ([name for name in some if name in workloads] for some in (SWEPT, POISONED))
        self._random = random.Random(seed)
        self._clean: dict[str, Outcome] = {}

    def __call__(self) -> list[Outcome]:
        times = 1 if self._plan.is_spread else 2
        clean = self._all(Case("clean", name, ()) for name in self._swept for _ in range(times))
        self._clean = {outcome.case.workload: outcome for outcome in clean}
        if not all(outcome.has_survived for outcome in clean):
            return clean  # whatever else is found would be found for this reason
        labels = list(self._labelled())
        if self._plan.is_spread:
            self._random.shuffle(labels)
            labels = list({(case.strikes[0].label, WORKLOADS[case.workload].points): case for case in labels}.values())
        labelled = self._all(labels if self._plan.points is None else self._random.sample(labels, self._plan.points))
        return [
            *clean,
            *labelled,
            *self._all(self._pairs(labelled)),
            *self._all(self._kills()),
            *self._all(Case("poison", name, ()) for name in self._poisoned for _ in range(self._plan.poisons)),
            *self._serviced(),
        ]

    def _all(self, cases: Iterable[Case], starters: Sequence[Starter] = ()) -> list[Outcome]:
        free = SimpleQueue[Starter]()
        for starter in starters or self._starters:
            free.put(starter)

        def one(case: Case) -> Outcome:
            starter = free.get()
            try:
                return run(starter, case, self._housing)
            finally:
                free.put(starter)

        outcomes = []
        pool = ThreadPoolExecutor(len(self._starters))
        try:
            for outcome in pool.map(one, list(cases)):
                self._told(outcome)
                outcomes.append(outcome)
        finally:
            pool.shutdown(cancel_futures=True)  # who is told may have heard enough
        return outcomes

    def _labelled(self) -> Iterator[Case]:
        """Each point of each workload: at every time, or the first and some others."""
        for name, outcome in self._clean.items():
            points = WORKLOADS[name].points or ("*",)
            for label, count in sorted(outcome.reached.items()):
                if not any(fnmatchcase(label, point) for point in points):
                    continue
                numbers = list(range(1, count + 1))
                if self._plan.times is not None:
                    numbers = [1, *self._random.sample(numbers[1:], min(len(numbers) - 1, self._plan.times - 1))]
                for number in numbers:
                    yield Case("label", name, (Strike(label, number),), self._answers())

    def _pairs(self, labelled: Sequence[Outcome]) -> Iterator[Case]:
        """A second strike in the life after the first: at each point of recovery, and anywhere."""
        seconds = [
            (outcome, label, number)
            for outcome in labelled
            if outcome.is_tried
            for label, count in outcome.reached.items()
            for number in range(1, count + 1)
        ]
        of_recovery: dict[tuple[str, str], list[tuple[Outcome, str, int]]] = {}
        for second in seconds:
            if second[1].startswith(_RECOVERY):
                workload = "" if self._plan.is_spread else second[0].case.workload
                of_recovery.setdefault((workload, second[1]), []).append(second)
        chosen = [second for each in of_recovery.values() for second in self._sample(each, 1 + self._plan.pairs // 40)]
        chosen += self._sample(seconds, self._plan.pairs - len(chosen))
        for outcome, label, number in chosen:
            yield Case("pair", outcome.case.workload, (*outcome.case.strikes, Strike(label, number)), self._answers())

    def _sample(self, choices: list[tuple[Outcome, str, int]], count: int) -> list[tuple[Outcome, str, int]]:
        return self._random.sample(choices, max(0, min(count, len(choices))))

    def _kills(self) -> Iterator[Case]:
        """Killed from outside at any moment, now and then in the next life as well."""
        names = [name for name in self._swept if not WORKLOADS[name].points]
        for number in range(self._plan.kills if names else 0):
            name = names[number % len(names)]
            longest = self._clean[name].recovery
            strikes = [Strike(after=self._random.uniform(0.002, 0.9 * longest))]
            if self._random.random() < 0.25:
                strikes.append(Strike(after=self._random.uniform(0.002, 0.3 * longest)))
            yield Case("kill", name, tuple(strikes), self._answers())

    def _serviced(self) -> list[Outcome]:
        """The same with the service in a process of its own: at points that it reaches, and at any moment."""
        if not self._plan.services:
            return []
        services = [service.Services() for _ in self._starters]
        clean = self._all([Case("service", service.NAME, ())], services)
        points = [(label, number) for label, count in clean[0].reached.items() for number in range(1, count + 1)]
        half = min(len(points), self._plan.services // 2)
        strikes = [Strike(*point) for point in self._random.sample(sorted(points), half)]
        while len(strikes) < self._plan.services:
            strikes.append(Strike(after=self._random.uniform(0.3, 0.95) * clean[0].recovery))
        return clean + self._all((Case("service", service.NAME, (strike,), "none") for strike in strikes), services)

    def _answers(self) -> str:
        return self._random.choice(("truth", "truth", "none"))


def zygotes(stack: ExitStack, count: int, root: Path = ROOT) -> list[Zygote]:
    """So many of the program in this tree, started at once."""
    with ThreadPoolExecutor(count) as pool:
        return [stack.enter_context(zygote) for zygote in pool.map(lambda _: Zygote(root), range(count))]


def standing_by(stack: ExitStack, count: int) -> list[Standby]:
    """So many that have each life taken over by another process."""
    lives = zygotes(stack, 2 * count)
    return [Standby(lives[number::count]) for number in range(count)]


def on_server(server: PostgresServer) -> Housing:
    """Worlds whose agents have a database each on a server."""

    @contextmanager
    def housing(world: World) -> Iterator[None]:
        url = server.database()
        world.move_to(url)
        yield
        if not world.folder.exists():  # nothing was found
            server.drop(url)

    return housing


def upgraded(stack: ExitStack, count: int, commit: str) -> list[Upgraded]:
    """So many that begin with the program of a commit. Raises: CalledProcessError for an unknown commit."""
    root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="spar-former-")))
    tree = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    with tarfile.open(fileobj=io.BytesIO(tree)) as archive:
        archive.extractall(root, filter="data")
    former, present = zygotes(stack, count, root), zygotes(stack, count)
    return [Upgraded(*pair) for pair in zip(former, present, strict=True)]
