"""attention() of torch's tensors on the CPU, and compiled, and on a GPU if there is one; and the
function with the signature of torch's."""

import subprocess
import sys

import pytest

import penstock
from attention_support import draw as draw_arrays
from attention_support import reference
from penstock import attention, scaled_dot_product_attention

torch = pytest.importorskip("torch", reason="torch is not installed here")

sdpa = torch.nn.functional.scaled_dot_product_attention


def draw(dtype=torch.float32, device="cpu", **shape):
    return tuple(torch.from_numpy(each).to(dtype).to(device) for each in draw_arrays(**shape))


def check(out, q, k, v, **options):
    wanted = torch.from_numpy(reference(*(each.double().cpu().numpy() for each in (q, k, v)),
                                        **options)[0])
    assert out.dtype == q.dtype and out.shape == wanted.shape
    bound = 1e-5 if q.dtype == torch.float32 else 8 * torch.finfo(q.dtype).eps
    assert ((out.double().cpu() - wanted).abs() <= bound).all()  # False for NaN


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_as_the_reference(dtype):
    q, k, v = draw(dtype)
    out, lse = attention(q, k, v, causal=True, return_lse=True)
    check(out, q, k, v, causal=True)
    assert lse.dtype == torch.float32 and lse.shape == (2, 4, 5)
    room = torch.full_like(out, torch.nan)
    assert attention(q, k, v, causal=True, out=room) is room and torch.equal(room, out)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled(backend, device):
    torch.compiler.reset()
    q, k, v = draw(device=device)

    def both(q, k, v):
        out, lse = attention(q * 2, k, v, causal=True, window=(3, None), return_lse=True)
        return out + 1, lse

    compiled = torch.compile(both, fullgraph=True, backend=backend)
    for got, wanted in zip(compiled(q, k, v), both(q, k, v)):
        assert torch.equal(got, wanted)


def test_compiled_with_lengths_and_a_given_result(device):
    torch.compiler.reset()
    q, k, v = (each.flatten(0, 1) for each in draw(sq=7, device=device))
    begins = torch.tensor([0, 5, 14], dtype=torch.int32, device=device)

    def call(q, out):
        return attention(q, k, v, cu_q=begins, cu_k=begins, out=out) * 2

    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    out, same = torch.empty(2, 14, 4, 24, device=device)
    assert torch.equal(compiled(q, out), call(q, same)) and torch.equal(out, same)


def test_keys_in_pages():
    q, k, v = draw(sk=6)
    table = torch.tensor([[0, 2, 5], [4, 1, 3]], dtype=torch.int32)
    caches = []
    for each in (k, v):
        cache = torch.full((6, 2, *each.shape[2:]), torch.nan)
        cache[table.long()] = each.unflatten(1, (3, 2))
        caches.append(cache)
    assert torch.equal(attention(q, *caches, pages=table, causal=True), attention(q, k, v, causal=True))


def test_operators_keep_their_promises():
    q, k, v = draw()
    options = True, -1, -1, 0.0, 0.0, 0, 0, "best", False, False
    torch.library.opcheck(torch.ops.penstock.attention, (q, k, v, *[None] * 6, *options, True),
                          test_utils=("test_schema", "test_faketensor"))
    out, lse = torch.empty(2, 5, 4, 24), torch.empty(2, 4, 5)
    torch.library.opcheck(torch.ops.penstock.attention_out,
                          (q, k, v, *[None] * 6, *options, out, lse),
                          test_utils=("test_schema", "test_faketensor"))


def test_meta_tensors_have_shapes():
    q, k, v = draw(device="meta")
    out, lse = attention(q, k, v, return_lse=True)
    assert out.shape == (2, 5, 4, 24) and lse.shape == (2, 4, 5)


def test_has_no_backward():
    q, k, v = draw()
    with pytest.raises(penstock.Unsupported, match="attention: k requires a gradient"):
        attention(q, k.requires_grad_(), v)
    with torch.no_grad():
        check(attention(q, k, v), q, k.detach(), v)


def test_refuses_other_arrays():
    q, k, v = draw()
    with pytest.raises(penstock.InvalidArgument, match="^v: expected a torch tensor"):
        attention(q, k, v.numpy())
    with pytest.raises(penstock.InvalidArgument, match="^k: expected"):
        attention(q, k.half(), v)


