"""Calls of attention() with random numbers, and the formula in f64."""

import numpy as np


def draw(seed=1, batch=2, sq=5, sk=7, heads=4, heads_k=2, dim=16, dim_v=24):
    """The arrays q, k and v."""
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(batch, sq, heads, dim)).astype("f"),
            rng.normal(size=(batch, sk, heads_k, dim)).astype("f"),
            rng.normal(size=(batch, sk, heads_k, dim_v)).astype("f"))


def reference(q, k, v, *, causal=False, window=(-1, -1), softcap=0.0, sinks=None, scale=None,
              first_k=None, lengths_k=None):
    """The result and lse of sequences of one length."""
    batch, sq, heads, dim = q.shape
    q, k, v = (np.asarray(each, np.float64) for each in (q, k, v))
    out = np.zeros((batch, sq, heads, v.shape[3]))
    lse = np.full((batch, heads, sq), -np.inf)
    for b, h, i in np.ndindex(batch, heads, sq):
        first = 0 if first_k is None else first_k[b]
        end = k.shape[1] if lengths_k is None else lengths_k[b]
        position = i + end - sq
        keys = [j for j in range(first, end) if (not causal or j <= position)
                and (window[0] < 0 or j >= position - window[0])
                and (window[1] < 0 or j <= position + window[1])]
        if not keys:
            continue
        kv = h // (heads // k.shape[2])
        scores = k[b, keys, kv] @ q[b, i, h] * (dim**-0.5 if scale is None else scale)
        if softcap:
            scores = softcap * np.tanh(scores / softcap)
        most = scores.max()
        weights = np.exp(scores - most)
        total = weights.sum() + (0 if sinks is None else np.exp(np.float64(sinks[h]) - most))
        out[b, i, h] = weights @ v[b, keys, kv] / total
        lse[b, h, i] = most + np.log(total)
    return out, lse
