"""penstock.hf: the attention of transformers models in bf16, with the head dimension of real models and
prompts beyond the sliding window, against transformers' own in f32.

hf_attention_test.py has models in f32, for which there is one kernel only.
"""

import copy

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed here")

# With a capped softmax, and with sinks. Every token has all experts, so that no rounding changes which.
MODELS = {"gemma2": {"query_pre_attn_scalar": 64, "attn_logit_softcapping": 5.0},
          "gpt_oss": {"num_local_experts": 2, "num_experts_per_tok": 2}}
TOKENS = 171
PADDING = (0, 9, 60)  # tokens on the left of every sequence


@pytest.fixture(params=MODELS)
def model(request, small, device):
    made = small.build(request.param, device, torch.bfloat16, head_dim=64, sliding_window=40,
                       max_position_embeddings=512, **MODELS[request.param])
    made.set_experts_implementation("eager")
    with torch.no_grad():
        for name, each in made.named_parameters():
            if name.endswith("sinks"):
                each.copy_(torch.linspace(-1, 3, len(each)))
    return made


@torch.no_grad()
def logits(model, implementation, ids, mask, parts):
    """Of a prompt that is passed in parts of these lengths."""
    model.set_attn_implementation(implementation)
    found, cache, end = [], None, 0
    for part in ids.split(parts, dim=1):
        end += part.shape[1]
        out = model(part, attention_mask=mask[:, :end], past_key_values=cache, use_cache=True)
        found.append(out.logits.double())
        cache = out.past_key_values
    return torch.cat(found, dim=1)


# With few queries beside many keys, attention is computed by the kernels for decoding.
@pytest.mark.parametrize("parts", [[TOKENS], [TOKENS - 31, 30, 1], [50, TOKENS - 66, 16]],
                         ids=["whole", "then-one", "chunks"])
@pytest.mark.parametrize("padded", [False, True])
def test_as_eager_in_f32(small, model, device, parts, padded):
    ids = small.prompt(device, batch=len(PADDING), tokens=TOKENS)
    mask = torch.ones_like(ids)
    for row, count in zip(mask, PADDING if padded else ()):
        row[:count] = 0
    exact = logits(copy.deepcopy(model).float(), "eager", ids, mask, [TOKENS])
    errors = {}
    for implementation in ("penstock", "eager"):
        found = logits(model, implementation, ids, mask, parts)
        assert found.isfinite().all()
        errors[implementation] = (found - exact)[mask.bool()].abs()
    scale = torch.finfo(torch.bfloat16).eps * exact.abs().max()
    assert errors["penstock"].max() <= 2 * errors["eager"].max() + scale
    assert errors["penstock"].mean() <= 1.1 * errors["eager"].mean() + 0.1 * scale
