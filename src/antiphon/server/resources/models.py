"""The models that runs may ask for, and what is behind their names."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from antiphon.core.telling.listings import Models
from antiphon.engine.keeping.looking import model_told, models_told
from antiphon.server.describing.endpoints import Endpoint
from antiphon.server.http.body import Query, answer, engine_of, queried

PATH: Final = "/antiphon/v1/models"


class Named(Query, frozen=True, kw_only=True):
    """Which of them; all by default. With a key of OpenAI alone any name is one of its models."""

    name: str | None = None


async def _list(request: Request) -> Response:
    """List the models that runs may ask for, the default one first, or the one of a name."""
    name = queried(request, Named).name
    models = engine_of(request).world.settings.models
    if name is None:
        return answer(Models(data=models_told(models)))
    return answer(Models(data=[model_told(models, models.get(name).name)]))


routes: Final = [Endpoint("GET", PATH, _list, query=Named, answer=Models)]
