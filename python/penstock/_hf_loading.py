"""penstock.hf.load(): a transformers model whose experts go from the files of a checkpoint straight into
the memory from which they are streamed."""

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import torch
import transformers
from transformers import AutoConfig
from transformers.utils import logging

from . import _hf_packing, weights
from ._compressed_experts import CompressedExpertStore
from ._dtypes import FULL_NAMES, float_name
from ._errors import InvalidArgument, Unsupported
from ._expert_reader import ExpertReader
from ._experts import ExpertStore
from ._hf_names import sources
from ._hf_streaming import (Options, cache_bytes, check_before_loading, described, found_in, install,
                            predictors_for, resident_bytes, streamed_from)
from ._packed_experts import DiskExpertStore
from ._progress import ByteProgress

# Names of experts' weights in checkpoints: transformers is told not to miss them.
_EXPERTS = r"\.experts\."


def load(path_or_name: Any, options: Options, dtype: Any, revision: str | None,
         attn_implementation: str | None) -> Any:
    folder = _folder(path_or_name, revision)
    checkpoint = weights.open(folder)
    config = AutoConfig.from_pretrained(folder)
    _refuse_quantised(config)
    more: dict[str, Any] = {}
    if attn_implementation is not None:
        more["attn_implementation"] = attn_implementation
    if options.device.kind != "cpu":
        _need_accelerate()
        more["device_map"] = {"": options.torch_device}
    plain = _class_of(config)
    with _Loading(checkpoint, str(path_or_name), options) as loading:
        with _bars(options.progress):
            model, report = _stripped(plain, loading).from_pretrained(
                folder, config=config, dtype=_torch_dtype(dtype), use_safetensors=True,
                local_files_only=True, output_loading_info=True, ignore_mismatched_sizes=True, **more)
        model.__class__ = plain
        _check(report, plain.__name__, str(path_or_name))
        loading.finish(model)
    return model


class _Loading:
    """What is known about the experts when transformers has built the model on the meta device.

    The end of the `with` block releases the memory of the experts, unless a model has it by then. The class
    of _stripped() refers to this object, and classes live until Python collects garbage. An error refers to
    the memory by the frames in its traceback, and the interactive interpreter keeps the last error.
    """

    def __init__(self, checkpoint: weights.Checkpoint, where: str, options: Options) -> None:
        self._checkpoint, self._where, self._options = checkpoint, where, options
        self._store: ExpertStore | CompressedExpertStore | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        vars(self).clear()
        traceback.clear_frames(trace)

    def strip(self, model: Any) -> None:
        """Takes the experts out of a model on the meta device. Checks everything that can be checked
        before weights are read."""
        modules = found_in(model)
        self._paths = list(modules)
        self._experts = described(modules)
        predictors_for(model, modules, self._experts, self._options)  # refuses models
        self._sources = [source for layer, path in enumerate(modules)
                         for source in sources(self._checkpoint, self._where, path, layer,
                                               self._experts, model.base_model_prefix)]
        check_before_loading(self._options, self._experts, len(modules),
                             resident_bytes(model, modules.values()))
        if self._options.packed:
            _hf_packing.check(self._options, self._experts, len(modules))
        else:  # its memory is locked while transformers loads the other weights
            self._store = self._experts.store(len(modules), self._options)
        for path in modules:
            model.set_submodule(path, torch.nn.Module())
        ignored = model._keys_to_ignore_on_load_unexpected
        kind = set if isinstance(ignored, set) else list  # which it is before transformers 5.9
        model._keys_to_ignore_on_load_unexpected = kind((*(ignored or ()), _EXPERTS))

    def finish(self, model: Any) -> None:
        reader = ExpertReader(self._checkpoint, self._sources, self._experts.dtype)
        store: ExpertStore | CompressedExpertStore | DiskExpertStore
        if self._store is None:
            store = _hf_packing.opened(self._options, self._experts, len(self._paths), self._where,
                                       reader.read)
        else:
            with ByteProgress("Loading experts", reader.nbytes, self._options.progress) as progress:
                reader.fill(self._store, progress)
            store = self._store
        device_bytes = cache_bytes(self._options, self._experts, len(self._paths),
                                   resident_bytes(model, ()))
        install(model, self._paths, streamed_from(store, self._options, device_bytes),
                self._experts, self._options)


def _stripped(plain: Any, loading: _Loading) -> Any:
    """A class of models that are built without experts; transformers then loads the others' weights
    and skips those in the checkpoint."""

    class Stripped(plain):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            loading.strip(self)

    Stripped.__name__, Stripped.__qualname__ = plain.__name__, plain.__qualname__
    Stripped.__module__ = plain.__module__
    return Stripped


def _folder(path_or_name: Any, revision: str | None) -> str:
    if isinstance(path_or_name, (str, os.PathLike)) and os.path.isdir(path_or_name):
        return str(path_or_name)
    if not isinstance(path_or_name, str) or path_or_name.count("/") > 1 or path_or_name[:1] in "./~":
        raise InvalidArgument("path_or_name", "a folder with config.json and safetensors files, or a "
                              "name on the Hugging Face Hub", repr(path_or_name))
    from huggingface_hub import snapshot_download

    found: str = snapshot_download(path_or_name, revision=revision,
                                   allow_patterns=["*.json", "*.safetensors"])
    return found


def _refuse_quantised(config: Any) -> None:
    for part in (config, config.get_text_config()):
        found = getattr(part, "quantization_config", None)
        if found:
            method = found.get("quant_method") if isinstance(found, dict) else found
            raise Unsupported(f"penstock.hf.load: expected a checkpoint in bf16, f16 or f32, given one "
                              f"quantised by {method}; store it dequantised first")


def _class_of(config: Any) -> Any:
    for name in config.architectures or ():
        found = getattr(transformers, name, None)
        if found is not None:
            return found
    mapping = transformers.AutoModelForCausalLM._model_mapping
    if type(config) not in mapping:
        raise Unsupported(f"penstock.hf.load: transformers has no model for {type(config).__name__}")
    return mapping[type(config)]


def _check(report: Any, name: str, where: str) -> None:
    """Refuses a checkpoint from which transformers could not load all weights."""
    if report["missing_keys"]:
        raise InvalidArgument("path_or_name", f"a checkpoint with all weights of {name}",
                              f"{where} without {', '.join(sorted(report['missing_keys']))}")
    for tensor, given, wanted in sorted(report["mismatched_keys"]):
        raise InvalidArgument("path_or_name", f"{tensor} of shape {tuple(wanted)}, as config.json says",
                              f"{tuple(given)} in {where}")


def _torch_dtype(dtype: Any) -> Any:
    return dtype if dtype == "auto" else getattr(torch, FULL_NAMES[float_name(dtype)])


def _need_accelerate() -> None:
    try:
        import accelerate  # noqa: F401
    except ImportError as error:
        raise ImportError("penstock.hf.load: expected accelerate, with which transformers loads weights "
                          f"onto a GPU: {error}") from None


@contextmanager
def _bars(shown: bool) -> Iterator[None]:
    """Without the progress bars of transformers if `shown` is false."""
    if shown or not logging.is_progress_bar_enabled():
        yield
        return
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.enable_progress_bar()
