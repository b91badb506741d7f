"""Runs the experts of Hugging Face transformers models with :func:`penstock.moe`, and their attention
with :func:`penstock.attention`, forward only. :class:`KVCache` is a cache for `generate` that grows
in place.

    import penstock.hf
    penstock.hf.register()
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="penstock")
    penstock.hf.use(model)

:func:`use` switches the experts of a loaded model, and refuses models whose experts Penstock does not
compute. ``attn_implementation="penstock"``, or ``model.set_attn_implementation("penstock")`` for a loaded
model, is for the attention. Either may be used alone. Call the model under ``torch.no_grad()`` or
``torch.inference_mode()``; ``generate`` does that itself.

:func:`load` and :func:`offload` are for models whose experts do not fit on the GPU: the experts stay in
host memory and are copied as tokens need them (:class:`penstock.StreamedExperts`).

    model = penstock.hf.load("Qwen/Qwen3-30B-A3B", gpu_memory="20GiB")

This module needs transformers 5.7 or later and torch, which its functions and :class:`KVCache` import.
"""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import os

    from ._hf_cache import KVCache as KVCache

__all__ = ["KVCache", "load", "offload", "register", "use"]

# The first version whose experts say whether gate and up are concatenated or interleaved.
_OLDEST_TRANSFORMERS = 5, 7


def __getattr__(name: str) -> Any:
    if name != "KVCache":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from ._hf_cache import KVCache
    except ImportError as error:
        raise ImportError("penstock.hf: expected transformers 5.7 or later with its cache interface, and torch: "
                          f"{error}") from error
    return KVCache


def register(name: str = "penstock") -> None:
    """Makes ``experts_implementation=name`` and ``attn_implementation=name`` known to transformers. It
    may be called again.

    ``from_pretrained(..., experts_implementation=name)`` ignores the name, without an error, for models
    whose experts do not use transformers' experts interface. :func:`use` refuses such models.

    Raises ImportError if torch is missing, or transformers 5.7 or later.
    """
    _need_transformers()
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.finegrained_fp8 import FP8ExpertsInterface
    from transformers.integrations.moe import ExpertsInterface

    from ._hf_attention import attention, mask
    from ._hf_experts import experts

    AttentionInterface.register(name, attention)
    AttentionMaskInterface.register(name, mask)
    ExpertsInterface.register(name, experts)
    # Models with quantised experts look here. experts() refuses them with the reason.
    FP8ExpertsInterface.register(name, experts)


def use(model: Any, name: str = "penstock") -> Any:
    """Makes a loaded model compute its experts with Penstock, after checking the experts of every layer.
    Returns `model`.

        model = AutoModelForCausalLM.from_pretrained(path, dtype="bfloat16", device_map="cuda")
        penstock.hf.use(model)

    `name` is the name of the implementation, which is registered if necessary. Models of :func:`load` and
    :func:`offload` compute their experts with Penstock already, and are not changed.

    Raises :class:`penstock.Unsupported` if the experts of a layer do not use transformers' experts
    interface, as in Llama 4 and DBRX, if they are quantised, or if their dtypes, sizes or activation are
    not supported. The message names the module, and the model is as it was. Raises ImportError as
    :func:`register`.
    """
    register(name)
    from ._hf_use import use as use_experts

    return use_experts(model, name)


