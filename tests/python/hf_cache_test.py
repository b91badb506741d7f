"""penstock.hf.KVCache: transformers' generation with it, against its own DynamicCache.

Needs torch and transformers, on the CPU and, where there is one, on a GPU. With --require-gpu a
missing transformers is an error.
"""

import copy
from types import SimpleNamespace

import pytest

import penstock
import penstock.hf

torch = pytest.importorskip("torch", reason="torch is not installed here")

# With grouped heads and experts, latent vectors, windows, a capped softmax, and sinks.
NAMES = ("llama", "qwen3_moe", "deepseek_v3", "gemma2", "gpt_oss")


def generated(model, ids, cache, **options):
    return model.generate(ids, past_key_values=cache, **{"max_new_tokens": 12, "do_sample": False}
                          | options)


def forward(model, ids, cache):
    with torch.no_grad():
        return model(ids, past_key_values=cache).logits


@pytest.mark.parametrize("name, implementation", [
    (name, implementation) for name in NAMES for implementation in ("penstock", "sdpa", "eager")
    # torch's function has no capped softmax and no sinks.
    if implementation != "sdpa" or name not in ("gemma2", "gpt_oss")])
def test_generates_as_with_a_dynamic_cache(small, name, implementation, device):
    """A batch with padding on the left."""
    model, ids = small.build(name, device), small.prompt(device)
    model.set_attn_implementation(implementation)
    mask = torch.ones_like(ids)
    mask[1, :6] = 0
    cache = penstock.hf.KVCache(model.config, ahead=4)
    got = generated(model, ids, cache, attention_mask=mask)
    assert torch.equal(got, generated(model, ids, None, attention_mask=mask))
    assert cache.get_seq_length() == cache.rows.length(0) == got.shape[1] - 1


def test_holds_the_rows_of_a_dynamic_cache(small, device):
    from transformers import DynamicCache

    model, ids = small.build("qwen3_moe", device), small.prompt(device)
    ours, theirs = penstock.hf.KVCache(model.config), DynamicCache()
    for part in ids.split([10, 1, 7, 3], dim=1):
        torch.testing.assert_close(forward(model, part, ours), forward(model, part, theirs))
    for own, other in zip(ours.layers, theirs.layers):
        assert torch.equal(own.keys, other.keys) and torch.equal(own.values, other.values)


@pytest.mark.parametrize("implementation", ["penstock", "eager"])
def test_beams(small, implementation, device):
    model, ids = small.build("llama", device), small.prompt(device)
    model.set_attn_implementation(implementation)
    options = {"num_beams": 3, "num_return_sequences": 2}
    got = generated(model, ids, penstock.hf.KVCache(model.config), **options)
    assert torch.equal(got, generated(model, ids, None, **options))


def test_continues_a_generation(small, device):
    from transformers import DynamicCache

    model, ids = small.build("llama", device), small.prompt(device)
    results = []
    for cache in (penstock.hf.KVCache(model.config), DynamicCache()):
        first = generated(model, ids, cache)
        longer = torch.cat((first, ids[:, :4]), 1)
        results.append(generated(model, longer, cache, attention_mask=torch.ones_like(longer)))
    assert torch.equal(*results)


def test_crop_and_reset(small, device):
    model, ids = small.build("llama", device), small.prompt(device)
    cache = penstock.hf.KVCache(model.config)
    wanted = forward(model, ids, None)
    forward(model, ids, cache)
    cache.crop(-5)
    assert cache.get_seq_length() == 16
    torch.testing.assert_close(forward(model, ids[:, 16:], cache), wanted[:, 16:])
    cache.crop(8)
    cache.crop(30)
    assert [cache.get_seq_length(layer) for layer in range(len(cache))] == [8, 8]
    cache.reset()
    cache.rows.shrink()
    torch.testing.assert_close(forward(model, ids, cache), wanted)
    cache.reset()  # then another batch fits
    torch.testing.assert_close(forward(model, ids[:1], cache), wanted[:1])