def heads_first(tensors):
    return tuple(each.transpose(1, 2) for each in tensors)


@pytest.mark.parametrize("shape", [
    {}, {"sq": 7}, {"sq": 9, "sk": 4}, {"sq": 1}, {"heads_k": 4}, {"dim": 12}, {"sk": 300, "sq": 300},
])
@pytest.mark.parametrize("is_causal", [False, True])
def test_as_torchs_function(shape, is_causal):
    q, k, v = heads_first(draw(**shape))
    options = {"is_causal": is_causal, "enable_gqa": True}
    out = scaled_dot_product_attention(q, k, v, **options)
    torch.testing.assert_close(out, sdpa(q, k, v, **options), rtol=0, atol=1e-5)


def test_what_goes_to_torch(monkeypatch):
    q, k, v = heads_first(draw(heads_k=4, dim_v=16))
    seen = []
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention",
                        lambda *arguments, **options: seen.append(1) or sdpa(*arguments, **options))
    calls = [
        (q, k, v, torch.ones(5, 7, dtype=torch.bool)),
        (q, k, v, None, 0.5),
        (q.double(), k.double(), v.double()),
        (q[0], k[0], v[0]),
        (q.clone().requires_grad_(), k, v),
        (q[..., :12], k[..., :12], v),
        (q, k[:1], v[:1]),
        (q.mT.contiguous().mT, k, v),
    ]
    for arguments in calls:
        scaled_dot_product_attention(*arguments)
    assert len(seen) == len(calls)
    scaled_dot_product_attention(q[..., :8, :], k, v, scale=0.0)
    assert len(seen) == len(calls) + 1
    for options in ({}, {"is_causal": True}, {"scale": 0.3}):
        out = scaled_dot_product_attention(q, k, v, **options)
        torch.testing.assert_close(out, sdpa(q, k, v, **options), rtol=0, atol=1e-5)
    assert len(seen) == len(calls) + 1


@pytest.fixture
def runs(monkeypatch):
    """One entry per call that Penstock computes."""
    from penstock import _attention_torch

    seen, run = [], _attention_torch._run
    monkeypatch.setattr(_attention_torch, "_run", lambda *given: seen.append(1) or run(*given))
    return seen


def test_autocast_chooses_the_dtype(runs):
    q, k, v = heads_first(draw(heads_k=4))
    with torch.autocast("cpu", torch.bfloat16):
        out = scaled_dot_product_attention(q, k, v)
        assert out.dtype == torch.bfloat16 and torch.equal(out, sdpa(q, k, v))
        assert scaled_dot_product_attention(*(each.half() for each in (q, k, v))).dtype == torch.bfloat16
        assert not runs
        assert scaled_dot_product_attention(*(each.bfloat16() for each in (q, k, v))).dtype == (
            torch.bfloat16)
    assert len(runs) == 1
    assert scaled_dot_product_attention(q, k, v).dtype == torch.float32 and len(runs) == 2


def test_forward_mode_differentiation_goes_to_torch(runs):
    from torch.autograd import forward_ad
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, k, v = heads_first(draw(heads_k=4))
    with forward_ad.dual_level(), sdpa_kernel(SDPBackend.MATH):
        dual = forward_ad.make_dual(q, torch.ones_like(q))
        got, wanted = (forward_ad.unpack_dual(each(dual, k, v)).tangent
                       for each in (scaled_dot_product_attention, sdpa))
        assert torch.equal(got, wanted) and got.any() and not runs
        scaled_dot_product_attention(q, k, v)
    assert len(runs) == 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("autocast", [False, True])
def test_torchs_function_compiled(runs, backend, autocast, device):
    torch.compiler.reset()
    q, k, v = heads_first(draw(torch.float16, device, sk=5))

    def call(q, k, v):
        with torch.autocast(device, torch.bfloat16, enabled=autocast):
            return scaled_dot_product_attention(q * 2, k, v, is_causal=True, enable_gqa=True) + 1

    compiled = torch.compile(call, fullgraph=True, backend=backend)
    torch.testing.assert_close(compiled(q, k, v), call(q, k, v))
    assert len(runs) == (0 if autocast else 2)


