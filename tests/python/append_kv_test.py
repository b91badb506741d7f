"""append_kv() and KVCache on the CPU, with NumPy arrays and with torch. tests/ops/append_kv_test.cpp and
kv_cache_test.cpp check every option; here are arguments, arrays and torch."""

import gc

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

import penstock
from penstock import KVCache, append_kv


def tables(rows=32, dim=16, dtype="f"):
    angles = np.outer(np.arange(rows), 100.0**-np.linspace(0, 1, dim // 2, endpoint=False))
    return np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)


def turned(x, cos, sin, interleaved):
    """The rotary embedding in f64; the tables have one row per row of x (..., rows, heads, dim)."""
    x, c, s = x.astype(float), cos[:, None].astype(float), sin[:, None].astype(float)
    half = cos.shape[1]
    a, b = (x[..., 0::2], x[..., 1::2]) if interleaved else (x[..., :half], x[..., half:])
    pair = a * c - b * s, b * c + a * s
    if interleaved:
        return np.stack(pair, -1).reshape(x.shape)
    return np.concatenate(pair, -1)


def drawn(*shape, seed=1, dtype="f"):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


@hypothesis.settings(max_examples=40, deadline=None)
@hypothesis.given(seed=st.integers(0, 2**32), new=st.integers(0, 5), length=st.integers(0, 6),
                  interleaved=st.booleans(), strided=st.booleans())
def test_as_the_formula(seed, new, length, interleaved, strided):
    k, v, q = (drawn(2, new, heads, 16, seed=seed + heads) for heads in (2, 2, 4))
    cache = np.full((2, 2, 11, 2, 16), np.nan, "f")
    if strided:
        cache = np.full((2, 2, 2, 11, 16), np.nan, "f").swapaxes(2, 3)
    cos, sin = tables()
    lengths = np.array([length, length], "i4")
    q_out = append_kv(k, v, *cache, lengths=lengths, cos=cos, sin=sin, q=q, interleaved=interleaved,
                      advance=True, check=True)
    there = slice(length, length + new)
    wanted = [turned(each, cos[there], sin[there], interleaved) for each in (k, q)]
    np.testing.assert_allclose(cache[0][:, there], wanted[0], rtol=0, atol=1e-5)
    np.testing.assert_allclose(q_out, wanted[1], rtol=0, atol=1e-5)
    assert (cache[1][:, there] == v).all() and (lengths == length + new).all()
    assert np.isfinite(cache).sum() == 2 * 2 * new * 2 * 16


def test_pages_and_several_numbers_of_rows():
    k, v = drawn(5, 1, 8, seed=1), drawn(5, 1, 8, seed=2)
    k_cache, v_cache = np.zeros((6, 2, 1, 8), "f"), np.zeros((6, 2, 1, 8), "f")
    pages = np.array([[4, 1, 3], [0, 5, 2]], "i4")
    append_kv(k, v, k_cache, v_cache, lengths=np.array([1, 0], "i4"), pages=pages,
              cu_new=np.array([0, 2, 5], "i4"), check=True)
    assert (k_cache[4, 1] == k[0]).all() and (k_cache[1, 0] == k[1]).all()
    assert (v_cache[[0, 0, 5], [0, 1, 0]] == v[2:]).all()
    assert np.count_nonzero(k_cache) == 5 * 8


def test_positions_and_in_place():
    k, q = drawn(1, 3, 1, 16), drawn(1, 3, 2, 16, seed=2)
    cos, sin = tables()
    positions = np.array([[7, 1, 30]])
    k_cache, wanted = np.zeros((1, 4, 1, 16), "f"), turned(q, cos[positions[0]], sin[positions[0]],
                                                          False)
    assert append_kv(k, k, k_cache, np.zeros_like(k_cache), length=1, cos=cos, sin=sin, q=q, q_out=q,
                     positions=positions, check=True) is q
    np.testing.assert_allclose(q, wanted, rtol=0, atol=1e-5)


def test_rows_without_room_are_left_out_or_found():
    k, cache = drawn(1, 3, 1, 8), np.zeros((2, 1, 4, 1, 8), "f")
    lengths = np.array([3], "i4")
    append_kv(k, k, *cache, lengths=lengths, advance=True)
    assert (cache[:, 0, 3] == k[0, 0]).all() and not cache[:, 0, :3].any() and lengths == 4
    with pytest.raises(penstock.InvalidArgument, match="^lengths: .*a capacity of 4"):
        append_kv(k, k, *cache, lengths=lengths, check=True)


@pytest.mark.parametrize("name, change", [
    ("k", {"k": drawn(2, 8)}), ("v", {"v": drawn(1, 2, 1, 8)}), ("q", {"q": drawn(1, 1, 1, 8)}),
    ("length", {"length": 4}), ("cos", {"sin": drawn(4, 4)}), ("lengths", {"advance": True}),
    ("k_cache", {"k_cache": drawn(1, 4, 2, 8)}), ("v_cache", {"v_cache": drawn(1, 4, 2, 8)}),
])
def test_errors_name_the_argument(name, change):
    arguments = {"k": drawn(1, 1, 1, 8), "v": drawn(1, 1, 1, 8), "k_cache": drawn(1, 4, 1, 8),
                 "v_cache": drawn(1, 4, 1, 8)}
    append_kv(**arguments)
    with pytest.raises(penstock.InvalidArgument, match=f"^{name}: "):
        append_kv(**arguments | change)


def test_no_array():
    with pytest.raises(TypeError, match="^k: expected an array, given int"):
        append_kv(1, 2, 3, 4)


class TestCache:
    def make(self, **changes):
        return KVCache(**{"layers": 2, "sequences": 2, "heads": 1, "dim": 8, "dtype": "f32",
                          "capacity": 100, "device": "cpu"} | changes)

    def test_keeps_what_is_appended(self):
        cache, kept = self.make(dim_v=16, ahead=3), []
        for step in range(60):
            new = drawn(2, 1, 1, 24, seed=step)
            for layer in range(2):
                assert cache.append(layer, new[..., :8], (layer + 1) * new[..., 8:]) is None
            kept.append(new)
        wanted = np.concatenate(kept, 1)
        for layer in range(2):
            assert (cache.k(layer).numpy() == wanted[..., :8]).all()
            assert (cache.v(layer).numpy() == (layer + 1) * wanted[..., 8:]).all()
        assert cache.length(1) == 60 and 60 <= cache.reserved <= 100 and cache.mapped_bytes > 0
        assert "60 of 100 rows" in repr(cache)
        cache.crop(10)
        cache.shrink()
        assert cache.k(0).shape == (2, 10, 1, 8) and cache.whole_v(0).shape == (2, 100, 1, 16)
        cache.reserve(100)
        assert cache.reserved == 100
        assert (cache.k(0).numpy() == wanted[:, :10, :, :8]).all()

    def test_rotates(self):
        cache, cos, sin = self.make(initial=5), *tables(100, 8)
        k, q = drawn(2, 4, 1, 8), drawn(2, 4, 3, 8, seed=2)
        for part in range(4):
            q_out = cache.append(0, k[:, part:part + 1], k[:, part:part + 1], cos=cos, sin=sin,
                                 interleaved=np.False_, q=q[:, part:part + 1])
        np.testing.assert_allclose(cache.k(0), turned(k, cos[:4], sin[:4], False), rtol=0, atol=1e-5)
        np.testing.assert_allclose(q_out, turned(q[:, 3:], cos[3:4], sin[3:4], False), rtol=0,
                                   atol=1e-5)

    def test_rows_that_others_have_appended(self):
        cache, new = self.make(), drawn(2, 3, 1, 8)
        cache.reserve(40)
        for layer in range(2):
            append_kv(new, -new, cache.whole_k(layer), cache.whole_v(layer))
        with pytest.raises(penstock.InvalidArgument, match=f"^rows: expected 0 to {cache.reserved}, "):
            cache.set_length(cache.reserved + 1)
        assert cache.length(1) == 0
        cache.set_length(3)
        cache.append(0, new, new)
        assert cache.length(0) == 6 and cache.length(1) == 3
        assert (cache.k(1).numpy() == new).all() and (cache.v(0).numpy()[:, :3] == -new).all()

    def test_arrays_keep_the_memory(self):
        cache = self.make()
        cache.append(0, drawn(2, 3, 1, 8), drawn(2, 3, 1, 8))
        array = cache.k(0).numpy()
        del cache
        gc.collect()
        assert (array == drawn(2, 3, 1, 8)).all()

    def test_errors(self):
        cache, new = self.make(capacity=3), drawn(2, 2, 1, 8)
        cache.append(1, new, new)
        with pytest.raises(penstock.InvalidArgument, match="^k: .*a capacity of 3"):
            cache.append(1, new, new)
        with pytest.raises(penstock.InvalidArgument, match="^layer: expected 0 to 1, given 2"):
            cache.append(2, new, new)
        with pytest.raises(penstock.InvalidArgument, match="^rows: "):
            cache.reserve(4)
        with pytest.raises(penstock.InvalidArgument, match="^heads: "):
            self.make(heads=0)
        with pytest.raises(penstock.InvalidArgument, match="^dtype: "):
            self.make(dtype="i32")
        assert cache.length(1) == 2 and cache.length(0) == 0


@pytest.mark.torch
class TestTorch:
    def arguments(self, torch, dtype, device="cpu"):
        k, v, q = (torch.from_numpy(drawn(2, 3, heads, 16, seed=heads)).to(device, dtype)
                   for heads in (2, 2, 4))
        cos, sin = (torch.from_numpy(each).to(device) for each in tables())
        k_cache, v_cache = torch.zeros(2, 2, 9, 2, 16, dtype=dtype, device=device)
        return {"k": k, "v": v, "k_cache": k_cache, "v_cache": v_cache, "q": q, "cos": cos, "sin": sin,
                "lengths": torch.tensor([0, 4], dtype=torch.int32, device=device), "advance": True}

    @pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
    def test_compiled(self, torch, dtype, device):
        dtype = getattr(torch, dtype)
        plain, traced = (self.arguments(torch, dtype, device) for _ in range(2))
        wanted = append_kv(**plain)
        compiled = torch.compile(lambda given: append_kv(**given) + 0, fullgraph=True,
                                 backend="aot_eager")
        assert torch.equal(compiled(traced), wanted)
        for name in ("k_cache", "v_cache", "lengths"):
            assert torch.equal(plain[name], traced[name]) and plain[name].any()

    def test_the_operator_keeps_its_promises(self, torch):
        of = self.arguments(torch, torch.float32)
        append_kv(**of)  # defines it
        inputs = [of.get(name) for name in ("k", "v", "lengths", "pages", "cu_new", "cos", "sin",
                                            "positions", "q")]
        torch.library.opcheck(
            torch.ops.penstock.append_kv,
            (*inputs, 0, True, False, False, of["k_cache"], of["v_cache"], torch.empty_like(of["q"])),
            test_utils=("test_schema", "test_faketensor"))

    def test_autograd_knows_that_lengths_change(self, torch):
        of = self.arguments(torch, torch.float32)
        before = of["lengths"]._version
        append_kv(**of)
        assert of["lengths"]._version == before + 1
        append_kv(**{**of, "advance": False})
        assert of["lengths"]._version == before + 1

    def test_writes_to_the_arrays_of_a_cache(self, torch):
        made = [KVCache(layers=1, sequences=2, heads=2, dim=16, dtype="f32", capacity=9, initial=9,
                        device="cpu") for _ in range(3)]
        of = self.arguments(torch, torch.float32) | {"lengths": None, "advance": False}
        append_kv(**of)
        others = {name: each for name, each in of.items() if name not in ("k_cache", "v_cache")}
        append_kv(**others | {"k_cache": made[0].whole_k(0), "v_cache": made[0].whole_v(0)})
        penstock.append_attention(**others, k_cache=made[1].whole_k(0), v_cache=made[1].whole_v(0))
        # One of both is enough.
        append_kv(**others | {"k_cache": torch.from_dlpack(made[2].whole_k(0)),
                              "v_cache": made[2].whole_v(0)})
        for each in made:
            each.set_length(3)
            assert torch.equal(torch.from_dlpack(each.k(0)), of["k_cache"][:, :3])
            assert torch.equal(torch.from_dlpack(each.v(0)), of["v_cache"][:, :3])

    def test_has_no_backward(self, torch):
        arguments = self.arguments(torch, torch.float32)
        arguments["k"].requires_grad_()
        with pytest.raises(penstock.Unsupported, match="append_kv: k requires a gradient"):
            append_kv(**arguments)
        with torch.no_grad():
            append_kv(**arguments)

    def test_cache(self, torch):
        cache = KVCache(layers=1, sequences=2, heads=3, dim=8, dtype=torch.bfloat16, capacity=50,
                        device="cpu")
        new = torch.randn(2, 3, 7, 8).bfloat16().transpose(1, 2)
        cache.append(0, new, 2 * new)
        tensor = torch.from_dlpack(cache.v(0))
        assert torch.equal(tensor, 2 * new)
        q = torch.randn(2, 1, 6, 8).bfloat16()
        wanted = penstock.attention(q, torch.from_dlpack(cache.k(0)), tensor)
        assert torch.equal(penstock.attention(q, cache.k(0), cache.v(0)), wanted)
        with pytest.raises(penstock.Unsupported, match="k requires a gradient"):
            cache.append(0, new.clone().requires_grad_(), new)
