"""Draws inputs of moe() and computes its result in NumPy."""

import math

import numpy as np

ACTIVATIONS = ("swiglu", "geglu", "geglu_tanh", "clamped_swiglu")


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


def more(call, seed=1, biases=True, shared=16, weighted=True):
    """Arguments of moe() beside those of `call`: biases, and an expert of width `shared`."""
    rng = np.random.default_rng(seed)
    (tokens, hidden), (experts, rows, _) = call["x"].shape, call["gate_up"].shape
    dtype, drawn = call["x"].dtype, {}
    if biases:
        drawn["gate_up_bias"] = rng.normal(0, 1, (experts, rows)).astype(dtype)
        drawn["down_bias"] = rng.normal(0, 1, (experts, hidden)).astype(dtype)
    if shared:
        drawn["shared_gate_up"] = rng.normal(0, hidden**-0.5, (2 * shared, hidden)).astype(dtype)
        drawn["shared_down"] = rng.normal(0, shared**-0.5, (hidden, shared)).astype(dtype)
    if shared and weighted:
        drawn["shared_weights"] = rng.uniform(0, 1, tokens).astype(np.float32)
    return drawn


def activated(gate, up, activation, alpha, limit):
    if activation == "swiglu":
        return gate / (1 + np.exp(-gate)) * up
    if activation == "geglu":
        return gate * (1 + np.vectorize(math.erf, otypes="d")(gate / math.sqrt(2))) / 2 * up
    if activation == "geglu_tanh":
        return gate * (1 + np.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3))) / 2 * up
    assert activation == "clamped_swiglu"
    gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
    return gate / (1 + np.exp(-alpha * gate)) * (up + 1)


def reference(x, gate_up, down, ids, weights, *, gate_up_bias=None, down_bias=None,
              shared_gate_up=None, shared_down=None, shared_weights=None, activation="swiglu",
              alpha=1.702, limit=7.0, layout="concatenated", rounded=lambda values: values,
              without=()):
    """The result in f64. `rounded` rounds the input of the down projection and its result; experts
    in `without` are not there."""
    x, weights = x.astype(np.float64), weights.astype(np.float64)

    def expert(row, gate_up, down, gate_up_bias=0, down_bias=0):
        both = gate_up.astype(np.float64) @ row + gate_up_bias
        gate, up = np.split(both, 2) if layout == "concatenated" else (both[::2], both[1::2])
        h = rounded(activated(gate, up, activation, alpha, limit))
        return rounded(down.astype(np.float64) @ h + down_bias)

    out = np.zeros(x.shape)
    for token, row in enumerate(x):
        for id, weight in zip(ids[token], weights[token]):
            if 0 <= id < len(down) and id not in without:
                biases = (0 if each is None else each[id].astype(np.float64)
                          for each in (gate_up_bias, down_bias))
                out[token] += weight * expert(row, gate_up[id], down[id], *biases)
        if shared_gate_up is not None:
            weight = 1 if shared_weights is None else float(shared_weights[token])
            out[token] += weight * expert(row, shared_gate_up, shared_down)
    return out


def interleaved(gate_up, axis=1):
    """Rows of gate and up by turns, for weights and biases that have them one after the other."""
    return np.stack(np.split(gate_up, 2, axis), axis + 1).reshape(gate_up.shape)