def test_torchs_function_compiled_for_tensors_at_any_address(runs, device):
    torch.compiler.reset()
    q, k, v = heads_first(draw(torch.float16, device, sk=5))
    moved = q.new_empty(q.numel() + 1)[1:].view(q.shape).copy_(q)

    def call(q):
        return scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    compiled = torch.compile(call, fullgraph=True, backend="eager")
    assert torch.equal(compiled(moved), compiled(q)) and len(runs) == 2


@pytest.mark.parametrize("changes", [
    {"cu_q": torch.tensor([0, 3, 10], dtype=torch.int32)}, {"dtype": torch.bfloat16}, {"heads": 8},
    {"dim_v": 32}, {"max_q": 2, "cu_q": torch.tensor([0, 5, 10], dtype=torch.int32)},
    {"kernel": "portable"}, {"batch": 3}, {"sq": 20}, {"batch_invariant": True},
    {"batch_invariant": True, "sk": 90_000}])
@pytest.mark.parametrize("exchanges", [False, True])
def test_bytes_of_a_workspace_are_those_of_the_call(changes, exchanges, monkeypatch):
    from penstock import _attention_torch, _core

    monkeypatch.setattr(_attention_torch, "EXCHANGES", exchanges)

    def both(cu_q=None, max_q=0, kernel="best", batch_invariant=False, dtype=torch.bfloat16, **shape):
        q, k, v = draw(dtype, **shape)
        q = q if cu_q is None else q.flatten(0, 1)
        inputs = q, k, v, None, cu_q, *[None] * 4
        options = True, -1, -1, 0.0, 0.0, max_q, 0, kernel, batch_invariant, False
        return (_attention_torch._workspace_bytes(inputs, options),
                _core.attention_workspace_bytes(q, k, v, cu_q, None, None, max_q, 0, kernel,
                                                batch_invariant))

    for own in ({}, changes, {}, changes):
        found, wanted = both(**own)
        assert found == wanted


class OnGpu(torch.Tensor):
    """Says that it is on a GPU."""

    is_cuda = True


def test_without_the_exchange_api_no_input_requires_a_gradient(monkeypatch):
    """__dlpack__ refuses such tensors."""
    from types import SimpleNamespace

    from penstock import _append_attention_torch, _attention_torch

    seen = []

    def note(result):
        return lambda *given: seen.extend(each.requires_grad for each in given
                                          if isinstance(each, torch.Tensor)) or result

    core = SimpleNamespace(attention_workspace_bytes=note(16), attention=note(None),
                           append_attention_workspace_bytes=note(16), append_attention=note(None))
    for module in (_attention_torch, _append_attention_torch):
        monkeypatch.setattr(module, "_core", core)
        monkeypatch.setattr(module, "EXCHANGES", False)
        monkeypatch.setattr(module, "current_stream", lambda stream, tensor: "current")
    monkeypatch.setattr(_append_attention_torch, "run",
                        lambda inputs, options, written, workspace, stream: note(None)(*inputs, *written))
    monkeypatch.setattr(_attention_torch, "_sizes", {})
    q, k, v = (each.as_subclass(OnGpu).requires_grad_() for each in draw())
    with torch.no_grad():
        out = torch.empty(2, 5, 4, 24)
        _attention_torch._run((q, k, v, *[None] * 6), (0, 0, "best", False, False), out, None)
        _append_attention_torch._run((q, k, v, *[None] * 8), (0, 0, "best", False, False),
                                     (k.detach(), v.detach(), out, None))
    assert len(seen) == (3 + 5) + (3 + 6) and not any(seen)


def test_a_workspace_without_the_exchange_api_is_of_any_k(monkeypatch):
    """The library names the argument that is wrong."""
    from penstock import _attention_torch

    monkeypatch.setattr(_attention_torch, "EXCHANGES", False)
    q, _, v = draw()
    for k in (torch.empty(16), torch.empty(7, 16), torch.empty(())):
        with pytest.raises(penstock.InvalidArgument, match="^k: expected"):
            _attention_torch._workspace_bytes((q, k, v, *[None] * 6), (0, 0, "best", False, False))