def test_sequences_can_be_selected(small, device):
    model, ids = small.build("llama", device), small.prompt(device, batch=3)
    wanted = forward(model, ids, None)[:, 20:]
    cache = penstock.hf.KVCache(model.config)
    forward(model, ids[:, :20], cache)
    cache.reorder_cache(torch.tensor([2, 0, 0]))
    torch.testing.assert_close(forward(model, ids[[2, 0, 0], 20:], cache), wanted[[2, 0, 0]])
    cache.crop(-1)
    cache.batch_select_indices(torch.tensor([1]))
    torch.testing.assert_close(forward(model, ids[[0], 20:], cache), wanted[[0]])
    cache.crop(-1)
    cache.batch_repeat_interleave(4)
    torch.testing.assert_close(forward(model, ids[[0] * 4, 20:], cache), wanted[[0] * 4])


def test_a_copy_is_independent(small, device):
    """As for prompts that several generations begin with."""
    model, ids = small.build("llama", device), small.prompt(device)
    wanted = forward(model, ids, None)
    prompt = penstock.hf.KVCache(model.config)
    with torch.inference_mode():
        model(ids[:, :15], past_key_values=prompt)
    for _ in range(2):
        cache = copy.deepcopy(prompt)
        torch.testing.assert_close(forward(model, ids[:, 15:], cache), wanted[:, 15:])
        cache.reorder_cache(torch.tensor([1, 0]))
    assert prompt.get_seq_length() == 15
    assert copy.deepcopy(penstock.hf.KVCache(model.config)).get_seq_length() == 0


def test_a_full_cache_names_its_capacity(small, device):
    model, ids = small.build("llama", device), small.prompt(device)
    cache = penstock.hf.KVCache(model.config, capacity=25)
    assert cache.get_max_length() == 25
    with pytest.raises(penstock.InvalidArgument, match="a capacity of 25"):
        generated(model, ids, cache)
    assert penstock.hf.KVCache(model.config).get_max_length() == 128


def test_refusals(small):
    model, ids = small.build("llama"), small.prompt()
    cache = penstock.hf.KVCache(model.config)
    with pytest.raises(penstock.Unsupported, match="KVCache.append: k requires a gradient"):
        model(ids, past_key_values=cache)
    forward(model, ids, cache)
    with pytest.raises(penstock.Unsupported, match="layer 0 has sequences 1, but the cache has seq"):
        forward(model, ids[:1], cache)
    with pytest.raises(penstock.Unsupported, match="crop of one layer"):
        cache.layers[0].crop(-1)
    config = small.build("llama").config
    config.layer_types = ["full_attention", "linear_attention"]
    with pytest.raises(penstock.Unsupported, match=r"found \['linear_attention'\]"):
        penstock.hf.KVCache(config)
    text = SimpleNamespace(num_hidden_layers=2)
    with pytest.raises(penstock.InvalidArgument, match="^capacity: "):
        penstock.hf.KVCache(SimpleNamespace(get_text_config=lambda decoder: text))


@pytest.mark.parametrize("prefetch", ["none", "gate"])
def test_with_streamed_experts(small, tmp_path, device, prefetch):
    """penstock.hf.load's models: the experts are streamed and the cache grows in place, in one generation."""
    small.build("qwen3_moe").save_pretrained(tmp_path)
    ids, plain = small.prompt(device), small.build("qwen3_moe", device)
    plain.set_experts_implementation("eager")
    model = penstock.hf.load(tmp_path, gpu_memory="1GiB", device=device, progress=False, prefetch=prefetch,
                             attn_implementation="penstock")
    mask = torch.ones_like(ids)
    mask[1, :6] = 0
    cache = penstock.hf.KVCache(model.config, ahead=4)
    got = generated(model, ids, cache, attention_mask=mask, max_new_tokens=24)
    assert torch.equal(got, generated(plain, ids, None, attention_mask=mask, max_new_tokens=24))
    assert cache.get_seq_length() == got.shape[1] - 1
    assert model.streamed_experts.statistics.calls >= 24 * model.streamed_experts.store.layers
    # A second generation continues with the rows of the first one.
    longer = torch.cat((got, ids[:, :4]), 1)
    more = torch.nn.functional.pad(mask, (0, longer.shape[1] - mask.shape[1]), value=1)
    assert torch.equal(generated(model, longer, cache, attention_mask=more),
                       generated(plain, longer, None, attention_mask=more))
