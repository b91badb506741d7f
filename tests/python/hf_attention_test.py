"""penstock.hf: transformers models whose attention Penstock computes, against transformers' own.

Needs torch and transformers, on the CPU and, where there is one, on a GPU. With --require-gpu a
missing transformers is an error.
"""

import pytest

import penstock
import penstock.hf

torch = pytest.importorskip("torch", reason="torch is not installed here")

# With grouped heads, a window and sinks, a value dimension of its own, and a capped softmax.
NAMES = ("qwen3_moe", "gpt_oss", "deepseek_v3", "gemma2")


def logits(model, implementation, ids, **options):
    model.set_attn_implementation(implementation)
    with torch.no_grad():
        return model(ids, use_cache=False, **options).logits


def close(got, wanted):
    torch.testing.assert_close(got, wanted, rtol=0, atol=2e-4)


@pytest.mark.parametrize("name", NAMES)
def test_as_eager(small, name, device):
    model, ids = small.build(name, device), small.prompt(device)
    close(logits(model, "penstock", ids), logits(model, "eager", ids))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding(small, name, side, device):
    model, ids = small.build(name, device), small.prompt(device, batch=3)
    mask = torch.ones_like(ids)
    for row, count in enumerate((0, 4, 20)):
        mask[row, slice(0, count) if side == "left" else slice(21 - count, 21)] = 0
    there = mask.bool()
    got = logits(model, "penstock", ids, attention_mask=mask)
    wanted = logits(model, "eager", ids, attention_mask=mask)
    close(got[there], wanted[there])
    assert got.isfinite().all()


def test_a_mask_without_padding_is_none(small):
    """generate() always makes one. None lets every layer attend without limits."""
    from penstock._hf_attention import mask
    from transformers.masking_utils import bidirectional_mask_function

    whole, short = torch.ones(2, 5, dtype=torch.long), torch.ones(2, 4, dtype=torch.long)
    assert mask(2, 3, 5, 2, attention_mask=whole) is None
    assert mask(2, 5, 5, 0, attention_mask=whole, mask_function=bidirectional_mask_function) is None
    got = mask(2, 5, 5, 0, attention_mask=short, mask_function=bidirectional_mask_function)
    assert got[:, 0, 0].tolist() == [[0, 4]] * 2
    padded = whole.clone()
    padded[1, :2] = 0
    assert mask(2, 3, 5, 2, attention_mask=padded)[:, 0, 0].tolist() == [[0, 5], [2, 5]]
    # A static cache is longer than what it holds.
    assert mask(2, 1, 9, 4, attention_mask=whole)[:, 0, 0].tolist() == [[0, 5]] * 2


@pytest.fixture
def as_if_on_a_gpu(small, monkeypatch):
    """Masks seem to be on a GPU. Flags arrive on the host before the next call, or when it is told so."""
    from penstock import _hf_attention

    class Flag:
        arrive = True

        def __init__(self, flag):
            self.flag = bool(flag)

        def value(self):
            return self.flag if Flag.arrive else None

    monkeypatch.setattr(_hf_attention, "_Flag", Flag)
    monkeypatch.setattr(_hf_attention, "_waits", lambda tensor: True)
    monkeypatch.setattr(_hf_attention, "_generation", _hf_attention._Generation())
    return Flag


@pytest.fixture
def masks(as_if_on_a_gpu, monkeypatch):
    """mask() of the next calls of a generation: its limits and how many times the host read a mask."""
    from penstock import _hf_attention

    reads = []

    def read(flags):
        reads.append(flags)
        return flags.tolist()

    monkeypatch.setattr(_hf_attention, "_read", read)

    def call(rows, queries, window=None, **others):
        there = torch.tensor(rows, dtype=torch.bool)
        batch, keys = there.shape
        first = max(0, keys - window) if window else 0
        if window:
            others["mask_function"] = masking_utils().sliding_window_causal_mask_function(window)
        reads.clear()
        got = _hf_attention.mask(batch, queries, keys - first, keys - queries, first,
                                 attention_mask=there, device="cpu", **others)
        limits = got if got is None or got.dtype == torch.bool else got[:, 0, 0].tolist()
        return limits, len(reads)

    return call


