"""`spar eval`: the table, the JSON, two configurations side by side, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spar.evals.reading import read_cases
from tests.evals.scripted import ScriptedModel
from tests.process.conftest import Answer, Spar, in_one_process
from tests.servers.llm import served
from tests.servers.llm_replies import Reply
from tests.servers.llm_requests import Asked

pytestmark = pytest.mark.process
pytest.importorskip("openai", reason="the library of models (spar-agent[llm]) is not installed")

CONFIG = '[plan]\nuse = "llm"\noptions = {{ model = "{model}", base_url = "{url}" }}\n'


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server with a model that behaves, `good`, and one that does not, `bad`."""
    cases = read_cases([])

    def script(asked: Asked) -> Reply:  # each request of a case once: the scripts begin anew with the first message
        model = asked.body["model"]
        if asked.messages[-1]["role"] != "tool":
            scripts[model] = ScriptedModel(cases, model)
        return scripts[model](asked)

    scripts: dict[str, ScriptedModel] = {}
    with served(script) as server:
        yield server.url


ONE = ("eval", "--only", "thanks that need no answer", "--at-once", "1")
FOUR = ("eval", "--only", "no reply", "--at-once", "1")
PLAYED = {
    "good": ("-c", "good.toml", *FOUR),
    "bad": ("-c", "bad.toml", *ONE),
    "against": ("-c", "bad.toml", "--json", *ONE, "--against", "good.toml"),
    "side by side": ("-c", "bad.toml", *FOUR, "--against", "good.toml", "--repeat", "2"),
    "away": ("-c", "away.toml", *FOUR),
}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory, url: str) -> dict[str, Answer]:
    """What was said of cases that were played."""
    spar = Spar(tmp_path_factory.mktemp("played"))
    for model, place in {"good": url, "bad": url, "away": "http://127.0.0.1:9/v1"}.items():
        (spar.folder / f"{model}.toml").write_text(CONFIG.format(model=model, url=place))
    answers = in_one_process([(spar, words, b"") for words in PLAYED.values()])
    return dict(zip(PLAYED, answers, strict=True))


def test_cases_that_hold_are_listed_with_their_figures(played: dict[str, Answer]) -> None:
    answer = played["good"]

    assert (answer.code, answer.err) == (0, "")
    lines = [line.split() for line in answer.out.splitlines() if line]
    assert lines[0] == ["case", "steps", "tokens", "cost", "seconds", "why"]
    assert lines[1][:8] == ["thanks", "that", "need", "no", "answer", "pass", "1", lines[1][7]]
    assert ["no", "reply", "4", "4"] in lines
    assert ["passed", "1.00", "0.51", "…", "1.00"] in lines


def test_a_case_that_does_not_hold_says_why_and_the_code_is_1(played: dict[str, Answer]) -> None:
    assert played["bad"].code == 1
    assert "silent: the answer is 'You are welcome!'" in played["bad"].out

    value = played["against"].json
    configuration, other = value["configurations"]
    assert [each["configuration"] for each in (configuration, other)] == ["bad.toml", "good.toml"]
    first = configuration["trials"][0]
    assert (first["name"], first["passed"], first["answer"]) == (
        "thanks that need no answer",
        False,
        "You are welcome!",
    )
    assert [each["key"] for each in first["findings"] if not each["holds"]] == ["silent"]
    assert configuration["figures"]["passed"]["value"] == 0
    assert value["difference"]["passed"]["value"] == 1


def test_two_configurations_stand_side_by_side_with_their_difference(played: dict[str, Answer]) -> None:
    answer = played["side by side"]

    assert answer.code == 1
    lines = [line.split() for line in answer.out.splitlines() if line]
    assert lines[0] == ["case", "bad.toml", "good.toml"]
    assert lines[1][-2:] == ["FAIL", "pass"]
    assert lines[5] == ["figure", "bad.toml", "95", "%", "good.toml", "95", "%", "difference", "95", "%"]
    assert lines[6][-4:] == ["+1.00", "+0.17", "…", "+1.00"]


@pytest.mark.parametrize(
    ("text", "arguments", "code", "words"),
    [
        ("- name: one\n", (), 65, "cases.yaml:1: case 1, messages: missing, and it has no default"),
        ("", (), 65, "cases.yaml: has no cases; expected a list of cases"),
        ("- {name: one, messages: [hi], expect: {}, settings: {runs.reqests: 1}}\n", (), 78, "did you mean 'requests'"),
        ("- {name: one, messages: [hi], expect: {}}\n", ("--only", "two"), 64, "--only 'two': no case has such a name"),
        ("- {name: one, messages: [hi], expect: {}}\n", ("--repeat", "0"), 64, "1<=x<=1000"),
        ("- {name: one, messages: [hi], expect: {}}\n", ("--against", "none.toml"), 78, "none.toml: there is no such"),
    ],
)  # fmt: skip
def test_what_cannot_be_played_is_refused(
    spar: Spar, text: str, arguments: tuple[str, ...], code: int, words: str
) -> None:
    (spar.folder / "good.toml").write_text(CONFIG.format(model="good", url="http://127.0.0.1:9/v1"))
    (spar.folder / "cases.yaml").write_text(text)

    answer = spar.here("-c", "good.toml", "eval", "cases.yaml", *arguments)

    assert answer.code == code, answer
    assert words in answer.err
    assert answer.out == ""


def test_without_a_model_nothing_is_played(spar: Spar, played: dict[str, Answer]) -> None:
    assert "plan.use = 'rules'" in (answer := spar.here("eval")).err
    assert answer.code == 78

    answer = played["away"]
    assert answer.code == 69
    assert answer.err.startswith("Error: no model can be asked: away cannot be reached")
    assert "0 of 4 trials were played" in answer.err


@pytest.mark.parametrize("arguments", [["eval"], ["eval", "add", "x"]])
def test_without_the_library_for_yaml_the_extra_is_named(
    spar: Spar, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.setattr("spar.evals.command.find_spec", lambda name: None)

    refused = spar.here(*arguments)

    assert (refused.code, "pip install 'spar-agent[eval]'" in refused.err) == (69, True), refused