def test_f32_on_a_gpu_goes_to_torch(monkeypatch, runs):
    from penstock import _attention_torch

    q, k, v = heads_first(draw(heads_k=4))
    assert not _attention_torch.has_slow_kernel(q)
    assert _attention_torch.has_slow_kernel(q.as_subclass(OnGpu))
    assert not _attention_torch.has_slow_kernel(q.half().as_subclass(OnGpu))
    monkeypatch.setattr(_attention_torch, "has_slow_kernel", lambda tensor: True)
    assert torch.equal(scaled_dot_product_attention(q, k, v), sdpa(q, k, v)) and not runs


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_on_a_gpu(dtype):
    for sq, sk, dim in ((5, 7, 16), (130, 200, 64), (64, 129, 128), (1, 40, 96), (33, 33, 256)):
        q, k, v = draw(dtype, "cuda", sq=sq, sk=sk, dim=dim, dim_v=dim)
        for options in ({}, {"causal": True}, {"window": (9, 3)}):
            check(attention(q, k, v, **options), q, k, v, **options)
            check(attention(q, k, v, kernel="portable", **options), q, k, v, **options)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("kernel", ["best", "decode_portable", "portable"])
def test_few_queries_and_pages_on_a_gpu(kernel):
    q, k, v = draw(torch.bfloat16, "cuda", sq=2, sk=640, heads=8, dim=128, dim_v=128)
    options = {"causal": True, "kernel": kernel}
    check(attention(q, k, v, **options), q, k, v, causal=True)
    check(attention(q, k, v, batch_invariant=True, **options), q, k, v, causal=True)
    table = torch.randperm(80, device="cuda", dtype=torch.int32).reshape(2, 40)
    caches = []
    for each in (k, v):
        cache = torch.full((80, 16, 2, 128), torch.nan, dtype=each.dtype, device="cuda")
        cache[table.long()] = each.unflatten(1, (40, 16))
        caches.append(cache)
    check(attention(q, *caches, pages=table, **options), q, k, v, causal=True)
    captured, graph = torch.empty_like(q), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        attention(q, *caches, pages=table, out=captured, **options)
    graph.replay()
    check(captured, q, k, v, causal=True)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_captured_on_a_gpu():
    q, k, v = (each.flatten(0, 1) for each in draw(torch.bfloat16, "cuda", sq=70, sk=70, dim=64,
                                                   dim_v=64))
    begins = torch.tensor([0, 30, 140], dtype=torch.int32, device="cuda")
    wanted = attention(q, k, v, cu_q=begins, cu_k=begins, causal=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = attention(q, k, v, cu_q=begins, cu_k=begins, causal=True)
    for _ in range(2):
        out.fill_(torch.nan)
        graph.replay()
        assert torch.equal(out, wanted)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_kernel_may_be_captured_before_it_was_used():
    program = """
import torch
from penstock import attention

def draw(dim):
    return torch.randn(3, 1, 300, 4, dim, device="cuda", dtype=torch.bfloat16)

attention(*draw(64))
q, k, v = draw(128)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    out = attention(q, k, v, causal=True)
graph.replay()
assert torch.equal(out, attention(q, k, v, causal=True))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("is_causal", [False, True])
def test_as_torchs_function_on_a_gpu(monkeypatch, dtype, dim, is_causal):
    """As close to the function of the same tensors in f64 as torch's own."""
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", None)
    for shape in ({"sq": 130, "sk": 200}, {"sq": 300, "sk": 70}, {"sq": 257, "sk": 257, "heads_k": 8},
                  {"sq": 190, "sk": 191, "heads_k": 1}, {"sq": 16, "sk": 1000}, {"sq": 1, "sk": 77},
                  {"sq": 40, "sk": 130, "batch": 40}):
        if is_causal and shape["sq"] > shape["sk"]:
            continue  # goes to torch
        q, k, v = heads_first(draw(dtype, "cuda", **{"heads": 8, "dim": dim, "dim_v": dim} | shape))
        options = {"is_causal": is_causal, "enable_gqa": True}
        out = scaled_dot_product_attention(q, k, v, **options)
        exact = sdpa(*(each.double() for each in (q, k, v)), **options)
        theirs = (sdpa(q, k, v, **options) - exact).abs().max()
        assert out.dtype == dtype and out.shape == exact.shape
        allowed = 2 * theirs + torch.finfo(dtype).eps * exact.abs().max()
        assert ((out - exact).abs() <= allowed).all(), shape  # False for NaN
