"""Runs the experts of Hugging Face transformers models with :func:`penstock.moe`, and their attention
with :func:`penstock.attention`, forward only. :class:`KVCache` is a cache for `generate` that grows
in place.

    import penstock.hf
    penstock.hf.register()
    model = AutoModelForCausalLM.from_pretrained(name, experts_implementation="penstock",
                                                 attn_implementation="penstock")

or, for a model that is already loaded, ``model.set_experts_implementation("penstock")`` and
``model.set_attn_implementation("penstock")``. Either may be used alone. Call the model under ``torch.no_grad()`` or ``torch.inference_mode()``; ``generate`` does that itself.

This module needs transformers 5 and torch, which :func:`register` and :class:`KVCache` import.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._hf_cache import KVCache as KVCache

__all__ = ["KVCache", "register"]


def __getattr__(name: str) -> Any:
    if name != "KVCache":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from ._hf_cache import KVCache
    except ImportError as error:
        raise ImportError("penstock.hf: expected transformers 5 with its cache interface, and torch: "
                          f"{error}") from error
    return KVCache


def register(name: str = "penstock") -> None:
    """Makes ``experts_implementation=name`` and ``attn_implementation=name`` known to transformers. It
    may be called again."""
    try:
        from transformers import AttentionInterface, AttentionMaskInterface
        from transformers.integrations.finegrained_fp8 import FP8ExpertsInterface
        from transformers.integrations.moe import ExpertsInterface
    except ImportError as error:
        raise ImportError("penstock.hf: expected transformers 5 with its experts interface, and "
                          f"torch: {error}") from error
    from ._hf_attention import attention, mask
    from ._hf_experts import experts

    AttentionInterface.register(name, attention)
    AttentionMaskInterface.register(name, mask)
    ExpertsInterface.register(name, experts)
    # Models with quantised experts look here. experts() refuses them with the reason.
    FP8ExpertsInterface.register(name, experts)
