"""Server of PostgreSQL for the processes of a cluster."""

from tests.memory.conftest import server, url

__all__ = ["server", "url"]
