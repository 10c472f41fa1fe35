"""The response object: what was asked, as it was asked, and how far it has come."""

from __future__ import annotations

from typing import Final

from antiphon.core.records import Response, RunStatus
from antiphon.handles.run import run_error
from antiphon.server.responses.output import Json, as_json
from antiphon.server.responses.request import Create
from antiphon.server.responses.write import Status, Stretch

SECOND_MS: Final = 1000


def resource(response: Response, asked: Create, model: str, stretch: Stretch) -> Json:
    """Return a response as the wire has it, with every field that it may have.

    Fields that nobody set have the value that holds without them.
    """
    return {
        "id": response.id,
        "object": "response",
        "created_at": response.created_ms // SECOND_MS,
        "completed_at": _completed(stretch),
        "status": stretch.status.value,
        "incomplete_details": {"reason": stretch.cut} if stretch.cut else None,
        "error": _error(response, stretch),
        "model": model,
        "previous_response_id": response.previous,
        "conversation": {"id": response.conversation},
        "instructions": asked.instructions,
        "output": [as_json(item) for item in stretch.items],
        "tools": [_tool(tool) for tool in asked.tools or ()],
        "tool_choice": "auto" if asked.tool_choice is None else asked.tool_choice,
        "parallel_tool_calls": asked.parallel_tool_calls is not False,
        "truncation": asked.truncation or "disabled",
        "text": {"format": {"type": "text"}, **(asked.text or {})},
        "reasoning": {"effort": None, "summary": None, **(asked.reasoning or {})},
        "temperature": _or(asked.temperature, 1.0),
        "top_p": _or(asked.top_p, 1.0),
        "presence_penalty": _or(asked.presence_penalty, 0.0),
        "frequency_penalty": _or(asked.frequency_penalty, 0.0),
        "top_logprobs": 0,
        "max_output_tokens": asked.max_output_tokens,
        "max_tool_calls": None,
        "usage": usage(stretch),
        "store": response.stored,
        "background": bool(asked.background),
        "service_tier": "default",
        "metadata": asked.metadata or {},
        "user": asked.user,
        "safety_identifier": asked.safety_identifier,
        "prompt_cache_key": asked.prompt_cache_key,
        "antiphon": {"run": response.run, "code": stretch.code},
    }


def _completed(stretch: Stretch) -> int | None:
    if stretch.status is not Status.COMPLETED or stretch.ended_ms is None:
        return None
    return stretch.ended_ms // SECOND_MS


def _error(response: Response, stretch: Stretch) -> Json | None:
    if stretch.status not in (Status.FAILED, Status.CANCELLED):
        return None
    code = stretch.code or "server_error"
    if stretch.failure is not None:
        return {"code": code, "message": stretch.failure.message}
    ended = RunStatus.CANCELED if stretch.status is Status.CANCELLED else RunStatus.ERROR
    return {"code": code, "message": run_error(response.run, ended, code).message}


def usage(stretch: Stretch) -> Json | None:
    """Return what a stretch cost, once anything of it was committed."""
    used = stretch.used
    if used is None:
        return None
    return {
        "input_tokens": used.input_tokens,
        "input_tokens_details": {
            "cached_tokens": used.cached_tokens,
            "cache_write_tokens": used.cache_write_tokens,
        },
        "output_tokens": used.output_tokens,
        "output_tokens_details": {"reasoning_tokens": used.reasoning_tokens},
        "total_tokens": used.input_tokens + used.output_tokens,
    }


def _tool(tool: Json) -> Json:
    """Return a declaration with the fields that the wire requires, as they hold without it."""
    return {"description": None, "parameters": None, "strict": None, **tool}


def _or(value: float | None, usual: float) -> float:
    return usual if value is None else value
