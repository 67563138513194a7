"""A real process under strace: it flushes before it acknowledges, and takes the kernel's no for what it is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.storage.syscalls import FAULTS, missing, order, run, short_writes, sweep

WHY = missing()
pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(bool(WHY) and "CI" not in os.environ, reason=WHY or "system calls can be traced"),
]


def test_what_it_takes_is_here() -> None:
    assert not WHY


def test_nothing_is_acknowledged_before_the_log_was_flushed(tmp_path: Path) -> None:
    # Of several rows the next may be on its way to the log while the first is acknowledged.
    done = run(tmp_path, together=[1])

    assert done.is_closed, done.err
    acks, wrong = order(done.trace)
    assert acks >= 12
    assert wrong == []


def test_durability_process_does_acknowledge_earlier_so_the_order_is_really_looked_at(tmp_path: Path) -> None:
    done = run(tmp_path, durability="process")

    assert done.is_closed, done.err
    assert order(done.trace)[1]


@pytest.mark.parametrize(("name", "when"), list(zip(FAULTS, (4, 33, 8, 33, 3), strict=True)))
def test_what_the_kernel_refuses_is_never_acknowledged_and_what_was_is_there(name: str, when: int) -> None:
    tally = sweep(name, [when])  # `python -m tests.storage` does each at each of its calls

    assert tally.is_whole, str(tally)


def test_a_write_that_is_cut_short_by_the_kernel_loses_nothing() -> None:
    tally = short_writes([5_000])

    assert tally.is_whole, str(tally)
