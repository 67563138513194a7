"""What a user meets can be imported from `spar`, and is typed and shown in few words."""

from __future__ import annotations

import inspect

import spar
from spar import errors, events


def test_every_event_and_every_error_is_a_name_of_spar() -> None:
    classes = [
        value
        for module, base in ((events, events.Event), (errors, Exception))
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, base) and value.__module__ == module.__name__
    ]

    assert len(classes) > 50
    assert [each.__name__ for each in classes if getattr(spar, each.__name__, None) is not each] == []


def test_every_name_of_spar_can_be_loaded_and_is_listed() -> None:
    for name in spar.__all__:
        assert getattr(spar, name) is not None
    assert set(spar.__all__) < set(dir(spar))
