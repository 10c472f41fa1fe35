"""Statements that wait to be sent: what is said alike of several conversations is said once.

The requests of a batch are about different conversations, and each of them says much the same: a
row goes here, that one is moved from this state. In a batch that is foreseen nobody waits for an
answer in between, so a statement may be sent earlier than it was said, as long as it comes after
all that was said of its own conversation before. Those that are alike then go as one statement
over rows that are given as arrays, and the database plans, locks and begins once for all of them.

What no conversation can claim for itself, as content that several share, keeps its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache
from typing import Final, TypeAlias

Values: TypeAlias = tuple[object, ...]


class Kind(Enum):
    """How a statement is held back."""

    WHOLE = auto()
    """A text of one statement or several, such as a savepoint: nothing moves across it."""
    APART = auto()
    """One statement with its values, which others are not joined to."""
    EACH = auto()
    """A statement for each of its rows."""
    TOOK = auto()
    """The same, and each changes one row, or the transaction ends."""
    ABSENT = auto()
    """A question for each of its rows, and none finds anything, or the transaction ends."""


@dataclass(slots=True, frozen=True)
class Step:
    """One text, the values that it is to be sent with, and the conversations it was said of."""

    kind: Kind
    text: str
    rows: Sequence[Values]
    about: Sequence[str]


@dataclass(slots=True)
class Gathered:
    """Steps that go as one."""

    kind: Kind
    text: str
    rows: list[Values]


def gathered(steps: Iterable[Step]) -> list[Gathered]:
    """Return what is to be sent for these steps, in its order.

    A step goes with the first that is like it and stands behind all others of its conversations.
    """
    sent: list[Gathered] = []
    after: dict[str, int] = {}
    since = 0
    for step in steps:
        first = max([since, *(after.get(name, since) for name in step.about)])
        at = len(sent)
        if step.kind.value > Kind.APART.value and step.about:
            alike = (
                at
                for at in range(first, len(sent))
                if sent[at].text is step.text and sent[at].kind is step.kind
            )
            at = next(alike, at)
        if at == len(sent):
            sent.append(Gathered(step.kind, step.text, [*step.rows]))
        else:
            sent[at].rows += step.rows
        if step.kind is Kind.WHOLE or not step.about:
            since = len(sent)
        for name in step.about:
            after[name] = at + 1
    return sent


_NUMBER: Final = re.compile(r"\$(\d+)")
_VALUES: Final = re.compile(r"VALUES \((.*?)\)$", re.DOTALL)
_FROM: Final = re.compile(r"\bFROM\b")
_WHERE: Final = re.compile(r"\bWHERE\b")


@cache
def for_one(kind: Kind, text: str) -> str:
    """Return a statement for a single row of values.

    Example:
        >>> for_one(Kind.TOOK, "UPDATE a SET b = $1")
        'WITH done AS (UPDATE a SET b = $1 RETURNING 1) SELECT 1 / count(*) FROM done'
    """
    match kind:
        case Kind.TOOK:
            return f"WITH done AS ({text} RETURNING 1) SELECT 1 / count(*) FROM done"
        case Kind.ABSENT:
            return f"SELECT 1 / CAST(NOT EXISTS ({text}) AS INTEGER)"
        case _:
            return text


@cache
def for_many(kind: Kind, text: str, types: tuple[str, ...]) -> str | None:
    """Return a statement over arrays of values of these types; None where there is none.

    Example:
        >>> for_many(Kind.EACH, "UPDATE a SET b = $1 WHERE c = $2", ("int8", "text"))
        'UPDATE a SET b = given.p1 FROM unnest($1::int8[], $2::text[]) AS given (p1, p2) WHERE c = given.p2'
    """
    if "ON CONFLICT" in text or not types:  # what is in conflict sees no row that is given
        return None
    arrays = ", ".join(f"${number}::{name}[]" for number, name in enumerate(types, 1))
    columns = ", ".join(f"p{number}" for number in range(1, len(types) + 1))
    given = f"unnest({arrays}) AS given ({columns})"
    body = _NUMBER.sub(r"given.p\1", text)
    if kind is Kind.ABSENT:
        return (
            f"SELECT 1 / CAST(NOT EXISTS (SELECT 1 FROM {given} WHERE EXISTS ({body})) AS INTEGER)"
        )
    verb = body.split(maxsplit=1)[0]
    if verb == "UPDATE":
        body = _WHERE.sub(f"FROM {given} WHERE", body, count=1)
    elif _VALUES.search(body):
        body = _VALUES.sub(rf"SELECT \1 FROM {given}", body)
    else:
        body = _FROM.sub(f"FROM {given},", body, count=1)
    if kind is Kind.TOOK:
        return (
            f"WITH done AS ({body} RETURNING 1) "
            "SELECT 1 / CAST(count(*) = cardinality($1) AS INTEGER) FROM done"
        )
    return body
