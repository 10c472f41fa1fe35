"""What an application asks of a run, of whom, and what it brings for a run's calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from antiphon.core.manifest import Mapping as Mended
from antiphon.core.manifest import ToolDeclaration, Truncation


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What a run is asked to do, beside its input. None is the model's own default."""

    model: str | None = None
    instructions: str | None = None
    named: str | None = None
    """Instructions that the tenant keeps, by their name or as `name@version`; before the others."""
    tools: tuple[ToolDeclaration, ...] = ()
    tool_choice: str | None = None
    parallel_tool_calls: bool | None = None
    temperature: float | None = None
    max_output_tokens: int | None = None
    truncation: Truncation | None = None
    """Whether older turns may be left out where the model cannot hold all."""
    compact: bool = True
    """Whether older talk may become a checkpoint where the model's window fills up."""
    extra: Mapping[str, msgspec.Raw] = field(default_factory=dict)
    """Options as the model's dialect names them."""
    repairs: tuple[Mended, ...] = ()
    """What was done to a history that came broken; every manifest of the run lists it."""
    key: str = ""
    """The id of the key that asks; what it costs is counted there."""
    alone: bool = False
    """Whether the run is refused, instead of queued, where another one works."""
    answer_schema: msgspec.Raw | None = None
    """A JSON Schema that the answer is judged by once it is committed; the provider is not told."""
    retry_answer: bool = False
    """Whether the model is told of an answer that does not fit, and asked once more."""
    steer: bool = False
    """Whether the message may join the run that works, at its next step boundary. Where that run
    ends before it has one, the message is worked through as any other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """A result that somebody else brings for a call."""

    text: str
    error: bool = False
    code: str | None = None


class ModelTold(msgspec.Struct, frozen=True, kw_only=True):
    """A model that a run may ask for by its name, and what is behind the name."""

    name: str
    about: str
    default: bool = False
