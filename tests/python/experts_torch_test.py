"""ExpertStore and StreamedExperts with torch tensors, on the CPU and, where there is one, on a GPU."""

import re
import time

import pytest

import penstock
from experts_support import draw_tokens, draw_weights
from penstock import ExpertStore, InvalidArgument, StreamedExperts, Unsupported

torch = pytest.importorskip("torch", reason="torch is not installed here")

SHAPE = {"layers": 3, "experts": 40, "hidden": 64, "width": 48}
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@pytest.fixture
def gpu():
    if not torch.cuda.is_available():
        pytest.skip("no GPU for torch")
    return "cuda"


def filled(device, dtype=torch.float32, seed=1, bias=False, **changes):
    """A store, and per layer the weights of moe() on the device."""
    weights = draw_weights(seed, bias=bias, **SHAPE)
    store = ExpertStore(**SHAPE, dtype=dtype, bias=bias, device=device, **changes)
    there = []
    for layer, drawn in enumerate(weights):
        tensors = {part: torch.from_numpy(each).to(dtype) for part, each in drawn.items()}
        for part, each in tensors.items():
            for expert, one in enumerate(each):
                getattr(store, part)(layer, expert, like="torch").copy_(one)
        if store.transposed:
            tensors |= {part: tensors[part].mT.contiguous().mT for part in ("gate_up", "down")}
        there.append({part: each.to(device) for part, each in tensors.items()})
    return store, there


def tokens_of(device, dtype=torch.float32, seed=1, tokens=9, choices=2):
    x, ids, weights = draw_tokens(seed, tokens, choices, SHAPE["experts"], SHAPE["hidden"])
    return torch.from_numpy(x).to(device, dtype), *(torch.from_numpy(each).to(device)
                                                    for each in (ids, weights))


def few_slots(store, **options):
    """On a GPU with the least memory, so that experts are evicted all the time."""
    return StreamedExperts(store, device=store.device, device_bytes=store.least_bytes(
        pinned=len(options.get("pinned", ()))), **options)


@pytest.mark.parametrize("dtype", DTYPES)
def test_views_share_the_memory(dtype):
    store = ExpertStore(**SHAPE, dtype=dtype, bias=True, device="cpu")
    for part, shape in (("gate_up", (96, 64)), ("down", (64, 48)), ("gate_up_bias", (96,)),
                        ("down_bias", (64,))):
        view = getattr(store, part)(2, 3, like="torch")
        assert view.dtype == dtype and view.shape == shape
        view.fill_(-2)
        assert (getattr(store, part)(2, 3, like="torch") == -2).all()
    store.gate_up(2, 2, like="torch").fill_(7)
    assert (store.gate_up(2, 3, like="torch") == -2).all()