def load(path_or_name: Any, *, gpu_memory: int | str = "20GiB", device: Any = None, dtype: Any = "auto",
         policy: str = "frequency", prefetch: str = "none", pinned: Iterable[tuple[int, int]] = (),
         progress: bool = True, revision: str | None = None,
         attn_implementation: str | None = None, compress: bool = False, host_experts: str = "none",
         host_share: float = 0.0, host_threads: int = 0, host_memory: int | str | None = None,
         packed: "str | os.PathLike[str] | None" = None) -> Any:
    """Loads a mixture-of-experts model whose experts stay in host memory.

    `path_or_name` is a folder with ``config.json`` and safetensors files, or a name on the Hugging Face
    Hub. The experts are read straight into page-locked memory; everything else is loaded onto `device`,
    the first GPU by default, or the CPU if there is none. `gpu_memory`, a number of bytes or text, is for
    all weights on the GPU: what the other weights leave is a cache of experts. The cache of keys and
    values and the activations need memory besides.

    `dtype` is that of the checkpoint by default. `policy`, `prefetch`, `pinned`, `host_experts`,
    `host_share` and `host_threads` are those of :class:`penstock.StreamedExperts`, which the model has as
    ``model.streamed_experts``. With ``prefetch="gate"``, the router of the next layer is applied to the
    hidden states of the current one, and the experts that it chooses are copied while the link is idle.
    `progress` shows a bar, by tqdm if it is installed. `revision` and `attn_implementation` are those of
    ``from_pretrained``; ``attn_implementation="penstock"`` needs no call of :func:`register`.

    With `compress`, the experts are kept compressed without loss
    (:class:`penstock.CompressedExpertStore`): they take about two thirds of the host memory and of the
    time on the link. Loading takes longer. The experts must be in bf16. On the CPU, `gpu_memory` then
    limits the memory of the other weights and a cache of decompressed experts.

    `host_memory` and `packed` are for experts that do not fit into host memory either. `packed` is the path
    of a file on a fast disk, and `host_memory` the size of the cache through which experts are read from
    it (:class:`penstock.DiskExpertStore`), a number of bytes or text such as ``"16GiB"``. If the file does
    not exist, the experts are packed into it once, which needs as much free space as the experts take, and
    time; with `progress`, a line says where the file is, when it was packed and how long that took. An
    existing file is used if it holds these experts: sizes are compared, and the weights of one expert per
    layer.

    Returns the model, ready for ``generate``. Raises :class:`penstock.InvalidArgument` if `gpu_memory` is
    too small, the checkpoint lacks tensors or files, or `packed` has other experts, and
    :class:`penstock.Unsupported` for quantised checkpoints, for models whose experts or, with
    ``prefetch="gate"``, whose routers are not understood, and for experts in f16 or f32 that are to be
    compressed. Raises ImportError as :func:`register`.
    """
    register()  # attn_implementation may be its name
    from ._hf_loading import load as load_with
    from ._hf_streaming import options_from

    options = options_from(device, gpu_memory, policy, prefetch, pinned, progress, compress,
                           host_experts, host_share, host_threads, host_memory, packed)
    return load_with(path_or_name, options, dtype, revision, attn_implementation)


def offload(model: Any, *, gpu_memory: int | str = "20GiB", device: Any = None,
            policy: str = "frequency", prefetch: str = "none", pinned: Iterable[tuple[int, int]] = (),
            progress: bool = True, compress: bool = False, host_experts: str = "none",
            host_share: float = 0.0, host_threads: int = 0) -> Any:
    """Moves the experts of a model in host memory to page-locked memory, from which they are streamed,
    and the rest of the model to `device`. Returns `model`.

    The arguments are those of :func:`load`; experts on a disk come from :func:`load` alone. While the
    experts are moved, they are in host memory twice; :func:`load` avoids that. Raises what :func:`load` raises. The model is then as it was.
    """
    _need_transformers()
    from ._hf_streaming import offload as offload_with
    from ._hf_streaming import options_from

    return offload_with(model, options_from(device, gpu_memory, policy, prefetch, pinned, progress,
                                            compress, host_experts, host_share, host_threads))


def _need_transformers() -> None:
    """Refuses to work without torch, and with versions of transformers that lack what Penstock needs."""
    oldest = ".".join(map(str, _OLDEST_TRANSFORMERS))
    expected = f"penstock.hf: expected transformers {oldest} or later, and torch"
    try:
        import transformers
    except ImportError as error:
        raise ImportError(f"{expected}: {error}") from error
    version = transformers.__version__
    if tuple(map(int, re.findall(r"\d+", version)[:2])) < _OLDEST_TRANSFORMERS:
        raise ImportError(f"{expected}; given transformers {version}")
    try:
        import transformers.integrations.finegrained_fp8  # noqa: F401

        from . import _hf_attention, _hf_experts  # noqa: F401
    except ImportError as error:
        raise ImportError(f"{expected}; given transformers {version}, of which this version of Penstock "
                          f"cannot import all that it needs: {error}") from error
