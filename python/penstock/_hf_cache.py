"""transformers' cache interface over :class:`penstock.KVCache`. penstock.hf exports KVCache.

transformers calls update() in every layer with keys and values of shape (B, H, S, D), rotated already,
and passes the tensors that it returns, those of all rows, to the attention function.
"""

from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from ._dtypes import dtype_name
from ._errors import InvalidArgument, Unsupported
from ._kv_cache import KVCache as Rows

_ATTENTION = ("full_attention", "sliding_attention", "chunked_attention")


class KVCache(Cache):
    """A cache for `transformers` that grows in place, to be passed as `past_key_values`:

        cache = penstock.hf.KVCache(model.config)
        model.generate(**inputs, past_key_values=cache)

    It is a :class:`penstock.KVCache`, made by the first forward pass, when the batch size, the dtype and
    the device are known. It holds at most `capacity` rows per sequence, by default
    `max_position_embeddings` of `config`; a longer generation raises InvalidArgument. Only addresses
    are reserved for them. `ahead` and `block_bytes` are those of penstock.KVCache. Any
    `attn_implementation` can be used.

    Layers with a sliding window keep all rows. Layers that have states instead of keys and values, such
    as linear attention, layers on several devices, and torch.compile are not supported. The cache has no
    backward: call the model under ``torch.no_grad()``; `generate` does that itself.
    """

    def __init__(self, config: Any, *, capacity: int | None = None, ahead: int = 256,
                 block_bytes: int | None = None) -> None:
        config = config.get_text_config(decoder=True)
        types = getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers
        # The last layers of some models use the keys and values of earlier ones.
        types = types[:len(types) - (getattr(config, "num_kv_shared_layers", None) or 0)]
        others = sorted(set(types) - set(_ATTENTION))
        if others:
            raise Unsupported(f"penstock.hf.KVCache: expected layers of attention, found {others}; "
                              "use transformers' own cache")
        if capacity is None:
            capacity = getattr(config, "max_position_embeddings", None)
            if capacity is None:
                raise InvalidArgument("capacity", "a number of rows, as the configuration has no "
                                      "max_position_embeddings", "None")
        self._begin(_Store(len(types), capacity, ahead, block_bytes))

    def _begin(self, store: "_Store") -> None:
        self.store = store
        super().__init__(layers=[_Layer(store, index) for index in range(store.layers)])

    def __deepcopy__(self, memo: Any) -> "KVCache":
        made = object.__new__(type(self))
        made._begin(self.store.copy())
        return made

    @property
    def rows(self) -> Rows | None:
        """The :class:`penstock.KVCache`; None before the first forward pass."""
        return self.store.rows

    def crop(self, tokens_to_remove: int) -> None:
        """Removes the last ``-tokens_to_remove`` rows; as in transformers 5, a positive number is
        that of the rows to keep."""
        length = self.store.length(0)
        keep = length + tokens_to_remove if tokens_to_remove <= 0 else tokens_to_remove
        self.store.crop(max(0, min(length, keep)))

    def reset(self) -> None:
        """Removes all rows. The memory is kept; ``cache.rows.shrink()`` gives it back."""
        self.store.crop(0)

    def reorder_cache(self, beam_idx: Any) -> None:
        self.store.select(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        self.store.select(torch.arange(self.store.sequences).repeat_interleave(repeats))

    def batch_select_indices(self, indices: Any) -> None:
        self.store.select(torch.arange(self.store.sequences)[indices.cpu()])


class _Store:
    """The rows of all layers, and their tensors."""

    def __init__(self, layers: int, capacity: int, ahead: int, block_bytes: int | None) -> None:
        self.layers, self.capacity = layers, capacity
        self.others: dict[str, Any] = {"ahead": ahead, "block_bytes": block_bytes}
        self.rows: Rows | None = None
        self.like: tuple[Any, ...] = ()
        self.whole: list[tuple[Any, Any]] = []

    @property
    def sequences(self) -> int:
        return 0 if self.rows is None else self.like[0]

    def open(self, layer: int, key: Any, value: Any) -> None:
        """Makes the cache for keys and values like these, unless it is there."""
        like = (key.shape[0], key.shape[1], key.shape[3], value.shape[3], key.dtype, key.device)
        if self.like == like:
            return
        if self.rows is not None and any(self.length(index) for index in range(self.layers)):
            names = ("sequences", "heads", "dimension", "dimension of values", "dtype", "device")
            for name, has, given in zip(names, self.like, like):
                if has != given:
                    raise Unsupported(f"penstock.hf.KVCache: layer {layer} has {name} {given}, but "
                                      f"the cache has {name} {has}")
        sequences, heads, dim, dim_v, dtype, device = like
        self._make(sequences, heads, dim, dim_v, dtype, device)

    def _make(self, sequences: int, heads: int, dim: int, dim_v: int, dtype: Any,
              device: Any) -> None:
        # Device memory must not exist twice while one cache replaces another.
        self.whole, self.rows = [], None
        self.rows = Rows(layers=self.layers, sequences=sequences, heads=heads, dim=dim, dim_v=dim_v,
                         dtype=dtype_name(dtype), capacity=self.capacity, device=str(device),
                         **self.others)
        self.like = (sequences, heads, dim, dim_v, dtype, device)
        with torch.inference_mode(False):  # so that they can be changed in place outside of it, too
            self.whole = [tuple(torch.from_dlpack(each).permute(0, 2, 1, 3)
                                for each in (self.rows.whole_k(layer), self.rows.whole_v(layer)))
                          for layer in range(self.layers)]

    def copy(self) -> "_Store":
        made = _Store(self.layers, self.capacity, **self.others)
        for layer in range(self.layers):
            if self.length(layer):
                made.append(layer, *self.of(layer))
        return made

    def append(self, layer: int, key: Any, value: Any) -> tuple[Any, Any]:
        self.open(layer, key, value)
        assert self.rows is not None
        self.rows.append(layer, _row_major(key), _row_major(value))
        return self.of(layer)

    def of(self, layer: int) -> tuple[Any, Any]:
        length = self.length(layer)
        key, value = self.whole[layer]
        return key[:, :, :length], value[:, :, :length]

    def length(self, layer: int) -> int:
        return 0 if self.rows is None else self.rows.length(layer)

    def crop(self, rows: int) -> None:
        if self.rows is not None:
            self.rows.crop(rows)

    def select(self, indices: Any) -> None:
        """Makes sequence i a copy of what sequence indices[i] was."""
        if self.rows is None or not any(self.length(layer) for layer in range(self.layers)):
            return
        indices = indices.to(self.like[-1])
        if len(indices) == self.sequences:
            for layer in range(self.layers):
                for each in self.of(layer):
                    each.copy_(each.index_select(0, indices))
            return
        kept = [tuple(each.index_select(0, indices) for each in self.of(layer))
                for layer in range(self.layers)]
        self._make(len(indices), *self.like[1:])
        for layer, (key, value) in enumerate(kept):
            self.append(layer, key, value)


def _row_major(tensor: Any) -> Any:
    """(B, S, H, D), with contiguous rows."""
    return (tensor if tensor.stride(-1) == 1 else tensor.contiguous()).transpose(1, 2)


class _Layer(CacheLayerMixin):
    """What transformers asks of a layer of the cache."""

    is_sliding = False
    is_croppable = True

    def __init__(self, store: _Store, index: int) -> None:
        self._store, self._index = store, index

    @property
    def is_initialized(self) -> bool:
        return self._store.rows is not None

    @property
    def keys(self) -> Any:
        return self._store.of(self._index)[0] if self.is_initialized else None

    @property
    def values(self) -> Any:
        return self._store.of(self._index)[1] if self.is_initialized else None

    def lazy_initialization(self, key_states: Any, value_states: Any) -> None:
        self._store.open(self._index, key_states, value_states)

    def update(self, key_states: Any, value_states: Any, *_: Any, **__: Any) -> tuple[Any, Any]:
        return self._store.append(self._index, key_states, value_states)

    def get_seq_length(self, *_: Any) -> int:
        return self._store.length(self._index)

    def get_mask_sizes(self, query_length: Any) -> tuple[int, int]:
        # The first versions of transformers 5 pass the positions of the queries.
        new = query_length if isinstance(query_length, int) else query_length.shape[0]
        return self.get_seq_length() + new, 0

    def get_max_length(self) -> int:
        return self._store.capacity

    get_max_cache_shape = get_max_length

    def crop(self, *_: Any) -> None:
        self._refuse("crop")

    def reset(self) -> None:
        self._refuse("reset")

    def reorder_cache(self, *_: Any) -> None:
        self._refuse("reorder_cache")

    def offload(self) -> None:
        self._refuse("offload")

    def _refuse(self, what: str) -> None:
        raise Unsupported(f"penstock.hf.KVCache: {what} of one layer; call it for the cache")
