"""Values within the text of a statement: for what is sent together, in one journey.

The protocol that takes parameters takes one statement at a time. What waits for no answer is
gathered and sent as one script, with its values written out. A text is quoted by doubling its
quotes, within an array also by a backslash before what means something there, which is exact while `standard_conforming_strings` is on, as every
connection of ours sets it, and the encoding is UTF-8.
"""

from __future__ import annotations

from collections.abc import Iterable

from antiphon.errors import InvalidInput


def nul_character() -> InvalidInput:
    """Return what is told to whom brought a text that no text of PostgreSQL can be."""
    return InvalidInput("A text holds a NUL character.", code="nul_character")


def argument(value: object) -> str:
    r"""Return a value as it is given to a prepared statement, which knows its type.

    Raises:
        InvalidInput: A text holds a NUL character, which no text of PostgreSQL can.

    Example:
        >>> [argument(value) for value in (None, True, -7, "it's", b"ok")]
        ['NULL', "'1'", "'-7'", "'it''s'", "'\\x6f6b'"]
    """
    if isinstance(value, str):
        return quoted(value)
    if value is None:
        return "NULL"
    if isinstance(value, int):
        return f"'{value:d}'"
    if isinstance(value, bytes):
        return f"'\\x{value.hex()}'"
    return literal(value)


def array(values: Iterable[object]) -> str:
    r"""Return values of one type as an array that is given to a prepared statement.

    Example:
        >>> array((None, True, -7)), array(("it's", 'a "b" \\')), array((b"ok",))
        ("'{NULL,1,-7}'", '\'{"it\'\'s","a \\"b\\" \\\\"}\'', '{"\\\\x6f6b"}')
    """
    return f"'{{{','.join(map(_element, values))}}}'"


def _element(value: object) -> str:
    if isinstance(value, str):
        return '"' + _escaped(value).replace("'", "''") + '"'
    if value is None:
        return "NULL"
    if isinstance(value, int):
        return f"{value:d}"
    if isinstance(value, bytes):
        return f'"\\\\x{value.hex()}"'
    return literal(value)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def literal(value: object) -> str:
    r"""Return a value as it is written in a statement.

    Raises:
        InvalidInput: A text holds a NUL character, which no text of PostgreSQL can.

    Example:
        >>> [literal(value) for value in (None, True, 7, -7, "it's", b"ok")]
        ['NULL', '1', '7', '(-7)', "'it''s'", "'\\x6f6b'::bytea"]
    """
    match value:
        case None:
            return "NULL"
        case bool() | int():
            number = int(value)
            return str(number) if number >= 0 else f"({number})"  # two signs begin a comment
        case str():
            return quoted(value)
        case bytes():
            return f"'\\x{value.hex()}'::bytea"
        case _:
            raise TypeError(f"No column takes {type(value).__name__}.")


def quoted(text: str) -> str:
    """Return a text between quotes. Raises `InvalidInput` as `literal` does."""
    if "\0" in text:
        raise nul_character()
    return "'" + text.replace("'", "''") + "'"
