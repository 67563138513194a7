"""Learning from examples: what is read, what is out of scope, how sure that is, and that it is the same each time."""

from __future__ import annotations

import random
from typing import Any

import pytest

from memory import Memory
from perception.learning.classifier import Classifier
from perception.learning.examples import Example, LabelSettings, bounded, written
from perception.learning.features import counts, normal
from perception.learning.learner import Labels, MarkedSlots, entities
from perception.learning.linear import LinearModel
from perception.learning.taught import TaughtExamples
from perception.pipeline import Pipeline, read_settings
from perception.sense import Sense
from perception.stages.classify import classify
from perception.stages.intent import recognise
from spar.clock import SystemClock
from spar.errors import ConfigError
from spar.protocols import Home
from spar.types import Perception

SHAPES = {
    "restart": ["restart {}", "please restart {} now", "{} must be started again", "bounce {} for me", "reboot {}"],
    "bill": ["show me the bill of {}", "what do I owe for {}", "the invoice of {} please", "how much is {} to pay"],
    "backup": ["back up {}", "make a copy of {}", "save {} to the archive", "is there a backup of {}"],
    "weather": ["will it rain in {}", "what is the weather in {}", "is it cold in {} today", "forecast for {}"],
}
THINGS = ["alpha", "the shop", "May", "Oslo", "nginx", "db2", "the old tower", "room five"]
STRANGE = ["my grandmother knits purple socks", "seventeen dancing penguins", "quarks have colour", "lorem ipsum dolor"]


def sample(things: list[str]) -> list[tuple[str, str]]:
    return [(shape.format(thing), label) for label, shapes in SHAPES.items() for shape in shapes for thing in things]


def trained() -> Classifier:
    return Classifier(sample(THINGS[:4]))


def test_new_wordings_of_learnt_intents_are_read_and_strange_ones_are_out_of_scope() -> None:
    classifier = trained()
    unseen = sample(THINGS[4:])

    right = sum(classifier.read(text).label == label for text, label in unseen)

    assert right >= 0.85 * len(unseen)
    readings = [classifier.read(text) for text in STRANGE]
    assert [reading.label for reading in readings] == [None] * len(STRANGE)
    assert all("none of the 4 learnt" in reading.why for reading in readings)


def test_confidence_is_as_high_as_it_is_right() -> None:
    """Labels that are wrong in one of four cases by chance: whoever is sure of them is wrong."""
    chance, noisy = random.Random(3), []
    for text, label in sample(THINGS):
        noisy.append((text, chance.choice([*SHAPES]) if chance.random() < 0.25 else label))
    chance.shuffle(noisy)
    half = len(noisy) // 2
    classifier = Classifier(noisy[:half])

    readings = [(classifier.read(text), label) for text, label in noisy[half:]]

    mean = sum(reading.confidence for reading, _ in readings) / len(readings)
    right = sum(reading.nearest == label for reading, label in readings) / len(readings)
    assert abs(mean - right) < 0.15


def test_the_same_examples_give_the_same_model_to_the_last_digit() -> None:
    examples = sample(THINGS[:3])

    first, second = LinearModel(examples), LinearModel(examples)

    assert all(first.scores(text) == second.scores(text) for text, _ in sample(THINGS))


def test_an_example_is_known_by_heart_in_any_case_and_the_last_word_about_it_holds() -> None:
    reading = labels("intent", [*sample(["x"]), ("Reboot  X", "bill")]).read("reboot x")

    assert (reading.label, reading.confidence) == ("bill", 0.99)


def test_work_grows_with_the_text_up_to_a_bound() -> None:
    words, pieces = counts("word " * 1_000_000)

    assert sum(words.values()) + sum(pieces.values()) < 20_000
    assert len(normal("a" * 1_000_000)) == 2_000


@pytest.mark.parametrize("text", ["", " ", "\ud800", "\x00\x01", "🙂" * 5000, "перезапусти", "a" * 10_000])
def test_any_text_is_read(text: str) -> None:
    assert trained().read(text).label in {None, *SHAPES}


def test_slots_are_found_by_their_form_and_by_the_marks_of_examples() -> None:
    found = entities('restart nginx.service on web-12 in 5 minutes, see /var/log/x.log and "the plan"')
    marked = MarkedSlots(["restart {service} on {host}", "restart {service}", "{a} {a}", "a } b {"])

    assert (found["host"], found["duration"], found["quoted"]) == ("web-12", "5 minutes", "the plan")
    assert marked.find("could you Restart  nginx on db1?") == {"service": "nginx", "host": "db1"}
    assert marked.find('restart "my app", please') == {"service": "my app"}
    assert marked.find("bounce it") == {}


# -- in the stages


def labels(what: Any, examples: list[tuple[str, str]]) -> Labels:
    return Labels([Example(what, text, label) for text, label in examples], Classifier(examples))


def test_learnt_intents_stand_behind_rules_and_short_words_and_before_the_built_in_ones() -> None:
    learnt: Any = {"intent": labels("intent", [*sample(THINGS), ("yes", "bill")])}
    settings = read_settings({"intent": {"rules": [{"intent": "mine", "pattern": "^reboot"}]}}).intent
    texts = ["reboot alpha", "yes", "please restart the printer now", "where is my cat?", "purple socks"]

    read = recognise(settings, [Perception(text, kind="message") for text in texts], learnt).perceptions

    assert [each.intent for each in read] == ["mine", "confirm", "restart", "question", "unknown"]
    assert "none of the 4 learnt" in read[-1].attributes["intent_why"]
    machine = recognise(settings, [Perception("restart nginx", kind="log.line")], learnt).perceptions[0]
    assert machine.intent == "inform"  # a machine asks for nothing


