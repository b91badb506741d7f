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


def test_compiled(small):
    torch.compiler.reset()
    model, ids = small.build("qwen3_moe"), small.prompt()
    wanted = logits(model, "penstock", ids)
    compiled = torch.compile(model, backend="aot_eager")
    with torch.no_grad():
        close(compiled(ids, use_cache=False).logits, wanted)


def test_has_no_backward_and_no_dropout(small):
    model, ids = small.build("qwen3_moe"), small.prompt()
    model.set_attn_implementation("penstock")
    with pytest.raises(penstock.Unsupported, match="attention: q requires a gradient"):
        model(ids)
    model = small.build("qwen3_moe", attention_dropout=0.1).train()
    model.set_attn_implementation("penstock")
    with pytest.raises(penstock.Unsupported, match="no dropout"), torch.no_grad():
        model(ids)
