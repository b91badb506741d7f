"""append_attention() on the CPU, with NumPy arrays and with torch, and on a GPU if there is one.
tests/ops/append_attention_test.cpp has every option; here are arguments, arrays and torch."""

import numpy as np
import pytest

import penstock
from penstock import append_attention, append_kv, attention


def tables(rows=32, dim=16):
    angles = np.outer(np.arange(rows), 100.0**-np.linspace(0, 1, dim // 2, endpoint=False))
    return {"cos": np.cos(angles).astype("f"), "sin": np.sin(angles).astype("f")}


def drawn(*shape, seed=1):
    return np.random.default_rng(seed).normal(size=shape).astype("f")


def rows(*shape):
    """q, k and v of 4 and 2 heads."""
    return tuple(drawn(*shape, heads, 16, seed=heads + dim) for heads, dim in ((4, 0), (2, 0), (2, 1)))


def in_two_steps(q, k, v, *cache, ends, options, **append):
    q = append_kv(k, v, *cache, q=q, **append)
    return attention(q, *cache, lengths_k=ends, pages=append.get("pages"), cu_q=append.get("cu_new"),
                     return_lse=True, **options)


@pytest.mark.parametrize("options", [
    {}, {"causal": True}, {"causal": True, "window": (4, None), "softcap": 5.0, "scale": 0.4},
    {"sinks": drawn(4), "first_k": np.array([1, 3], "i4")},
])
@pytest.mark.parametrize("interleaved", [False, True])
def test_as_two_calls(options, interleaved):
    new, results = rows(2, 3), []
    append = {"interleaved": interleaved, "advance": True, **tables()}
    for joined in (True, False):
        cache, lengths = drawn(2, 2, 20, 2, 16), np.array([0, 9], "i4")
        if joined:
            result = append_attention(*new, *cache, lengths=lengths, return_lse=True, check=True,
                                      **append, **options)
        else:
            result = in_two_steps(*new, *cache, lengths=lengths, ends=np.array([3, 12], "i4"),
                                  options=options, **append)
        results.append((*result, cache, lengths))
    for ours, theirs in zip(*results):
        assert (ours == theirs).all()
    assert results[0][3].tolist() == [3, 12]


def test_pages_and_several_numbers_of_rows():
    new, results = rows(5), []
    append = {"pages": np.array([[4, 1, 3], [0, 5, 2]], "i4"), "cu_new": np.array([0, 2, 5], "i4"),
              "lengths": np.array([1, 3], "i4"), **tables()}
    for joined in (True, False):
        cache = drawn(2, 6, 2, 2, 16)
        if joined:
            out = np.full((5, 4, 16), np.nan, "f")
            assert append_attention(*new, *cache, max_q=3, causal=True, out=out, **append) is out
        else:
            out, _ = in_two_steps(*new, *cache, ends=np.array([3, 6], "i4"),
                                  options={"causal": True}, **append)
        results.append((out, cache))
    for ours, theirs in zip(*results):
        assert (ours == theirs).all()


@pytest.mark.parametrize("yes", [1, np.True_])
def test_options_are_anything_that_is_true_or_false(yes):
    (q, k, v), cache = rows(2, 3), drawn(2, 2, 9, 2, 16)
    wanted = append_attention(q, k, v, *cache, length=4, causal=True)
    options = {"causal": yes, "batch_invariant": yes, "check": yes}
    assert (append_attention(q, k, v, *cache, length=4, **options) == wanted).all()


def test_without_the_rotary_embedding():
    q, k, v = rows(2, 1)
    cache = drawn(2, 2, 9, 2, 16)
    out = append_attention(q, k, v, *cache, length=8)
    assert (cache[:, :, 8] == [k[:, 0], v[:, 0]]).all()
    assert (out == attention(q, *cache)).all()


@pytest.mark.parametrize("name, change", [
    ("q", {"q": drawn(1, 2, 2, 8)}), ("q", {"q": drawn(1, 1, 3, 8)}), ("k", {"k": drawn(1, 1, 8)}),
    ("v", {"v": drawn(1, 1, 1, 8)}), ("length", {"length": 4}), ("cos", {"sin": drawn(4, 4)}),
    ("k_cache", {"k_cache": drawn(1, 4, 1, 8)}), ("lengths", {"advance": True}),
    ("q", {"cu_new": np.array([0, 1], "i4")}), ("scale", {"scale": 0}), ("kernel", {"kernel": "none"}),
    ("first_k", {"first_k": np.array([0, 1], "i4")}),
])
def test_errors_name_the_argument(name, change):
    arguments = {"q": drawn(1, 1, 4, 8), "k": drawn(1, 1, 2, 8), "v": drawn(1, 1, 2, 8),
                 "k_cache": drawn(1, 4, 2, 8), "v_cache": drawn(1, 4, 2, 8)}
    append_attention(**arguments)
    with pytest.raises(penstock.InvalidArgument, match=f"^{name}: "):
        append_attention(**arguments | change)


def test_no_array():
    with pytest.raises(TypeError, match="^q: expected an array, given int"):
        append_attention(1, 2, 3, 4, 5)


@pytest.mark.torch
class TestTorch:
    def arguments(self, torch, dtype, device="cpu", new=3):
        q, k, v = (torch.from_numpy(each).to(device, dtype) for each in rows(2, new))
        cache = torch.from_numpy(drawn(2, 2, 90, 2, 16)).to(device, dtype)
        return {"q": q, "k": k, "v": v, "k_cache": cache[0], "v_cache": cache[1],
                "lengths": torch.tensor([0, 60], dtype=torch.int32, device=device), "advance": True,
                "causal": True, **{name: torch.from_numpy(each).to(device)
                                   for name, each in tables(90).items()}}

    @pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
    def test_compiled(self, torch, dtype, device):
        dtype = getattr(torch, dtype)
        plain, traced = (self.arguments(torch, dtype, device) for _ in range(2))
        wanted = append_attention(**plain)
        compiled = torch.compile(lambda given: append_attention(**given) + 0, fullgraph=True,
                                 backend="aot_eager")
        assert torch.equal(compiled(traced), wanted) and wanted.any()
        for name in ("k_cache", "v_cache", "lengths"):
            assert torch.equal(plain[name], traced[name])

    def test_the_operator_keeps_its_promises(self, torch):
        of = self.arguments(torch, torch.float32)
        append_attention(**of)  # defines it
        inputs = [of.get(name) for name in ("q", "k", "v", "lengths", "pages", "cu_new", "cos", "sin",
                                            "positions", "sinks", "first_k")]
        options = 0, True, False, True, -1, -1, 0.0, 0.0, 0, 0, "best", False, False
        torch.library.opcheck(
            torch.ops.penstock.append_attention,
            (*inputs, *options, of["k_cache"].clone(), of["v_cache"].clone(),
             torch.empty(2, 3, 4, 16), torch.empty(2, 4, 3)),
            test_utils=("test_schema", "test_faketensor"))

    def test_autograd_knows_that_lengths_change(self, torch):
        of = self.arguments(torch, torch.float32)
        before = of["lengths"]._version
        append_attention(**of)
        assert of["lengths"]._version == before + 1
        append_attention(**{**of, "advance": False})
        assert of["lengths"]._version == before + 1

    def test_has_no_backward(self, torch):
        arguments = self.arguments(torch, torch.float32)
        arguments["q"].requires_grad_()
        with pytest.raises(penstock.Unsupported, match="append_attention: q requires a gradient"):
            append_attention(**arguments)
        with torch.no_grad():
            append_attention(**arguments)

    # Of one kernel, and of two calls.
    @pytest.mark.gpu
    @pytest.mark.parametrize("kernel", ["best", "decode_portable", "portable"])
    @pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
    @pytest.mark.parametrize("new", [1, 5, 20])
    def test_on_a_gpu(self, torch, kernel, dtype, new):
        if not torch.cuda.is_available():
            pytest.skip("needs a GPU")
        dtype = getattr(torch, dtype)
        joined, apart = (self.arguments(torch, dtype, "cuda", new) for _ in range(2))
        out, lse = append_attention(**joined, kernel=kernel, return_lse=True)
        append = {name: each for name, each in apart.items() if name != "causal"}
        rotated = append_kv(**append)
        wanted = attention(rotated, apart["k_cache"], apart["v_cache"], lengths_k=apart["lengths"],
                           causal=True, kernel=kernel, return_lse=True)
        for ours, theirs in zip((out, lse, *(joined[name] for name in ("k_cache", "v_cache", "lengths"))),
                                (*wanted, *(apart[name] for name in ("k_cache", "v_cache", "lengths")))):
            assert torch.equal(ours, theirs)

    @pytest.mark.gpu
    def test_a_graph_appends_at_every_replay(self, torch):
        if not torch.cuda.is_available():
            pytest.skip("needs a GPU")
        joined, apart = (self.arguments(torch, torch.bfloat16, "cuda", 1) for _ in range(2))
        out = append_attention(**joined)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            append_attention(**joined, out=out)
        for _ in range(9):
            graph.replay()
        for _ in range(10):
            wanted = append_attention(**apart)
        assert torch.equal(out, wanted) and joined["lengths"].tolist() == [10, 70]
        assert torch.equal(joined["k_cache"], apart["k_cache"])
