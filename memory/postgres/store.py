"""Memory in a database of PostgreSQL: the store that `[memory] use = "postgres"` names.

It has the methods and the statements of `memory.store`; only what is special about a file differs.
"""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from annotated_types import Gt

from memory.sqlite.database import Durability
from memory.store import Memory
from spar.errors import ConfigError
from spar.ports.services import Embedder
from spar.protocols import Home

if TYPE_CHECKING:
    from memory.engine.session import DatabaseSession
    from memory.journal.in_flight import InFlightFile
    from memory.journal.journal import Journal
    from memory.postgres.care import ServerCare
    from memory.postgres.cluster.nodes import ClusterNodes


class PostgresMemory(Memory):
    """Experiences, cycles and state in one database of PostgreSQL 13 or later, for one process or several nodes.

    Args:
        url: `postgresql://user@host:5432/database`, with the parameters that libpq knows.
        password: the password, if it is neither in the URL nor where libpq finds it.
        durability: "power": the server flushes each commit; "process" and "off": a crash of the server may lose the
            last second.
        keep_days, keep_cycles, keep_experiences, keep_bytes, keep_fact_days, keep_facts, keep_transcript_days,
            keep_transcripts, keep_transcript_bytes, keep_audit_days: as in a file.
        max_bytes: the limit of all rows; beyond it the oldest rows of the largest of cycles, experiences, transcript
            entries and facts are deleted.
        standby: wait while another process uses the database, or while it cannot be reached, and take over then.
        nodes: work beside other processes: each owns some of the sessions, and takes over those of one that ends.
        place: where this node is, for sensors with a place.
        read_only: read a database that another process may write; this takes no lock and cannot write.
        embedder: embeds texts in idle time, so that recall also finds texts that say the same in other words.
    Raises: ConfigError when a value cannot be used, or psycopg is not installed.
    """

    def __init__(
        self,
        url: str,
        *,
        password: str | None = None,
        durability: Durability = "power",
        keep_days: Annotated[float, Gt(0)] | None = 365,
        keep_cycles: Annotated[int, Gt(0)] | None = 100_000,
        keep_experiences: Annotated[int, Gt(0)] | None = 100_000,
        keep_bytes: Annotated[int, Gt(0)] | None = 1 << 30,
        keep_fact_days: Annotated[float, Gt(0)] | None = 7,
        keep_facts: Annotated[int, Gt(0)] | None = 1_000_000,
        keep_transcript_days: Annotated[float, Gt(0)] | None = 90,
        keep_transcripts: Annotated[int, Gt(0)] | None = 200_000,
        keep_transcript_bytes: Annotated[int, Gt(0)] | None = 100 << 20,
        keep_audit_days: Annotated[float, Gt(0)] | None = 400,
        max_bytes: Annotated[int, Gt(0)] | None = 4 << 30,
        standby: bool = False,
        nodes: bool = False,
        place: str = "",
        read_only: bool = False,
        home: Home | None = None,
        embedder: Embedder | None = None,
    ) -> None:
        try:
            from memory.postgres.server import parsed
        except ImportError as error:
            raise ConfigError(
                f"PostgreSQL needs psycopg ({error}): install spar-agent[postgres]", path=("memory", "use")
            ) from None
        if nodes and standby:
            raise ConfigError("standby is for a process that works alone; with nodes all work: delete standby",
                              path=("standby",))  # fmt: skip
        if place and not nodes:
            raise ConfigError("a place is that of one of several nodes: set nodes = true, or delete place",
                              path=("place",))  # fmt: skip
        self._place = place
        self._server, self._standby = parsed(url, password), standby
        self._is_node = nodes and not read_only
        self._nodes: ClusterNodes | None = None
        self._state = None if home is None else home.state
        super().__init__(
            url, durability=durability, keep_days=keep_days, keep_cycles=keep_cycles,
            keep_experiences=keep_experiences, keep_bytes=keep_bytes, keep_fact_days=keep_fact_days,
            keep_facts=keep_facts, keep_transcript_days=keep_transcript_days, keep_transcripts=keep_transcripts,
            keep_transcript_bytes=keep_transcript_bytes, keep_audit_days=keep_audit_days, max_bytes=max_bytes,
            ballast=0, read_only=read_only, home=home, embedder=embedder,
        )  # fmt: skip

    @property
    def care(self) -> ServerCare:
        """Care of the database: verifies and examines it; copies are made with the tools of the server."""
        from memory.postgres.care import ServerCare

        return ServerCare(self._server)

    def _locate(self, url: str, start: str | None) -> str:
        return self._server.name

    @property
    def nodes(self) -> ClusterNodes | None:
        """Return the nodes of the database while it is open; None if no other process may work with it."""
        return self._nodes

    async def _open(self) -> DatabaseSession:
        if self._is_node:
            from memory.postgres.cluster.opening import open_node

            opened, self._nodes = await open_node(
                self._server, self.durability, self._clock, tend=self._tend, report=self._report
            )
            self._nodes.place = self._place
            return opened
        from memory.postgres.opening import open_database

        return await open_database(
            self._server, self.durability, self._clock, read_only=self.read_only, standby=self._standby,
            tend=self._tend, report=self._report,
        )  # fmt: skip

    def _journal_of(self, opened: DatabaseSession, hand: InFlightFile) -> Journal:
        if self._nodes is None:
            return super()._journal_of(opened, hand)
        return self._nodes.journal(opened, self._clock, hand, self._report)

    def _forget_file(self, opened: DatabaseSession) -> None:
        super()._forget_file(opened)
        self._nodes = None

    @property
    def _has_file(self) -> bool:
        return False

    @property
    def _in_flight_path(self) -> str | None:
        """Return a file of this host: a process that crashed on it tells the next one on it what it worked on."""
        if self._state is None:
            return None
        Path(self._state).mkdir(parents=True, exist_ok=True)
        name = blake2b(self._server.name.encode(), digest_size=8).hexdigest()
        return str(Path(self._state) / f"postgres-{name}.hand")

    def _sizes(self) -> tuple[int, int]:
        return 0, 0