def masking_utils():
    from transformers import masking_utils

    return masking_utils


def left(*padding, columns):
    return [[0] * count + [1] * (columns - count) for count in padding]


def test_masks_of_a_generation_are_not_read(masks):
    assert masks(left(0, 3, columns=7), 7) == ([[0, 7], [3, 7]], 2)
    for columns in range(8, 20):
        assert masks(left(0, 3, columns=columns), 1) == ([[0, columns], [3, columns]], 0)
    # A sequence that has ended may be hidden from then on.
    assert masks([[1] * 20, [0] * 3 + [1] * 16 + [0]], 1) == ([[0, 20], [3, 20]], 0)
    assert masks([[1] * 21, [0] * 3 + [1] * 16 + [0] * 2], 1) == ([[0, 21], [3, 21]], 0)


def test_masks_of_a_generation_without_padding_are_not_read(masks):
    assert masks(left(0, 0, columns=7), 7) == (None, 1)
    assert masks(left(0, 0, columns=8), 1) == ([[0, 8], [0, 8]], 0)


def test_other_masks_than_the_next_one_are_read(masks):
    prompt = left(0, 3, columns=7)
    for rows, queries, others in ((left(0, 3, columns=9), 1, {}), (left(0, 3, columns=7), 1, {}),
                                  (left(0, 3, 1, columns=8), 1, {}), (left(0, 3, columns=8), 2, {}),
                                  (left(0, 3, columns=8), 1, {"config": object()})):
        masks(prompt, 7)
        limits, reads = masks(rows, queries, **others)
        assert reads == 2 and limits == [[row.index(1), len(row)] for row in rows]


def test_another_sequence_in_between_gets_its_own_limits(masks):
    masks(left(0, 3, columns=7), 7)
    masks(left(2, 0, columns=7), 7)
    assert masks(left(0, 3, columns=8), 1)[0] == [[0, 8], [3, 8]]
    assert masks(left(2, 0, columns=8), 1)[0] == [[2, 8], [0, 8]]
    assert masks(left(0, 3, columns=9), 1)[0] == [[0, 9], [3, 9]]


def test_full_and_sliding_masks_of_one_pass_are_not_read(masks):
    for window in (None, 5):
        masks(left(0, 3, columns=7), 7, window)
    reads = {}
    for columns in range(8, 20):
        for window, limits in ((None, [[0, columns], [3, columns]]), (5, [[0, 5], [max(0, 8 - columns), 5]])):
            got, count = masks(left(0, 3, columns=columns), 1, window)
            assert got == limits or got is None and columns > 7 + 3
            reads.setdefault(window, []).append(count)
    assert not any(map(sum, reads.values()))


def test_padding_on_the_right_of_a_prompt_is_read_at_every_step(masks):
    assert masks([[1] * 7, [1] * 4 + [0] * 3], 7) == ([[0, 7], [0, 7]], 2)
    for columns in (8, 9):
        got, reads = masks([[1] * columns, [1] * 4 + [0] * 3 + [1] * (columns - 7)], 1)
        assert got.dtype == torch.bool and reads == 2


@pytest.mark.parametrize("late", [0, 1, 4])
@pytest.mark.parametrize("window", [None, 5])
def test_rows_that_are_hidden_later_are_an_error_one_step_late(masks, as_if_on_a_gpu, window, late):
    """Or `late` steps more, if the host is ahead of the GPU by as many."""
    masks(left(0, 3, columns=7), 7, window)
    masks(left(0, 3, columns=8), 1, window)
    with pytest.raises(penstock.Unsupported, match="attention_mask: expected the padding of the prompt"):
        for columns in range(9, 30):
            rows = left(0, 3, columns=columns)
            rows[0][7] = 0
            as_if_on_a_gpu.arrive = columns > 9 + late
            masks(rows, 1, window)
    assert columns == 10 + late
    rows = [[*row, 1] for row in rows]
    got, reads = masks(rows, 1)
    assert got.dtype == torch.bool and reads == 2  # from there on, torch's function gets them


