"""append_kv() and KVCache on a GPU, with torch. tests/gpu has every option; here are streams, graphs and
memory that torch reads."""

import time

import pytest

import penstock
from penstock import KVCache, append_kv

if penstock.Device.why_no_gpu():
    pytest.skip(f"no GPU: {penstock.Device.why_no_gpu()}", allow_module_level=True)
if penstock.Device("cuda").capabilities["compute_capability"] < (8, 0):
    pytest.skip("append_kv() needs a GPU of compute capability 8.0", allow_module_level=True)

pytestmark = pytest.mark.gpu


@pytest.fixture
def torch(torch):
    if not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    return torch


def tables(torch, rows=64, dim=128):
    angles = torch.outer(torch.arange(rows), 1e4**-torch.linspace(0, 1, dim // 2 + 1)[:-1])
    return angles.cos(), angles.sin()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("interleaved", [False, True])
def test_has_the_bits_of_the_cpu(torch, dtype, interleaved):
    dtype = getattr(torch, dtype)
    torch.manual_seed(1)
    k, v, q = (torch.randn(3, 5, heads, 128).to(dtype) for heads in (2, 2, 8))
    cos, sin = tables(torch)
    pages = torch.randperm(12, dtype=torch.int32).reshape(3, 4)
    results = []
    for device in ("cpu", "cuda"):
        caches = [torch.zeros(12, 8, 2, 128, dtype=dtype, device=device) for _ in "kv"]
        lengths = torch.tensor([0, 5, 26], dtype=torch.int32, device=device)
        rotated = append_kv(*(each.to(device) for each in (k, v)), *caches, lengths=lengths,
                            advance=True, pages=pages.to(device), cos=cos.to(device),
                            sin=sin.to(device), interleaved=interleaved, q=q.to(device), check=True)
        results.append([each.cpu() for each in (*caches, lengths, rotated)])
    for ours, theirs in zip(*results):
        assert torch.equal(ours, theirs) and theirs.any()


def test_a_graph_appends_at_every_replay(torch):
    cache = KVCache(layers=1, sequences=2, heads=2, dim=64, capacity=1000, dtype="f32")
    cache.reserve(100)
    keys, values = (torch.from_dlpack(each(0)) for each in (cache.whole_k, cache.whole_v))
    lengths = torch.zeros(2, dtype=torch.int32, device="cuda")
    new = torch.zeros(2, 1, 2, 64, device="cuda")
    append_kv(new, new, keys, values, lengths=lengths)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        with pytest.raises(penstock.Unsupported, match="KVCache::append"):
            cache.append(0, new, new)
        append_kv(new, -new, keys, values, lengths=lengths, advance=True)
    for step in range(50):
        new.fill_(step)
        graph.replay()
    assert lengths.tolist() == [50, 50] and cache.length(0) == 0
    cache.set_length(50)
    cache.use(torch.cuda.current_stream())
    cache.shrink()
    assert torch.equal(torch.from_dlpack(cache.k(0)), keys[:, :50])
    wanted = torch.arange(50.0, device="cuda").expand(2, 50)
    assert torch.equal(keys[:, :50, 1, 63], wanted) and torch.equal(values[:, :50, 0, 0], -wanted)


def test_grows_while_other_streams_read(torch):
    cache = KVCache(layers=2, sequences=4, heads=4, dim=128, capacity=100_000, ahead=8)
    keys = torch.from_dlpack(cache.whole_k(1))
    other, sums, wanted = torch.cuda.Stream(), [], []
    cache.use(other)
    for step in range(1500):
        new = torch.full((4, 1, 4, 128), step % 13, device="cuda", dtype=torch.bfloat16)
        for layer in range(2):
            cache.append(layer, new, new)
        other.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(other):
            sums.append(keys[:, step].sum(dtype=torch.float32))
        wanted.append(step % 13 * 4 * 4 * 128)
    torch.cuda.synchronize()
    assert [each.item() for each in sums] == wanted
    before = cache.mapped_bytes
    cache.crop(10)
    cache.shrink()
    cache.append(0, new, new)
    assert cache.length(0) == 11 and cache.length(1) == 10
    torch.cuda.synchronize()
    assert (torch.from_dlpack(cache.k(1)) == torch.arange(10, device="cuda")[:, None, None]).all()
    deadline = time.monotonic() + 30
    while cache.mapped_bytes >= before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert cache.mapped_bytes < before


def test_running_out_of_memory_leaves_the_cache(torch):
    cache = KVCache(layers=1, sequences=64, heads=8, dim=128, capacity=1 << 24)
    new = torch.ones(64, 1, 8, 128, device="cuda", dtype=torch.bfloat16)
    cache.append(0, new, new)
    with pytest.raises(penstock.OutOfMemory, match="cuda:0"):
        cache.reserve(1 << 23)
    cache.append(0, new, new)
    assert bool((torch.from_dlpack(cache.v(0)) == 1).all()) and cache.length(0) == 2
