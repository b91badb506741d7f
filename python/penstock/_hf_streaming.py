"""Experts of a transformers model that are streamed from host memory: what both ways to get there
share, penstock.hf.load() and penstock.hf.offload()."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from . import _core
from ._check import not_negative
from ._compressed_experts import CompressedExpertStore
from ._dtypes import FULL_NAMES, dtype_name
from ._errors import InvalidArgument, Unsupported
from ._experts import ExpertStore, StreamedExperts, as_pair, as_share
from ._experts_torch import refuse_if_deterministic
from ._hf_experts import activation, check
from ._hf_routers import Predict, predictors
from ._packed_experts import DiskExpertStore
from ._progress import ByteProgress
from ._sizes import as_bytes

_CALLS_IN_FLIGHT = 64
_MULTIPLE = 8


@dataclass(frozen=True)
class Experts:
    """What the experts of a model have in common."""

    experts: int
    hidden: int
    width: int
    dtype: str
    layout: str
    transposed: bool
    bias: bool
    model_type: str
    activation: dict[str, Any] = field(hash=False)  # arguments of StreamedExperts.forward()

    def shape(self, layers: int) -> Any:
        return _core.ExpertShape(layers, self.experts, self.hidden, self.width, self.dtype,
                                 self.layout, self.transposed, self.bias)

    def store(self, layers: int, options: "Options") -> ExpertStore | CompressedExpertStore:
        kind: Any = CompressedExpertStore if options.compress else ExpertStore
        store: ExpertStore | CompressedExpertStore = kind(
            layers=layers, experts=self.experts, hidden=self.hidden, width=self.width,
            dtype=self.dtype, layout=self.layout, transposed=self.transposed, bias=self.bias,
            device=options.device)
        return store

    def plain(self, count: int) -> ExpertStore:
        """Room for a few experts in ordinary memory."""
        return ExpertStore(layers=1, experts=count, hidden=self.hidden, width=self.width,
                           dtype=self.dtype, layout=self.layout, transposed=self.transposed,
                           bias=self.bias, device="cpu")


@dataclass(frozen=True)
class Options:
    """The arguments that load() and offload() share, checked."""

    device: _core.Device
    gpu_bytes: int
    policy: str
    prefetch: str
    pinned: tuple[tuple[int, int], ...]
    progress: bool
    compress: bool = False
    host_experts: str = "none"
    host_share: float = 0.0
    host_threads: int = 0
    host_bytes: int | None = None  # of the cache of experts on a disk; None: all are in host memory
    packed: str = ""  # where they are on the disk

    @property
    def torch_device(self) -> torch.device:
        return torch.device("cpu" if self.device.kind == "cpu" else f"cuda:{self.device.index}")


def options_from(device: Any, gpu_memory: Any, policy: str, prefetch: str, pinned: Iterable[Any],
                 progress: bool, compress: bool, host_experts: str, host_share: Any,
                 host_threads: Any, host_memory: Any = None, packed: Any = None) -> Options:
    if policy not in ("frequency", "lru"):
        raise InvalidArgument("policy", "'frequency' or 'lru'", repr(policy))
    if prefetch not in ("none", "previous", "gate"):
        raise InvalidArgument("prefetch", "'none', 'previous' or 'gate'", repr(prefetch))
    if packed is None and host_memory is not None:
        raise InvalidArgument("packed", "a path for a file of packed experts, because host_memory is set", "None")
    if host_memory is None and packed is not None:
        raise InvalidArgument("host_memory", "a number of bytes, or text such as '16GiB', because packed is set",
                              "None")
    if compress and packed is not None:
        raise InvalidArgument("compress", "False, because packed experts are not compressed", "True")
    if packed is not None and not isinstance(packed, (str, os.PathLike)):
        raise InvalidArgument("packed", "a path for a file of packed experts", repr(packed))
    if isinstance(device, torch.device):
        device = str(device)
    options = Options(_core.Device(device), as_bytes("gpu_memory", gpu_memory), policy, prefetch,
                      tuple(as_pair("pinned", each) for each in pinned), progress, bool(compress),
                      host_experts, as_share("host_share", host_share), not_negative("host_threads", host_threads),
                      None if host_memory is None else as_bytes("host_memory", host_memory),
                      "" if packed is None else os.fspath(packed))
    _check_host_experts(options)
    return options


def _check_host_experts(options: Options) -> None:
    """What StreamedExperts would refuse after the weights have been loaded."""
    named, share, threads = options.host_experts, options.host_share, options.host_threads
    if named not in ("none", "balanced", "fixed"):
        raise InvalidArgument("host_experts", "'none', 'balanced' or 'fixed'", repr(named))
    if named != "none" and options.device.kind == "cpu":
        raise InvalidArgument("host_experts", "'none' on the CPU, which computes all experts where they "
                              "are", repr(named))
    if named != "none" and options.compress:
        raise InvalidArgument("host_experts", "'none', because compressed experts cannot be computed "
                              "where they are", repr(named))
    if named != "none" and options.packed:
        raise InvalidArgument("host_experts", "'none', because experts on a disk cannot be computed "
                              "where they are", repr(named))
    if named == "balanced":
        refuse_if_deterministic()
    if named == "fixed" and not 0 < share <= 1:
        raise InvalidArgument("host_share", "a number above 0 and at most 1", repr(share))
    if named != "fixed" and share != 0:
        raise InvalidArgument("host_share", "0, because host_experts is not 'fixed'", repr(share))
    if threads > 256:
        raise InvalidArgument("host_threads", "at most 256", repr(threads))
    if named == "none" and threads != 0:
        raise InvalidArgument("host_threads", "0, because host_experts is 'none'", repr(threads))


class StreamedLayer(torch.nn.Module):
    """The experts of a layer. It has no parameters, so that moving the model does not move them."""

    def __init__(self, streamed: StreamedExperts, layer: int, experts: Experts,
                 predict: Predict | None = None) -> None:
        super().__init__()
        self.num_experts, self.layer = experts.experts, layer
        self._streamed, self._activation = streamed, experts.activation
        self._dtype = getattr(torch, FULL_NAMES[experts.dtype])
        self._predict = predict  # the ids that the next layer will probably choose

    @torch.compiler.disable
    def forward(self, hidden_states: Any, top_k_index: Any, top_k_weights: Any) -> Any:
        """The weighted sum of the chosen experts, shaped like `hidden_states`."""
        x = hidden_states.to(self._dtype).reshape(-1, hidden_states.shape[-1])
        if self._predict is not None and 0 < top_k_index.numel() <= self.num_experts:
            # First, so that the copies can begin while this layer is computed.
            ids = self._predict(hidden_states.reshape(x.shape))
            self._streamed.prefetch(self.layer + 1, ids.contiguous())
        out = self._streamed.forward(self.layer, x, top_k_index.contiguous(),
                                     top_k_weights.contiguous(), **self._activation)
        return out.reshape(hidden_states.shape).to(hidden_states.dtype)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        raise Unsupported(f"penstock.hf: the weights of {prefix}* are in an ExpertStore and not in the "
                          "state of the model; save the model before it is offloaded")

    def extra_repr(self) -> str:
        return f"layer {self.layer} of {self._streamed}"


def found_in(model: Any) -> dict[str, Any]:
    """The modules with experts, by path, in the order of the layers."""
    _refuse_others(model)
    modules = {path: module for path, module in model.named_modules()
               if hasattr(module, "is_transposed") and hasattr(module, "is_concatenated")}
    if not modules:
        raise Unsupported(f"penstock.hf: {type(model).__name__} has no experts that transformers' experts "
                          "interface describes")
    return modules


def _refuse_others(model: Any) -> None:
    """Refuses experts that do not use the experts interface: transformers would compute them as it does
    by default, without an error."""
    for path, module in model.named_modules():
        kind = type(module).__name__
        known = isinstance(module, StreamedLayer) or hasattr(module, "is_concatenated")
        if known or not _looks_like_experts(path, kind):
            continue
        if kind.startswith("Mxfp4"):
            raise Unsupported(f"penstock.hf: {path} ({kind}) has experts in MXFP4, expected bf16, f16 or f32; "
                              "load the model with dequantised weights, by "
                              "quantization_config=Mxfp4Config(dequantize=True)")
        raise Unsupported(f"penstock.hf: expected experts that use transformers' experts interface "
                          f"(use_experts_implementation), given {path} ({kind}) of "
                          f"{type(model).__name__}, which transformers computes without Penstock")


def _looks_like_experts(path: str, kind: str) -> bool:
    return path.rpartition(".")[2] == "experts" or kind.endswith("Experts") and "Shared" not in kind


def described(modules: dict[str, Any]) -> Experts:
    """What the experts of all layers have in common. Refuses what cannot be streamed."""
    all_of_them = {path: _described(module, path) for path, module in modules.items()}
    first, *others = all_of_them.items()
    for path, experts in others:
        if experts != first[1]:
            raise Unsupported(f"penstock.hf: expected experts of one kind in all layers, given {first[1]} "
                              f"in {first[0]} and {experts} in {path}")
    return first[1]


def _described(module: Any, path: str) -> Experts:
    name = f"{path} ({type(module).__name__})"
    sizes = check(module, name)
    if sizes.hidden % _MULTIPLE or sizes.width % _MULTIPLE:
        raise Unsupported(f"penstock.hf: {name} has experts of hidden size {sizes.hidden} and width "
                          f"{sizes.width}, expected multiples of {_MULTIPLE}")
    return Experts(sizes.experts, sizes.hidden, sizes.width, dtype_name(module.gate_up_proj.dtype),
                   "concatenated" if module.is_concatenated else "interleaved",
                   bool(module.is_transposed), bool(module.has_bias), module.config.model_type,
                   activation(module, name))


def resident_bytes(model: Any, modules: Iterable[Any]) -> int:
    """The bytes of everything but `modules`. Tied weights count once."""
    streamed = {id(each) for module in modules for each in module.parameters()}
    tied = getattr(model, "all_tied_weights_keys", None) or {}
    seen, total = set(streamed), 0
    for name, each in [*model.named_parameters(), *model.named_buffers()]:
        if id(each) in seen or each.is_meta and name in tied:
            continue
        seen.add(id(each))
        total += each.numel() * each.element_size()
    return total


def cache_bytes(options: Options, experts: Experts, layers: int, resident: int) -> int:
    """What is left of the memory for the cache of experts; 0 on the CPU if experts are computed where
    they are."""
    if options.device.kind == "cpu" and not options.compress:
        return 0
    least = experts.shape(layers).least_bytes(len(options.pinned), _CALLS_IN_FLIGHT, options.compress)
    if options.gpu_bytes < resident + least:
        raise InvalidArgument(
            "gpu_memory", f"at least {resident + least} bytes: {resident} for the weights other than "
            f"experts and {least} for a cache of experts", str(options.gpu_bytes))
    return options.gpu_bytes - resident


def check_before_loading(options: Options, experts: Experts, layers: int, resident: int) -> None:
    """Refuses options with which loading would fail at its end."""
    for layer, expert in options.pinned:
        if not (0 <= layer < layers and 0 <= expert < experts.experts):
            raise InvalidArgument("pinned", f"layers below {layers} and experts below {experts.experts}",
                                  f"({layer}, {expert})")
    if options.compress and experts.dtype != "bf16":
        raise Unsupported(f"penstock.hf: expected experts in bf16 to compress them, given {experts.dtype}")
    cache = cache_bytes(options, experts, layers, resident)
    if options.device.kind == "cpu":
        return
    free = options.device.capabilities["free_bytes"]
    needed = resident + min(cache, experts.shape(layers).nbytes)
    if needed > free:
        raise InvalidArgument("gpu_memory", f"at most {free} bytes, which are free on "
                              f"{options.device.name}", str(options.gpu_bytes))


def streamed_from(store: ExpertStore | CompressedExpertStore | DiskExpertStore, options: Options,
                  device_bytes: int) -> StreamedExperts:
    return StreamedExperts(store, device=options.device, device_bytes=device_bytes,
                           policy=options.policy, pinned=options.pinned,
                           prefetch="none" if options.prefetch == "gate" else options.prefetch,
                           host_experts=options.host_experts, host_share=options.host_share,
                           host_threads=options.host_threads, calls_in_flight=_CALLS_IN_FLIGHT)


def predictors_for(model: Any, paths: Iterable[str], experts: Experts, options: Options
                   ) -> list[Predict]:
    """The routers that predict what layers need, if the options say so."""
    return predictors(model, paths, experts.model_type) if options.prefetch == "gate" else []


def install(model: Any, paths: Iterable[str], streamed: StreamedExperts, experts: Experts,
            options: Options) -> None:
    predict = predictors_for(model, paths, experts, options)
    if options.device.kind == "cpu" and isinstance(streamed.store, ExpertStore):
        predict = []  # nothing is copied
    for layer, path in enumerate(paths):
        following = predict[layer + 1] if layer + 1 < len(predict) else None
        model.set_submodule(path, StreamedLayer(streamed, layer, experts, following))
    model.streamed_experts = streamed


def offload(model: Any, options: Options) -> Any:
    """Moves the experts of a model in host memory to a store and the rest to the device. If it fails,
    the model is as it was."""
    modules = found_in(model)
    if any(hasattr(module, "_hf_hook") for module in model.modules()):
        raise InvalidArgument("model", "one in host memory, loaded without device_map; penstock.hf.load loads "
                              "it with its experts offloaded", "one that accelerate has dispatched")
    for name, each in model.named_parameters():
        if each.device.type != "cpu":
            raise InvalidArgument("model", "one in host memory, loaded without device_map",
                                  f"one with {name} on {each.device}")
    experts = described(modules)
    predictors_for(model, modules, experts, options)  # refuses models before anything is moved
    resident = resident_bytes(model, modules.values())
    check_before_loading(options, experts, len(modules), resident)
    device_bytes = cache_bytes(options, experts, len(modules), resident)
    store = experts.store(len(modules), options)
    total = experts.shape(len(modules)).nbytes
    with ByteProgress("Moving experts", total, options.progress) as progress:
        for layer, module in enumerate(modules.values()):
            _copy(module, store, layer)
            progress.add(total // len(modules))
    streamed = streamed_from(store, options, device_bytes)
    try:
        install(model, modules, streamed, experts, options)
        model.to(options.torch_device)
    except BaseException:
        for path, module in modules.items():
            model.set_submodule(path, module)
        vars(model).pop("streamed_experts", None)
        model.to("cpu")
        streamed.close()
        raise
    return model


def _copy(module: Any, store: ExpertStore | CompressedExpertStore, layer: int) -> None:
    parts = {"gate_up": module.gate_up_proj, "down": module.down_proj}
    if module.is_transposed:
        parts = {part: weights.mT for part, weights in parts.items()}
    if module.has_bias:
        parts |= {"gate_up_bias": module.gate_up_proj_bias, "down_bias": module.down_proj_bias}
    for expert in range(store.experts):
        of_expert = {part: weights[expert].detach() for part, weights in parts.items()}
        if isinstance(store, CompressedExpertStore):
            store.set(layer, expert, **of_expert)
            continue
        for part, one in of_expert.items():
            getattr(store, part)(layer, expert, like="torch").copy_(one)
