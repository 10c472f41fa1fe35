"""Our own resources, under `/antiphon/v1/`: trees, runs, exact requests, events with two cursors."""

from __future__ import annotations

from typing import Final

from antiphon.server.describing.endpoints import Endpoint
from antiphon.server.resources import (
    calls,
    conversations,
    copies,
    dispatches,
    erasures,
    events,
    following,
    imports,
    keys,
    knowledge,
    messages,
    models,
    rollouts,
    runs,
)

routes: Final[list[Endpoint]] = [
    *conversations.routes,
    *copies.routes,
    *events.routes,
    *following.routes,
    *messages.routes,
    *models.routes,
    *runs.routes,
    *calls.routes,
    *dispatches.routes,
    *erasures.routes,
    *imports.routes,
    *keys.routes,
    *rollouts.routes,
    *knowledge.routes,
]
