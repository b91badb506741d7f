"""Stores of experts with random weights, and the same weights for moe()."""

import numpy as np

BITS = {"f32": np.float32, "f16": np.float16, "bf16": np.uint16}


def draw_weights(seed=1, layers=3, experts=5, hidden=24, width=16, bias=False):
    """Per layer the weights of moe(), in f32."""
    rng = np.random.default_rng(seed)
    drawn = []
    for _ in range(layers):
        one = {"gate_up": rng.normal(0, hidden**-0.5, (experts, 2 * width, hidden)),
               "down": rng.normal(0, width**-0.5, (experts, hidden, width))}
        if bias:
            one |= {"gate_up_bias": rng.normal(0, 1, (experts, 2 * width)),
                    "down_bias": rng.normal(0, 1, (experts, hidden))}
        drawn.append({part: each.astype(np.float32) for part, each in one.items()})
    return drawn


def bits_of(values, dtype):
    """`values` in f32, as a store of `dtype` shows them to NumPy; bf16 by truncation."""
    if dtype == "bf16":
        return (np.ascontiguousarray(values).view(np.uint32) >> 16).astype(np.uint16)
    return values.astype(BITS[dtype])


def fill(store, weights):
    """Fills a store through NumPy, after everything was poisoned."""
    for layer, drawn in enumerate(weights):
        for expert in range(store.experts):
            for part in drawn:
                view = getattr(store, part)(layer, expert)
                view[...] = 0x7FC0 if store.dtype == "bf16" else np.nan
    for layer, drawn in enumerate(weights):
        for part, values in drawn.items():
            for expert, one in enumerate(bits_of(values, store.dtype)):
                getattr(store, part)(layer, expert)[...] = one
    return store


def draw_tokens(seed=1, tokens=9, choices=2, experts=5, hidden=24, dtype=np.float32):
    """x, ids and weights; some ids mean no expert."""
    rng = np.random.default_rng(seed)
    ids = rng.permuted(np.tile(np.arange(experts), (tokens, 1)), axis=1)[:, :choices]
    ids = np.ascontiguousarray(ids).astype(np.int32 if seed % 2 else np.int64)
    ids[rng.uniform(size=ids.shape) < 0.1] = experts + seed % 3
    return (rng.normal(0, 1, (tokens, hidden)).astype(dtype), ids,
            rng.uniform(0, 1, ids.shape).astype(np.float32))
