"""JSON Schema on numbers as they were written, not on the doubles nearest to them.

On doubles 19.99 is no multiple of 0.01, 0.1000000000000000055 is within a maximum of 0.1, and a
number such as 1e400 cannot be judged at all. Here every number is an `int` or an `Exact`, in the
value and in its schema.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

STEP: Final = 600
"""Digits that are divided at once: no interpreter refuses to read so few from text."""


@cache
def exactly(kind: type[Validator]) -> type[Validator]:
    """Return a validator of the same draft that counts without rounding."""
    from jsonschema.validators import extend

    ours = {name: _multiple_of for name in ("multipleOf", "divisibleBy") if name in kind.VALIDATORS}
    integer = kind.TYPE_CHECKER.is_type
    checker = kind.TYPE_CHECKER.redefine(
        "integer", lambda _, value: integer(value, "integer") or _is_whole(value)
    )
    made: type[Validator] = extend(kind, validators=ours, type_checker=checker)  # type: ignore[no-untyped-call]  # it has no types
    return made


def is_multiple(value: Decimal, factor: Decimal) -> bool:
    """Say whether `value` is a whole number of times `factor`, which is not 0.

    No power of ten is written out: an exponent of a few digits would fill the memory.

    Example:
        >>> is_multiple(Decimal("19.99"), Decimal("0.01")), is_multiple(Decimal("1e400"), Decimal(3))
        (True, False)
    """
    digits, exponent = _scaled(value)
    by, by_exponent = _scaled(factor)
    if not digits.strip("0"):
        return True
    divisor = int(Decimal(by))
    shift = exponent - by_exponent
    if shift < 0:
        # What the factor has more in powers of ten, the value has to have as zeros.
        whole = digits.rstrip("0")
        taken = min(len(digits) - len(whole), -shift)
        digits, shift = digits[: len(digits) - taken], shift + taken
        return shift == 0 and _remainder(digits, divisor) == 0
    return _remainder(digits, divisor) * pow(10, shift, divisor) % divisor == 0


def _multiple_of(_: Validator, factor: int | Decimal, value: object, __: object) -> Iterator[Any]:
    from jsonschema.exceptions import ValidationError

    if not isinstance(value, int | Decimal) or isinstance(value, bool):
        return
    if not is_multiple(Decimal(value), Decimal(factor)):
        yield ValidationError(f"{value!r} is not a multiple of {factor!r}")


def _is_whole(value: object) -> bool:
    return isinstance(value, Decimal) and value == value.to_integral_value()


def _scaled(value: Decimal) -> tuple[str, int]:
    """Return the digits of a finite number and the power of ten that they are times."""
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    return "".join(map(str, digits)), exponent


def _remainder(digits: str, divisor: int) -> int:
    rest = 0
    for start in range(0, len(digits), STEP):
        piece = digits[start : start + STEP]
        rest = (rest * 10 ** len(piece) + int(piece)) % divisor
    return rest
