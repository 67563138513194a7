"""Statements in one turn of a server: the pipeline of libpq, with statements that are prepared once.

A cursor of psycopg takes some 90 microseconds of Python for each statement, a group of the writer has ten to a thousand
of them, and other nodes wait for its end. Here psycopg makes the connection, writes and reads the values and names the
errors; statements and results go through its wrapper of libpq (`psycopg.pq`).
"""

from __future__ import annotations

import re
import select
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from itertools import count
from typing import Any, Final

import psycopg
from psycopg import pq
from psycopg.adapt import PyFormat, Transformer

_PARAMETER: Final = re.compile(r"\?(\d*)")
#: Uses after which a statement is prepared, and the most that are: their texts are those of the program.
_OFTEN, _MOST_PREPARED, _MOST_COUNTED = 3, 500, 5_000
_AUTO: Final = [[PyFormat.AUTO] * number for number in range(64)]
#: Codes of errors after which statements have to be prepared anew: a table was changed, or the server forgot them.
_STALE: Final = ("0A000", "26000")
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
        self._server, self._values = raw.pgconn, Transformer(raw)
        self._uses: dict[tuple[str, tuple[int, ...]], int] = {}
        self._prepared: dict[tuple[str, tuple[int, ...]], bytes] = {}
        self._names = count()

    def run(self, statements: Iterable[tuple[str, Iterable[Sequence[Any]]]]) -> list[list[pq.abc.PGresult]]:
        """Execute statements, each once for each row of parameters; return the results of each, row by row.

        Raises: psycopg.Error: that of the first statement that failed; the others behind it were not executed.
        """
        server, before = self._server, dict(self._prepared)
        sends, places = list[Callable[[], None]](), list[list[int]]()  # places of its results among all that come
        try:
            for sql, rows in statements:
                places.append([])
                for row in rows:
                    sends += self._sends(sql, row)
                    places[-1].append(len(sends) - 1)
            server.enter_pipeline_mode()
            try:
                results = self._sent(sends)
            finally:
                if server.status == pq.ConnStatus.OK:
                    server.exit_pipeline_mode()
        except BaseException as error:
            is_stale = isinstance(error, psycopg.Error) and error.sqlstate in _STALE
            self._prepared = {} if is_stale else before  # it is not known which of the new ones arrived
            raise
        return [[results[place] for place in own] for own in places]

    def rows_of(self, result: pq.abc.PGresult) -> list[tuple[Any, ...]]:
        """Return the rows of a result."""
        if not result.ntuples:
            return []
        self._values.set_pgresult(result)
        return self._values.load_rows(0, result.ntuples, tuple)

    def _sends(self, sql: str, row: Sequence[Any]) -> list[Callable[[], None]]:
        """Return what sends a statement; the last of it brings the result. Raises: psycopg.Error for a value that
        cannot be sent."""
        server, values, number = self._server, self._values, len(row)
        given = values.dump_sequence(row, _AUTO[number] if number < len(_AUTO) else [PyFormat.AUTO] * number)
        types, formats = values.types or (), values.formats
        name = self._prepared.get((sql, types))
        if name is None:
            if len(self._uses) > _MOST_COUNTED:
                self._uses.clear()
            uses = self._uses[sql, types] = self._uses.get((sql, types), 0) + 1
            if uses < _OFTEN or len(self._prepared) >= _MOST_PREPARED:
                return [partial(server.send_query_params, _encoded(sql), given, types, formats)]
            name = self._prepared[sql, types] = b"spar_%d" % next(self._names)
            prepare = partial(server.send_prepare, name, _encoded(sql), types)
            return [prepare, partial(server.send_query_prepared, name, given, formats)]
        return [partial(server.send_query_prepared, name, given, formats)]

    def _sent(self, sends: Iterable[Callable[[], None]]) -> list[pq.abc.PGresult]:
        """Send all, and return the results. Raises: psycopg.Error: the first error."""
        refusal: psycopg.Error | None = None
        try:
            for send in sends:
                send()
        except psycopg.Error as error:  # libpq does not send it
            refusal = error
        self._server.pipeline_sync()
        results = self._results()
        if refusal is not None:
            raise refusal
        return results

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
