"""Ollama's own chat API. Version 1."""

from __future__ import annotations

from collections.abc import Mapping

from antiphon.adapters.dialect import Dialect, Pieces
from antiphon.adapters.ollama import parse, read
from antiphon.adapters.ollama.profile import OLLAMA, Wire
from antiphon.adapters.ollama.render import OllamaLine
from antiphon.adapters.openai_chat import errors

PIECES = Pieces(line=OllamaLine, reader=read.Reader, classify=errors.classify, parse=parse.parse)


class Ollama(Dialect[Wire]):
    """The dialect at version 1, with the facts of one model."""

    def __init__(self, facts: Mapping[str, object] | None = None) -> None:
        super().__init__(OLLAMA, Wire(), facts, PIECES)


__all__ = ["Ollama"]
