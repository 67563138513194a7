"""What every test may ask for."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from spar.agent.parts import AgentParts
from spar.data import scrub
from spar.health.relief import resident
from spar.protocols import Home
from spar.testing import VirtualClock
from tests.offline import no_route_outside
from tests.remembered import remember_entry_points, remember_tables, remember_toml
from tests.shadow import Shadow

#: Tests of parts whose libraries are not installed here (`pip install 'spar-agent[test]'`); in CI all are.
_HAS_MAIL = os.environ.get("CI") or (find_spec("imapclient") and find_spec("aiosmtpd"))
collect_ignore = [] if _HAS_MAIL else ["mail", "process/test_mail.py"]

# On busy cores an example takes as long as it takes. Each run draws other ones, so half of the usual number will do.
settings.register_profile("busy", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

# No test connects beyond loopback: that each client of a model reads the certificates of all authorities takes 26 ms.
os.environ.pop("SSL_CERT_FILE", None)
os.environ["SSL_CERT_DIR"] = str(Path(__file__).parent)

#: By how many bytes this process may grow before what was freed is given back to the system.
GROWTH = 64 << 20


class Tidying:
    """Gives memory back between tests: each of their many threads has an arena of its own, whose freed memory the C
    library keeps, and hundreds of mebibytes gather in a whole run."""

    def __init__(self) -> None:
        self._before = resident()

    def pytest_runtest_logfinish(self) -> None:
        if resident() - self._before > GROWTH:
            try:
                ctypes.CDLL(None).malloc_trim(0)
            except (OSError, AttributeError):  # another C library
                pass
            self._before = resident()


def pytest_configure(config: pytest.Config) -> None:
    """Let nothing be looked for to free while modules and tests are read, which stay: that took a third of the time."""
    config.pluginmanager.register(Tidying())
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a shell, which programs would inherit
        signal.signal(signal.SIGINT, signal.default_int_handler)
    remember_entry_points()
    remember_tables()
    remember_toml()
    gc.disable()


def pytest_collection_finish() -> None:
    """Set apart what stays to the end, modules and tests, from what the collector looks through, and less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000)
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail what is skipped in CI, where all is installed: a skip would be a check switched off."""
    report = yield
    if report.skipped and os.environ.get("CI") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI, where nothing is skipped: {call.excinfo and call.excinfo.value}"
    return report


@pytest.fixture(autouse=True)
def facts_add_up(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compare the state that the facts of each agent add up to with what acts on it; see `tests.shadow`. Forget then
    which values are secrets: they are the process's, and tests share one.

    Tests that count what an agent costs, or which ids it draws, have the mark `unobserved`.
    """
    differences: list[str] = []
    ledger_of = AgentParts.ledger_of
    if request.node.get_closest_marker("unobserved") is None:
        AgentParts.ledger_of = lambda parts, name: Shadow(parts, name, differences.append)
    yield
    AgentParts.ledger_of = ledger_of
    scrub._known = ()  # values that a test declared as secrets
    assert not differences, differences[0]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """The places of a process in a folder of the test's own, whose workspace is there."""
    (tmp_path / "workspace").mkdir()
    return Home(str(tmp_path), str(tmp_path / "workspace"), str(tmp_path / "state"))


@pytest.fixture
async def clock() -> AsyncIterator[VirtualClock]:
    """The time of this test's loop, virtual from the beginning: an async fixture, so that the loop is there."""
    async with VirtualClock() as clock:
        yield clock


@pytest.fixture
def offline() -> Iterator[None]:
    """A network of the test's own, without a route outside; skipped, but in CI, where the kernel grants none."""
    with ExitStack() as stack:
        try:
            stack.enter_context(no_route_outside())
        except OSError as refusal:
            pytest.skip(f"needs a network of its own ({refusal}): run the tests as root, or under: unshare -rn")
        yield