@pytest.mark.parametrize("name", ["qwen3_moe", "gemma2"])
@pytest.mark.parametrize("cache", [None, "static"])
@pytest.mark.usefixtures("as_if_on_a_gpu")
def test_generates_as_eager_without_reading_masks(small, name, cache, monkeypatch):
    from penstock import _hf_attention

    found, original = [], _hf_attention._behind_padding
    monkeypatch.setattr(_hf_attention, "_behind_padding",
                        lambda *given: found.append(given) or original(*given))
    test_generates_as_eager(small, name, cache, "cpu")
    assert len(found) >= 7


@pytest.mark.parametrize("device", [pytest.param("cuda", marks=pytest.mark.gpu)], indirect=True)
def test_a_generated_token_does_not_wait_for_the_gpu(small, device):
    from penstock._hf_attention import mask

    there = torch.tensor(left(0, 3, columns=8), dtype=torch.bool, device=device)
    mask(2, 7, 7, 0, attention_mask=there[:, :7], device=device)
    torch.cuda.set_sync_debug_mode("error")
    try:
        got = mask(2, 1, 8, 7, attention_mask=there, device=device)
        mask(2, 1, 20, 7, device=device)
        hiding = torch.nn.functional.pad(there, (0, 1), value=True)
        hiding[0, 5].zero_()
        mask(2, 1, 9, 8, attention_mask=hiding, device=device)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert got[:, 0, 0].tolist() == [[0, 8], [3, 8]]
    torch.cuda.synchronize()
    with pytest.raises(penstock.Unsupported, match="attention_mask"):
        mask(2, 1, 10, 9, attention_mask=torch.nn.functional.pad(hiding, (0, 1), value=True), device=device)


@pytest.mark.parametrize("name", ("qwen3_moe", "deepseek_v3"))
def test_masks_of_other_kinds_go_to_torch(small, name, device):
    model, ids = small.build(name, device), small.prompt(device)
    mask = torch.ones_like(ids)
    mask[1, 5:9] = 0
    there = mask.bool()
    close(logits(model, "penstock", ids, attention_mask=mask)[there],
          logits(model, "eager", ids, attention_mask=mask)[there])
    packed = torch.cat((torch.arange(9), torch.arange(12))).to(device).expand(2, 21)
    close(logits(model, "penstock", ids, position_ids=packed),
          logits(model, "eager", ids, position_ids=packed))


def attend(implementation, dim, dtype, queries, mask, window, **options):
    from types import SimpleNamespace

    from penstock import _hf_attention
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    torch.manual_seed(1)
    q = torch.randn(2, 4, queries, dim, dtype=dtype)
    k, v = (torch.randn(2, 2, 9, dim, dtype=dtype) for _ in "kv")
    module = SimpleNamespace(is_causal=True, num_key_value_groups=2)
    if implementation == "penstock":
        return _hf_attention.attention(module, q, k, v, mask, sliding_window=window, **options)[0]
    return sdpa_attention_forward(module, q, k, v, mask, **options)[0]


@pytest.mark.parametrize("dim, dtype", [(264, torch.float32), (16, torch.float64)])
@pytest.mark.parametrize("queries", [1, 4, 9])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("window", [None, 3])
def test_what_penstock_does_not_take_goes_to_torch(small, dim, dtype, queries, padded, window):
    from penstock._hf_attention import mask

    there = torch.ones(2, 9, dtype=torch.long)
    there[1, :4] = 0 if padded else 1
    limits = mask(2, queries, 9, 9 - queries, attention_mask=there)
    keys, positions = torch.arange(9), torch.arange(9 - queries, 9)[:, None]
    wanted = (keys <= positions) & there.bool()[:, None, None]
    if window:
        wanted = wanted & (keys > positions - window)
    rows = wanted.any(-1)[:, 0]
    got = attend("penstock", dim, dtype, queries, limits, window)
    assert got.isfinite().all() and got.dtype == dtype
    torch.testing.assert_close(got[rows], attend("sdpa", dim, dtype, queries, wanted, None)[rows])
    with pytest.raises(penstock.Unsupported, match=f"with dimensions {dim} and {dim}"):
        attend("penstock", dim, dtype, queries, limits, window, softcap=20.0)


