"""Which retrievers the configuration names, and how they are made.

[retrievers.notes]
factory = "harbour.search:notes"
url = "http://127.0.0.1:9001/v1"
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Final

import msgspec

from antiphon.core.knowledge.retrieval import Retriever
from antiphon.errors import InvalidInput

FACTORY: Final = "factory"


class NamedRetriever(msgspec.Struct, frozen=True, kw_only=True):
    """One retriever: who makes it, and what that is given.

    Attributes:
        factory: `package.module:function`, found as Python finds packages.
        options: The table's other keys, by their names.
        at: Where it stands in the file.
    """

    factory: str
    options: Mapping[str, Any]
    at: str


def read_retrievers(tables: object, place: str) -> tuple[NamedRetriever, ...]:
    """Return the retrievers of the file's `[retrievers.NAME]` tables; nothing is imported yet.

    Raises:
        InvalidInput: `invalid_setting`; `at` is the place.
    """
    if not isinstance(tables, dict):
        raise _bad(f"{place}: retrievers", "Retrievers are tables, such as [retrievers.notes].")
    found = []
    for name, table in tables.items():
        at = f"{place}: retrievers.{name}"
        factory = table.get(FACTORY) if isinstance(table, dict) else None
        module, _, function = factory.partition(":") if isinstance(factory, str) else ("", "", "")
        if not module or not function:
            raise _bad(at, 'It needs a factory, such as "package.module:function".')
        options = {key: value for key, value in table.items() if key != FACTORY}
        found.append(NamedRetriever(factory=str(factory), options=options, at=at))
    return tuple(found)


@asynccontextmanager
async def open_retrievers(named: tuple[NamedRetriever, ...]) -> AsyncIterator[list[Retriever]]:
    """Make the retrievers, and close those that want to be closed.

    A factory returns a retriever, or an asynchronous context that yields one.

    Raises:
        InvalidInput: `invalid_setting`: there is no such factory, or it takes no such options.
    """
    async with AsyncExitStack() as opened:
        made: list[Retriever] = []
        for one in named:
            retriever = await asyncio.to_thread(_made, one)  # it may import much
            if isinstance(retriever, AbstractAsyncContextManager):
                retriever = await opened.enter_async_context(retriever)
            if not isinstance(getattr(retriever, "name", None), str) or not callable(
                getattr(retriever, "retrieve", None)
            ):
                raise _bad(one.at, "What the factory makes has no name, or no method retrieve.")
            made.append(retriever)
        yield made


def _made(one: NamedRetriever) -> Any:  # noqa: ANN401 - whatever somebody's function returns
    module, _, function = one.factory.partition(":")
    try:
        factory: Callable[..., Any] = getattr(importlib.import_module(module), function)
        return factory(**one.options)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        problem = f"{type(error).__name__}: {error}"
    raise _bad(one.at, f"{one.factory} makes no retriever. {problem}")


def _bad(at: str, message: str) -> InvalidInput:
    return InvalidInput(message, code="invalid_setting", at=at)
