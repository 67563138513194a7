"""The service as a process, as the tests of processes have it."""

from tests.process.conftest import spar, start

__all__ = ["spar", "start"]
