"""The stories of the assistant and of the operator, in the browser, with a model on the other side of a socket."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.console.conftest import Watched, token_of
from tests.ports import free_port
from tests.process.conftest import Service, Spar, until
from tests.process.conversation import Novelist, configured, held, note
from tests.servers.llm import served
from tests.servers.llm_replies import FAULTS, GOOD, Cut, Reply, ToolCall, pieces, says
from tests.servers.llm_requests import Asked

pytest.importorskip("pydantic_ai", reason="the library of models (spar-agent[llm]) is not installed")
ANSWER = "One and four are noted, and the baker is paid. Nothing else is to be done today."
#: Millionths that a month may cost, and what each answer reports.
CAP, USAGE = 30_000, (2_000, 0, 50)
MORE = """
[approval]
untrusted = "auto"

[[sensors]]
use = "directory"
name = "inbox"
options = { path = "inbox" }

[[rules]]
name = "file"
when = { kind = "file.added" }
goal = "file {attributes.name}"
calls = [{ tool = "measure", params = { what = "{attributes.name}" } }]
"""


class Model:
    """A model with a script; it can be away, hang, and be held in the middle of an answer."""

    def __init__(self) -> None:
        self.is_down = self.hangs = False
        self.answering = threading.Event()
        self._talk = Novelist({"errands": self._errands, "correction": self._errands, "payment": self._errands,
                               "hello": lambda text: says("hello, bob", usage=USAGE),
                               "long": lambda text: says("it is noted") if "noted" in text
                               else says("", note("long", "go-long"))})  # fmt: skip

    def __call__(self, asked: Asked) -> Reply:
        return FAULTS["unavailable"] if self.is_down else GOOD.cut(4, Cut.HANG) if self.hangs else self._talk(asked)

    def _errands(self, text: str) -> Reply:
        if "paid" in text.rpartition("[correction]")[2]:
            return held(says(pieces(ANSWER, 8), usage=USAGE), 4, self.answering)
        if "noted four" in text:
            return says("", ToolCall("pay", {"to": "baker", "amount": 30}), usage=USAGE)
        if "[correction]" in text:
            return says("", note("four"), usage=USAGE)
        room = ToolCall("measure", {"what": "room", "gate": "go"})
        return says("", note("one", "go", _id="a"), room, note("two", _after=["a"]), usage=USAGE)


class Office:
    """A folder whose service is started again and again at the same port, and its model."""

    def __init__(self, folder: Path, url: str, model: Model) -> None:
        self.spar, self.model = Spar(folder), model
        configured(self.spar, url, more=MORE)
        self.spar.edit("recall = 0", 'recall = 0\nrules_are = "first"')
        self.spar.environ["SPAR_SERVICE__PORT"] = str(free_port())
        self.services = list[Service]()

    def start(self, **settings: str) -> Service:
        self.spar.environ.update({f"SPAR_{name}": value for name, value in settings.items()})
        self.services.append(service := Service(self.spar))
        return service.ready()


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    model = Model()
    with served(model) as server:
        office = Office(tmp_path, server.url, model)
        yield office
        model.answering.set()
        for service in office.services:
            service.kill()


def sent(service: Service, text: str, session: str) -> str:
    """Send a message over HTTP; return the id of its run."""
    return str(service.api("/v1/runs", "POST", json={"message": text, "session": session}).json()["run_id"])


def is_over(service: Service, run: str) -> bool:
    return bool(service.api(f"/v1/runs/{run}").json()["status"] != "timeout")


def money(service: Service) -> dict[str, Any]:
    """Return the budget of money of the month."""
    return next(row for row in service.agent["budgets"] if row["budget"] == "month.money")


def test_the_assistant(office: Office, watch: Callable[..., Watched]) -> None:
    service = office.start(BUDGETS__MONTH__MONEY=str(CAP / 1e6))
    watched = watch("read", "operate", "approve", service=service)
    page = watched.go("/chat/alice")
    log = page.get_by_role("log")

    # A message over HTTP starts a run: the model plans, calls stream and overlap.
    sent(service, "[errands] note one and two, and measure my room", "alice")
    log.get_by_text("note one and two").wait_for()
    page = watched.go("/now")
    running = page.get_by_role("table", name="Calls running")
    expect(running.locator("tbody tr")).to_have_count(2)
    assert sorted(running.locator("tbody td:first-child").all_inner_texts()) == ["measure", "note"]

    # A correction arrives in mid-run and steers it.
    watched.go("/chat/alice")
    page.get_by_label("While a run is open").select_option("steer")
    page.get_by_label("Message").fill("[correction] no: one and four, then pay the baker 30")
    page.keyboard.press("Enter")
    log.locator(".person").filter(has_text="no: one and four").wait_for()
    (office.spar.folder / "go").touch()

    # A risky call waits for a click in the console.
    page.get_by_role("link", name="1 to approve").click()
    page.get_by_role("heading", name="Run pay?").wait_for()
    expect(page.get_by_role("region", name="The call in full")).to_contain_text("baker")
    assert not (office.spar.folder / "paid.txt").exists()

    # Two conversations do not disturb each other.
    sent(service, "[hello] are you there?", "bob")
    watched.go("/chat/bob")
    log.get_by_text("hello, bob").wait_for()
    assert "baker" not in log.inner_text()
    page.go_back()
    page.get_by_role("button", name="Approve").click()
    page.get_by_text("pay: approved").wait_for()

    # The answer comes as it is written.
    watched.go("/chat/alice")
    log.get_by_text("One and four are noted").wait_for()
    assert ANSWER not in log.inner_text()
    office.model.answering.set()
    log.get_by_text(ANSWER).wait_for()
    expect(page.get_by_role("button", name="Abort")).to_have_count(0)
    assert (office.spar.folder / "book.txt").read_text().split() == ["one", "four"]
    assert (office.spar.folder / "paid.txt").read_text() == "30 to baker\n"

    # The provider goes down: rules go on, the run resumes.
    office.model.is_down = True
    page.get_by_label("Message").fill("[hello] and now?")
    page.keyboard.press("Enter")
    page = watched.go("/health")
    models = page.get_by_role("table", name="Models")
    models.get_by_text("open").wait_for()
    office.spar.drop("report.txt", "printer on fire")
    page = watched.go("/timeline")
    row = page.get_by_role("table", name="Cycles").locator("tr").filter(has_text="file report.txt").first
    expect(row).to_contain_text("✓ 1")
    assert service.agent["models"][0]["state"] != "closed"
    office.model.is_down = False
    watched.go("/chat/alice")
    log.get_by_text("hello, bob").wait_for()

    # The bill never passes the cap.
    guests = [f"guest {number}" for number in range(20)]
    for guest in guests:
        run = sent(service, "[hello] again", guest)
        until(lambda run=run: is_over(service, run) or money(service)["refused"], "the answer, or none for this money")
        if money(service)["refused"]:
            break
    assert not is_over(service, run)
    page = watched.go("/cost")
    spent = page.locator("dl").filter(has_text="Cost").get_by_text(re.compile("^(≥ )?0\\.0[0-9]+$")).inner_text()
    assert 0 < float(spent.split()[-1]) <= CAP / 1e6
    page = watched.go("/health")
    budget = page.get_by_role("table", name="Budgets").locator("tr").filter(has_text="month · money")
    assert "of 0.03" in budget.inner_text()


def test_the_operator(office: Office, watch: Callable[..., Watched]) -> None:
    office.model.hangs = True
    service = office.start(AGENT__PHASES__PLAN='{"timeout": 2.0}', MEMORY__MAX_BYTES="3000000")

    # It is started; a Prometheus target.
    watched = watch("read", "operate", service=service)
    page = watched.go("/health")
    page.locator("main .badge").get_by_text("running", exact=True).wait_for()
    metrics = page.request.get(f"{service.address}/metrics").text()
    assert 'spar_cycles_total{agent="main"' in metrics

    # It says what is stuck, cancels it and goes on; the alert closes itself.
    sent(service, "[hello] is anybody there?", "alice")
    alerts = page.get_by_role("table", name="Alerts")
    alerts.get_by_text("stuck").wait_for()
    expect(alerts).to_contain_text(re.compile("plan: .*2 s"))
    office.model.hangs = False
    expect(page.get_by_role("table", name="Steps of recovery")).to_contain_text("cancel")
    sent(service, "[hello] and now?", "alice")  # should the first one have failed three times by now
    page.get_by_text("No alert is open.").wait_for(timeout=120_000)
    watched.go("/chat/alice").get_by_role("log").get_by_text("hello, bob").first.wait_for()

    # SIGTERM during a long call drains; the next process goes on from there.
    page.get_by_label("Message").fill("[long] work on this")
    page.keyboard.press("Enter")
    until(lambda: (office.spar.folder / "book.txt").exists(), "the long call")
    service.signal(signal.SIGTERM)
    page.locator(".top").get_by_text("stopping").wait_for()
    (office.spar.folder / "go-long").touch()
    assert service.wait() == 75, service.err  # work is left to the next process
    page.get_by_text("Trying again").wait_for()
    service = office.start()
    page.get_by_text("Your session has ended").wait_for()
    page.get_by_label("Token").fill(token_of(service, "read"))
    page.keyboard.press("Enter")
    page.get_by_role("log").get_by_text("it is noted").wait_for()
    assert (office.spar.folder / "book.txt").read_text() == "long\n"

    # The database has the size that was configured.
    page = watched.go("/health")
    size = page.get_by_role("img", name=re.compile("^Database: .* of 3 MB$")).get_attribute("aria-label") or ""
    assert float(size.split()[1]) <= 3
    watched.complaints = [text for text in watched.complaints if not re.search("ERR_|401|503", text)]
