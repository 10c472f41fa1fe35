"""The models that runs may ask for, and what is behind their names."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from antiphon.core.asking import ModelTold
from antiphon.core.listings import Models
from antiphon.engine.looking import model_told, models_told
from antiphon.server.body import answer, engine_of
from antiphon.server.endpoints import Endpoint

PATH: Final = "/antiphon/v1/models"


async def _list(request: Request) -> Response:
    """List the models that runs may ask for, the default one first."""
    return answer(Models(data=models_told(engine_of(request).world.settings.models)))


async def _get(request: Request) -> Response:
    """Return what is behind a name; with a key of OpenAI alone, any name is one of its models."""
    models = engine_of(request).world.settings.models
    return answer(model_told(models, models.get(request.path_params["model"]).name))


routes: Final = [
    Endpoint("GET", PATH, _list, answer=Models),
    Endpoint("GET", PATH + "/{model:path}", _get, answer=ModelTold),
]
