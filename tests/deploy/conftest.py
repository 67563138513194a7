"""The service as a process, as the tests of processes have it, and a server for it."""

from tests.memory.conftest import server, url
from tests.process.conftest import spar, start

__all__ = ["server", "spar", "start", "url"]
