"""PostgreSQL's connection as the shared code sees it: synchronous, with `?` and `:name`.

asyncpg speaks the protocol on an event loop; each connection here has a loop of its own that
runs only while its thread waits for an answer.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import count
from typing import Final, NamedTuple, TypeVar

import asyncpg

from antiphon.stores.postgres.literals import argument, literal
from antiphon.stores.sql.statements import Dialect, Parameters, Row, insertion

T = TypeVar("T")

DIALECT: Final = Dialect(
    # JSON may say NUL, and PostgreSQL's texts may not hold it.
    says=r"""EXISTS (
      SELECT 1 FROM json_array_elements(CAST(
        replace(convert_from(m.blocks, 'UTF8'), '\u0000', '\ufffd') AS json)) AS b
      WHERE b ->> 'text' ILIKE :words ESCAPE '\')""",
    titled=r"c.title ILIKE :words ESCAPE '\'",
    columns="""SELECT c.relname, a.attname, coalesce(array_position(i.indkey::int2[], a.attnum), -1) + 1
      FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid
      LEFT JOIN pg_index AS i ON i.indrelid = c.oid AND i.indisprimary
      WHERE c.relnamespace = 'antiphon'::regnamespace AND c.relkind = 'r'
        AND a.attnum > 0 AND NOT a.attisdropped ORDER BY c.relname, a.attnum""",
    copied=(
        """SELECT setval(pg_get_serial_sequence('conversation', 'number'),
          (SELECT max(number) FROM conversation))
        WHERE EXISTS (SELECT 1 FROM conversation)""",
    ),
)

PREPARED: Final = 512
"""How many statements a connection prepares for what is sent together."""

HELD: Final = 256
"""How many statements are held back at most: a server ends the transaction of a client that is
silent for long, and a script has to fit in memory."""

ROWS: Final = 16
"""How many rows one statement inserts at most: so its texts are few, and each is prepared once."""

_NUMBER: Final = re.compile(r"\$(\d+)")
_MARK: Final = re.compile(r"'(?:[^']|'')*'|\?|(?<!:):([a-z_]+)")


@cache
def translated(sql: str) -> tuple[str, tuple[str, ...]]:
    """Return a statement with PostgreSQL's marks, and the names that they stand for, if any.

    Example:
        >>> translated("SELECT ? + ?")
        ('SELECT $1 + $2', ())
        >>> translated("SELECT :a, ':b', :c, :a")
        ("SELECT $1, ':b', $2, $1", ('a', 'c'))
    """
    names: dict[str, int] = {}
    count = 0

    def mark(found: re.Match[str]) -> str:
        nonlocal count
        if found[0] == "?":
            count += 1
            return f"${count}"
        if found[1] is None:
            return found[0]
        return f"${names.setdefault(found[1], len(names) + 1)}"

    return _MARK.sub(mark, sql), tuple(names)


_took: Final = cache("WITH done AS ({} RETURNING 1) SELECT 1 / count(*) FROM done".format)
_absent: Final = cache("SELECT 1 / CAST(NOT EXISTS ({}) AS INTEGER)".format)


class Mark(NamedTuple):
    """A place among the statements that are held back."""

    journeys: int
    held: int


_ALL: Final = Mark(-1, 0)


