"""The routers of transformers models, for predicting which experts the next layer will need."""

from collections.abc import Callable, Iterable
from typing import Any

import torch

from ._errors import Unsupported

# By model_type: what the module that holds the experts calls its router. Routers map tokens (T, d) to
# logits, weights and ids (T, K). The tests run each of these models.
ROUTERS = {
    "deepseek_v2": "gate",
    "deepseek_v3": "gate",
    "glm4_moe": "gate",
    "gpt_oss": "router",
    "mixtral": "gate",
    "olmoe": "gate",
    "qwen2_moe": "gate",
    "qwen3_moe": "gate",
    "qwen3_next": "gate",
}

Predict = Callable[[torch.Tensor], torch.Tensor]


def predictors(model: Any, paths: Iterable[str], model_type: str) -> list[Predict]:
    """Per layer with experts, whose paths are given: tokens (T, d) to the ids (T, K) that its router
    chooses for them."""
    name = ROUTERS.get(model_type)
    if name is None:
        raise Unsupported(f"penstock.hf: expected a model of type {', '.join(ROUTERS)} for "
                          f"prefetch='gate', which needs to know the router, given {model_type}; use "
                          "prefetch='previous' or 'none'")
    return [_predictor(model, path.rpartition(".")[0], name) for path in paths]


def _predictor(model: Any, parent: str, name: str) -> Predict:
    router = getattr(model.get_submodule(parent), name, None)
    if not isinstance(router, torch.nn.Module):
        raise Unsupported(f"penstock.hf: expected a router {parent}.{name} for prefetch='gate', which "
                          f"this {type(model).__name__} does not have")

    def predict(hidden_states: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            # Without hooks of the module: with them transformers collects what routers return.
            ids: torch.Tensor = type(router).forward(router, hidden_states)[-1]
        return ids

    return predict
