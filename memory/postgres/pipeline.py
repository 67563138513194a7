"""Statements in one turn of a server: the pipeline of libpq, with statements that are prepared once.

A cursor of psycopg takes some 90 microseconds of Python for each statement, a group of the writer has ten to a thousand
of them, and other nodes wait for its end. Here psycopg makes the connection, writes and reads the values and names the
errors; statements and results go through its wrapper of libpq (`psycopg.pq`).
"""

from __future__ import annotations

import re
import select
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import count
from typing import Any, Final

import psycopg
from psycopg import pq
from psycopg.adapt import PyFormat, Transformer

_PARAMETER: Final = re.compile(r"\?(\d*)")
#: Uses after which a statement is prepared, and the most that are: their texts are those of the program.
_OFTEN, _MOST_PREPARED = 3, 500
_AUTO: Final = [[PyFormat.AUTO] * number for number in range(64)]
_REFUSED: Final = (pq.ExecStatus.FATAL_ERROR, pq.ExecStatus.BAD_RESPONSE)


@lru_cache(2_000)
def translated(sql: str) -> str:
    """Return a statement with the parameters of PostgreSQL. No text in a statement contains a question mark."""
    last = 0

    def number(match: re.Match[str]) -> str:
        nonlocal last
        given = int(match[1]) if match[1] else last + 1
        last = max(last, given)
        return f"${given}"

    return _PARAMETER.sub(number, sql)


@lru_cache(2_000)
def _encoded(sql: str) -> bytes:
    return translated(sql).encode()


class Pipeline:
    """Way of statements to the server of one connection. Args: raw: the connection of the driver."""

    def __init__(self, raw: psycopg.Connection[Any]) -> None:
        self._raw, self._server = raw, raw.pgconn
        self._values = Transformer(raw)
        self._uses: dict[tuple[str, tuple[int, ...]], int] = {}
        self._prepared: dict[tuple[str, tuple[int, ...]], bytes] = {}
        self._names = count()

    def run(self, statements: Iterable[tuple[str, Iterable[Sequence[Any]]]]) -> list[list[pq.abc.PGresult]]:
        """Execute statements, each once for each row of parameters; return the results of each, row by row.

        Raises: psycopg.Error: that of the first statement that failed; the others behind it were not executed.
        """
        server, present = self._server, len(self._prepared)
        server.enter_pipeline_mode()
        places, sent = list[list[int]](), 0  # those of the results of each statement among all that come
        try:
            for sql, rows in statements:
                places.append([])
                for row in rows:
                    sent += self._send(sql, row)
                    places[-1].append(sent - 1)
            server.pipeline_sync()
            results = self._results()
        except BaseException:
            self._prepared = dict(list(self._prepared.items())[:present])  # it is not known which of them arrived
            raise
        finally:
            if self._server.status == pq.ConnStatus.OK:
                server.exit_pipeline_mode()
        return [[results[place] for place in own] for own in places]

    def rows_of(self, result: pq.abc.PGresult) -> list[tuple[Any, ...]]:
        """Return the rows of a result."""
        if not result.ntuples:
            return []
        self._values.set_pgresult(result)
        return self._values.load_rows(0, result.ntuples, tuple)

    def _send(self, sql: str, row: Sequence[Any]) -> int:
        """Send a statement. Return the number of results that will come."""
        server, values = self._server, self._values
        number = len(row)
        given = values.dump_sequence(row, _AUTO[number] if number < len(_AUTO) else [PyFormat.AUTO] * number)
        key = sql, values.types or ()
        name = self._prepared.get(key)
        if name is not None:
            server.send_query_prepared(name, given, values.formats)
            return 1
        uses = self._uses[key] = self._uses.get(key, 0) + 1
        if uses < _OFTEN or len(self._prepared) >= _MOST_PREPARED:
            server.send_query_params(_encoded(sql), given, values.types, values.formats)
            return 1
        name = self._prepared[key] = b"spar_%d" % next(self._names)
        server.send_prepare(name, _encoded(sql), values.types)
        server.send_query_prepared(name, given, values.formats)
        return 2

    def _results(self) -> list[pq.abc.PGresult]:
        """Return the results up to the end of the pipeline."""
        server, results, is_between = self._server, list[pq.abc.PGresult](), False
        poll = select.poll()
        try:
            while True:
                is_left = server.flush()
                poll.register(server.socket, select.POLLIN | (select.POLLOUT if is_left else 0))
                poll.poll()
                server.consume_input()
                while (notification := server.notifies()) is not None:
                    if server.notify_handler is not None:
                        server.notify_handler(notification)
                while not server.is_busy():
                    result = server.get_result()
                    if result is None:  # between two statements; twice only if the connection is lost
                        if is_between:
                            break
                        is_between = True
                    elif result.status == pq.ExecStatus.PIPELINE_SYNC:
                        _demand_done(results)
                        return results
                    else:
                        results.append(result)
                        is_between = False
        except psycopg.OperationalError:
            _demand_done(results)  # what the server said last
            raise


def _demand_done(results: Iterable[pq.abc.PGresult]) -> None:
    """Raises: psycopg.Error of the first statement that failed."""
    for result in results:
        if result.status in _REFUSED:
            raise psycopg.errors.error_from_result(result)
