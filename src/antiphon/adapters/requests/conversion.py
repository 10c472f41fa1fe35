"""A request of one form as a request of another: parsed there, its options translated, rendered here."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from antiphon.adapters.base import Adapter, Parsed, Rendering, render
from antiphon.adapters.registry import form_of, options_of
from antiphon.adapters.requests import options
from antiphon.adapters.requests.parsing import Spelled
from antiphon.core.digests import NO_KEY
from antiphon.errors import InvalidInput, SequenceRejected


def convert(
    parsed: Parsed, adapter: Adapter, *, source: str | None, model: str = "", endpoint: str = ""
) -> Rendering:
    """Return what was parsed as a request that `adapter` makes.

    Args:
        parsed: What the other adapter read.
        adapter: Who says it anew.
        source: The profile that it was parsed with; None for our own graph.
        model: The model's name at its new provider, where it is another.
        endpoint: Where the request would go.

    Raises:
        SequenceRejected: The line may not be sent there. Places are those of what was parsed.
        InvalidInput: `unsupported_parameter`: it holds what our graph, or the other form,
            cannot carry; `at` is the place.
    """
    if parsed.findings:
        raise SequenceRejected(parsed.findings)
    if parsed.uncarried:
        raise InvalidInput(
            "The dialect allows this, but this release cannot carry it.",
            code="unsupported_parameter",
            at=parsed.uncarried[0],
        )
    if impossible := parsed.check_options():
        raise SequenceRejected(impossible)
    form = form_of(adapter.name)
    extra, left_out = options.translate(
        parsed.policy, form_of(source) if source else form, form, options_of(adapter.name)
    )
    temperature = parsed.policy.temperature
    policy = msgspec.structs.replace(
        parsed.policy,
        temperature=float(temperature) if isinstance(temperature, Spelled) else temperature,
        model=model or parsed.policy.model,
        endpoint=endpoint,
        profile=adapter.name,
        extra=extra,
    )
    try:
        made = render(adapter, parsed.messages, policy, parsed.tools, key=NO_KEY)
    except SequenceRejected as rejected:
        raise SequenceRejected(parsed.located(rejected.findings)) from None
    except InvalidInput as refused:
        raise _located(refused, parsed) from None
    located = tuple(
        msgspec.structs.replace(m, block=parsed.places.get(m.block, m.block)) for m in made.mappings
    )
    return replace(made, mappings=(*left_out, *located))


def _located(refused: InvalidInput, parsed: Parsed) -> InvalidInput:
    """Return a refusal at the place that the writer of the request can find."""
    at = (refused.at or "").removeprefix("extra.")
    return InvalidInput(refused.message, code=refused.code, at=parsed.places.get(at, at) or None)
