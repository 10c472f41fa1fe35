"""PostgreSQL's connection as the shared code sees it: synchronous, with `?` and `:name`.

asyncpg speaks the protocol on an event loop; each connection here has a loop of its own that
runs only while its thread waits for an answer.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import Final, NamedTuple, TypeVar

import asyncpg

from antiphon.stores.postgres.gathering import (
    Gathered,
    Kind,
    Step,
    Values,
    for_many,
    for_one,
    gathered,
)
from antiphon.stores.postgres.literals import argument, array, literal, nul_character
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

HELD: Final = 2048
"""How many rows are held back at most: a server ends the transaction of a client that is silent for
long, and a script has to fit in memory."""

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


@dataclass(slots=True)
class _Prepared:
    """A statement that the server has parsed and planned."""

    statement: object
    """What keeps it there."""
    one: str
    """Its name, for one row of values."""
    text: str | None
    """What is said of several rows, if it can be."""
    many: str | None = None
    """The name of that."""


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
        self.about: Sequence[str] = ()
        """The conversations that what is said now is about."""
        self._held: list[Step] = []
        self._rows = 0
        self._prepared: dict[tuple[Kind, str], _Prepared | None] = {}  # None: met once
        self._unprepared: set[tuple[Kind, str]] = set()
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
        self._hold(Kind.APART, text, [values])

    def many(self, sql: str, rows: Sequence[Sequence[object]]) -> None:
        """Hold a statement back once for each of `rows`."""
        text, _ = translated(sql)
        # What may be in conflict may be others' as well: it keeps its place.
        kind = Kind.APART if "ON CONFLICT" in text else Kind.EACH
        self._hold(kind, text, [tuple(row) for row in rows])

    def insert(self, table: str, columns: tuple[str, ...], rows: Sequence[Row]) -> None:
        """Hold back that rows of these columns are inserted."""
        self.many(insertion(table, columns), rows)

    def _hold(self, kind: Kind, text: str, rows: Sequence[Values]) -> None:
        for row in rows:
            for value in row:
                if type(value) is str:
                    if "\0" in value:
                        raise nul_character()
                    if not value.isascii():
                        value.encode()  # half a character is told of here, before it waits with others
        self._held.append(Step(kind, text, rows, self.about))
        self._rows += len(rows)
        if self._rows >= HELD:
            self.settle()

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
        text, values = _bound(sql, parameters)
        self._hold(Kind.TOOK, text, [values])
        return True

    def absent(self, sql: str, parameters: Parameters = ()) -> bool:
        """Whether a question finds no row, or foresee that it does not."""
        if not self.foresees:
            return self.one(sql, parameters) is None
        text, values = _bound(sql, parameters)
        self._hold(Kind.ABSENT, text, [values])
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
        self._held.append(Step(Kind.WHOLE, sql, ((),), ()))
        if not later:
            self.settle()

    def settle(self) -> None:
        """Send what was held back, all in one journey to the database."""
        if self._held:
            held, self._held, self._rows = self._held, [], 0
            script = [text for step in gathered(held) for text in self._written(step)]
            self.journeys += 1
            self.wait(self.connection.execute(";\n".join(script)))

    def _written(self, step: Gathered) -> Iterator[str]:
        """Yield the statements of one step, with their values."""
        if step.kind is Kind.WHOLE:
            yield step.text
            return
        prepared = self._prepare(step.kind, step.text)
        if prepared is None:
            text = for_one(step.kind, step.text)
            yield from (_spelled(text, row) for row in step.rows)
            return
        if len(step.rows) > 1 and (many := self._prepare_many(prepared)) is not None:
            yield f"EXECUTE {many}({', '.join(map(array, zip(*step.rows, strict=True)))})"
            return
        for row in step.rows:
            arguments = f"({', '.join(map(argument, row))})" if row else ""
            yield f"EXECUTE {prepared.one}{arguments}"

    def _prepare(self, kind: Kind, text: str) -> _Prepared | None:
        """Have the server parse and plan a statement that comes again; None where it is not worth it."""
        key = (kind, text)
        prepared = self._prepared.get(key)
        if prepared is not None or key in self._unprepared:
            return prepared
        if key not in self._prepared and kind in (Kind.APART, Kind.EACH):
            if len(self._prepared) < PREPARED:
                self._prepared[key] = None
            return None  # what is foreseen comes again in any case
        name = f"antiphon_{next(self._numbers)}"
        try:
            statement = self.wait(self.connection.prepare(for_one(kind, text), name=name))
        except asyncpg.PostgresError:
            self._prepared.pop(key, None)
            self._unprepared.add(key)  # it may still do with its values written out
            raise
        types = tuple(parameter.name for parameter in statement.get_parameters())
        prepared = self._prepared[key] = _Prepared(statement, name, for_many(kind, text, types))
        return prepared

    def _prepare_many(self, prepared: _Prepared) -> str | None:
        if prepared.many is None and prepared.text is not None:
            name = f"antiphon_{next(self._numbers)}"  # one that failed may be there all the same
            self.wait(self.connection.execute(f"PREPARE {name} AS {prepared.text}"))
            prepared.many = name
        return prepared.many

    def mark(self) -> Mark:
        """Return where the next statement will be held back, for `drop` and `unsent`."""
        return Mark(self.journeys, len(self._held))

    def unsent(self, mark: Mark) -> bool:
        """Whether all since `mark` is still held back."""
        return mark.journeys == self.journeys

    def foreseen(self, mark: Mark) -> bool:
        """Whether anything since `mark` was foreseen, and nobody has compared it yet."""
        since = mark.held if self.unsent(mark) else 0
        return any(step.kind in (Kind.TOOK, Kind.ABSENT) for step in self._held[since:])

    def drop(self, mark: Mark = _ALL) -> None:
        """Forget what is held back, since `mark` or all, as it is to be undone anyway."""
        del self._held[mark.held if self.unsent(mark) else 0 :]

    def strike(self, mark: Mark) -> None:
        """Forget the one statement at `mark`, which is still held back."""
        del self._held[mark.held]


def _spelled(text: str, values: Values) -> str:
    return _NUMBER.sub(lambda mark: literal(values[int(mark[1]) - 1]), text)


def _bound(sql: str, parameters: Parameters) -> tuple[str, tuple[object, ...]]:
    text, names = translated(sql)
    if isinstance(parameters, Mapping):
        return text, tuple(parameters[name] for name in names)
    return text, tuple(parameters)
