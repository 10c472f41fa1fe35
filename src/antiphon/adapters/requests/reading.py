"""A client's request, read message by message: what is said, where it stood, and what is wrong.

The shape of a request is its dialect's; how findings are collected, so that one unreadable
message does not hide the others, is the same for all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from antiphon.adapters.requests.parsing import Malformed, encode, type_name
from antiphon.core.blocks import (
    Block,
    Message,
    Origin,
    Role,
    Text,
    Trust,
    block_id,
    default_trust,
    part_id,
)
from antiphon.core.ids import ConversationId, MessageId
from antiphon.core.rules.findings import Finding
from antiphon.errors import InvalidInput

REQUEST: Final = ConversationId("request")
SYSTEM: Final = MessageId("system")
NOT_CARRIED: Final = "(not carried)"
"""Stands in our graph for what is legal there and cannot stand in it."""


T = TypeVar("T")


class RequestReader:
    """Collects what is read of one request."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.findings: list[Finding] = []
        self.places: dict[str, str] = {}
        self.uncarried: list[str] = []
        self.inside: dict[str, list[str]] = {}
        """Where the parts of each result stand, by the place of the result."""
        self._position = 0

    def attempt(self, at: str, read: Callable[[], None]) -> bool:
        """Read what stands at `at`; return whether it could be: if not, there is a finding."""
        try:
            read()
        except Malformed as problem:
            self.find(problem.code, f"{at}{problem.at}", str(problem))
            return False
        return True

    def find(self, code: str, at: str, message: str, *, first: bool = False) -> None:
        """Note what is wrong at `at`, in the order of reading or before all else."""
        position = -1 if first else self._position
        self.findings.append(Finding(code=code, at=at, position=position, message=message))

    def say(
        self,
        name: MessageId,
        role: Role,
        placed: Sequence[tuple[Block, str]],
        *,
        author: str | None = None,
    ) -> None:
        """Put a message at the end of the line; each block comes with its place."""
        for order, (_, place) in enumerate(placed):
            self.places[block_id(name, order)] = place
            for number, inner in enumerate(self.inside.get(place, ())):
                self.places[part_id(block_id(name, order), number)] = inner
        self._position += len(placed) or 1
        self.messages.append(
            Message(
                id=name,
                conversation=REQUEST,
                parent=self.messages[-1].id if self.messages else None,
                role=role,
                blocks=tuple(block for block, _ in placed),
                origin=Origin.CLIENT,
                trust=Trust.TOOL if role is Role.TOOL else default_trust(role, Origin.CLIENT),
                name=author,
            )
        )


def role_of(item: Mapping[str, object], roles: Mapping[str, Role]) -> Role:
    """Return who says a message.

    Raises:
        Malformed: `role_unsupported`: it is none of `roles`.
    """
    word = item.get("role")
    role = roles.get(word) if isinstance(word, str) else None
    if role is None:
        known = ", ".join(roles)
        raise Malformed("", f"There is no role {word!r}; known are {known}.", "role_unsupported")
    return role


def elsewhere_asked(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return a line that goes on from what its provider keeps: there stand the calls answered here.

    Results of calls that the request does not hold stand in it as something that the user says.
    """
    made = {call.call_id for message in messages for call in message.calls}
    return tuple(
        msgspec.structs.replace(
            message,
            role=Role.USER,
            blocks=(Text(text=NOT_CARRIED),),
            trust=default_trust(Role.USER, Origin.CLIENT),
        )
        if message.results and made.isdisjoint(r.call_id for r in message.results)
        else message
        for message in messages
    )


def options(fields: Mapping[str, object]) -> dict[str, msgspec.Raw]:
    """Return options as a policy keeps them, in the order of their names; null is absent."""
    return {n: msgspec.Raw(encode(v)) for n, v in sorted(fields.items()) if v is not None}


def option(fields: Mapping[str, object], name: str, kind: type[T], inside: str = "") -> T | None:
    """Return one option, or None; a whole number is a fraction too.

    Raises:
        InvalidInput: `wrong_shape`: it is of another type.
    """
    value = fields.get(name)
    if value is None or (isinstance(value, kind) and not (kind is int and isinstance(value, bool))):
        return value
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return value  # type: ignore[return-value]  # an int where a float is expected
    raise InvalidInput(
        f"This option is not {type_name(value)}.", code="wrong_shape", at=f"{inside}{name}"
    )
