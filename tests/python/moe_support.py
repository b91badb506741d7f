"""Draws inputs of moe() and computes its result in NumPy."""

import numpy as np


def draw(seed=1, tokens=9, choices=3, experts=5, hidden=24, width=16, dtype=np.float32):
    """The arguments of moe(), with an expert that no token has and ids that mean no expert."""
    rng = np.random.default_rng(seed)
    x = rng.normal(0, 1, (tokens, hidden))
    gate_up = rng.normal(0, hidden**-0.5, (experts, 2 * width, hidden))
    down = rng.normal(0, width**-0.5, (experts, hidden, width))
    ids = rng.integers(0, experts, (tokens, choices))
    if experts > 1:
        ids[ids == 1] = 0
    ids[rng.uniform(size=ids.shape) < 0.1] = experts + seed % 3
    weights = rng.uniform(0, 1, (tokens, choices)).astype(np.float32)
    return {"x": x.astype(dtype), "gate_up": gate_up.astype(dtype), "down": down.astype(dtype),
            "ids": ids.astype(np.int32 if seed % 2 else np.int64), "weights": weights}


def reference(x, gate_up, down, ids, weights, *, rounded=lambda values: values, without=()):
    """The result in f64. `rounded` rounds the input of the down projection and its result; experts
    in `without` are not there."""
    x, gate_up, down, weights = (each.astype(np.float64) for each in (x, gate_up, down, weights))
    width = down.shape[2]
    out = np.zeros(x.shape)
    for token, row in enumerate(x):
        for id, weight in zip(ids[token], weights[token]):
            if not 0 <= id < len(down) or id in without:
                continue
            gate, up = gate_up[id, :width] @ row, gate_up[id, width:] @ row
            out[token] += weight * rounded(down[id] @ rounded(gate / (1 + np.exp(-gate)) * up))
    return out


def interleaved(gate_up):
    experts, rows, hidden = gate_up.shape
    halves = gate_up.reshape(experts, 2, rows // 2, hidden)
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(gate_up.shape)
