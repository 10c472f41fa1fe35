"""The models that there are, as OpenAI's SDK lists them."""

from __future__ import annotations

from typing import Final, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from antiphon.engine.catalogue.models import Models
from antiphon.server.describing.endpoints import Endpoint
from antiphon.server.http.body import answer, engine_of

PATH: Final = "/v1/models"


class ModelObject(msgspec.Struct, frozen=True, kw_only=True):
    """A model; `owned_by` is the dialect that its provider speaks."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    """Every model that has a name here, the default one first."""

    object: Literal["list"] = "list"
    data: tuple[ModelObject, ...]


async def _list(request: Request) -> Response:
    """List the models that there are."""
    models = engine_of(request).world.settings.models
    return answer(ModelList(data=tuple(_told(models, name) for name in models.names())))


async def _get(request: Request) -> Response:
    """Return one model."""
    models = engine_of(request).world.settings.models
    return answer(_told(models, models.get(request.path_params["model"]).name))


def _told(models: Models, name: str) -> ModelObject:
    known = models.named.get(name)
    return ModelObject(id=name, owned_by=known.profile if known else models.get(name).profile)


routes: Final = [
    Endpoint("GET", PATH, _list, answer=ModelList),
    Endpoint("GET", PATH + "/{model:path}", _get, answer=ModelObject),
]