@pytest.mark.parametrize("policy", ["frequency", "lru"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_has_the_bits_of_moe(device, dtype, transposed, policy):
    """Whatever is in the cache: the calls need other experts every time, and some come again."""
    store, weights = filled(device, dtype, transposed=transposed, bias=transposed,
                            layout="interleaved" if transposed else "concatenated")
    with few_slots(store, policy=policy) as experts:
        for turn, tokens in enumerate((1, 9, 300, 2, 0, 64, 1, 9)):
            x, ids, w = tokens_of(device, dtype, turn % 5, tokens)
            layer = turn % 3
            out = torch.full_like(x, torch.nan)
            assert experts.forward(layer, x, ids, w, out) is out
            wanted = penstock.moe(x, ids=ids, weights=w, layout=store.layout, **weights[layer])
            if device == "cpu" and transposed:  # in another order than moe()
                torch.testing.assert_close(out, wanted, rtol=2e-2, atol=2e-2)
            else:
                assert torch.equal(out, wanted), (turn, tokens)
        experts.synchronize()
        counted = experts.statistics
    assert counted.calls == (7 if device == "cuda" else 8)  # a call without tokens needs nothing
    if device == "cuda":
        assert counted.misses > store.experts and counted.evicted > 0
        assert counted.needed == counted.hits + counted.late + counted.misses
        assert counted.bytes >= counted.misses * 3 * 64 * 48 * dtype.itemsize


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def test_balanced_is_not_deterministic(device, deterministic):
    store, _ = filled(device)
    on_gpu = device != "cpu"
    experts = few_slots(store, **({"host_experts": "balanced"} if on_gpu else {}))
    if not on_gpu:  # where the option is refused
        experts._repeatable = False
    arguments = 1, *tokens_of(device)
    with pytest.raises(Unsupported, match="^host_experts='balanced': results depend on .*use host_experts='fixed'"):
        experts.forward(*arguments)
    torch.use_deterministic_algorithms(True, warn_only=True)
    with pytest.warns(UserWarning, match="^host_experts='balanced': results depend on measured times"):
        experts.forward(*arguments)
    torch.use_deterministic_algorithms(False)
    assert experts.forward(*arguments).isfinite().all()


def test_fixed_is_deterministic(device, deterministic):
    store, _ = filled(device)
    on_gpu = device != "cpu"
    experts = few_slots(store, **({"host_experts": "fixed", "host_share": 0.5} if on_gpu else {}))
    arguments = 1, *tokens_of(device)
    assert torch.equal(experts.forward(*arguments), experts.forward(*arguments))


@pytest.mark.parametrize("host", [{"host_experts": "balanced"},
                                  {"host_experts": "fixed", "host_share": 0.5}])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_experts_on_the_host(gpu, dtype, transposed, host):
    """The results of moe() but for rounding; with a fixed share the same ones every time."""
    store, weights = filled(gpu, dtype, transposed=transposed, bias=transposed,
                            layout="interleaved" if transposed else "concatenated")
    first = {}
    with few_slots(store, records=100, **host) as experts:
        for turn in range(24):
            tokens = (1, 9, 300, 64)[turn % 4]
            x, ids, w = tokens_of(gpu, dtype, turn % 12, tokens)
            layer = turn % 3
            out = experts.forward(layer, x, ids, w)
            wanted = penstock.moe(x, ids=ids, weights=w, layout=store.layout, **weights[layer])
            size = wanted.abs().max().item()
            torch.testing.assert_close(out, wanted, rtol=0, atol=4 * torch.finfo(dtype).eps * max(size, 1)
                                       * (16 if dtype == torch.float32 else 1))
            if "host_share" in host:
                assert torch.equal(out, first.setdefault(turn % 12, out))
        experts.synchronize()
        counted, records = experts.statistics, experts.records
    assert counted.on_host > 0 and counted.failed_calls == 0
    assert counted.needed == counted.hits + counted.late + counted.misses + counted.on_host
    for record in records:
        assert record.on_host == 0 if record.tokens == 300 else record.on_host <= record.needed


@pytest.mark.parametrize("transposed", [False, True])
def test_compressed_experts_have_the_bits_of_moe(device, transposed):
    store = penstock.CompressedExpertStore(**SHAPE, bias=transposed, transposed=transposed, device=device)
    weights = []
    for layer, drawn in enumerate(draw_weights(1, bias=transposed, **SHAPE)):
        tensors = {part: torch.from_numpy(each).to(torch.bfloat16) for part, each in drawn.items()}
        for expert in range(store.experts):
            store.set(layer, expert, **{part: each[expert] for part, each in tensors.items()})
        if transposed:
            tensors |= {part: tensors[part].mT.contiguous().mT for part in ("gate_up", "down")}
        weights.append({part: each.to(device) for part, each in tensors.items()})
    with few_slots(store) as experts:
        for turn, tokens in enumerate((1, 9, 300, 2, 0, 64, 1, 9)):
            x, ids, w = tokens_of(device, torch.bfloat16, turn % 5, tokens)
            out = torch.full_like(x, torch.nan)
            experts.forward(turn % 3, x, ids, w, out)
            wanted = penstock.moe(x, ids=ids, weights=w, **weights[turn % 3])
            if device == "cpu" and transposed:  # in another order than moe()
                torch.testing.assert_close(out, wanted, rtol=2e-2, atol=2e-2)
            else:
                assert torch.equal(out, wanted), (turn, tokens)
        experts.synchronize()
        counted = experts.statistics
    assert counted.misses > store.experts and counted.failed_calls == 0
    assert 0 < counted.bytes < (counted.misses + counted.prefetched) * 3 * 64 * 48 * 2


def test_compressed_stores_take_bf16_tensors():
    store = penstock.CompressedExpertStore(**SHAPE, device="cpu")
    up, down = torch.zeros(96, 64, dtype=torch.bfloat16), torch.zeros(64, 48, dtype=torch.bfloat16)
    for wrong in (up.float(), up.T, None):
        with pytest.raises(InvalidArgument, match="gate_up: expected a "):
            store.set(0, 0, wrong, down)
    store.set(0, 0, torch.nn.Parameter(up), down)
    assert store.count == 1


def test_a_new_result_and_other_types_of_ids(device):
    store, weights = filled(device)
    x, ids, w = tokens_of(device, seed=2)
    with few_slots(store) as experts:
        for each in (ids, ids.to(torch.int32)):
            out = experts.forward(0, x, each, w.to(torch.bfloat16))
            wanted = penstock.moe(x, ids=each, weights=w.to(torch.bfloat16), **weights[0])
            assert torch.equal(out, wanted) and out.device == x.device


def test_on_another_stream(gpu):
    store, weights = filled(gpu, torch.bfloat16)
    x, ids, w = tokens_of(gpu, torch.bfloat16)
    stream = torch.cuda.Stream()
    with few_slots(store) as experts:
        for chosen in (None, stream):  # by the context, and by the argument
            out = torch.full_like(x, torch.nan)
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream if chosen is None else torch.cuda.current_stream()):
                experts.forward(1, x, ids, w, out, stream=chosen)
            torch.cuda.current_stream().wait_stream(stream)
            assert torch.equal(out, penstock.moe(x, ids=ids, weights=w, **weights[1]))


def test_cached_experts_are_hits(gpu):
    store, _ = filled(gpu)
    with StreamedExperts(store, device=gpu, device_bytes="64MiB", records=2) as experts:
        assert experts.slots == 120 and experts.device_bytes <= 64 << 20
        call = tokens_of(gpu)
        for _ in range(3):
            experts.forward(2, *call)
        experts.synchronize()
        counted, (before, last) = experts.statistics, experts.records
        assert counted.hits == 2 * counted.misses == 2 * last.needed and counted.evicted == 0
        assert counted.hit_rate == 2 / 3
        assert (last.layer, last.tokens, last.misses) == (2, 9, 0)
        assert before.enqueued_ns <= last.enqueued_ns <= last.routed_ns <= last.answered_ns
        experts.clear()
        experts.forward(2, *call)
        experts.synchronize()
        assert experts.statistics.misses == 2 * counted.misses


def test_pinned_experts_stay(gpu):
    store, _ = filled(gpu)
    x, _, w = tokens_of(gpu, tokens=1)
    pinned = torch.tensor([[3, 4]], device=gpu)
    with few_slots(store, pinned=[(0, 3), (0, 4)]) as experts:
        experts.forward(0, x, pinned, w)
        for seed in range(6):
            experts.forward(1, *tokens_of(gpu, seed=seed))
        experts.synchronize()
        before = experts.statistics
        experts.forward(0, x, pinned, w)
        experts.synchronize()
        assert experts.statistics.hits == before.hits + 2


@pytest.mark.parametrize("how", ["numbers", "ids", "tensor on the CPU"])
def test_prefetch(gpu, how):
    store, weights = filled(gpu)
    x, _, w = tokens_of(gpu, tokens=1)
    ids = torch.tensor([[31, 7]], device=gpu)
    predicted = {"numbers": ids[0].tolist(), "ids": ids, "tensor on the CPU": ids.cpu()}[how]
    with StreamedExperts(store, device=gpu, device_bytes="64MiB") as experts:
        experts.prefetch(1, predicted)
        end = time.monotonic() + 10
        while experts.statistics.prefetched < 2 and time.monotonic() < end:
            time.sleep(0.001)
        out = experts.forward(1, x, ids, w)
        experts.synchronize()
        counted = experts.statistics
        assert counted.prefetched == 2 and counted.hits + counted.late == 2 and counted.misses == 0
        assert torch.equal(out, penstock.moe(x, ids=ids, weights=w, **weights[1]))


class TestRefuses:
    def test_gradients(self, device):
        store, _ = filled(device)
        x, ids, w = tokens_of(device)
        with few_slots(store) as experts:
            with pytest.raises(Unsupported, match="x requires a gradient.*no_grad"):
                experts.forward(0, x.requires_grad_(), ids, w)
            with torch.no_grad():
                assert experts.forward(0, x, ids, w).isfinite().all()

    def test_arrays_of_other_libraries(self, device):
        store, _ = filled(device)
        x, ids, w = tokens_of(device)
        with few_slots(store) as experts, pytest.raises(InvalidArgument, match="ids: expected a torch"):
            experts.forward(0, x, ids.cpu().numpy(), w)

    def test_tracing(self, device):
        from torch._subclasses.fake_tensor import FakeTensorMode

        store, _ = filled(device)
        call = tokens_of(device)
        with few_slots(store) as experts, FakeTensorMode(allow_non_fake_inputs=True) as mode:
            with pytest.raises(Unsupported, match="cannot trace.*torch.compiler.disable"):
                experts.forward(0, *(mode.from_tensor(each) for each in call))

    def test_the_dtype_of_x(self, device):
        store, _ = filled(device, torch.bfloat16)
        x, ids, w = tokens_of(device, torch.float16)
        with few_slots(store) as experts, pytest.raises(InvalidArgument, match="bf16|f16"):
            experts.forward(0, x, ids, w)

    def test_tensors_elsewhere(self, gpu):
        for store_on, tensors_on in (("cuda", "cpu"), ("cpu", "cuda")):
            store, _ = filled(store_on)
            with few_slots(store) as experts:
                with pytest.raises(InvalidArgument, match="x: expected an array on"):
                    experts.forward(0, *tokens_of(tensors_on))

    def test_a_capture(self, gpu):
        store, weights = filled(gpu)
        x, ids, w = tokens_of(gpu)
        with few_slots(store) as experts:
            experts.forward(0, x, ids, w)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                doubled = x * 2
                with pytest.raises(Unsupported, match="captur"):
                    experts.forward(0, x, ids, w)
            graph.replay()
            assert torch.equal(doubled, x * 2)
            assert torch.equal(experts.forward(0, x, ids, w),
                               penstock.moe(x, ids=ids, weights=w, **weights[0]))

    def test_too_little_memory(self, gpu):
        store, _ = filled(gpu)
        least = store.least_bytes()
        with pytest.raises(InvalidArgument, match=f"device_bytes: expected at least {least} bytes"):
            StreamedExperts(store, device=gpu, device_bytes=least - 1)
        with pytest.raises(InvalidArgument, match="device_bytes: .*given None"):
            StreamedExperts(store, device=gpu)
        with pytest.raises(InvalidArgument, match="store: expected one in page-locked memory"):
            StreamedExperts(filled("cpu")[0], device=gpu, device_bytes="1GiB")
        StreamedExperts(store, device=gpu, device_bytes=least).close()


def test_closing_ends_calls_in_flight(gpu):
    store, _ = filled(gpu)
    experts = few_slots(store)
    for seed in range(20):
        experts.forward(seed % 3, *tokens_of(gpu, seed=seed))
    experts.close()
    torch.cuda.synchronize()
    with pytest.raises(penstock.ExpertsClosed):
        experts.forward(0, *tokens_of(gpu))


def test_memory_is_flat(device):
    """Many calls: nothing is kept per call."""
    store, _ = filled(device)
    call = tokens_of(device)
    with few_slots(store) as experts:
        def resident():
            text = open("/proc/self/status").read()
            return int(re.search(r"VmRSS:\s+(\d+)", text)[1])

        for _ in range(500):
            experts.forward(0, *call)
        experts.synchronize()
        before = resident()
        for _ in range(3000):
            experts.forward(0, *call)
        experts.synchronize()
        assert resident() - before < 8192