def test_learnt_kinds_refine_lines_of_logs_and_no_other_kind() -> None:
    lines = [(f"node {n} data TLB error interrupt", "log.alert") for n in range(8)]
    lines += [(f"node {n} instruction cache parity error corrected", "log.line") for n in range(8)]
    learnt: Any = {"kind": labels("kind", lines)}
    given = [Perception("node 77 data TLB error interrupt", kind=kind) for kind in ("", "log.line", "mail", "message")]

    read = classify(read_settings({}).classify, given, learnt).perceptions

    assert [each.kind for each in read] == ["log.alert", "log.alert", "mail", "message"]
    assert read[0].intent == ""  # a kind says nothing of the intent, nor the other way round


def test_a_pipeline_without_examples_learns_nothing() -> None:
    pipeline = Pipeline()

    (read,) = pipeline.process([Perception("lunch is at noon", kind="message")])

    assert pipeline.learnt == {}
    assert "intent_why" not in read.attributes


# -- examples


def test_examples_are_read_from_tables_and_files(tmp_path: Any) -> None:
    (tmp_path / "a.txt").write_text('one\n\n  two  \n{"text": "three"}\n', "utf-8")
    (tmp_path / "b.jsonl").write_text('{"text": "four", "intent": "y"}\n{"text": "five", "kind": "log.z"}\n', "utf-8")
    home = Home(str(tmp_path), str(tmp_path / "workspace"), str(tmp_path / "state"))

    found = written({"intent": {"x": LabelSettings(examples=("zero",), file="a.txt")}}, ["b.jsonl"], home)

    assert [(each.what, each.text, each.label) for each in found] == [
        ("intent", "zero", "x"),
        ("intent", "one", "x"),
        ("intent", "two", "x"),
        ("intent", "three", "x"),
        ("intent", "four", "y"),
        ("kind", "five", "log.z"),
    ]


def test_examples_in_the_workspace_are_refused_as_strangers_may_have_written_them(tmp_path: Any) -> None:
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "a.txt").write_text("obey me")
    home = Home(str(tmp_path), str(tmp_path / "workspace"), str(tmp_path / "state"))

    with pytest.raises(ConfigError, match="lies in the workspace"):
        written({"intent": {"x": LabelSettings(file="workspace/a.txt")}}, [], home)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"text": "a"}', "either"),
        ('{"text": "a", "intent": "b", "kind": "c"}', "either"),
        ("no json", "line 1"),
        ('{"text": "", "intent": "b"}', "needs a text"),
        ('{"text": "a", "intent": "b", "more": 1}', "more"),
    ],
)
def test_a_line_that_cannot_be_used_is_named(tmp_path: Any, content: str, words: str) -> None:
    (tmp_path / "b.jsonl").write_text(content + "\n")

    with pytest.raises(ConfigError, match=words):
        written({}, ["b.jsonl"], Home(str(tmp_path), str(tmp_path / "w"), str(tmp_path / "s")))


def test_bounds_of_an_example() -> None:
    assert bounded("intent", " a ", " b ") == Example("intent", "a", "b")
    for text, label in [("", "b"), ("a", " "), ("a" * 2001, "b"), ("a", "b" * 101), ("a", "b\nc")]:
        with pytest.raises(ValueError, match=r"example|characters"):
            bounded("intent", text, label)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"intents": {"x": {"example": ["a"]}}}, r"perception.intents.x has no setting named 'example'"),
        ({"intents": {"x": {"examples": "a"}}}, r"perception.intents.x.examples"),
        ({"learning": {"keep": 0}}, "perception.learning.keep"),
        ({"kinds": {"a": {}, "b": 3}}, "perception.kinds.b"),
    ],
)
def test_a_wrong_table_is_refused_by_its_name(table: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Pipeline(table)


async def test_a_row_that_cannot_be_read_is_told_and_the_others_are_learnt(tmp_path: Any) -> None:
    told: list[str] = []
    async with Memory.open(f"sqlite:///{tmp_path / 'm.db'}", ballast=0) as memory:
        taught = TaughtExamples("main", memory, SystemClock(), lambda about, why: told.append(f"{about}: {why}"))
        await taught.add("intent", "reboot the box", "restart_host", "alice")
        await memory.keep("example", "bad", {"id": "bad"})

        again = TaughtExamples("main", memory, SystemClock(), lambda about, why: told.append(f"{about}: {why}"))
        await again.open()

    assert [row.text for row in again.list()] == ["reboot the box"]
    assert told[0].startswith("example bad: its row cannot be read by this release")


def test_a_look_at_lines_reads_them_by_the_examples_of_the_configuration() -> None:
    intents = {label: {"examples": [shape.format("nginx") for shape in shapes]} for label, shapes in SHAPES.items()}
    looked = Sense(pipeline={"intents": intents}).examine(
        [Perception(text, kind="message") for text in ("restart nginx", "please bounce the shop for me")]
    )

    assert [each.result and each.result.intent for each in looked] == ["restart", "restart"]
