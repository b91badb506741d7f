"""attention() on the CPU, with NumPy arrays, against a reference in f64. attention_torch_test.py has
torch."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

import penstock
from attention_support import draw, reference
from penstock import attention

sizes = st.integers(0, 20)


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(seed=st.integers(0, 2**32), sq=sizes, sk=sizes, causal=st.booleans(),
                  left=st.integers(-1, 12), right=st.integers(-1, 12), capped=st.booleans(),
                  with_sinks=st.booleans())
def test_as_the_reference(seed, sq, sk, causal, left, right, capped, with_sinks):
    q, k, v = draw(seed, sq=sq, sk=sk)
    options = {"causal": causal, "window": (left, right), "softcap": 3.0 if capped else 0.0,
               "sinks": np.linspace(-1, 1, 4, dtype="f") if with_sinks else None}
    out, lse = attention(q, k, v, return_lse=True, **options)
    wanted, wanted_lse = reference(q, k, v, **options)
    np.testing.assert_allclose(out, wanted, rtol=0, atol=1e-5)
    np.testing.assert_allclose(lse, wanted_lse, rtol=0, atol=1e-5)


def test_f16_and_a_scale():
    q, k, v = (each.astype(np.float16) for each in draw())
    out = attention(q, k, v, scale=0.5)
    assert out.dtype == np.float16
    np.testing.assert_allclose(out, reference(q, k, v, scale=0.5)[0], rtol=0, atol=3e-3)


def test_windows_without_limits():
    q, k, v = draw(sq=7)
    for window, same in (((2, None), (2, -1)), ((None, 0), (-1, 0)), ((None, None), None)):
        assert (attention(q, k, v, window=window) == attention(q, k, v, window=same)).all()
    assert (attention(q, k, v, window=(None, 0)) == attention(q, k, v, causal=True)).all()


@pytest.mark.parametrize("yes", [1, np.True_])
def test_options_are_anything_that_is_true_or_false(yes):
    q, k, v = draw()
    options = {"causal": yes, "batch_invariant": yes, "check": yes}
    assert (attention(q, k, v, **options) == attention(q, k, v, causal=True)).all()


def test_into_a_given_array_with_swapped_dimensions():
    q, k, v = draw()
    room = np.full((2, 4, 5, 24), np.nan, "f")
    out = room.swapaxes(1, 2)
    swapped = (each.swapaxes(1, 2).copy().swapaxes(1, 2) for each in (q, k, v))
    assert attention(*swapped, out=out) is out
    assert (out == attention(q, k, v)).all()


def test_padding_has_no_effect():
    q, k, v = draw()
    first, ends = np.array([0, 2], "i4"), np.array([4, 7], "i4")
    wanted, _ = reference(q, k, v, causal=True, first_k=first, lengths_k=ends)
    k[0, 4:], v[0, 4:], k[1, :2], v[1, :2] = np.nan, np.nan, np.nan, np.nan
    out = attention(q, k, v, causal=True, first_k=first, lengths_k=ends, check=True)
    np.testing.assert_allclose(out, wanted, rtol=0, atol=1e-5)


@hypothesis.settings(max_examples=40, deadline=None)
@hypothesis.given(seed=st.integers(0, 2**32), rows=st.integers(1, 9), heads_first=st.booleans(),
                  causal=st.booleans())
def test_keys_in_pages(seed, rows, heads_first, causal):
    q, k, v = draw(seed, sk=14)
    rng = np.random.default_rng(seed)
    most = -(-14 // rows)
    table = rng.permutation(2 * most + 1)[:2 * most].astype("i4").reshape(2, most)
    caches = []
    for each in (k, v):
        cache = np.full((2 * most + 1, rows, 2, each.shape[3]), np.nan, "f")
        for b, row in np.ndindex(2, 14):
            cache[table[b, row // rows], row % rows] = each[b, row]
        caches.append(cache.swapaxes(1, 2).copy().swapaxes(1, 2) if heads_first else cache)
    ends = rng.integers(0, 15, 2).astype("i4")
    out = attention(q, *caches, pages=table, lengths_k=ends, causal=causal, check=True)
    wanted, _ = reference(q, k, v, causal=causal, lengths_k=ends)
    np.testing.assert_allclose(out, wanted, rtol=0, atol=1e-5)


def test_pages_that_do_not_exist_are_zeros():
    q, k, v = draw(batch=1, sk=6)
    table = np.array([[0, 7, -1]], "i4")
    out = attention(q, k.reshape(3, 2, 2, 16), v.reshape(3, 2, 2, 24), pages=table)
    k[:, 2:], v[:, 2:] = 0, 0
    np.testing.assert_allclose(out, reference(q, k, v)[0], rtol=0, atol=1e-5)


def test_sequences_of_several_lengths():
    q, k, v = (each.reshape(-1, *each.shape[2:]) for each in draw(sq=7))
    begins_q, begins_k = np.array([0, 3, 3, 14], "i4"), np.array([1, 5, 8, 14], "i4")
    out, lse = attention(q, k, v, cu_q=begins_q, cu_k=begins_k, causal=True, return_lse=True,
                         max_q=11, max_k=6, check=True)
    assert out.shape == (14, 4, 24) and lse.shape == (4, 14)
    for b in range(3):
        mine, keys = slice(*begins_q[b:b + 2]), slice(*begins_k[b:b + 2])
        wanted, wanted_lse = reference(q[None, mine], k[None, keys], v[None, keys], causal=True)
        np.testing.assert_allclose(out[mine], wanted[0], rtol=0, atol=1e-5)
        np.testing.assert_allclose(lse[:, mine], wanted_lse[0], rtol=0, atol=1e-5)


def test_penstock_arrays():
    q, k, v = draw()
    ours = [penstock.empty(each.shape, device="cpu") for each in (q, k, v)]
    for own, each in zip(ours, (q, k, v)):
        own.numpy()[:] = each
    out, lse = attention(*ours, return_lse=True)
    assert isinstance(out, penstock.Array) and isinstance(lse, penstock.Array)
    assert (out.numpy() == attention(q, k, v)).all()


@pytest.mark.parametrize("named, change", [
    ("q", {"q": np.zeros((2, 5, 4), "f")}),
    ("q", {"q": np.zeros((2, 5, 3, 16), "f")}),
    ("q", {"q": np.zeros((2, 5, 4, 16))}),
    ("k", {"k": np.zeros((2, 7, 2, 8), "f")}),
    ("v", {"v": np.zeros((2, 7, 24), "f")}),
    ("v", {"v": np.zeros(3, "f")}),
    ("out", {"out": np.zeros((2, 5, 4, 16), "f")}),
    ("window", {"window": 3}),
    ("window", {"window": (1, 2, 3)}),
    ("window_left", {"window": (-2, 0)}),
    ("softcap", {"softcap": -1.0}),
    ("scale", {"scale": 0.0}),
    ("scale", {"scale": float("inf")}),
    ("sinks", {"sinks": np.zeros(3, "f")}),
    ("max_q", {"max_q": 0}),
    ("max_q", {"max_q": 4}),
    ("lengths_k", {"lengths_k": np.array([5, 7], "i4"), "max_k": 6, "check": True}),
    ("kernel", {"kernel": "fast"}),
    ("lengths_k", {"lengths_k": np.array([7, 8], "i4"), "check": True}),
    ("lengths_k", {"lengths_k": np.array([7, 7])}),
    ("pages", {"pages": np.array([[0], [2]], "i4"), "check": True}),
    ("pages", {"pages": np.array([0, 1], "i4")}),
    ("pages", {"pages": np.array([[0], [1], [1]], "i4")}),
    ("cu_q", {"q": np.zeros((5, 4, 16), "f"), "cu_q": np.array([0, 3, 2], "i4"), "check": True}),
])
def test_refuses(named, change):
    call = dict(zip("qkv", draw())) | change
    with pytest.raises(penstock.InvalidArgument, match=f"^{named}: expected"):
        attention(**call)


def test_refuses_what_is_no_array():
    q, k, v = draw()
    with pytest.raises(TypeError, match="^q: expected an array"):
        attention(3, k, v)
    with pytest.raises(TypeError, match="^query: expected a torch tensor"):
        penstock.scaled_dot_product_attention(q, k, v)
