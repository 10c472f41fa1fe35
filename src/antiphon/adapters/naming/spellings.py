"""Names of ours as a provider takes them: the same name always comes out the same, and no two as one.

What a name is spelled as is made from the name alone, so the same history goes out alike in
every request and every process. Ours stays in the history; theirs is only ever on the wire.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Generic, Self, TypeVar

Ours = TypeVar("Ours", bound=str)


class Spellings(ABC, Generic[Ours]):
    """How the names of one line are spelled on the wire, and whose each spelling is."""

    __slots__ = ("_ours", "_theirs")

    def __init__(self) -> None:
        self._theirs: dict[Ours, str] = {}
        self._ours: dict[str, Ours] = {}

    @property
    def ours(self) -> Mapping[str, Ours]:
        """Whose each spelling is that was given. A view: it grows with the line."""
        return MappingProxyType(self._ours)

    @property
    def theirs(self) -> Mapping[Ours, str]:
        """How each name is spelled that was asked for, in the order they came. A view."""
        return MappingProxyType(self._theirs)

    def take(self, spelled: Mapping[Ours, str]) -> None:
        """Take over spellings that were made before, of names like these."""
        self._theirs.update(spelled)
        self._ours.update({spelling: name for name, spelling in spelled.items()})

    def copy(self) -> Self:
        """Return spellings that stand where these stand."""
        other = copy.copy(self)
        other._theirs, other._ours = self._theirs.copy(), self._ours.copy()
        return other

    def sent_as(self, name: Ours) -> str:
        """Return the spelling of `name`: itself wherever the provider takes it and it is free.

        Raises:
            InvalidInput: No spelling that can be made fits the profile.
        """
        known = self._theirs.get(name)
        if known is None:
            if name not in self._ours and self._fits(name):
                known = str(name)
            else:
                known = next(s for s in self._made_from(name) if s not in self._ours)
            self._theirs[name] = known
            self._ours[known] = name
        return known

    @abstractmethod
    def _fits(self, spelling: str) -> bool:
        """Return whether the provider takes a spelling."""

    @abstractmethod
    def _made_from(self, name: Ours) -> Iterable[str]:
        """Yield spellings made from this name that the provider takes, always the same ones."""