@pytest.mark.parametrize("options", [{}, {"softcap": 20.0}, {"s_aux": torch.zeros(4)}])
def test_f32_on_a_gpu_goes_to_torch_if_it_can(monkeypatch, options):
    from penstock import _attention_torch, _hf_attention

    runs, run = [], _attention_torch._run
    monkeypatch.setattr(_attention_torch, "_run", lambda *given: runs.append(1) or run(*given))
    wanted = attend("penstock", 16, torch.float32, 4, None, 3, **options)
    monkeypatch.setattr(_hf_attention, "has_slow_kernel", lambda tensor: True)
    torch.testing.assert_close(attend("penstock", 16, torch.float32, 4, None, 3, **options), wanted)
    assert len(runs) == (2 if options else 1)


def test_only_masks_of_its_own_are_limits(small):
    ours = torch.tensor([[0, 9], [3, 9]], dtype=torch.int32)[:, None, None]
    there = torch.arange(9) >= ours[..., :1]
    expected = attend("sdpa", 16, torch.float32, 1, there, None)
    torch.testing.assert_close(attend("penstock", 16, torch.float32, 1, ours, None), expected)
    with pytest.raises(RuntimeError, match="attn_mask"):  # torch's function takes no such mask
        attend("penstock", 16, torch.float32, 1, there.int(), None)


def test_sinks_take_no_other_masks(small):
    model, ids = small.build("gpt_oss"), small.prompt()
    mask = torch.ones_like(ids)
    mask[1, 5:9] = 0
    with pytest.raises(penstock.Unsupported, match="softcap or sinks"):
        logits(model, "penstock", ids, attention_mask=mask)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("cache", [None, "static"])
def test_generates_as_eager(small, name, cache, device):
    """From a batch with padding on the left, beyond the sliding windows of these models."""
    model, ids = small.build(name, device), small.prompt(device, batch=2)
    mask = torch.ones_like(ids)
    mask[1, :6] = 0
    tokens = []
    for implementation in ("eager", "penstock"):
        model.set_attn_implementation(implementation)
        tokens.append(model.generate(ids, attention_mask=mask, max_new_tokens=8, do_sample=False,
                                     cache_implementation=cache, disable_compile=True))
    assert torch.equal(*tokens)


def test_compiled(small, device):
    torch.compiler.reset()
    model, ids = small.build("qwen3_moe", device), small.prompt(device)
    wanted = logits(model, "penstock", ids)
    compiled = torch.compile(model, backend="aot_eager")
    with torch.no_grad():
        close(compiled(ids, use_cache=False).logits, wanted)


def test_a_compiled_model_decodes_with_penstock(small, monkeypatch):
    """generate() makes the masks of a static cache before the compiled forward pass."""
    from penstock import _attention_torch

    torch.compiler.reset()
    model, ids = small.build("gemma2", num_hidden_layers=1), small.prompt(batch=2)
    mask = torch.ones_like(ids)
    mask[1, :6] = 0
    runs, run = [], _attention_torch._run
    monkeypatch.setattr(_attention_torch, "_run", lambda *given: runs.append(1) or run(*given))
    tokens = []
    for implementation in ("eager", "penstock"):
        model.set_attn_implementation(implementation)
        tokens.append(model.generate(ids, attention_mask=mask, max_new_tokens=3, do_sample=False,
                                     cache_implementation="static", disable_compile=True))
        model.forward = torch.compile(model.forward, backend="eager")
    assert torch.equal(*tokens) and len(runs) == 3


def test_has_no_backward_and_no_dropout(small):
    model, ids = small.build("qwen3_moe"), small.prompt()
    model.set_attn_implementation("penstock")
    with pytest.raises(penstock.Unsupported, match="attention: q requires a gradient"):
        model(ids)
    model = small.build("qwen3_moe", attention_dropout=0.1).train()
    model.set_attn_implementation("penstock")
    with pytest.raises(penstock.Unsupported, match="no dropout"), torch.no_grad():
        model(ids)
