"""penstock.hf.use(): checks all experts of a transformers model and lets Penstock compute them."""

from typing import Any

from ._errors import InvalidArgument, Unsupported
from ._hf_experts import activation, check
from ._hf_streaming import StreamedLayer, found_in
from ._route import MOST_CHOICES

# What configurations call the number of experts per token.
_CHOICES = "num_experts_per_tok", "top_k_experts", "moe_topk"


def use(model: Any, name: str) -> Any:
    if not hasattr(model, "set_experts_implementation"):
        raise InvalidArgument("model", "a model of transformers", type(model).__name__)
    if any(isinstance(module, StreamedLayer) for module in model.modules()):
        return model
    modules = found_in(model)
    for path, module in modules.items():
        _check(path, module)
    model.set_experts_implementation(name)
    # transformers skips models in whose source file it does not find its decorator, such as classes
    # that are derived from its own.
    for config in (model.config, *(module.config for module in modules.values())):
        if config._experts_implementation != name:
            config._experts_implementation = {"": name}
    return model


def _check(path: str, module: Any) -> None:
    called = f"{path} ({type(module).__name__})"
    check(module, called)
    activation(module, called)
    for each in _CHOICES:
        choices = getattr(module.config, each, None)
        if isinstance(choices, int) and choices > MOST_CHOICES:
            raise Unsupported(f"penstock.hf: {called} has {choices} experts per token, expected at most "
                              f"{MOST_CHOICES}")
