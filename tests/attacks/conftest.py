"""The service as a process, as `tests/process` has it."""

from __future__ import annotations

from tests.process.conftest import spar, start

__all__ = ["spar", "start"]
