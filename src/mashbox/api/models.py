"""GET /v1/models and /v1/models/{id}: the one model this server runs."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from mashbox.api.settings import ServeConfig
from mashbox.api.wire import model_not_found
from mashbox.engine.client import EngineClient
from mashbox.http.json import json_response


class ModelCard(msgspec.Struct):
    """The model object. `gb` is 10^9 bytes of weights, `bpw` bits per weight; both absent until loaded."""

    id: str
    object: str
    owned_by: str
    created: int
    max_model_len: int
    weights: str
    prefix_cache: bool
    slots: int
    cache_ram_mib: int
    gb: float | msgspec.UnsetType = msgspec.UNSET
    bpw: float | msgspec.UnsetType = msgspec.UNSET


class Models:
    """Both routes' handlers. They answer while the model loads, too."""

    def __init__(self, engine: EngineClient, config: ServeConfig) -> None:
        self._engine = engine
        self._config = config

    async def handle_list(self, request: Request) -> Response:
        """The list of one."""
        return json_response({"object": "list", "data": [self.card()]})

    async def handle_one(self, request: Request) -> Response:
        """The model, when the path names it; ModelNotFoundError otherwise."""
        asked: str = request.path_params["model"]
        if asked != self._config.model_id:
            raise model_not_found(asked, self._config.model_id)
        return json_response(self.card())

    def card(self) -> ModelCard:
        """What is known of the model now."""
        config = self._config
        card = ModelCard(
            id=config.model_id,
            object="model",
            owned_by="mashbox-labs",
            created=0,
            max_model_len=config.context,
            weights=config.weights,
            prefix_cache=True,
            slots=config.slots,
            cache_ram_mib=config.cache_ram_mib,
        )
        if (facts := self._engine.status.facts) is not None:
            card.max_model_len = facts.context
            card.slots = facts.slots
            card.gb = round(facts.weight_bytes / 1e9, 2)
            card.bpw = round(facts.weight_bytes * 8 / facts.parameters, 2)
        return card
