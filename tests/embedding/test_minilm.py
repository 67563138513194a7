"""The embedder in the box, with its real weights; and what is learnt with it."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import pytest

from perception.learning.examples import Example
from perception.learning.learner import trained
from perception.learning.vectors import vector_training
from spar.embedding.minilm import MiniLm
from spar.ports.any_part import offers
from spar.ports.services import Embedder


def likeness(one: array[float], other: array[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def test_texts_that_mean_the_same_are_near_each_other_and_any_text_has_a_vector() -> None:
    embedder = MiniLm()
    assert offers(embedder, Embedder)

    restart, reboot, cake, *odd = embedder.embed(
        ["restart the server", "reboot the machine", "bake a cake", "", "\ud800", "long " * 10_000, "\U0001f642"]
    )

    assert likeness(restart, reboot) > likeness(restart, cake) + 0.2
    assert all(len(each) == embedder.dimension for each in (restart, *odd))
    assert all(likeness(each, each) == pytest.approx(1, abs=1e-3) for each in (restart, *odd))


class Counting:
    """An embedder that counts what it reads: two numbers for each text."""

    dimension, fingerprint = 2, "counting"

    def __init__(self) -> None:
        self.read: list[str] = []

    def embed(self, texts: Sequence[str], /) -> Sequence[array[float]]:
        self.read += texts
        return [array("f", [1.0, 0.0] if "server" in text else [0.0, 1.0]) for text in texts]


EXAMPLES = [(f"{verb} the server {n}", "restart") for n, verb in enumerate(["restart", "reboot", "bounce", "kick"])]
EXAMPLES += [(f"{verb} a cake {n}", "bake") for n, verb in enumerate(["bake", "make", "eat", "buy"])]


def test_each_example_is_embedded_once_for_all_models_of_a_training() -> None:
    embedder = Counting()

    classifier = trained([Example("intent", *each) for each in EXAMPLES], 0.9, embedder)

    assert sorted(embedder.read[: len(EXAMPLES)]) == sorted(text for text, _ in EXAMPLES)
    assert classifier.read("wake the server").label == "restart"


def test_the_name_of_a_label_is_an_example_in_words() -> None:
    embedder = Counting()
    model = vector_training(embedder)([("it hangs again", "restart_server"), ("I am hungry", "bake-cake")])

    assert embedder.read == ["it hangs again", "I am hungry", "bake cake", "restart server"]
    scores = dict(zip(model.labels, model.scores("the server, please"), strict=True))
    assert scores["restart_server"] > scores["bake-cake"]


def test_the_same_examples_give_the_same_vectors_model() -> None:
    first, second = (vector_training(Counting())(EXAMPLES) for _ in range(2))

    assert first.scores("the server") == second.scores("the server")
