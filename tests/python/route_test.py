"""route() on the CPU, with NumPy arrays, against a reference in f64. moe_torch_test.py has torch."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

import penstock
from penstock import route

MODES = ["softmax_topk", "topk_softmax", "sigmoid"]


def softmax(values):
    parts = np.exp(values - values.max(initial=0))
    return parts / parts.sum()


def best(scores, count):
    """The indices of the largest scores; if they are equal, the lower index comes first."""
    return np.argsort(-scores, kind="stable")[:count]


def one(row, k, scoring, bias, groups, top_groups):
    """(ids, weights) of a token, whose scores are all numbers."""
    if scoring == "sigmoid":
        scores = 1 / (1 + np.exp(-row))
        compared = (scores + bias).reshape(groups, -1)
        if groups > 1:
            sums = np.sort(compared, 1)[:, -2:].sum(1)
            left = np.setdiff1d(np.arange(groups), best(sums, top_groups))
            compared[left] = -np.inf
        ids = best(compared.ravel(), k)
        return ids, scores[ids]
    ids = best(row, k)
    return ids, softmax(row)[ids] if scoring == "softmax_topk" else softmax(row[ids])


def reference(logits, k, scoring="softmax_topk", bias=0, groups=1, top_groups=1, renormalise=False,
              scale=1.0):
    ids, weights = np.empty((len(logits), k), int), np.empty((len(logits), k))
    for token, row in enumerate(logits.astype(np.float64)):
        ids[token], chosen = one(row, k, scoring, bias, groups, top_groups)
        weights[token] = chosen / (chosen.sum() if renormalise else 1) * scale
    return ids, weights


@hypothesis.settings(max_examples=200, deadline=None)
@hypothesis.given(seed=st.integers(0, 2**32), tokens=st.integers(0, 9), k=st.integers(1, 8),
                  groups=st.sampled_from([1, 2, 4]), size=st.integers(2, 20),
                  scoring=st.sampled_from(MODES), renormalise=st.booleans(),
                  dtype=st.sampled_from([np.float32, np.float16]))
def test_as_the_reference(seed, tokens, k, groups, size, scoring, renormalise, dtype):
    rng = np.random.default_rng(seed)
    more = {"scoring": scoring, "renormalise": renormalise, "scale": 2.5}
    experts, k = groups * size, min(k, 2 * size)
    if scoring == "sigmoid":
        # Multiples of 1/64 that are far from each other, so that roundings do not change the order.
        more |= {"bias": (rng.permutation(experts) / 4).astype(np.float32), "groups": groups,
                 "top_groups": (groups + 1) // 2}
        k = min(k, size * more["top_groups"])
    k = min(k, experts)
    logits = np.array([rng.permutation(experts) for _ in range(tokens)]).reshape(tokens, experts)
    logits = (logits / 8).astype(dtype)
    wanted_ids, wanted = reference(logits, k, **more)
    ids, weights = route(logits, k, **more)
    assert ids.dtype == np.int32 and weights.dtype == np.float32
    assert np.array_equal(ids, wanted_ids)
    assert (abs(weights - wanted) <= 1e-5 * wanted).all()


def test_into_given_arrays():
    logits = np.random.default_rng(1).normal(size=(7, 12)).astype(np.float32)
    wanted_ids, wanted = route(logits, 3)
    ids, weights = np.full((7, 3), -9), np.full((7, 3), np.nan, np.float32)
    got = route(logits, 3, ids=ids, weights=weights)
    assert got[0] is ids and got[1] is weights
    assert np.array_equal(ids, wanted_ids) and np.array_equal(weights, wanted)
    for dtype in ("int64", np.int64, "i64"):
        assert route(logits, 3, id_dtype=dtype)[0].dtype == np.int64
    apart = np.full((7, 20), np.nan, np.float32)
    apart[:, :12] = logits
    assert np.array_equal(route(apart[:, :12], 3)[1], wanted)


def test_ties_and_what_cannot_be_chosen():
    logits = np.zeros((3, 4), np.float32)
    logits[1] = np.nan, 1, -np.inf, np.inf
    logits[2] = -np.inf
    ids, weights = route(logits, 3)
    assert ids.tolist() == [[0, 1, 2], [3, 1, 4], [4, 4, 4]]
    assert (weights[0] == 0.25).all() and weights[1, 2] == 0 and not weights[2].any()


def test_shares_its_result_with_moe():
    rng = np.random.default_rng(2)
    x, gate_up, down = (rng.normal(size=shape).astype(np.float32)
                        for shape in ((5, 8), (6, 16, 8), (6, 8, 8)))
    logits = rng.normal(size=(5, 6)).astype(np.float32)
    logits[3] = -np.inf
    ids, weights = route(logits, 2)
    out = penstock.moe(x, gate_up, down, ids, weights)
    assert np.isfinite(out).all() and not out[3].any() and out[2].any()


@pytest.mark.parametrize("k, more, says", [
    (0, {}, "^k: expected 1 to 16, and at most 12, the number of experts, given 0"),
    (13, {}, "^k: expected .*given 13"),
    (2.0, {}, "^k: expected a whole number, given 2.0"),
    ("2", {}, "^k: expected a whole number, given '2'"),
    (3, {"scoring": "loudest"}, "^scoring: expected 'softmax_topk', .*given 'loudest'"),
    (3, {"ids": np.zeros((7, 2), np.int32)}, "^ids: expected a row of k = 3 elements"),
    (3, {"ids": np.zeros((7, 3), np.float32)}, "^ids: expected .*given f32"),
    (3, {"weights": np.zeros((7, 3))}, "^weights: expected .*given f64"),
    (3, {"weights": np.zeros((6, 3), np.float32)}, "^weights: "),
    (3, {"id_dtype": "f32"}, "^id_dtype: expected int32 or int64, given 'f32'"),
    (3, {"bias": np.zeros(12, np.float32)}, "^bias: "),
    (3, {"scoring": "sigmoid", "bias": np.zeros(11, np.float32)}, "^bias: "),
    (3, {"scoring": "sigmoid", "groups": 5}, "^groups: "),
    (3, {"scoring": "sigmoid", "groups": 4, "top_groups": 5}, "^top_groups: "),
])
def test_errors_name_the_argument(k, more, says):
    with pytest.raises(penstock.InvalidArgument, match=says):
        route(np.zeros((7, 12), np.float32), k, **more)


def test_what_has_no_tokens_and_experts_is_refused():
    with pytest.raises(penstock.InvalidArgument, match="^logits: expected .T, E., given"):
        route(np.zeros(12, np.float32), 2)
    with pytest.raises(penstock.InvalidArgument, match="^logits: expected .*given f64"):
        route(np.zeros((3, 12)), 2)
    with pytest.raises(TypeError, match="^logits: expected an array, given list"):
        route([[1.0, 2.0]], 1)