class PostgresStatements:
    """Statements on one connection; only the thread that made it may use it.

    What needs no answer is held back and sent with what follows, in one journey. While `foresees`
    is set, what can be foreseen needs none: the statement goes with the others, and where it does
    not do as foreseen it divides by zero, which ends the transaction.
    """

    dialect = DIALECT

    def __init__(
        self, connection: asyncpg.Connection[asyncpg.Record], loop: asyncio.AbstractEventLoop
    ) -> None:
        self.connection = connection
        self._loop = loop
        self._held: list[str] = []
        self._names: dict[str, str | None] = {}  # of prepared statements; None: met once
        self._unprepared: set[str] = set()
        self._numbers = count()
        self.given_up = False
        """Whether it is of no use any more, as `give_up` has said."""
        self.foresees = False
        self.journeys = 0
        """How often it was sent what had been held back."""

    def close(self) -> None:
        """Close the loop; the connection is closed before."""
        self._loop.close()

    def give_up(self) -> None:
        """Let whoever waits for an answer on it wait no longer; from any thread."""
        self.given_up = True
        with suppress(RuntimeError):  # it is closed already
            self._loop.call_soon_threadsafe(self.connection.terminate)

    def wait(self, answer: Awaitable[T]) -> T:
        """Return what the database answers; after an answer that never came nothing is asked."""
        try:
            return self._loop.run_until_complete(answer)
        except TimeoutError:
            self.connection.terminate()
            raise

    def execute(self, sql: str, parameters: Parameters = ()) -> None:
        """Hold a statement back, to be sent with what follows."""
        text, values = _bound(sql, parameters)
        if text in self._names:
            self._hold_prepared(text, values)
            return
        if len(self._names) < PREPARED and text not in self._unprepared:
            self._names[text] = None  # worth preparing where it comes again
        self._hold(_NUMBER.sub(lambda mark: literal(values[int(mark[1]) - 1]), text))

    def _hold_prepared(self, text: str, values: Sequence[object]) -> None:
        """Hold back a statement that the server has parsed and planned before."""
        name = self._names.get(text) or self._prepare(text)
        arguments = f"({', '.join(map(argument, values))})" if values else ""
        self._hold(f"EXECUTE {name}{arguments}")

    def _prepare(self, text: str) -> str:
        name = f"antiphon_{next(self._numbers)}"
        try:
            self.wait(self.connection.execute(f"PREPARE {name} AS {text}"))
        except asyncpg.PostgresError:
            self._names.pop(text, None)
            self._unprepared.add(text)  # it may still do with its values written out
            raise
        self._names[text] = name
        return name

    def _hold(self, statement: str) -> None:
        self._held.append(statement)
        if len(self._held) >= HELD:
            self.settle()

    def many(self, sql: str, rows: Sequence[Sequence[object]]) -> None:
        """Hold a statement back once for each of `rows`."""
        for parameters in rows:
            self.execute(sql, parameters)

    def insert(self, table: str, columns: tuple[str, ...], rows: Sequence[Row]) -> None:
        """Hold back that rows of these columns are inserted, several in one statement."""
        for first in range(0, len(rows), ROWS):
            some = rows[first : first + ROWS]
            self.execute(insertion(table, columns, len(some)), [v for row in some for v in row])

    def changed(self, sql: str, parameters: Parameters = ()) -> int:
        """Carry out a statement and return how many rows it changed."""
        self.settle()
        text, values = _bound(sql, parameters)
        told = self.wait(self.connection.execute(text, *values))
        count = told.rpartition(" ")[2]
        return int(count) if count.isdigit() else 0

    def took(self, sql: str, parameters: Parameters = (), *, foreseen: bool = True) -> bool:
        """Carry out a statement that changes one row, or foresee that it does."""
        if not (foreseen and self.foresees):
            return self.changed(sql, parameters) > 0
        self._hold_prepared(*_bound(_took(sql), parameters))
        return True

    def absent(self, sql: str, parameters: Parameters = ()) -> bool:
        """Whether a question finds no row, or foresee that it does not."""
        if not self.foresees:
            return self.one(sql, parameters) is None
        self._hold_prepared(*_bound(_absent(sql), parameters))
        return True

    def one(self, sql: str, parameters: Parameters = ()) -> Row | None:
        """Return the first row, or None."""
        self.settle()
        text, values = _bound(sql, parameters)
        row = self.wait(self.connection.fetchrow(text, *values))
        return None if row is None else tuple(row)

    def all(self, sql: str, parameters: Parameters = ()) -> list[Row]:
        """Return every row."""
        self.settle()
        text, values = _bound(sql, parameters)
        return list(map(tuple, self.wait(self.connection.fetch(text, *values))))

    def begin(self) -> None:
        """Begin a transaction.

        Raises:
            RuntimeError: Something is held back, which would become a part of it.
        """
        if self._held:
            raise RuntimeError(f"{len(self._held)} statements wait for no transaction.")
        self.wait(self.connection.execute("BEGIN"))

    def script(self, sql: str, *, later: bool = False) -> None:
        """Carry out statements without parameters, with those that were held back before them.

        With `later` they are held back too.
        """
        self._held.append(sql)
        if not later:
            self.settle()

    def settle(self) -> None:
        """Send what was held back, all in one journey to the database."""
        if self._held:
            script = ";\n".join(self._held)
            self._held.clear()
            self.journeys += 1
            self.wait(self.connection.execute(script))

    def mark(self) -> Mark:
        """Return where the next statement will be held back, for `drop` and `unsent`."""
        return Mark(self.journeys, len(self._held))

    def unsent(self, mark: Mark) -> bool:
        """Whether all since `mark` is still held back."""
        return mark.journeys == self.journeys

    def drop(self, mark: Mark = _ALL) -> None:
        """Forget what is held back, since `mark` or all, as it is to be undone anyway."""
        del self._held[mark.held if self.unsent(mark) else 0 :]

    def strike(self, mark: Mark) -> None:
        """Forget the one statement at `mark`, which is still held back."""
        del self._held[mark.held]


def _bound(sql: str, parameters: Parameters) -> tuple[str, tuple[object, ...]]:
    text, names = translated(sql)
    if isinstance(parameters, Mapping):
        return text, tuple(parameters[name] for name in names)
    return text, tuple(parameters)
