"""gemm() on the CPU, with NumPy arrays, against a reference in f64. gemm_torch_test.py has torch."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

import penstock
from penstock import gemm


def draw(m, n, k, seed=1):
    rng = np.random.default_rng(seed)
    return (rng.uniform(-1, 1, (m, k)).astype(np.float16),
            rng.uniform(-1, 1, (n, k)).astype(np.float16))


def check(out, a, b):
    wanted = a.astype(np.float64) @ b.astype(np.float64).T
    magnitude = abs(a).astype(np.float64) @ abs(b).astype(np.float64).T
    assert out.dtype == np.float16 and out.shape == wanted.shape
    bound = magnitude * (a.shape[1] + 16) * 2.0**-23 + abs(wanted) * 2.0**-11 + 2.0**-25
    assert (abs(out - wanted) <= bound).all()  # False for NaN


@hypothesis.settings(max_examples=100, deadline=None)
@hypothesis.given(seed=st.integers(0, 2**32), m=st.integers(0, 70), n=st.integers(0, 140),
                  k=st.integers(0, 300))
def test_as_the_reference(seed, m, n, k):
    a, b = draw(m, n, k, seed)
    check(gemm(a, b), a, b)


def test_into_a_given_array_with_strided_rows():
    a, b = draw(7, 9, 20)
    room = np.full((7, 30), np.nan, np.float16)
    out = room[:, 5:14]
    assert gemm(a[:, 3:], b[:, 3:], out=out) is out
    check(out, a[:, 3:], b[:, 3:])
    assert np.isnan(room[:, :5]).all() and np.isnan(room[:, 14:]).all()
    check(gemm(a[::-1], b[::2]), a[::-1], b[::2])


def test_penstocks_arrays():
    a, b = draw(5, 6, 8)
    arrays = []
    for each in (a, b):
        array = penstock.empty(each.shape, "f16", device="cpu")
        np.asarray(array)[:] = each
        arrays.append(array)
    out = gemm(*arrays)
    assert isinstance(out, penstock.Array)
    check(np.asarray(out), a, b)


@pytest.mark.parametrize("change, says", [
    ({"a": np.zeros((3, 4), np.float32)}, "^a: expected elements of type bf16 or f16, given f32"),
    ({"a": np.zeros(4, np.float16)}, r"^a: expected \(M, K\), given \(4,\)"),
    ({"b": np.zeros((5, 3), np.float16)}, r"^b: expected shape \(5, 4\): N, and K as in a"),
    ({"out": np.zeros((5, 3), np.float16)}, r"^out: expected shape \(3, 5\)"),
    ({"out": np.zeros((3, 5), np.float32)}, "^out: expected elements of type f16"),
    ({"kernel": "fastest"}, "^kernel: expected one of 'best', 'portable', .*given 'fastest'"),
    ({"a": np.zeros((4, 3), np.float16).T}, "^a: expected a contiguous last dimension"),
])
def test_errors_name_the_argument(change, says):
    call = {"a": np.zeros((3, 4), np.float16), "b": np.zeros((5, 4), np.float16)} | change
    with pytest.raises(penstock.InvalidArgument, match=says):
        gemm(**call)


def test_needs_arrays():
    with pytest.raises(TypeError, match="^b: expected an array, given int"):
        gemm(np.zeros((3, 4), np.float16), 3)
