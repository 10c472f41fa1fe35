"""Tools that a model may call: what they are, how typed functions become them, how they run."""

from antiphon.engine.tools.function import Function

__all__ = ["Function"]
